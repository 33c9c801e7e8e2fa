"""Products as cuBLASLt is asked for them: a stand-in reads memory as the descriptors say, so the numbers tell."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.relax.backend.cuda.cublas import partition_for_cublas
from relaxish.runtime import cuda, nd
from relaxish.runtime.arrays.dtype import numpy_dtype
from relaxish.runtime.kernels.external import load_external
from relaxish.runtime.nvidia import providers
from relaxish.runtime.nvidia.libs import cublaslt as lt
from relaxish.runtime.nvidia.libs import loading
from relaxish.runtime.nvidia.libs.gemm import run_gemm
from relaxish.runtime.nvidia.libs.gemm_problem import describe, product_shape
from relaxish.runtime.nvidia.libs.loading import LibraryError, use_library
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.support.errors import RelaxishError
from relaxish.testing.fake_cublaslt import FakeCublasLt


@pytest.fixture
def fake():
    with providers.use("null"), use_library("cublasLt", FakeCublasLt()) as made:
        yield made


def numbers(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if dtype == "int8":
        return rng.integers(-9, 9, shape).astype("int8")
    return rng.standard_normal(shape).astype(numpy_dtype(dtype))


def multiply(lhs, rhs, out_dtype, transposed=False, bias=None, activation="", scales=(), **options):
    """(what the library made, what it should have made)."""
    placed = [nd.array(a, cuda()) for a in (lhs, rhs, *scales)]
    shape = product_shape(lhs.shape, rhs.shape, transposed)
    out = nd.empty(shape, out_dtype, cuda())
    added = None if bias is None else nd.array(bias, cuda())
    run_gemm(
        placed[0],
        placed[1],
        out,
        transposed_rhs=transposed,
        bias=added,
        activation=activation,
        scales=placed[2:],
        **options,
    )
    exact = np.int64 if out_dtype == "int32" else np.float64
    want = lhs.astype(exact) @ (rhs.swapaxes(-1, -2) if transposed else rhs).astype(exact)
    for scale in scales:
        want = want * scale.astype("float64").reshape(())
    if bias is not None:
        want = want + bias.astype("float64")
    if activation == "relu":
        want = np.maximum(want, 0)
    return out.numpy().astype(exact), want


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("dtype", "out_dtype", "tolerance"),
    [("float32", "float32", 1e-5), ("float16", "float16", 1e-2), ("float16", "float32", 1e-5), ("bfloat16", "bfloat16", 0.1),
     ("float64", "float64", 1e-12), ("int8", "int32", 0)],
)  # fmt: skip
@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [
        ((5, 8), (8, 12)),
        ((3, 5, 8), (8, 12)),
        ((2, 3, 5, 8), (2, 3, 8, 12)),
        ((5, 8), (4, 8, 12)),
        ((1, 3, 5, 8), (3, 8, 12)),
    ],
)
def test_layouts(fake, lhs, rhs, dtype, out_dtype, tolerance, transposed):
    if transposed:
        rhs = (*rhs[:-2], rhs[-1], rhs[-2])
    got, want = multiply(numbers(lhs, dtype), numbers(rhs, dtype, 1), out_dtype, transposed)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_a_batch_with_one_right_side_is_more_rows(fake):
    multiply(numbers((3, 5, 8), "float32"), numbers((8, 12), "float32"), "float32")
    (product,) = fake.products
    assert (product.m, product.n, product.k, product.batch) == (12, 15, 8, 1)  # column-major: rows are our columns


@pytest.mark.parametrize("activation", ["", "relu"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_bias_and_relu(fake, dtype, activation):
    bias = numbers((12,), dtype, 2)
    got, want = multiply(numbers((5, 8), dtype), numbers((8, 12), dtype, 1), dtype, bias=bias, activation=activation)
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)
    assert fake.products[0].epilogue == (6 if activation else 4)


def test_gelu(fake):
    x, w, bias = numbers((5, 8), "float32"), numbers((8, 12), "float32", 1), numbers((12,), "float32", 2)
    got, _ = multiply(x, w, "float32", bias=bias, activation="gelu")
    y = (x @ w + bias).astype("float64")
    erf = np.vectorize(__import__("math").erf)
    np.testing.assert_allclose(got, 0.5 * y * (1 + erf(y / np.sqrt(2))), atol=5e-4)  # the library's is the tanh form


def test_int8_is_transposed_first(fake):
    multiply(numbers((5, 8), "int8"), numbers((8, 12), "int8", 1), "int32")
    assert "cublasLtMatrixTransform" in fake.calls and fake.products[0].transa
    with pytest.raises(LibraryError, match="no algorithm"):
        multiply(numbers((5, 6), "int8"), numbers((6, 12), "int8", 1), "int32")


@pytest.mark.parametrize("out_dtype", ["float16", "float32", "float8_e4m3fn"])
def test_8_bit_floats(fake, out_dtype):
    lhs, rhs = numbers((16, 32), "float8_e4m3fn"), numbers((48, 32), "float8_e4m3fn", 1)
    scales = [np.array([0.5], "float32"), np.array([0.25], "float32")]
    got, want = multiply(lhs, rhs, out_dtype, True, scales=scales)
    np.testing.assert_allclose(got, want, rtol=0.1 if out_dtype.startswith("float8") else 1e-2, atol=0.05)
    got, want = multiply(lhs, rhs, out_dtype, True, scales=[np.array(0.5, "float16")])  # a scale of another dtype
    np.testing.assert_allclose(got, want, rtol=0.1 if out_dtype.startswith("float8") else 1e-2, atol=0.05)


def test_a_scale_on_the_device(fake):
    got, want = multiply(
        numbers((5, 8), "float16"), numbers((8, 12), "float16"), "float32", scales=[np.array(3.0, "float32")]
    )
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_tf32_is_asked_for(fake):
    multiply(numbers((5, 8), "float32"), numbers((8, 12), "float32"), "float32", tf32=True)
    assert any(o.values.get("compute_type") == lt.COMPUTE["tf32"] for o in fake.alive.values())


def test_plans_are_made_once(fake):
    x, w = numbers((5, 8), "float32"), numbers((8, 12), "float32")
    for _ in range(3):
        multiply(x, w, "float32")
    assert fake.calls.count("cublasLtMatmul") == 3
    assert fake.calls.count("cublasLtMatmulAlgoGetHeuristic") == 1 and fake.calls.count("cublasLtCreate") == 1


def test_work_goes_to_the_current_stream(fake):
    stream = cuda().create_raw_stream()
    cuda().set_raw_stream(stream)
    try:
        multiply(numbers((5, 8), "float32"), numbers((8, 12), "float32"), "float32")
    finally:
        cuda().set_raw_stream(0)
        cuda().free_raw_stream(stream)
    assert fake.products[0].stream == stream != 0


def test_shapes_that_do_not_fit():
    dtypes = ("float32",) * 3
    with pytest.raises(RelaxishError, match="cannot multiply"):
        describe((5, 8), (9, 12), dtypes)
    with pytest.raises(RelaxishError, match="no common stride"):
        describe((2, 1, 5, 8), (2, 3, 8, 12), dtypes)


def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setattr(loading, "find", lambda name: None)
    monkeypatch.setattr(loading, "_LOADED", {})
    with pytest.raises(ImportError, match=r"relaxish\[cuda\]"):
        lt.library()


@pytest.mark.skipif(loading.find("cublasLt") is None, reason="cuBLAS is not installed")
def test_descriptors_of_the_real_library():
    layout = lt.matrix_layout("float16", 6, 4, 8, batch=3, stride=48)
    value, written = ctypes.c_int64(), ctypes.c_size_t()
    get = lt.library().cublasLtMatrixLayoutGetAttribute
    for name, want in (("rows", 6), ("cols", 4), ("ld", 8), ("strided_batch_offset", 48)):
        get(layout.handle, lt.LAYOUT[name], ctypes.byref(value), 8, ctypes.byref(written))
        assert value.value == want
    desc = lt.matmul_desc(lt.COMPUTE["float32"], lt.DATA_TYPES["float32"])
    desc.set("epilogue", ctypes.c_int32(lt.EPILOGUES["bias_gelu"]))
    desc.set("bias_pointer", ctypes.c_void_p(4096))


# ---- whole models


@I.ir_module
class TwoLayers:
    @R.function
    def main(
        x: R.Tensor(("n", 64), "float16"),
        w: R.Tensor((128, 64), "float16"),
        b: R.Tensor((128,), "float16"),
        v: R.Tensor((128, 8), "float16"),
    ):
        with R.dataflow():
            a = R.matmul(x, R.permute_dims(w))
            c = R.nn.relu(R.add(a, b))
            out = R.matmul(c, v)
            R.output(out)
        return out


def layers(seed=0):
    return [
        numbers(s, "float16", seed + i) * np.float16(0.1) for i, s in enumerate(((6, 64), (128, 64), (128,), (128, 8)))
    ]


def reference(x, w, b, v):
    return np.maximum(x.astype("float32") @ w.T.astype("float32") + b, 0) @ v.astype("float32")


def test_a_model_calls_the_library(fake):
    made = relax.transform.RunCodegen()(partition_for_cublas(TwoLayers))
    assert [m.type_key for m in made.attrs["external_mods"]] == ["cublas"]
    vm = relaxish.VirtualMachine(relaxish.build(made, target="cuda"), cuda())
    inputs = layers()
    out = vm["main"](*(nd.array(a, cuda()) for a in inputs))
    np.testing.assert_allclose(out.numpy(), reference(*inputs), rtol=1e-2, atol=1e-2)
    assert [(p.m, p.n, p.k, p.epilogue) for p in fake.products] == [(128, 6, 64, 6), (8, 6, 128, 1)]


def test_constants_go_into_the_module(fake):
    inputs = layers()
    bound = relax.transform.BindParams("main", dict(zip(("w", "b", "v"), inputs[1:])))(TwoLayers)
    made = relax.transform.RunCodegen()(partition_for_cublas(bound, bind_constants=True))
    (module,) = made.attrs["external_mods"]
    assert len(module.constants) == 3
    again = load_external(module.to_manifest(), module.tensors())
    for one in (module, again):
        x, out = nd.array(inputs[0], cuda()), nd.empty((6, 128), "float16", cuda())
        name = next(n for n in one.programs if "relu" in n)
        one[name](x, out)
        want = np.maximum(inputs[0].astype("float32") @ inputs[1].T.astype("float32") + inputs[2], 0)
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-2, atol=1e-2)
    with pytest.raises(RelaxishError, match="takes 1 inputs and 1 outputs"):
        module[name](x)


def test_library_calls_are_deployed(fake, tmp_path):
    from relaxish.runtime import load_module

    inputs = layers()
    bound = relax.transform.BindParams("main", {"w": inputs[1], "b": inputs[2]})(TwoLayers)
    made = relax.transform.RunCodegen()(partition_for_cublas(bound, bind_constants=True))
    path = str(tmp_path / "model.tar")
    relaxish.build(made, target="cuda").export_library(path)
    vm = relaxish.VirtualMachine(load_module(path), cuda())
    out = vm["main"](nd.array(inputs[0], cuda()), nd.array(inputs[3], cuda()))
    np.testing.assert_allclose(out.numpy(), reference(*inputs), rtol=1e-2, atol=1e-2)


# ---- what the library is particular about


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_8_bit_floats_are_transposed_as_bytes(fake, dtype):
    lhs, rhs = numbers((16, 32), dtype), numbers((32, 48), dtype, 1)
    got, want = multiply(lhs, rhs, "float16")
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=0.05)
    assert fake.calls.count("cublasLtMatrixTransform") == 1 and fake.products[0].transa


def test_an_algorithm_is_proposed_for_where_the_factors_are(fake):
    x, w = numbers((5, 8), "float16"), numbers((8, 12), "float16", 1)
    for scales in ([], [np.array(3.0, "float32")], []):  # a plan of each kind, and one that is there already
        got, want = multiply(x, w, "float32", scales=scales)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert fake.calls.count("cublasLtMatmulAlgoGetHeuristic") == 2
