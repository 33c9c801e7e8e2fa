"""Four 8-bit products summed (``dp4a``) in thread functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.op import Op
from ...ir.prim import Call, Cast, IntImm, Shuffle
from .table import emulates, emulates_function

if TYPE_CHECKING:
    from .thread_function import ThreadFunction

__all__: list[str] = []


def _bytes(word: PrimExpr) -> list[Any]:
    """The four bytes of a word or vector, as 32-bit numbers; a word's are unsigned if it is."""
    if dt.lanes(word.dtype) == 1:
        word = Call("uint8x4" if dt.is_uint(word.dtype) else "int8x4", Op.get("tir.reinterpret"), [word])
    wide = "uint32" if dt.is_uint(word.dtype) else "int32"
    return [Cast(wide, Shuffle([word], [IntImm("int32", i)])) for i in range(4)]


def _summed(gen: ThreadFunction, args: Sequence[PrimExpr], dtype: str) -> PrimExpr:
    a, b = (_bytes(gen.visit(x)) for x in args[:2])
    total = gen.visit(args[2]) if len(args) > 2 else IntImm(dtype, 0)
    for x, y in zip(a, b, strict=True):
        total = total + Cast(dtype, x) * Cast(dtype, y)
    return total


@emulates("dp4a")
def _dp4a(gen: ThreadFunction, call: Call) -> PrimExpr:
    return _summed(gen, call.args, call.dtype)


@emulates_function("__dp4a")
def _dp4a_by_name(gen: ThreadFunction, call: Call) -> PrimExpr:
    return _summed(gen, call.args[1:], call.dtype)
