"""Which expressions a program computes, and how often: the candidates of CommonSubexprElimTIR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...arith import Analyzer
from ...arith.effects import CallEffectKind, side_effect
from ...ir import dtype as dt
from ...ir import prim as P
from ...ir.expr import PrimExpr
from ...ir.node import Node
from ..expr import BufferLoad, ProducerLoad
from ..stmt import For, IfThenElse, Stmt, While

Key = int
_ATOMS = (P.IntImm, P.FloatImm, P.StringImm, P.Var)
_OPERATORS: dict[type, str] = {
    P.Add: "({} + {})", P.Sub: "({} - {})", P.Mul: "({}*{})", P.Div: "({}/{})", P.Mod: "({} % {})",
    P.FloorDiv: "floordiv({}, {})", P.FloorMod: "floormod({}, {})", P.Min: "min({}, {})", P.Max: "max({}, {})",
    P.EQ: "({} == {})", P.NE: "({} != {})", P.LT: "({} < {})", P.LE: "({} <= {})", P.GT: "({} > {})",
    P.GE: "({} >= {})", P.And: "({} && {})", P.Or: "({} || {})",
}  # fmt: skip


def parts(e: Any) -> Iterator[PrimExpr]:
    """The direct operands of an expression."""
    for child in e.iter_children():
        for item in child if isinstance(child, (tuple, list)) else (child,):
            if isinstance(item, PrimExpr):
                yield item


def plain_text(e: Any) -> str:
    """An expression in prefix and infix form; expressions of one size are ordered by it.

    >>> x, y = P.Var("x", "int32"), P.Var("y", "int32")
    >>> plain_text(x * 2 + y // 3)
    '((x*2) + floordiv(y, 3))'
    """
    if isinstance(e, P.Var):
        return e.name
    if isinstance(e, P.IntImm):
        return str(e.value) if e.dtype == "int32" else f"({e.dtype}){e.value}"
    if isinstance(e, P.FloatImm):
        return f"{e.value}f"
    form = _OPERATORS.get(type(e))
    if form is not None:
        return form.format(plain_text(e.a), plain_text(e.b))
    if isinstance(e, P.Cast):
        return f"{e.dtype}({plain_text(e.value)})"
    if isinstance(e, P.Not):
        return f"!{plain_text(e.a)}"
    return f"{type(e).__name__.lower()}({', '.join(plain_text(p) for p in parts(e))})"


class Terms:
    """Facts of expressions, each computed once; equal expressions over the same variables have equal keys."""

    def __init__(self, equivalent: bool) -> None:
        self.equivalent = equivalent
        self._keys: dict[int, tuple[Any, Key]] = {}
        self._known: dict[Any, Key] = {}
        self._sizes: dict[int, tuple[Any, int]] = {}
        self._eligible: dict[int, tuple[Any, bool]] = {}

    def key(self, e: Any) -> Key:
        """The key of an expression; with ``equivalent`` that of its simplified form."""
        known = self._keys.get(id(e))
        if known is None:
            simple = Analyzer().simplify(e) if self.equivalent and isinstance(e, PrimExpr) else e
            known = self._keys[id(e)] = (e, self._intern(self._shape(simple)))
        return known[1]

    def _intern(self, shape: Any) -> Key:
        return self._known.setdefault(shape, len(self._known))

    def _shape(self, e: Any) -> Any:
        if isinstance(e, P.Var):
            return ("var", id(e))
        if isinstance(e, (tuple, list)):
            return tuple(self._intern(self._shape(x)) for x in e)
        if isinstance(e, Node):
            fields = tuple(self._intern(self._shape(getattr(e, n))) for n, _ in type(e)._equal_plan)
            return (type(e).__name__, getattr(e, "dtype", ""), fields) if fields else ("node", id(e))
        return ("value", type(e).__name__, e) if isinstance(e, (str, int, float, bool, type(None))) else ("id", id(e))

    def size(self, e: Any) -> int:
        """How many nodes an expression has."""
        known = self._sizes.get(id(e))
        if known is None:
            known = self._sizes[id(e)] = (e, 1 + sum(self.size(c) for c in parts(e)))
        return known[1]

    def eligible(self, e: Any) -> bool:
        """Whether an expression may be put into a variable: it is pure, and neither loads nor calls anything."""
        known = self._eligible.get(id(e))
        if known is None:
            known = self._eligible[id(e)] = (e, self._is_eligible(e))
        return known[1]

    def _is_eligible(self, e: Any) -> bool:
        if isinstance(e, (*_ATOMS, P.Ramp, P.Broadcast)) or dt.lanes(e.dtype) != 1:
            # Vectors of indices stay where code generation sees that they are consecutive.
            return False
        return side_effect(e) <= CallEffectKind.Pure and not _moves_nowhere(e)

    def direct(self, e: Any) -> Iterator[PrimExpr]:
        """The largest eligible expressions below an expression."""
        for part in parts(e):
            if self.eligible(part):
                yield part
            else:
                yield from self.direct(part)


def _moves_nowhere(e: Any) -> bool:
    """Whether what an expression gives depends on when it runs."""
    return isinstance(e, (P.Call, BufferLoad, ProducerLoad)) or any(_moves_nowhere(p) for p in parts(e))


class Table:
    """Expressions, with how often each is computed."""

    def __init__(self) -> None:
        self.counts: dict[Key, tuple[PrimExpr, int]] = {}

    def add(self, key: Key, e: PrimExpr, count: int) -> None:
        """Note further computations of an expression."""
        known = self.counts.get(key)
        self.counts[key] = (e, count) if known is None else (known[0], known[1] + count)

    def merge(self, other: Table) -> None:
        """Add what another table counts."""
        for key, (e, count) in other.counts.items():
            self.add(key, e, count)

    @staticmethod
    def shared(*tables: Table) -> Table:
        """What at least two of the tables have, counted over all of them."""
        out = Table()
        for table in tables:
            for key, (e, _) in table.counts.items():
                if key not in out.counts and sum(key in t.counts for t in tables) > 1:
                    out.counts[key] = (e, sum(t.counts[key][1] for t in tables if key in t.counts))
        return out


class Counter:
    """Tables of statements and expressions, each made once."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._tables: dict[int, tuple[Any, Table]] = {}

    def of(self, node: Any) -> Table:
        """What a statement or expression computes.

        Of a conditional or a loop this is only what at least two of its three parts compute, so that a variable
        does not leave a branch or a loop for computations that are all inside.
        """
        known = self._tables.get(id(node))
        if known is None:
            known = self._tables[id(node)] = (node, self._count(node))
        return known[1]

    def _count(self, node: Any) -> Table:
        if isinstance(node, IfThenElse):
            other = Table() if node.else_case is None else self.of(node.else_case)
            return Table.shared(self.of(node.condition), self.of(node.then_case), other)
        if isinstance(node, For):
            return Table.shared(self.of(node.min), self.of(node.extent), self.of(node.body))
        if isinstance(node, While):
            return Table.shared(self.of(node.condition), self.of(node.body))
        table = Table()
        if isinstance(node, PrimExpr):
            if self.terms.eligible(node):
                table.add(self.terms.key(node), node, 1)
            else:
                for part in parts(node):
                    table.merge(self.of(part))
            return table
        for child in node.iter_children():
            for item in child if isinstance(child, (tuple, list)) else (child,):
                if isinstance(item, (Stmt, PrimExpr)):
                    table.merge(self.of(item))
        return table
