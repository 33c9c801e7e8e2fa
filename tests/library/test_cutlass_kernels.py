"""``cutlass`` composites as kernels of our own, in the emulator."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.relax.backend.cuda import flashinfer
from relaxish.relax.backend.cuda.cutlass import partition_for_cutlass
from relaxish.runtime.nvidia import providers
from relaxish.script import ir as I
from relaxish.script import relax as R

pytest.importorskip("llvmlite")


@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor((32, 64), "float16"), w: R.Tensor((48, 64), "float16"), b: R.Tensor((48,), "float16")):
        with R.dataflow():
            y = R.matmul(x, R.permute_dims(w))
            z = R.nn.relu(R.add(y, b))
            e = R.exp(z)
            R.output(e)
        return e


@I.ir_module
class Attention:
    @R.function
    def main(
        q: R.Tensor((1, 6, 2, 8), "float32"), k: R.Tensor((1, 7, 2, 8), "float32"), v: R.Tensor((1, 7, 2, 8), "float32")
    ):
        with R.dataflow():
            out = R.nn.attention(q, k, v)
            R.output(out)
        return out


def run(mod, *arrays, **options):
    made = relax.transform.RunCodegen({"cutlass": options})(partition_for_cutlass(mod))
    (module,) = made.attrs["external_mods"]
    with providers.use("emulator"):
        vm = relaxish.VirtualMachine(relaxish.build(made, target="cuda"), relaxish.cuda())
        return module, vm["main"](*(relaxish.nd.array(a, relaxish.cuda()) for a in arrays)).numpy()


def test_a_layer():
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype("float16") * np.float16(0.1) for s in ((32, 64), (48, 64), (48,)))
    module, out = run(Layer, x, w, b, sm=80)
    want = np.exp(np.maximum(x.astype("float32") @ w.T.astype("float32") + b, 0))
    np.testing.assert_allclose(out, want, rtol=1e-2)
    (kernels,) = module.imported_modules
    assert kernels.arch == "sm_80" and "__global__" in kernels.get_source()


def test_an_attention_takes_several_kernels():
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, n, 2, 8)).astype("float32") for n in (6, 7, 7))
    module, out = run(Attention, q, k, v)
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(8)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(out, np.einsum("bhqk,bkhd->bqhd", weights, v), rtol=1e-4, atol=1e-5)
    assert module.type_key == "cutlass"


def test_flashinfer_is_not_there():
    target = relaxish.Target("cuda")
    for make in (flashinfer.gen_flashinfer_prefill_module, flashinfer.gen_flashinfer_decode_module):
        with pytest.raises(flashinfer.FlashInferMissing, match="TIRPagedKVCache"):
            make("float16", "float16", "float16", 64, 64, target)
    with pytest.raises(NotImplementedError):
        flashinfer.gen_sampling_module(target)
