"""Exported files that hold kernels of code generators and of one's own."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.relax.backend.cuda.cutlass import partition_for_cutlass
from relaxish.runtime import registry
from relaxish.runtime.nvidia import providers
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T

pytest.importorskip("llvmlite")

SCALE = 'extern "C" __global__ void twice(float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }\n'


def attention_kernels():
    @I.ir_module
    class Attention:
        @R.function
        def main(
            q: R.Tensor((1, 6, 2, 8), "float32"),
            k: R.Tensor((1, 7, 2, 8), "float32"),
            v: R.Tensor((1, 7, 2, 8), "float32"),
        ):
            with R.dataflow():
                out = R.nn.attention(q, k, v)
                R.output(out)
            return out

    made = relax.transform.RunCodegen({"cutlass": {}})(partition_for_cutlass(Attention))
    return relaxish.build(made, target="cuda")


@pytest.mark.parametrize("name", ["model.so", "model.tar"])
def test_kernels_of_a_code_generator(name, tmp_path):
    attention_kernels().export_library(tmp_path / name)
    loaded = relaxish.runtime.load_module(tmp_path / name)
    (module,) = loaded.external_modules
    assert module.type_key == "cutlass" and "__global__" in module.imported_modules[0].get_source()
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, n, 2, 8)).astype("float32") for n in (6, 7, 7))
    with providers.use("emulator"):
        machine = relaxish.VirtualMachine(loaded, relaxish.cuda())
        out = machine["main"](*(relaxish.nd.array(a, relaxish.cuda()) for a in (q, k, v))).numpy()
    weights = np.exp(np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(8))
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(out, np.einsum("bhqk,bkhd->bqhd", weights, v), rtol=1e-4, atol=1e-5)


def own_kernel(with_graph: bool):
    @I.ir_module
    class Kernel:
        @T.prim_func
        def double(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
            T.func_attr({"tir.is_scheduled": True})
            with T.block("root"):
                T.reads()
                T.writes()
                T.call_kernel(SCALE, ((1,), (64,)), x.data, y.data, kernel_name="twice")

    if not with_graph:
        return Kernel
    x = relax.Var("x", R.Tensor((64,), "float32"))
    builder = relax.BlockBuilder(Kernel)
    with builder.function("main", [x]):
        double = Kernel.get_global_var("double")
        builder.emit_func_output(builder.emit(relax.call_tir(double, x, R.Tensor((64,), "float32"))))
    return builder.get().with_attrs(Kernel.attrs)


@pytest.mark.parametrize("name", ["kernels.so", "kernels.tar"])
@pytest.mark.parametrize("with_graph", [False, True])
def test_kernels_of_ones_own(with_graph, name, tmp_path):
    """A device that computes nothing shows that the kernel is found and launched from the file alone."""
    built = relaxish.build(own_kernel(with_graph), target="cuda -arch=sm_90")
    built.export_library(tmp_path / name)
    registry.remove_global_func("twice")
    loaded = relaxish.runtime.load_module(tmp_path / name)
    kernels = registry.get_global_func("twice").module
    assert kernels.get_source() == SCALE
    with providers.use("null"):
        x, y = (relaxish.nd.array(np.ones(64, "float32"), relaxish.cuda()) for _ in range(2))
        if with_graph:
            assert relaxish.VirtualMachine(loaded, relaxish.cuda())["main"](x).shape == (64,)
        else:
            loaded["double"](x, y)
