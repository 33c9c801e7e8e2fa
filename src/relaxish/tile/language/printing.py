"""``T.print``: what a kernel has in its hands, on the standard output of the process that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import tir
from ...ir import dtype as dt
from ...ir.expr import PrimExpr, as_expr
from ...ir.prim import StringImm
from ...ir.primops import cast
from ...script.ir_builder import tir as B
from ...tir.op import call_builtin
from .blocks import at, inside_kernel, tile_block
from .regions import Region, TileError, known_extents, region_of, takes_regions

__all__ = ["print"]

# Digits that tell neighbouring numbers of a type apart, roughly.
_DIGITS = {64: 16, 32: 7}
_WARP, _GROUP = 32, 128


@takes_regions
def print(obj: Any, msg: str = "", warp_group_id: int = 0, warp_id: int = 0) -> None:
    """Print a number, or the elements of a buffer or region: one line each, with the block that prints it.

    A block prints in order; blocks run beside each other. In kernels of whole blocks each line is printed once, inside of
    ``T.Parallel`` by each iteration. In kernels written for one thread (``T.get_thread_binding``) every thread prints
    numbers, and the first thread of warp ``warp_id`` of warpgroup ``warp_group_id`` prints buffers.
    """
    frame = inside_kernel("T.print")
    if (warp_group_id or warp_id) and not frame.thread_vars:
        raise TileError("T.print(warp_id=...): the block prints as a whole here; leave it out")
    where = [("block", list(frame.vars))]
    if isinstance(obj, (tir.Buffer, tir.BufferRegion)) or _is_region(obj):
        region = region_of(obj, "T.print")
        if not frame.thread_vars:
            _elements(region, msg, where)
            return
        first = _GROUP * int(warp_group_id) + _WARP * int(warp_id)
        with B.If(_number(frame).equal(first)):
            with B.Then():
                _loops(region, msg, where)
        return
    value = as_expr(obj)
    if frame.thread_vars:
        B.evaluate(_line([*where, ("thread", list(frame.thread_vars))], msg, "", [], value))
        return
    tile_block("print", [], "", lambda _: B.evaluate(_line(where, msg, "", [], value)))


def _is_region(obj: Any) -> bool:
    return isinstance(obj, tir.BufferLoad) and any(isinstance(i, tir.Ramp) for i in obj.indices)


def _number(frame: Any) -> PrimExpr:
    """The number of a thread in its block."""
    total: Any = as_expr(0)
    for var, extent in reversed(list(zip(frame.thread_vars, frame.threads, strict=False))):
        total = total * extent + var
    return total


def _places(region: Region) -> tuple[list[Any], list[int]]:
    extents = list(known_extents(region, "T.print"))
    return extents, list(range(len(extents)))


def _elements(region: Region, msg: str, where: Sequence[tuple[str, list[Any]]]) -> None:
    """An operator that prints a region in order."""
    extents, dims = _places(region)
    tile_block("print", extents, "O" * len(extents), lambda v: _one(region, dims, v, msg, where))


def _loops(region: Region, msg: str, where: Sequence[tuple[str, list[Any]]]) -> None:
    extents, dims = _places(region)
    with B.grid(*extents) as made:
        _one(region, dims, made if isinstance(made, list) else [made], msg, where)


def _one(region: Region, dims: Sequence[int], v: list[Any], msg: str, where: Sequence[tuple[str, list[Any]]]) -> None:
    place = at(region, dims, v)
    B.evaluate(_line(where, msg, region.buffer.name, place, B.BufferLoad(region.buffer, place)))


def _line(where: Sequence[tuple[str, list[Any]]], msg: str, name: str, place: list[Any], value: PrimExpr) -> PrimExpr:
    """``block (0, 1): msg C[3, 4] = 1.5``."""
    values: list[PrimExpr] = []

    def shown(e: Any) -> str:
        form, wide = _form(e.dtype)
        values.append(cast(wide, e))
        return form

    text = ", ".join(f"{what} ({', '.join(map(shown, places))})" for what, places in where) + ": "
    text += f"{msg.replace('%', '%%')} " if msg else ""
    if name:
        text += f"{name.replace('%', '%%')}[{', '.join(map(shown, place))}] = "
    text += shown(value)
    made: PrimExpr = call_builtin("int32", "call_extern", StringImm("printf"), StringImm(f"{text}\n"), *values)
    return made


def _form(dtype: str) -> tuple[str, str]:
    """How ``printf`` shows a type, and the type that it takes then."""
    bits = dt.bits(dtype)
    if dt.lanes(dtype) != 1:
        raise TileError(f"T.print shows numbers, not vectors ({dtype}); name one element")
    if dt.is_float(dtype) or dtype.startswith("bfloat"):
        return f"%.{_DIGITS.get(bits, 5)}g", "float64" if bits == 64 else "float32"
    if dt.is_uint(dtype):
        return ("%llu", "uint64") if bits == 64 else ("%u", "uint32")
    return ("%lld", "int64") if bits == 64 else ("%d", "int32")
