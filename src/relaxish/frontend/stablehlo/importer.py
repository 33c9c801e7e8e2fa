"""Importing StableHLO operations one by one into a Relax function."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ... import op, relax, tir
from ...ir import IRModule
from ...relax.expr import Expr
from ...support.errors import OpAttributeInvalid, OpNotImplemented
from .parser import Operation, TensorType, constant_of, parse_function

__all__ = ["from_stablehlo", "supported_operators"]

_Converter = Callable[["_Importer", Operation, list[Any]], Any]
_CONVERTERS: dict[str, _Converter] = {}
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "stablehlo.add": op.add, "stablehlo.subtract": op.subtract, "stablehlo.multiply": op.multiply,
    "stablehlo.divide": op.divide, "stablehlo.maximum": op.maximum, "stablehlo.minimum": op.minimum,
    "stablehlo.power": op.power, "stablehlo.and": op.logical_and, "stablehlo.or": op.logical_or,
    "stablehlo.exponential": op.exp, "stablehlo.log": op.log, "stablehlo.sqrt": op.sqrt, "stablehlo.rsqrt": op.rsqrt,
    "stablehlo.sine": op.sin, "stablehlo.cosine": op.cos, "stablehlo.cosh": op.cosh, "chlo.sinh": op.sinh,
    "chlo.cosh": op.cosh, "stablehlo.tanh": op.tanh, "stablehlo.logistic": op.sigmoid, "stablehlo.negate": op.negative,
    "stablehlo.abs": op.abs, "stablehlo.floor": op.floor, "stablehlo.ceil": op.ceil, "stablehlo.sign": op.sign,
    "stablehlo.round_nearest_afz": op.round, "stablehlo.round_nearest_even": op.round, "chlo.erf": op.erf,
    "stablehlo.not": op.logical_not, "stablehlo.select": op.where,
}  # fmt: skip
_REDUCTIONS = {"stablehlo.add": op.sum, "stablehlo.maximum": op.max, "stablehlo.minimum": op.min,
               "stablehlo.multiply": op.prod}  # fmt: skip
_COMPARISONS = {"EQ": op.equal, "NE": op.not_equal, "LT": op.less, "LE": op.less_equal, "GT": op.greater,
                "GE": op.greater_equal}  # fmt: skip


def supported_operators() -> list[str]:
    """Names of the operations that can be imported, sorted."""
    return sorted({*_CONVERTERS, *_ELEMENTWISE})


def _converter(name: str) -> Callable[[_Converter], _Converter]:
    def register(function: _Converter) -> _Converter:
        _CONVERTERS[name] = function
        return function

    return register


class _Importer:
    """State of one import."""

    def __init__(self) -> None:
        self.builder = relax.BlockBuilder()
        self.values: dict[str, Any] = {}

    def struct_info(self, kind: TensorType, name: str) -> relax.TensorStructInfo:
        """Struct info of an argument; dynamic dimensions become symbols."""
        label = re.sub(r"\W", "", name)
        dims = [tir.Var(f"{label}_{k}", "int64") if d is None else d for k, d in enumerate(kind.shape)]
        return relax.TensorStructInfo(dims, kind.dtype)

    def convert(self, operation: Operation) -> None:
        """Emit one operation and remember its result."""
        own = _CONVERTERS.get(operation.name)
        if own is not None:
            operands = [self.values.get(n) for n in operation.operands]
            made = own(self, operation, operands)
        else:
            made = _ELEMENTWISE[operation.name](*[self.values[n] for n in operation.operands])
        self.values[operation.result] = made if isinstance(made, relax.Constant) else self.builder.emit(made)


def _static(operation: Operation) -> list[int]:
    shape = operation.types[-1].shape
    if any(d is None for d in shape):
        raise OpAttributeInvalid(f"{operation.name} to a dynamic shape cannot be imported")
    return [int(d or 0) for d in shape]


@_converter("stablehlo.constant")
def _constant(self: _Importer, operation: Operation, operands: list[Any]) -> Expr:
    return relax.const(constant_of(operation), operation.types[-1].dtype)


@_converter("stablehlo.reshape")
def _reshape(self: _Importer, operation: Operation, operands: list[Any]) -> Expr:
    return op.reshape(operands[0], _static(operation))


@_converter("stablehlo.convert")
def _convert(self: _Importer, operation: Operation, operands: list[Any]) -> Expr:
    return op.astype(operands[0], operation.types[-1].dtype)


@_converter("stablehlo.transpose")
def _transpose(self: _Importer, operation: Operation, operands: list[Any]) -> Expr:
    return op.permute_dims(operands[0], operation.ints("dims") or operation.ints("permutation"))


@_converter("stablehlo.compare")
def _compare(self: _Importer, operation: Operation, operands: list[Any]) -> Expr:
    way = re.search(r"\b(EQ|NE|LT|LE|GT|GE)\b", operation.text)
    if way is None:
        raise OpAttributeInvalid(f"no direction of comparison in: {operation.text}")
    return _COMPARISONS[way.group(1)](*operands[:2])


@_converter("stablehlo.concatenate")
def _concatenate(self: _Importer, operation: Operation, operands: list[Any]) -> Expr:
    return op.concat([o for o in operands if o is not None], operation.number("dim", 0))


@_converter("stablehlo.broadcast_in_dim")
def _broadcast(self: _Importer, operation: Operation, operands: list[Any]) -> Expr:
    """The operand's axes go to the places ``dims``; the others are new."""
    places = operation.ints("dims") or operation.ints("broadcast_dimensions") or []
    shape = _static(operation)
    have = list(operands[0].struct_info.shape.values)
    spread = [have[places.index(k)] if k in places else 1 for k in range(len(shape))]
    return op.broadcast_to(self.builder.emit(op.reshape(operands[0], spread)), shape)


@_converter("stablehlo.dot_general")
def _dot_general(self: _Importer, operation: Operation, operands: list[Any]) -> Expr:
    """Batch axes first, then free, then contracted ones: an Einstein sum says just that."""
    lhs, rhs = (o.struct_info.ndim for o in operands)
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    left = [next(letters) for _ in range(lhs)]
    right: list[str] = [""] * rhs
    for key in ("batching_dims", "contracting_dims"):
        pair = re.search(rf"{key}\s*=\s*\[([^\]]*)\]\s*x\s*\[([^\]]*)\]", operation.text)
        if pair is not None:
            for a, b in zip(*(re.findall(r"\d+", g) for g in pair.groups()), strict=True):
                right[int(b)] = left[int(a)]
    shared = [c for c in right if c]
    batch = _axes(operation, "batching_dims", left)
    right = [c or next(letters) for c in right]
    out = batch + [c for c in left if c not in shared] + [c for c in right if c not in shared]
    return op.einsum(tuple(operands), f"{''.join(left)},{''.join(right)}->{''.join(out)}")


def _axes(operation: Operation, key: str, letters: list[str]) -> list[str]:
    pair = re.search(rf"{key}\s*=\s*\[([^\]]*)\]", operation.text)
    return [] if pair is None else [letters[int(k)] for k in re.findall(r"\d+", pair.group(1))]


@_converter("stablehlo.reduce")
def _reduce(self: _Importer, operation: Operation, operands: list[Any]) -> Expr:
    applied = re.search(r"applies\s+([\w.]+)", operation.text)
    name = applied.group(1) if applied else operation.region[-1].name if operation.region else ""
    if name not in _REDUCTIONS:
        raise OpNotImplemented(f"stablehlo.reduce with {name or 'its region'} cannot be imported")
    return _REDUCTIONS[name](operands[0], operation.ints("dimensions"))


@_converter("stablehlo.reduce_window")
def _reduce_window(self: _Importer, operation: Operation, operands: list[Any]) -> Expr:
    name = operation.region[-1].name if operation.region else ""
    window = operation.ints("window_dimensions")
    if name != "stablehlo.maximum" or window is None or len(window) != 4 or (window[0], window[3]) != (1, 1):
        raise OpNotImplemented("stablehlo.reduce_window is imported as a maximum over NHWC windows only")
    strides = operation.ints("window_strides") or [1] * 4
    text = re.search(r"padding\s*=\s*dense<(.*?)>", operation.text)
    pads = [int(v) for v in re.findall(r"-?\d+", text.group(1))] if text else [0]
    pads = pads * 8 if len(pads) == 1 else pads
    padding = [pads[2], pads[4], pads[3], pads[5]]
    return op.nn.max_pool2d(operands[0], window[1:3], strides[1:3], padding, layout="NHWC")


@_converter("stablehlo.convolution")
def _convolution(self: _Importer, operation: Operation, operands: list[Any]) -> Expr:
    numbers = re.search(r"dim_numbers\s*=\s*\[([^\]]*)\]x\[([^\]]*)\]->\[([^\]]*)\]", operation.text)
    if numbers is None:
        raise OpAttributeInvalid(f"no dim_numbers in: {operation.text}")
    data, kernel, out = ("".join(v.strip() for v in g.split(",")) for g in numbers.groups())
    letters = {"b": "N", "f": "C", "0": "H", "1": "W", "i": "I", "o": "O"}
    layouts = ["".join(letters.get(c, "?") for c in text) for text in (data, kernel, out)]
    if any("?" in layout for layout in layouts) or len(data) != 4:
        raise OpNotImplemented(f"stablehlo.convolution is imported over two axes only, not {numbers.group(0)}")
    pad = re.search(r"pad\s*=\s*\[\[([^\]]*)\],\s*\[([^\]]*)\]\]", operation.text)
    (top, bottom), (left, right) = (
        ([int(v) for v in re.findall(r"-?\d+", g)] for g in pad.groups()) if pad else ([0, 0], [0, 0])
    )
    return op.nn.conv2d(
        operands[0],
        operands[1],
        strides=operation.ints("stride") or 1,
        padding=[top, left, bottom, right],
        dilation=operation.ints("rhs_dilate") or 1,
        groups=operation.number("feature_group_count", 1),
        data_layout=layouts[0],
        kernel_layout=layouts[1],
        out_layout=layouts[2],
    )


def from_stablehlo(stablehlo_module: Any, input_info: list[tuple[tuple[int, ...], str]] | None = None) -> IRModule:
    """Import a StableHLO module: its text, or an object whose ``str`` is the text (as JAX's lowering gives).

    ``input_info`` gives shapes and dtypes of the inputs where they differ from the text's.

    >>> from relaxish.frontend.stablehlo import from_stablehlo
    >>> text = '''func.func public @main(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
    ...   %0 = stablehlo.add %arg0, %arg0 : tensor<2x3xf32>
    ...   return %0 : tensor<2x3xf32>
    ... }'''
    >>> from_stablehlo(text)["main"].ret_struct_info
    R.Tensor((2, 3), dtype="float32")
    """
    function = parse_function(str(stablehlo_module))
    known = {*_CONVERTERS, *_ELEMENTWISE}
    gaps = sorted({o.name for o in function.operations} - known)
    if gaps:
        raise OpNotImplemented(f"The following operators are not supported for frontend StableHLO: {', '.join(gaps)}")
    importer = _Importer()
    params = []
    for index, (name, kind) in enumerate(function.arguments):
        info = importer.struct_info(kind, name)
        if input_info is not None:
            info = relax.TensorStructInfo(list(input_info[index][0]), input_info[index][1])
        params.append(relax.Var(name.lstrip("%"), info))
        importer.values[name] = params[-1]
    with importer.builder.function("main", params):
        with importer.builder.dataflow():
            for operation in function.operations:
                importer.convert(operation)
            results = [importer.values[n] for n in function.results]
            output = importer.builder.emit_output(results[0] if len(results) == 1 else relax.Tuple(results))
        importer.builder.emit_func_output(output)
    return importer.builder.get()
