"""Weights of few bits stay coded in products, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import op, relax
from relaxish.relax.struct_info import TensorStructInfo
from relaxish.transform.coded_weights import CodedWeights

_TARGET = relaxish.target.Target("llvm")


def _const(value: Any) -> relax.Constant:
    return relax.const(value, str(value.dtype))


class _Form:
    """Weights (depth, columns) as constants that a program decodes, and what they are."""

    def __init__(self, emit: Callable[[relax.BlockBuilder], relax.Expr], numbers: np.ndarray) -> None:
        self.emit, self.numbers = emit, numbers


def _grouped(rng: np.random.Generator, depth: int, columns: int, group: int, low: int, high: int, kind: str) -> _Form:
    """As exporters write groups: (codes - zeros) * scales of three axes, reshaped and transposed."""
    blocks = depth // group
    codes = rng.integers(low, high, (columns, blocks, group)).astype(kind)
    zeros = rng.integers(low, high, (columns, blocks, 1)).astype("float32")
    scales = rng.uniform(0.01, 0.1, (columns, blocks, 1)).astype("float32")

    def emit(b: relax.BlockBuilder) -> relax.Expr:
        apart = b.emit(op.subtract(b.emit(op.astype(_const(codes), "float32")), _const(zeros)))
        wide = b.emit(op.reshape(b.emit(op.multiply(apart, _const(scales))), [columns, depth]))
        return b.emit(op.permute_dims(wide, [1, 0]))

    return _Form(emit, ((codes.astype("float32") - zeros) * scales).reshape(columns, depth).T)


def _packed(rng: np.random.Generator, depth: int, columns: int) -> _Form:
    """Two codes a byte, taken apart by shifts and masks."""
    packed = rng.integers(0, 256, (columns, depth // 2)).astype("uint8")
    scales = rng.uniform(0.01, 0.1, (columns, 1)).astype("float32")

    def emit(b: relax.BlockBuilder) -> relax.Expr:
        wide = b.emit(op.right_shift(b.emit(op.expand_dims(_const(packed), -1)), _const(np.array([0, 4], "uint8"))))
        codes = b.emit(op.reshape(b.emit(op.bitwise_and(wide, _const(np.array(15, "uint8")))), [columns, depth]))
        apart = b.emit(op.subtract(b.emit(op.astype(codes, "float32")), _const(np.array(8, "float32"))))
        return b.emit(op.permute_dims(b.emit(op.multiply(_const(scales), apart))))

    codes = np.stack([packed & 15, packed >> 4], -1).reshape(columns, depth)
    return _Form(emit, ((codes.astype("float32") - 8) * scales).T)


def _channels(rng: np.random.Generator, depth: int, columns: int, by_row: bool) -> _Form:
    """Bytes with a scale and a zero point for each column."""
    codes = rng.integers(-128, 128, (columns, depth) if by_row else (depth, columns)).astype("int8")
    scale = rng.uniform(0.01, 0.1, columns).astype("float32")
    zero = rng.integers(-20, 20, columns).astype("int8")

    def emit(b: relax.BlockBuilder) -> relax.Expr:
        made = b.emit(op.dequantize(_const(codes), _const(scale), _const(zero), 0 if by_row else 1))
        return b.emit(op.permute_dims(made, [1, 0])) if by_row else made

    turned = codes.T if by_row else codes
    return _Form(emit, (turned.astype("float32") - zero) * scale)


def _bytes(rng: np.random.Generator, depth: int, columns: int) -> _Form:
    """Bytes cast to numbers; the scale comes after the product."""
    codes = rng.integers(-128, 128, (columns, depth)).astype("int8")

    def emit(b: relax.BlockBuilder) -> relax.Expr:
        return b.emit(op.astype(b.emit(op.permute_dims(_const(codes))), "float32"))

    return _Form(emit, codes.T.astype("float32"))


def _forms() -> dict[str, _Form]:
    rng = np.random.default_rng(81)
    return {
        "groups of 32": _grouped(rng, 256, 192, 32, 0, 16, "uint8"),
        "signed groups": _grouped(rng, 256, 64, 64, -8, 8, "int8"),
        "groups of bytes": _grouped(rng, 256, 96, 64, 0, 256, "uint8"),
        "groups of two": _grouped(rng, 512, 32, 2, 3, 19, "uint8"),
        "one group": _grouped(rng, 384, 80, 384, 0, 16, "uint8"),
        "packed": _packed(rng, 256, 128),
        "channels": _channels(rng, 128, 192, by_row=False),
        "rows": _channels(rng, 160, 192, by_row=True),
        "bytes": _bytes(rng, 256, 64),
    }


_FORMS = _forms()


def _program(form: _Form, shape: list[Any]) -> Any:
    b = relax.BlockBuilder()
    x = relax.Var("x", TensorStructInfo(shape, "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            out = b.emit_output(b.emit(op.nn.relu(b.emit(op.matmul(x, form.emit(b))))))
        b.emit_func_output(out)
    return b.get()


def _kernels(module: Any) -> list[str]:
    return [v.name_hint for v in CodedWeights(_TARGET)(module).functions if v.name_hint.startswith("coded_product")]


@pytest.mark.parametrize("name", _FORMS)
def test_products_with_codes(name: str) -> None:
    form = _FORMS[name]
    depth = form.numbers.shape[0]
    rng = np.random.default_rng(82)
    n, m = relaxish.tir.Var("n", "int64"), relaxish.tir.Var("m", "int64")
    for shape, sizes in (
        ([1, depth], [(1, depth)]),
        ([2, 3, depth], [(2, 3, depth)]),
        ([n, m, depth], [(1, 1, depth), (3, 7, depth)]),
    ):
        module = _program(form, shape)
        assert _kernels(module) == ["coded_product"]
        machine = relaxish.VirtualMachine(relaxish.build(module, _TARGET), relaxish.cpu())
        for size in sizes:
            x = rng.standard_normal(size).astype("float32")
            want = np.maximum(x.astype("float64") @ form.numbers.astype("float64"), 0)
            got = machine["main"](relaxish.nd.array(x)).numpy()
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_what_is_decoded_beforehand() -> None:
    form = _FORMS["packed"]
    assert not _kernels(_program(form, [65, 256]))  # many rows: bound by arithmetic
    rng = np.random.default_rng(83)
    assert not _kernels(_program(_grouped(rng, 256, 100, 32, 0, 16, "uint8"), [1, 256]))  # columns that fill no vectors
    assert not _kernels(_program(_grouped(rng, 255, 128, 5, 0, 16, "uint8"), [1, 255]))  # odd groups
    along = _channels(rng, 192, 192, by_row=True)
    plain = _Form(lambda b: b.emit(op.permute_dims(along.emit(b), [1, 0])), along.numbers.T)
    module = _program(plain, [1, 192])  # a scale for each place of the depth
    assert not _kernels(module)
    x = rng.standard_normal((1, 192)).astype("float32")
    got = relaxish.VirtualMachine(relaxish.build(module, _TARGET), relaxish.cpu())["main"](relaxish.nd.array(x)).numpy()
    np.testing.assert_allclose(got, np.maximum(x @ plain.numbers, 0), rtol=1e-3, atol=1e-2)
