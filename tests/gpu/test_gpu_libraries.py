"""NVIDIA's libraries themselves: what cuBLASLt and cuDNN compute when they are asked as the stand-ins were."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.relax.backend.cuda.cublas import partition_for_cublas
from relaxish.relax.backend.cuda.cudnn import partition_for_cudnn
from relaxish.runtime.arrays.dtype import numpy_dtype
from relaxish.runtime.nvidia.libs import loading
from relaxish.runtime.nvidia.libs.gemm import run_gemm
from relaxish.runtime.nvidia.libs.gemm_problem import product_shape
from relaxish.script import relax as R

pytestmark = pytest.mark.gpu


@pytest.fixture
def cublas(real_gpu):
    if loading.find("cublasLt") is None:
        pytest.skip("cuBLAS is not installed")
    return real_gpu


@pytest.fixture
def cudnn(real_gpu):
    if loading.find("cudnn") is None:
        pytest.skip("cuDNN is not installed")
    return real_gpu


def numbers(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if dtype == "int8":
        return rng.integers(-9, 9, shape).astype("int8")
    return (rng.integers(-8, 9, shape) / 8).astype(numpy_dtype(dtype))


def multiply(gpu, lhs, rhs, out_dtype, transposed=False, **options):
    out = relaxish.nd.empty(product_shape(lhs.shape, rhs.shape, transposed), out_dtype, gpu)
    run_gemm(relaxish.nd.array(lhs, gpu), relaxish.nd.array(rhs, gpu), out, transposed_rhs=transposed, **options)
    return out.numpy().astype("float64")


@pytest.mark.parametrize(
    ("dtype", "out_dtype", "tolerance"),
    [("float16", "float16", 2e-3), ("float16", "float32", 1e-5), ("bfloat16", "bfloat16", 1e-2), ("float32", "float32", 1e-5),
     ("float64", "float64", 1e-12), ("int8", "int32", 0), ("float8_e4m3fn", "float16", 1e-2)],
)  # fmt: skip
@pytest.mark.parametrize("transposed", [False, True])
def test_products(cublas, dtype, out_dtype, tolerance, transposed):
    lhs, rhs = numbers((64, 96), dtype), numbers((48, 96) if transposed else (96, 48), dtype, 1)
    got = multiply(cublas, lhs, rhs, out_dtype, transposed)
    want = lhs.astype("float64") @ (rhs.T if transposed else rhs).astype("float64")
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * np.abs(want).max())


def test_batches_and_epilogues(cublas):
    lhs, rhs, bias = numbers((3, 32, 64), "float16"), numbers((3, 64, 16), "float16", 1), numbers((16,), "float16", 2)
    want = lhs.astype("float64") @ rhs.astype("float64")
    np.testing.assert_allclose(multiply(cublas, lhs, rhs, "float32"), want, rtol=1e-4, atol=1e-4)
    flat = multiply(cublas, lhs[0], rhs[0], "float16", bias=relaxish.nd.array(bias, cublas), activation="relu")
    np.testing.assert_allclose(flat, np.maximum(want[0] + bias, 0), rtol=2e-3, atol=2e-3)


def model(emit, *shapes):
    bb = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", R.Tensor(shape, "float16")) for i, shape in enumerate(shapes)]
    with bb.function("main", params):
        with bb.dataflow():
            out = emit(bb, *params)
            out = bb.emit_output(out)
        bb.emit_func_output(out)
    return bb.get()


def run_both(gpu, mod, partition, codegen):
    """(the library's, this processor's) result."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([int(d) for d in p.struct_info.shape]).astype("float16") for p in mod["main"].params]
    made = relax.transform.RunCodegen()(partition(mod))
    assert [m.type_key for m in made.attrs["external_mods"]] == [codegen]
    vm = relaxish.VirtualMachine(relaxish.build(made, target="cuda"), gpu)
    host = relaxish.VirtualMachine(relaxish.build(mod, target="llvm"), relaxish.cpu())
    return vm["main"](*(relaxish.nd.array(a, gpu) for a in arrays)).numpy(), host["main"](*arrays).numpy()


def test_a_model_by_cublas(cublas):
    mod = model(
        lambda bb, x, w, b: bb.emit(R.nn.relu(bb.emit(R.add(bb.emit(R.matmul(x, w)), b)))), (32, 64), (64, 48), (48,)
    )
    got, want = run_both(cublas, mod, partition_for_cublas, "cublas")
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=3e-2)


@pytest.mark.parametrize("layouts", [("NHWC", "OHWI"), ("NCHW", "OIHW")])
def test_a_model_by_cudnn(cudnn, layouts):
    data, kernel = layouts
    sizes, window = {"N": 2, "C": 32, "H": 14, "W": 14}, {"O": 64, "I": 32, "H": 3, "W": 3}
    mod = model(
        lambda bb, x, w: bb.emit(R.nn.conv2d(x, w, padding=1, data_layout=data, kernel_layout=kernel)),
        [sizes[c] for c in data], [window[c] for c in kernel],
    )  # fmt: skip
    got, want = run_both(cudnn, mod, partition_for_cudnn, "cudnn")
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=5e-2)
