"""Products of dequantised bytes as products of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import op, relax
from relaxish.ir.functor import all_nodes
from relaxish.ir.op import op_name_of
from relaxish.relax.expr import Call
from relaxish.relax.struct_info import TensorStructInfo
from relaxish.target import Target
from relaxish.tir import Var
from relaxish.transform.integer_products import IntegerProducts

_TARGET = Target({"kind": "llvm", "mcpu": "sapphirerapids"})


def const(value: np.ndarray) -> relax.Constant:
    return relax.const(value, str(value.dtype))


class Model:
    """One product: data of one scale and zero point, weights with a scale for each channel along ``axis``."""

    def __init__(
        self, shape: list[Any], kind: str, weight: np.ndarray, axis: int, zero: int, w_zero: Any = 0, **options: Any
    ) -> None:
        rng = np.random.default_rng(len(options) + weight.size)
        self.kind, self.weight, self.axis, self.zero, self.options = kind, weight, axis, zero, options
        self.scales = rng.uniform(0.01, 0.05, weight.shape[axis]).astype("float32")
        self.w_zero = np.asarray(w_zero, weight.dtype)
        symbol = Var("n", "int64")
        self.shape = [symbol if d is None else d for d in shape]
        self.x = rng.integers(*((0, 256) if kind == "uint8" else (-128, 128)), [5 if d is None else d for d in shape])
        self.x = self.x.astype(kind)

    def module(self) -> Any:
        builder = relax.BlockBuilder()
        x = relax.Var("x", TensorStructInfo(self.shape, self.kind))
        with builder.function("main", [x]):
            with builder.dataflow():
                scale, zero = relax.const(0.02, "float32"), relax.const(self.zero, self.kind)
                data = builder.emit(op.dequantize(x, scale, zero))
                weight = builder.emit(
                    op.dequantize(const(self.weight), const(self.scales), const(self.w_zero), self.axis)
                )
                if self.options.get("turned"):
                    weight = builder.emit(op.permute_dims(weight))
                if self.weight.ndim == 2:
                    made = op.matmul(data, weight)
                else:
                    made = op.nn.conv2d(data, weight, **self.options)
                out = builder.emit_output(op.nn.relu(builder.emit(made)))
            builder.emit_func_output(out)
        return builder.get()


def _weight(kind: str, *shape: int) -> np.ndarray:
    low, high = (0, 256) if kind == "uint8" else (-127, 128)
    return np.random.default_rng(sum(shape)).integers(low, high, shape).astype(kind)


MODELS = {
    "product": lambda: Model([6, 40], "uint8", _weight("int8", 40, 11), 1, 121),
    "signed": lambda: Model([6, 40], "int8", _weight("int8", 40, 11), 1, -7),
    "turned, any rows": lambda: Model([None, 3, 40], "uint8", _weight("int8", 11, 40), 0, 121, turned=True),
    "unsigned weights": lambda: Model([6, 40], "uint8", _weight("uint8", 40, 11), 1, 3, w_zero=128),
    "convolution": lambda: Model([2, 3, 9, 8], "uint8", _weight("int8", 8, 3, 3, 3), 0, 121, padding=[1, 0, 2, 1]),
    "strides and groups": lambda: Model(
        [None, 8, 9, 8], "int8", _weight("int8", 8, 4, 3, 3), 0, -5, strides=2, padding=1, groups=2
    ),
    "zero of none": lambda: Model([1, 16, 9, 8], "uint8", _weight("int8", 8, 16, 3, 3), 0, 0, padding=1, dilation=2),
}


def operators(mod: Any) -> list[str]:
    return [op_name_of(node) for node in all_nodes(mod["main"]) if isinstance(node, Call)]


@pytest.mark.parametrize("name", MODELS)
def test_products(name: str) -> None:
    model = MODELS[name]()
    mod = relaxish.relax.transform.CanonicalizeBindings()(model.module())
    made = IntegerProducts(_TARGET)(mod)
    assert "relax.dequantize" in operators(mod)
    assert "relax.dequantize" not in operators(made)
    wanted, found = (
        relaxish.VirtualMachine(relaxish.build(m, "llvm -mcpu=x86-64-v3"), relaxish.cpu())["main"](
            relaxish.nd.array(model.x)
        ).numpy()
        for m in (mod, made)
    )
    assert np.abs(wanted).max() > 1
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    native = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())["main"](relaxish.nd.array(model.x))
    np.testing.assert_allclose(native.numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_what_stays_in_numbers() -> None:
    """Scales along the reduction, weights whose zero points take them out of int8, sums that may leave int32, and
    machines without instructions."""
    along = Model([6, 40], "uint8", _weight("int8", 40, 11), 0, 121).module()
    wide = Model([6, 40], "uint8", _weight("uint8", 40, 11), 1, 121, w_zero=3).module()
    deep = Model([1, 66000], "uint8", _weight("int8", 66000, 1), 1, 121).module()
    for mod in (along, wide, deep):
        assert "relax.dequantize" in operators(IntegerProducts(_TARGET)(mod))
    good = MODELS["product"]().module()
    assert "relax.dequantize" in operators(IntegerProducts(Target({"kind": "llvm", "mcpu": "haswell"}))(good))
