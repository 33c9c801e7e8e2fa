"""Sequences of tensors, held as tuples during the import."""

from __future__ import annotations

from typing import Any

from .... import op
from ....relax.expr import Expr, Tuple
from ....relax.scalars import const_int
from ....support.errors import OpAttributeInvalid
from ..context import as_list, Context, convert, Made
from .shaping import split_at_run_time


def _position(ctx: Context, x: Expr | None, count: int, default: int) -> int:
    if x is None:
        return default
    index = int(ctx.need_constant(x, "a position in a sequence").reshape(-1)[0])
    return index + count if index < 0 else index


#: An optional without a value.
NOTHING = Tuple([])


@convert("Optional", 15)
def _optional(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    if not inputs or inputs[0] is None:
        return NOTHING
    return inputs[0] if isinstance(inputs[0], Tuple) else ctx.tensor(inputs[0])


@convert("OptionalHasElement", 15)
def _has_element(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return ctx.const(bool(inputs) and inputs[0] is not None and inputs[0] is not NOTHING, "bool")


@convert("OptionalGetElement", 15)
def _get_element(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    if inputs[0] is None or inputs[0] is NOTHING:
        raise OpAttributeInvalid("OptionalGetElement of an optional that has no element")
    value: Expr = inputs[0]
    return value


@convert("SequenceConstruct")
def _construct(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return Tuple([ctx.tensor(x) for x in inputs])


@convert("SequenceEmpty")
def _empty(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return Tuple([])


@convert("SequenceInsert")
def _insert(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    items = as_list(inputs[0])
    at = _position(ctx, inputs[2] if len(inputs) > 2 else None, len(items), len(items))
    items.insert(at, ctx.tensor(inputs[1]))
    return Tuple(items)


@convert("SequenceErase")
def _erase(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    items = as_list(inputs[0])
    items.pop(_position(ctx, inputs[1] if len(inputs) > 1 else None, len(items), len(items) - 1))
    return Tuple(items)


@convert("SequenceLength")
def _length(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return ctx.const(len(as_list(inputs[0])), "int64")


@convert("SequenceAt")
def _at(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    items = as_list(inputs[0])
    return items[_position(ctx, inputs[1], len(items), 0)]


@convert("ConcatFromSequence")
def _concat(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    items = as_list(inputs[0])
    axis = int(attrs.get("axis", 0))
    if attrs.get("new_axis", 0):
        items = [ctx.emit(op.expand_dims(x, axis)) for x in items]
    return op.concat(items, axis)


@convert("SplitToSequence")
def _split(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    x = ctx.tensor(inputs[0])
    axis, keep = int(attrs.get("axis", 0)), attrs.get("keepdims", 1) == 1
    given = inputs[1] if len(inputs) > 1 else None
    if given is not None and ctx.setting(given) is None and ctx.ndim(given) == 1:
        return Tuple(split_at_run_time(ctx, x, axis, ctx.elements(given)))
    extent = const_int(ctx.dims(x)[axis])
    if extent is None:
        raise NotImplementedError("SplitToSequence of a symbolic dimension")
    if given is None:
        sizes = [1] * extent
    else:
        value = ctx.need_constant(given, "the sizes of SplitToSequence")
        step = int(value) if value.ndim == 0 else 0
        sizes = [min(step, extent - k) for k in range(0, extent, step)] if step else [int(v) for v in value]
    parts, start = [], 0
    for size in sizes:
        part = ctx.emit(op.strided_slice(x, [axis], [start], [start + size]))
        start += size
        parts.append(ctx.emit(op.squeeze(part, [axis])) if given is None and not keep else part)
    return Tuple(parts)
