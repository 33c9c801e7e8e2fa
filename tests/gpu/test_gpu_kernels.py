"""Kernels on a real device against NumPy: matrix units of each generation, and the operators' default schedules."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import relaxish
from relaxish import dlight, relax, te
from relaxish.runtime.arrays.dtype import numpy_dtype
from relaxish.script import relax as R
from relaxish.target import Target

pytestmark = pytest.mark.gpu

# The second is compiled for the device too, by the rules of an older one: WMMA or mma instead of warpgroups.
TARGETS = {name: Target(f"nvidia/nvidia-{name}", host="llvm") for name in ("h200", "a100")}
ACCUMULATORS = {"int8": "int32"}


def numbers(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if dtype == "int8":
        return rng.integers(-8, 8, shape).astype("int8")
    return (rng.integers(-8, 9, shape) / 8).astype(numpy_dtype(dtype))


def product(m, n, k, dtype, batch=()):
    accumulator = ACCUMULATORS.get(dtype, "float32")
    a, b = te.placeholder((*batch, m, k), dtype, name="A"), te.placeholder((*batch, n, k), dtype, name="B")
    r = te.reduce_axis((0, k), name="r")
    return te.create_prim_func([a, b, te.compute(
        (*batch, m, n),
        lambda *at: te.sum(
            a[(*at[:-1], r)].astype(accumulator) * b[(*at[:-2], at[-1], r)].astype(accumulator), axis=r
        ),
        name="C",
    )])  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float8_e4m3fn", "float32"])
@pytest.mark.parametrize("shape", [(256, 256, 256), (384, 512, 1024), (200, 72, 96), (130, 66, 30)])
def test_products(gpu, name, dtype, shape):
    """Sums of such small numbers are exact in any order."""
    if dtype.startswith("float8") and name == "a100":
        pytest.skip("that generation has no 8-bit floats")
    m, n, k = shape
    target = TARGETS[name]
    with target:
        mod = relaxish.IRModule({"main": product(m, n, k, dtype).with_attr("global_symbol", "main")})
        mod = dlight.ApplyDefaultSchedule(*dlight.default_gpu_rules(target))(mod)
    module = relaxish.compile(mod, target)
    x, y = numbers((m, k), dtype), numbers((n, k), dtype, 1)
    out = relaxish.nd.empty((m, n), ACCUMULATORS.get(dtype, "float32"), gpu)
    exact = np.int64 if dtype == "int8" else np.float64
    for _ in range(3):  # a race may not show at once
        module(relaxish.nd.array(x, gpu), relaxish.nd.array(y, gpu), out)
        np.testing.assert_allclose(out.numpy(), x.astype(exact) @ y.astype(exact).T, rtol=1e-3, atol=1e-3)


def graph(emit, *infos):
    bb = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", R.Tensor(shape, dtype)) for i, (shape, dtype) in enumerate(infos)]
    with bb.function("main", params):
        with bb.dataflow():
            out = bb.emit_output(bb.emit(emit(*params)))
        bb.emit_func_output(out)
    return bb.get()


OPERATORS = {
    "softmax": (lambda x: R.nn.softmax(x, -1), [((33, 1000), "float16")]),
    "wide softmax": (lambda x: R.nn.softmax(x, -1), [((3, 9000), "float32")]),
    "layer norm": (lambda x, g, b: R.nn.layer_norm(x, g, b, axes=[-1]),
                   [((33, 768), "float16"), ((768,), "float16"), ((768,), "float16")]),
    "sum": (lambda x: R.sum(x, axis=[0]), [((3000, 50), "float32")]),
    "mean of all": (lambda x: R.mean(x), [((300, 500), "float32")]),
    "cumsum": (lambda x: R.cumsum(x, axis=-1), [((7, 3000), "float32")]),
    "argsort": (lambda x: R.argsort(x, axis=-1, dtype="int32"), [((3, 999), "float32")]),
    "topk": (lambda x: R.topk(x, 5, axis=-1, ret_type="values"), [((3, 999), "float32")]),
    "take": (lambda x, i: R.take(x, i, axis=0), [((40, 64), "float16"), ((9,), "int64")]),
    "scatter": (lambda x, i, u: R.scatter_elements(x, i, u, axis=0, reduction="add"),
                [((40, 8), "float32"), ((9, 8), "int64"), ((9, 8), "float32")]),
    "transpose": (lambda x: R.permute_dims(x, [1, 0]), [((1000, 333), "float16")]),
    "convolution": (lambda x, w: R.nn.conv2d(x, w, padding=1, data_layout="NHWC", kernel_layout="OHWI", out_dtype="float32"),
                    [((2, 14, 14, 64), "float16"), ((64, 3, 3, 64), "float16")]),
    "grouped convolution": (lambda x, w: R.nn.conv2d(x, w, padding=1, groups=4),
                            [((2, 32, 9, 9), "float32"), ((32, 8, 3, 3), "float32")]),
    "attention": (lambda q, k, v: R.nn.attention(q, k, v), [((2, 70, 4, 64), "float16")] * 3),
    "causal attention": (lambda q, k, v: R.nn.attention(q, k, v, causal_mask="TopLeft"), [((1, 129, 2, 64), "float16")] * 3),
}  # fmt: skip


def operands(infos, wide):
    made = []
    for index, (shape, dtype) in enumerate(infos):
        if dtype == "int64":
            made.append(np.random.default_rng(index).integers(0, 40, shape))
        elif wide:
            made.append(np.random.default_rng(index).standard_normal(shape).astype(dtype))
        else:
            made.append(np.random.default_rng(index).permutation(int(np.prod(shape))).reshape(shape).astype(dtype))
    return made


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(gpu, name):
    """What the device computes is what this processor computes by the same program."""
    emit, infos = OPERATORS[name]
    mod = graph(emit, *infos)
    inputs = operands(infos, wide=name not in ("argsort", "topk"))
    target = TARGETS["h200"]
    executable = relaxish.compile(mod, target, relax_pipeline=relax.get_default_pipeline(target))
    got = relaxish.VirtualMachine(executable, gpu)["main"](*[relaxish.nd.array(a, gpu) for a in inputs]).numpy()
    host = relaxish.VirtualMachine(relaxish.compile(mod, "llvm"), relaxish.cpu())
    want = host["main"](*[relaxish.nd.array(a) for a in inputs]).numpy()
    loose = 5e-3 if infos[0][1] == "float16" else 1e-4
    scale = max(1.0, float(np.abs(want.astype("float64")).max()))
    np.testing.assert_allclose(got.astype("float64"), want.astype("float64"), rtol=loose, atol=loose * scale)


def test_narrow_arithmetic(gpu):
    """Rounding of narrow floats: to even, and within their range."""
    values = np.linspace(-300, 300, 4096, dtype="float32")
    for dtype in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"):
        mod = graph(lambda x, dtype=dtype: R.astype(x, dtype), ((4096,), "float32"))
        executable = relaxish.compile(mod, TARGETS["h200"], relax_pipeline=relax.get_default_pipeline(TARGETS["h200"]))
        got = relaxish.VirtualMachine(executable, gpu)["main"](relaxish.nd.array(values, gpu)).numpy()
        want = values.astype(getattr(ml_dtypes, dtype, dtype))
        assert (got.view("uint8") == want.view("uint8")).all(), dtype
