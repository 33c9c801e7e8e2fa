"""Loop programs of operators whose result shape depends on data: first count, then write.

All take flat data of ``n`` elements (:func:`write_nonzero` gives coordinates from the shape it is made for).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from .. import tir
from ..script.ir_builder import IRBuilder
from ..script.ir_builder import tir as T

__all__ = ["count_distinct", "count_nonzero", "write_nonzero", "write_unique"]


class _Function:
    """A prim_func being built; ``buffers`` are its parameters."""

    def __init__(self, stack: ExitStack, name: str) -> None:
        self.stack = stack
        stack.enter_context(T.prim_func())
        T.func_name(name)
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True})

    def size(self, name: str) -> tir.PrimExpr:
        return tir.SizeVar(name, "int64")

    def buffers(self, **specs: tuple[Sequence[Any], str]) -> list[Any]:
        handles = {name: T.arg(f"var_{name}", T.handle()) for name in specs}
        made = []
        for name, (shape, dtype) in specs.items():
            buffer = T.match_buffer(handles[name], list(shape), dtype)
            IRBuilder.name(name, buffer)
            made.append(buffer)
        return made

    def counter(self) -> tir.Buffer:
        made = self.stack.enter_context(T.decl_buffer((1,), "int64", scope="local"))
        IRBuilder.name("counter", made)
        T.buffer_store(made, tir.const(0, "int64"), [0])
        return made


def _differs(a: tir.PrimExpr, b: tir.PrimExpr) -> tir.PrimExpr:
    """Whether two sorted neighbours are different values; one NaN is like another."""
    if not str(a.dtype).startswith(("float", "bfloat")):
        return a != b
    return tir.all(a != b, tir.Not(tir.all(a != a, b != b)))


def _step(counter: tir.Buffer) -> None:
    T.buffer_store(counter, counter[0] + tir.const(1, "int64"), [0])


def count_nonzero(dtype: str) -> tir.PrimFunc:
    """``(x, count)``: how many elements are not zero."""
    with IRBuilder() as builder:
        with ExitStack() as stack:
            function = _Function(stack, "count_nonzero")
            n = function.size("n")
            x, count = function.buffers(x=((n,), dtype), count=((1,), "int64"))
            counter = function.counter()
            with T.serial(n) as i, T.If(x[i] != tir.const(0, dtype)), T.Then():
                _step(counter)
            T.buffer_store(count, counter[0], [0])
    return builder.get()


def write_nonzero(dtype: str, ndim: int) -> tir.PrimFunc:
    """``(x, out)``: the coordinates of the elements that are not zero, a row for each of the ``ndim`` axes."""
    with IRBuilder() as builder:
        with ExitStack() as stack:
            function = _Function(stack, "write_nonzero")
            shape = [function.size(f"n{axis}") for axis in range(ndim)]
            x, out = function.buffers(x=(shape, dtype), out=((max(ndim, 1), function.size("count")), "int64"))
            counter = function.counter()
            indices = [stack.enter_context(T.serial(extent)) for extent in shape]
            with T.If(x[tuple(indices)] != tir.const(0, dtype)), T.Then():
                for axis, index in enumerate(indices):
                    T.buffer_store(out, index, [axis, counter[0]])
                _step(counter)
    return builder.get()


def count_distinct(dtype: str) -> tir.PrimFunc:
    """``(x, order, count)``: how many values ``x`` has; ``order`` sorts it."""
    with IRBuilder() as builder:
        with ExitStack() as stack:
            function = _Function(stack, "count_distinct")
            n = function.size("n")
            x, order, count = function.buffers(x=((n,), dtype), order=((n,), "int64"), count=((1,), "int64"))
            counter = function.counter()
            with T.serial(n) as i, T.If(_is_new(x, order, i)), T.Then():
                _step(counter)
            T.buffer_store(count, counter[0], [0])
    return builder.get()


def _is_new(x: tir.Buffer, order: tir.Buffer, i: tir.PrimExpr) -> tir.PrimExpr:
    previous = order[tir.max(i - 1, tir.const(0, "int64"))]
    return tir.any(i == 0, _differs(x[order[i]], x[previous]))


def write_unique(dtype: str) -> tir.PrimFunc:
    """``(x, order, values, first, inverse, counts)``: the values in order, where each appears first, which of them each
    element is, and how often each appears."""
    with IRBuilder() as builder:
        with ExitStack() as stack:
            function = _Function(stack, "write_unique")
            n, m = function.size("n"), function.size("m")
            x, order, values, first, inverse, counts = function.buffers(
                x=((n,), dtype), order=((n,), "int64"), values=((m,), dtype), first=((m,), "int64"),
                inverse=((n,), "int64"), counts=((m,), "int64"),
            )  # fmt: skip
            counter = function.counter()
            with T.serial(n) as i:
                with T.If(_is_new(x, order, i)), T.Then():
                    T.buffer_store(values, x[order[i]], [counter[0]])
                    T.buffer_store(first, order[i], [counter[0]])
                    T.buffer_store(counts, tir.const(0, "int64"), [counter[0]])
                    _step(counter)
                group = counter[0] - 1
                T.buffer_store(inverse, group, [order[i]])
                T.buffer_store(counts, counts[group] + 1, [group])
                T.buffer_store(first, tir.min(first[group], order[i]), [group])
    return builder.get()
