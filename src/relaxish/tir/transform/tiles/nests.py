"""Loop nests of operators: guards, vector loops, and the cases where all of a tile lies inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.expr import PrimExpr
from ....arith.affine import coefficient
from ....ir import dtype as dt
from ....ir.functor import Mutator, mentions, post_order_visit
from ....ir.prim import And, Call, Div, FloorDiv, FloorMod, GE, GT, IntImm, LE, LT, Mod, Select, Var, const, is_one
from ...expr import BufferLoad
from ...functor import substitute
from ...stmt import BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt
from ..base import op_name
from .names import TILE_SCOPES
from .program import accesses, loads_of

__all__ = ["interior", "plain_selects", "serial_loops", "vector_loop", "vectorizable", "without_guards"]


def serial_loops(loops: Sequence[tuple[Var, PrimExpr | int]], body: Stmt, kind: ForKind = ForKind.SERIAL) -> Stmt:
    """Nested loops from 0."""
    for var, extent in reversed(loops):
        extent = const(extent, var.dtype) if isinstance(extent, int) else extent
        if is_one(extent):
            body = substitute(body, {var: const(0, var.dtype)})
        else:
            body = For(var, const(0, var.dtype), extent, kind, body)
    return body


# -- guards


def _terms(condition: Any) -> list[PrimExpr]:
    if isinstance(condition, And):
        return [*_terms(condition.a), *_terms(condition.b)]
    return [condition]


def interior(body: Stmt, loops: Sequence[tuple[Var, PrimExpr]]) -> PrimExpr | None:
    """Condition under which every guard in ``body`` holds in all iterations; None where it would be long.

    True where there is no guard.
    """
    wanted: list[PrimExpr] = []
    for condition in _conditions(body):
        for term in _terms(condition):
            corner = _corner(term, loops)
            if corner is None:
                return None
            if not any(corner is w for w in wanted):
                wanted.append(corner)
    made: PrimExpr | None = None
    for term in wanted:
        made = term if made is None else And(made, term)
    return const(True, "bool") if made is None else made


def _conditions(body: Stmt) -> list[Stmt]:
    found: list[Any] = []

    def look(node: Any) -> None:
        if isinstance(node, IfThenElse):
            found.append(node.condition)
        elif op_name(node) == "if_then_else":
            found.append(node.args[0])

    post_order_visit(body, look)
    return found


def _corner(term: PrimExpr, loops: Sequence[tuple[Var, PrimExpr]]) -> PrimExpr | None:
    """The comparison at the iteration where it is hardest to hold."""
    if not isinstance(term, (LT, LE, GT, GE)) or loads_of(term):
        return None
    difference = term.a - term.b
    large = isinstance(term, (GT, GE))
    place = {}
    for var, extent in loops:
        factor = coefficient(difference, var)
        if factor is None:
            return None
        # A comparison from below is hardest where the left side is small.
        place[var] = const(0, var.dtype) if (factor >= 0) is large else extent - 1
    return substitute(term, place)


class _Unguard(Mutator):
    def visit_Call(self, node: Call) -> PrimExpr:
        if op_name(node) == "if_then_else":
            return self.visit(node.args[1])
        return self.default_visit(node)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        return self.visit(node.then_case)


def without_guards(body: Stmt) -> Stmt:
    """The body where all its conditions hold."""
    return _Unguard().visit(body)


class _Selects(Mutator):
    """Choices between values that may both be computed, as selections."""

    def visit_Call(self, node: Call) -> PrimExpr:
        made = self.default_visit(node)
        if op_name(made) == "if_then_else" and all(_harmless(a) for a in made.args):
            return Select(*made.args)
        return made


def plain_selects(body: Stmt) -> Stmt:
    """``if_then_else`` of values that are always there to read, as ``Select``."""
    return _Selects().visit(body)


def _harmless(e: PrimExpr) -> bool:
    fine = True

    def look(node: For) -> None:
        nonlocal fine
        if isinstance(node, BufferLoad) and node.buffer.scope() not in (*TILE_SCOPES, "global.tile"):
            fine = False
        if isinstance(node, (Div, FloorDiv, FloorMod, Mod)) and not dt.is_float(node.dtype):
            fine = fine and isinstance(node.b, IntImm)

    post_order_visit(e, look)
    return fine


# -- vectors


def vectorizable(body: Stmt, var: Var, private: Sequence[Any] = ()) -> bool:
    """Whether iterations of ``var`` may run as lanes: plain stores at places of their own, no loops, private variables or
    conditions on it."""
    fine = True

    def look(node: Any) -> None:
        nonlocal fine
        match node:
            case BufferStore():
                factors = [coefficient(i, var) for i in node.indices]
                fine = fine and node.buffer not in private and any(f not in (None, 0) for f in factors)
            case IfThenElse():
                fine = fine and not mentions(node.condition, var)
            case _ if op_name(node) == "if_then_else":
                fine = fine and not mentions(node.args[0], var)
            case Stmt() if not isinstance(node, SeqStmt):
                fine = False

    post_order_visit(body, look)
    return fine


def vector_loop(var: Var, extent: PrimExpr, body: Stmt, lanes: int) -> Stmt:
    """A loop in vectors of ``lanes``, the rest one by one (or in one shorter vector where that divides)."""
    if not isinstance(extent, IntImm) or lanes < 2 or extent.value < 2:
        return serial_loops([(var, extent)], body)
    count = extent.value
    while lanes > 2 and count % lanes and lanes > count:
        lanes //= 2
    whole, rest = count // lanes, count % lanes
    outer, lane = Var(f"{var.name}_o", var.dtype), Var(f"{var.name}_v", var.dtype)
    at = outer * lanes + lane if whole > 1 else lane
    inner: Stmt = For(
        lane, const(0, var.dtype), const(lanes, var.dtype), ForKind.VECTORIZED, substitute(body, {var: at})
    )
    made: Stmt = For(outer, const(0, var.dtype), const(whole, var.dtype), ForKind.SERIAL, inner) if whole > 1 else inner
    if not rest:
        return made
    tail = Var(f"{var.name}_t", var.dtype)
    last = vector_loop(tail, const(rest, var.dtype), substitute(body, {var: tail + whole * lanes}), _power(rest, lanes))
    return SeqStmt([made, last])


def _power(count: int, limit: int) -> int:
    best = 1
    while best * 2 <= min(count, limit):
        best *= 2
    return best


def widest(body: Stmt) -> int:
    """Bits of the widest element that the body loads or stores."""
    sizes = [dt.bits(n.buffer.dtype) for n in accesses(body)]
    return max([8, *sizes])
