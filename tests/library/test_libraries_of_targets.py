"""``-libs=...``: which parts of a model go to the libraries of a target, in its default pipelines and builds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish.pipeline import library_dispatch_passes
from relaxish.relax.dpl import is_op, wildcard
from relaxish.runtime.kernels.mkl import use_mkl
from relaxish.runtime.nvidia.libs.loading import use_library
from relaxish.runtime.registry import register_func
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.support.errors import MissingExtraError, RelaxishError
from relaxish.support.host_cpu import host_triple
from relaxish.target import Target
from relaxish.testing import use_cuda_provider
from relaxish.testing.fake_cublaslt import FakeCublasLt


@I.ir_module
class Products:
    @R.function
    def main(
        x: R.Tensor((2, "n", 8), "float32"),
        w: R.Tensor((8, 6), "float32"),
        b: R.Tensor((6,), "float32"),
        v: R.Tensor((5, 6), "float32"),
    ):
        with R.dataflow():
            a = R.matmul(x, w)
            c = R.add(a, b)
            d = R.nn.relu(c)
            e = R.matmul(d, R.permute_dims(v, [1, 0]))
            f = R.exp(e)
            R.output(f)
        return f


class NumPyBlas:
    """What MKL does for compact matrices, done by NumPy; counts its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int]] = []

    def _gemm(self, order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        assert (order, trans_a, alpha.value, beta.value) == (101, 111, 1.0, 0.0)
        self.calls.append((m, n, k))
        left = np.ctypeslib.as_array(a, (m, lda))[:, :k]
        right = np.ctypeslib.as_array(b, (n, ldb)).T if trans_b == 112 else np.ctypeslib.as_array(b, (k, ldb))
        np.ctypeslib.as_array(c, (m, ldc))[:, :n] = left @ right

    cblas_sgemm = cblas_dgemm = _gemm


def _inputs(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=s).astype("float32") for s in ((2, n, 8), (8, 6), (6,), (5, 6))]


def _expected(x: Any, w: Any, b: Any, v: Any) -> np.ndarray:
    return np.exp(np.maximum(x @ w + b, 0) @ v.T)


@pytest.mark.parametrize("dynamic", [True, False])
def test_products_of_a_processor_go_to_mkl(dynamic: bool, tmp_path: Any) -> None:
    blas = NumPyBlas()
    mod = Products if dynamic else relaxish.relax.transform.BindSymbolicVars({"n": 3})(Products)
    with use_mkl(blas):
        executable = relaxish.build(mod, "llvm -libs=mkl")
        executable.export_library(tmp_path / "model.so")
        for program in (executable, relaxish.runtime.load_module(tmp_path / "model.so")):
            blas.calls.clear()
            inputs = _inputs(3)
            out = relaxish.VirtualMachine(program, relaxish.cpu())["main"](*map(relaxish.nd.array, inputs))
            np.testing.assert_allclose(out.numpy(), _expected(*inputs), rtol=1e-4)
            assert blas.calls == [(6, 6, 8), (6, 5, 6)]


def test_without_the_library_the_products_are_generated() -> None:
    blas = NumPyBlas()
    with use_mkl(blas):
        executable = relaxish.build(Products, "llvm")
    inputs = _inputs(4)
    out = relaxish.VirtualMachine(executable, relaxish.cpu())["main"](*map(relaxish.nd.array, inputs))
    np.testing.assert_allclose(out.numpy(), _expected(*inputs), rtol=1e-4)
    assert not blas.calls
    assert not executable.external_modules


def test_products_of_a_gpu_go_to_cublas() -> None:
    with use_library("cublasLt", FakeCublasLt()):
        executable = relaxish.build(Products, "cuda -arch=sm_80 -libs=cublas")
    assert [m.type_key for m in executable.external_modules] == ["cublas"]
    steps = [s.kernel for p in executable.external_modules[0].programs.values() for s in p.steps]
    assert steps == ["cublas.gemm", "cublas.gemm"]


def test_libraries_of_a_composition_hold_for_its_devices() -> None:
    target = Target({"host": "llvm", "vdevice0": "cuda -arch=sm_80", "library": "cublas"})
    with use_library("cublasLt", FakeCublasLt()):
        executable = relaxish.build(Products, target)
    assert [m.type_key for m in executable.external_modules] == ["cublas"]


def test_a_library_gets_nothing_of_other_devices() -> None:
    @I.ir_module
    class Two:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.hint_on_device(a, relaxish.cpu(0))
                v = R.hint_on_device(w, relaxish.cpu(0))
                c = R.matmul(b, v)
                R.output(c)
            return c

    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(4, 8)).astype("float32"), rng.normal(size=(8, 8)).astype("float32")
    with use_cuda_provider("emulator"), use_library("cublasLt", FakeCublasLt()):
        executable = relaxish.build(Two, ["cuda -arch=sm_80 -libs=cublas", "llvm"])
        gpu = relaxish.cuda()
        machine = relaxish.VirtualMachine(executable, [gpu, relaxish.cpu()])
        out = machine["main"](relaxish.nd.array(x, gpu), relaxish.nd.array(w, gpu))
    (module,) = executable.external_modules
    assert [len(p.steps) for p in module.programs.values()] == [1]
    np.testing.assert_allclose(out.numpy(), x @ w @ w, rtol=1e-3, atol=1e-4)


def test_each_device_has_the_libraries_that_it_can_use() -> None:
    @I.ir_module
    class Two:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.hint_on_device(a, relaxish.cpu(0))
                v = R.hint_on_device(w, relaxish.cpu(0))
                c = R.matmul(b, v)
                R.output(c)
            return c

    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(4, 8)).astype("float32"), rng.normal(size=(8, 8)).astype("float32")
    target = Target({"devices": ["cuda -arch=sm_80", "llvm"], "libs": ["mkl", "cublas"]})
    blas = NumPyBlas()
    with use_cuda_provider("emulator"), use_library("cublasLt", FakeCublasLt()), use_mkl(blas):
        executable = relaxish.build(Two, target)
        gpu = relaxish.cuda()
        machine = relaxish.VirtualMachine(executable, [gpu, relaxish.cpu()])
        out = machine["main"](relaxish.nd.array(x, gpu), relaxish.nd.array(w, gpu))
    assert sorted(m.type_key for m in executable.external_modules) == ["cublas", "mkl_blas"]
    assert blas.calls == [(4, 8, 8)]
    np.testing.assert_allclose(out.numpy(), x @ w @ w, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("target", "extra"),
    [("llvm -libs=mkl", "mkl"), ("cuda -arch=sm_80 -libs=cublas", "cuda"), ("cuda -arch=sm_80 -libs=cudnn", "cudnn")],
)
def test_a_missing_library_names_the_extra(target: str, extra: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("relaxish.runtime.kernels.mkl._found", lambda: None)
    monkeypatch.setattr("relaxish.runtime.nvidia.libs.loading.find", lambda name: None)
    monkeypatch.setattr("relaxish.runtime.nvidia.libs.loading._LOADED", {})
    with pytest.raises(MissingExtraError, match=rf"pip install 'relaxish\[{extra}\]'"):
        relaxish.build(Products, target)


def test_of_a_board_it_is_not_known_what_it_has(monkeypatch: Any) -> None:
    monkeypatch.setattr("relaxish.runtime.nvidia.libs.loading.find", lambda name: None)
    monkeypatch.setattr("relaxish.runtime.nvidia.libs.loading._LOADED", {})
    other = "aarch64-linux-gnu" if host_triple().startswith("x86") else "x86_64-linux-gnu"
    target = Target("cuda -arch=sm_87 -libs=cublas", host=f"llvm -mtriple={other}")
    assert [p.info.name for p in library_dispatch_passes(target)][0] == "library_cublas"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            "llvm -libs=tensorrt",
            "tensorrt, which no extra of relaxish brings: known are cublas, cudnn, cutlass, thrust, mkl",
        ),
        ("llvm -libs=cublas", "the library cublas is for targets of kind cuda, not llvm"),
        ("cuda -arch=sm_80 -libs=mkl", "for targets of kind llvm or c, not cuda"),
        ("rocm -libs=hipblas", "hipblas, which no extra of relaxish brings: .*relax.ext.hipblas"),
        ("opencl -libs=clml", "clml, which no extra of relaxish brings: .*relax.ext.openclml"),
    ],
)
def test_libraries_that_cannot_be_used_are_errors(target: str, message: str) -> None:
    with pytest.raises(RelaxishError, match=message):
        relaxish.build(Products, target)


@pytest.mark.parametrize(
    ("name", "function"),
    [("sort", "sort"), ("argsort", "sort"), ("topk", "sort"), ("cumsum", "sum_scan"), ("cumprod", "")],
)
def test_sorting_by_thrust_needs_its_functions(name: str, function: str) -> None:
    x = relaxish.relax.Var("x", relaxish.relax.TensorStructInfo((4, 8), "float32"))
    builder = relaxish.relax.BlockBuilder()
    with builder.function("main", [x]):
        made = getattr(relaxish.relax.op, name)(x, axis=-1)
        builder.emit_func_output(builder.emit(made))
    if not function:  # nothing that Thrust does
        relaxish.build(builder.get(), "cuda -arch=sm_80 -libs=thrust")
        return
    wanted = (
        rf"relax\.{name} needs its packed function tvm\.contrib\.thrust\.{function}, which no extra of relaxish brings"
    )
    with pytest.raises(RelaxishError, match=wanted):
        relaxish.build(builder.get(), "cuda -arch=sm_80 -libs=thrust")
    relaxish.build(Products, "cuda -arch=sm_80 -libs=thrust")  # nothing to sort


def test_a_library_of_ones_own_is_used_like_the_others() -> None:
    from relaxish.backend.pattern_registry import register_patterns

    seen: list[str] = []

    class OwnModule:
        def implements_function(self, name: str, query_imports: bool = False) -> bool:
            return name in seen

        def get_function(self, name: str, query_imports: bool = False) -> Any:
            return lambda x, out: out.copyfrom(np.exp(x.numpy()))

    def codegen(functions: Any, options: Any, constants: Any) -> list[Any]:
        seen.extend(str(f.attrs["global_symbol"]) for f in functions)
        return [OwnModule()]

    register_patterns([("ownlib.exp", is_op("relax.exp")(wildcard()))])
    register_func("relax.ext.ownlib", codegen, override=True)
    executable = relaxish.build(Products, "llvm -libs=ownlib")
    assert len(seen) == 1
    inputs = _inputs(3)
    out = relaxish.VirtualMachine(executable, relaxish.cpu())["main"](*map(relaxish.nd.array, inputs))
    np.testing.assert_allclose(out.numpy(), _expected(*inputs), rtol=1e-4)


def test_double_precision_and_batches() -> None:
    @I.ir_module
    class Batches:
        @R.function
        def main(x: R.Tensor((3, 4, 8), "float64"), y: R.Tensor((3, 8, 5), "float64")):
            with R.dataflow():
                z = R.matmul(x, y)
                R.output(z)
            return z

    blas = NumPyBlas()
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(3, 4, 8)), rng.normal(size=(3, 8, 5))
    with use_mkl(blas):
        executable = relaxish.build(Batches, "llvm -libs=mkl")
        out = relaxish.VirtualMachine(executable, relaxish.cpu())["main"](relaxish.nd.array(x), relaxish.nd.array(y))
    np.testing.assert_allclose(out.numpy(), x @ y, rtol=1e-12)
    assert len(blas.calls) == 3
