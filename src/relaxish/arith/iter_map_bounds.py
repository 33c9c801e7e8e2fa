"""Predicates of iterator maps as bounds of expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from . import build as B
from ._ir import EQ, GE, GT, LE, LT, IntImm, PrimExpr, Range
from .constraints import split_conjunction
from .functor import free_vars

__all__ = ["bounds_of", "merged_bounds"]

#: An expression, its least value and the one after its largest; None where there is no such bound.
Bounds: TypeAlias = tuple[PrimExpr, Any, Any]


def bounds_of(predicate: PrimExpr, inputs: Mapping[Any, Range]) -> list[Bounds] | None:
    """The predicate as ``(expr, low, high)`` with half-open bounds; None where it has another form."""
    out: list[Bounds] = []
    for part in split_conjunction(predicate):
        e: Any = part
        if type(e) is IntImm:
            if e.value == 0:
                return None
            continue
        kind = type(e)
        if kind not in (LT, LE, GT, GE, EQ):
            return None
        a, b = (e.a, e.b) if kind in (LT, LE, EQ) else (e.b, e.a)
        strict = kind in (LT, GT)
        one = B.const(a.dtype, 1)
        a_iter = any(v in inputs for v in free_vars(a))
        b_iter = any(v in inputs for v in free_vars(b))
        if a_iter and b_iter:
            a, b, a_iter, b_iter = B.sub(a, b), B.const(a.dtype, 0), True, False
        if kind is EQ:
            if b_iter:
                a, b = b, a
            out.append((a, b, B.add(b, one)))
        elif a_iter:
            out.append((a, None, b if strict else B.add(b, one)))
        elif b_iter:
            out.append((b, B.add(a, one) if strict else a, None))
    return out


def merged_bounds(found: list[Bounds]) -> list[Bounds]:
    """One pair of bounds for each expression; those of fewer variables first."""
    merged: list[Bounds] = []
    for e, low, high in found:
        for i, (other, old_low, old_high) in enumerate(merged):
            if B.deep_equal(e, other):
                new_low = low if old_low is None else old_low if low is None else B.maximum(low, old_low)
                new_high = high if old_high is None else old_high if high is None else B.minimum(high, old_high)
                merged[i] = (e, new_low, new_high)
                break
        else:
            merged.append((e, low, high))
    merged.sort(key=lambda item: len(free_vars(item[0])))
    return merged
