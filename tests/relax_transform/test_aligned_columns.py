"""Products of columns that do not fill vectors, computed on whole ones: form, and results against NumPy and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import Target, relax, tir
from relaxish.pipeline import kernel_pipeline
from relaxish.relax.struct_info import TensorStructInfo
from relaxish.transform.aligned_columns import AlignColumns, aligned

WIDE = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=skylake-avx512")


def product(left: tuple[Any, ...], right: Any, dtype: str = "float32", turned: bool = False) -> Any:
    """``matmul`` of a parameter with a constant (an array) or a second parameter (a shape)."""
    x = relax.Var("x", TensorStructInfo(left, dtype))
    constant = isinstance(right, np.ndarray)
    w = relax.const(right) if constant else relax.Var("w", TensorStructInfo(right, dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x] if constant else [x, w]):
        with builder.dataflow():
            operand = builder.emit(relax.op.permute_dims(w)) if turned else w
            y = builder.emit_output(relax.op.matmul(x, operand))
        builder.emit_func_output(y)
    return builder.get()


def widths(mod: Any) -> list[int]:
    """Columns of the products, in order."""
    found: list[int] = []

    def look(e: Any) -> None:
        if isinstance(e, relax.Call) and getattr(e.op, "name", "") == "relax.matmul":
            found.append(int(e.struct_info.shape.values[-1]))

    relax.analysis.post_order_visit(mod["main"], look)
    return found


def run(mod: Any, *arrays: np.ndarray) -> np.ndarray:
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    return vm["main"](*(relaxish.nd.array(a) for a in arrays)).numpy()


def test_widths_are_whole_vectors_and_several_a_tile_where_that_adds_few() -> None:
    for columns in range(1, 3000):
        width = aligned(columns, 16)
        assert width % 16 == 0 and columns <= width
        assert width < columns + 16 or width <= columns * 1.06
        assert width == columns or columns % 16
    assert [aligned(c, 16) for c in (67, 509, 1009, 50257)] == [80, 512, 1024, 50304]


@pytest.mark.parametrize(
    ("left", "right", "width"),
    [
        ((127, 40), np.ones((40, 1009), "float32"), 1024),
        ((64, 40), np.ones((40, 64), "float32"), 64),  # whole vectors already
        ((1, 40), np.ones((40, 1009), "float32"), 1009),  # one row has a rule of its own
        ((64, 40), np.ones((40, 3), "float32"), 3),  # a fraction of a vector
        ((64, 40), (40, 1009), 1024),  # many rows share the copy
        ((4, 40), (40, 1009), 1009),  # few do
        ((3, 50, 40), (3, 40, 67), 80),
    ],
)
def test_which_products_are_padded(left: Any, right: Any, width: int) -> None:
    mod = AlignColumns(WIDE)(product(left, right))
    assert widths(mod) == [width]
    assert relax.analysis.well_formed(mod)
    columns = right.shape[-1] if isinstance(right, np.ndarray) else right[-1]
    assert int(mod["main"].ret_struct_info.shape.values[-1]) == columns


def test_integers_are_left_alone() -> None:
    assert widths(AlignColumns(WIDE)(product((64, 40), np.ones((40, 67), "int32"), "int32"))) == [67]


def test_transposed_constants_are_padded_when_the_model_is_compiled() -> None:
    mod = AlignColumns(WIDE)(product((64, 40), np.ones((67, 40), "float32"), turned=True))
    assert widths(mod) == [80]
    assert "pad" not in mod.script()


@pytest.mark.parametrize("seed", range(12))
def test_results_are_those_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = (int(v) for v in rng.integers(2, 90, 3))
    batch = [3] if seed % 3 == 0 else []
    dtype = "float64" if seed % 4 == 1 else "float32"
    x = rng.standard_normal((*batch, m, k)).astype(dtype)
    turned = not batch and seed % 2 == 0
    w = rng.standard_normal((n, k) if turned else (*batch, k, n)).astype(dtype)
    constant = seed % 2 == 0 and not batch
    got = run(product(x.shape, w if constant else w.shape, dtype, turned), *([x] if constant else [x, w]))
    want = x.astype("float64") @ (w.T if turned else w).astype("float64")
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_numbers_that_are_none_stay_in_their_rows() -> None:
    x = np.ones((20, 8), "float32")
    x[3, 2], x[5, 1] = np.nan, np.inf
    got = run(product(x.shape, np.ones((8, 19), "float32")), x)
    assert np.isnan(got[3]).all() and np.isinf(got[5]).all()
    rest = np.delete(got, [3, 5], 0)
    np.testing.assert_array_equal(rest, np.full_like(rest, 8.0))


def test_a_number_of_rows_that_is_only_known_when_it_runs() -> None:
    m = tir.Var("m", "int64")
    w = np.random.default_rng(1).standard_normal((30, 67)).astype("float32")
    mod = product((m, 30), w)
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    for rows in (1, 7, 33):
        x = np.random.default_rng(rows).standard_normal((rows, 30)).astype("float32")
        np.testing.assert_allclose(vm["main"](relaxish.nd.array(x)).numpy(), x @ w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [9, 17, 67])
def test_convolutions_of_any_number_of_channels(channels: int) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(channels)
    x, w = (rng.standard_normal(s).astype("float32") for s in ((1, 13, 11, 9), (channels, 13, 3, 3)))
    bias = rng.standard_normal((1, channels, 1, 1)).astype("float32")
    data = relax.Var("x", TensorStructInfo(x.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(data, relax.const(w), padding=(1, 1)))
            z = builder.emit_output(relax.op.nn.relu(builder.emit(relax.op.add(y, relax.const(bias)))))
        builder.emit_func_output(z)
    want = torch.relu(torch.conv2d(torch.from_numpy(x), torch.from_numpy(w), padding=1) + torch.from_numpy(bias))
    np.testing.assert_allclose(run(builder.get(), x), want.numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("rows, depth, columns", [(5, 448, 303), (7, 39, 29), (33, 65, 67)])
def test_weights_decoded_from_bytes_are_padded_like_others(rows: int, depth: int, columns: int) -> None:
    rng = np.random.default_rng(columns)
    x = relax.Var("x", TensorStructInfo((rows, depth), "float32"))
    codes = rng.integers(-127, 128, (columns, depth)).astype("int8")
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            weight = builder.emit(relax.op.permute_dims(relax.op.astype(relax.const(codes), "float32")))
            y = builder.emit_output(relax.op.matmul(x, weight))
        builder.emit_func_output(y)
    mod = builder.get()
    kernels = kernel_pipeline(WIDE)(mod)
    shapes = [
        [int(d) for d in buffer.shape]
        for func in kernels.functions.values()
        if isinstance(func, tir.PrimFunc)
        for buffer in func.buffer_map.values()
    ]
    assert [depth, aligned(columns, 16)] in shapes
    a = rng.standard_normal((rows, depth)).astype("float32")
    want = a.astype("float64") @ codes.T.astype("float64")
    np.testing.assert_allclose(run(mod, a), want, rtol=0, atol=1e-6 * np.abs(want).max() * depth**0.5)
