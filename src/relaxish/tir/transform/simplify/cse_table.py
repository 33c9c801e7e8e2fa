"""Table of the expressions a program computes and their counts: the candidates of CommonSubexprElimTIR."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, TypeGuard

from ....arith import Analyzer
from ....arith.effects import CallEffectKind, side_effect
from ....arith.functor import free_vars
from ....ir import dtype as dt
from ....ir import prim as P
from ....ir.expr import PrimExpr
from ....ir.node import Node
from ...expr import BufferLoad, ProducerLoad
from ...stmt import For, IfThenElse, Stmt, While

Key = int
_ATOMS = (P.IntImm, P.FloatImm, P.StringImm, P.Var)
_OPERATORS: dict[type, str] = {
    P.Add: "({} + {})", P.Sub: "({} - {})", P.Mul: "({}*{})", P.Div: "({}/{})", P.Mod: "({} % {})",
    P.FloorDiv: "floordiv({}, {})", P.FloorMod: "floormod({}, {})", P.Min: "min({}, {})", P.Max: "max({}, {})",
    P.EQ: "({} == {})", P.NE: "({} != {})", P.LT: "({} < {})", P.LE: "({} <= {})", P.GT: "({} > {})",
    P.GE: "({} >= {})", P.And: "({} && {})", P.Or: "({} || {})",
}  # fmt: skip
_LEAVES = frozenset((P.IntImm, P.FloatImm, P.StringImm, P.Var, P.SizeVar))
# Expressions all of which is in their operands.
_SIMPLE = frozenset((*_OPERATORS, P.Cast, P.Not, P.Select, P.Ramp, P.Broadcast, P.Call, BufferLoad))


def is_operator(e: object) -> TypeGuard[P.BinaryOp]:
    """Whether a value is an operation of two operands."""
    return type(e) in _OPERATORS


def parts(e: PrimExpr) -> Iterable[PrimExpr]:
    """The direct operands of an expression."""
    if is_operator(e):
        return (e.a, e.b)
    return [
        item
        for child in e.iter_children()
        for item in (child if isinstance(child, (tuple, list)) else (child,))
        if isinstance(item, PrimExpr)
    ]


def plain_text(e: PrimExpr) -> str:
    """An expression in prefix and infix form; expressions of one size are ordered by it.

    >>> x, y = P.Var("x", "int32"), P.Var("y", "int32")
    >>> plain_text(x * 2 + y // 3)
    '((x*2) + floordiv(y, 3))'
    """
    match e:
        case P.Var():
            return e.name
        case P.IntImm():
            return str(e.value) if e.dtype == "int32" else f"({e.dtype}){e.value}"
        case P.FloatImm():
            return f"{e.value}f"
        case P.BinaryOp():
            return _OPERATORS[type(e)].format(plain_text(e.a), plain_text(e.b))
        case P.Cast():
            return f"{e.dtype}({plain_text(e.value)})"
        case P.Not():
            return f"!{plain_text(e.a)}"
    return f"{type(e).__name__.lower()}({', '.join(plain_text(p) for p in parts(e))})"


class Terms:
    """Facts of expressions, each computed once; equal expressions over the same variables have equal keys.

    ``bindable`` holds the variables that can be known somewhere in the function: expressions that neither mention only
    those nor have parts that do are of no interest, unless ``every`` one is.
    """

    def __init__(self, equivalent: bool, bindable: set[Any]) -> None:
        self.equivalent = equivalent
        self.bindable = bindable
        self.every = equivalent
        self._keys: dict[int, tuple[Any, Key]] = {}
        self._forms: dict[int, tuple[Any, Key]] = {}
        self._known: dict[Any, Key] = {}
        self._sizes: dict[int, tuple[Any, int]] = {}
        self._texts: dict[int, tuple[Any, str]] = {}
        self._eligible: dict[int, tuple[Any, bool]] = {}
        self._still: dict[int, tuple[Any, bool]] = {}
        self._simple: dict[int, tuple[Any, bool]] = {}
        self._matters: dict[int, tuple[Any, bool]] = {}
        self._variables: dict[int, tuple[Any, frozenset[Any]]] = {}

    def key(self, e: PrimExpr) -> Key:
        """The key of an expression; with ``equivalent`` that of its simplified form."""
        if not self.equivalent or not isinstance(e, PrimExpr):
            return self._form(e)
        known = self._keys.get(id(e))
        if known is None:
            known = self._keys[id(e)] = (e, self._form(Analyzer().simplify(e)))
        return known[1]

    def _form(self, e: object) -> Key:
        """The key of a value as it is written."""
        if not isinstance(e, (Node, tuple, list)):
            if isinstance(e, float):  # as text, because 0.0 and -0.0 compare equal
                return self._intern(("float", repr(e)))
            plain = isinstance(e, (str, int, bool, type(None)))
            return self._intern(("value", type(e).__name__, e) if plain else ("id", id(e)))
        known = self._forms.get(id(e))
        if known is None:
            known = self._forms[id(e)] = (e, self._intern(self._shape(e)))
        return known[1]

    def _intern(self, shape: tuple[object, ...]) -> Key:
        return self._known.setdefault(shape, len(self._known))

    def _shape(self, e: Node | tuple[object, ...] | list[object]) -> tuple[object, ...]:
        match e:
            case P.BinaryOp():
                return (type(e), e.dtype, self._form(e.a), self._form(e.b))
            case P.Var():
                return ("var", id(e))
            case tuple() | list():
                return tuple([self._form(x) for x in e])
        fields = tuple([self._form(getattr(e, name)) for name, _ in type(e)._equal_plan])
        return (type(e).__name__, getattr(e, "dtype", ""), fields) if fields else ("node", id(e))

    def size(self, e: PrimExpr) -> int:
        """Number of nodes of an expression."""
        known = self._sizes.get(id(e))
        if known is None:
            known = self._sizes[id(e)] = (e, 1 + sum([self.size(c) for c in parts(e)]))
        return known[1]

    def text(self, e: PrimExpr) -> str:
        """Sort key of expressions of one size."""
        known = self._texts.get(id(e))
        if known is None:
            known = self._texts[id(e)] = (e, plain_text(e))
        return known[1]

    def variables(self, e: PrimExpr) -> frozenset[Any]:
        """The variables that an expression mentions."""
        known = self._variables.get(id(e))
        if known is None:
            if type(e) is P.IntImm:
                found: frozenset[Any] = frozenset()
            elif is_operator(e):
                found = self.variables(e.a) | self.variables(e.b)
            else:
                found = frozenset(free_vars(e))
            known = self._variables[id(e)] = (e, found)
        return known[1]

    def eligible(self, e: PrimExpr) -> bool:
        """Whether an expression may be put into a variable: it is pure, and neither loads nor calls anything."""
        known = self._eligible.get(id(e))
        if known is None:
            # Vectors of indices stay where code generation sees that they are consecutive.
            small = isinstance(e, (*_ATOMS, P.Ramp, P.Broadcast)) or dt.lanes(e.dtype) != 1
            known = self._eligible[id(e)] = (e, not small and self._stands_still(e))
        return known[1]

    def _stands_still(self, e: PrimExpr) -> bool:
        """Whether an expression gives the same wherever it is computed."""
        if type(e) in _LEAVES:
            return True
        if not is_operator(e):
            return side_effect(e) <= CallEffectKind.Pure and not _moves_nowhere(e)
        known = self._still.get(id(e))
        if known is None:
            known = self._still[id(e)] = (e, self._stands_still(e.a) and self._stands_still(e.b))
        return known[1]

    def simple(self, e: PrimExpr) -> bool:
        """Whether an expression binds no variables, and all of it is in its operands."""
        kind = type(e)
        if kind in _LEAVES:
            return True
        known = self._simple.get(id(e))
        if known is None:
            plain = kind in _SIMPLE and not (type(e) is P.Call and e.annotations)
            known = self._simple[id(e)] = (e, plain and all(self.simple(part) for part in parts(e)))
        return known[1]

    def matters(self, e: PrimExpr) -> bool:
        """Whether an expression, or some part of it, may ever be put into a variable or be replaced by one."""
        if self.every:
            return True
        known = self._matters.get(id(e))
        if known is None:
            answer = (
                not self.simple(e)
                or (self.eligible(e) and self.variables(e) <= self.bindable)
                or any(self.matters(part) for part in parts(e))
            )
            known = self._matters[id(e)] = (e, answer)
        return known[1]

    def direct(self, e: PrimExpr) -> Iterator[PrimExpr]:
        """The largest eligible expressions below an expression."""
        for part in parts(e):
            if self.eligible(part):
                yield part
            else:
                yield from self.direct(part)


def _moves_nowhere(e: PrimExpr) -> bool:
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
        """Expressions in at least two of the tables, with their counts over all tables."""
        out = Table()
        for table in tables:
            for key, (e, _) in table.counts.items():
                if key not in out.counts and sum(key in t.counts for t in tables) > 1:
                    out.counts[key] = (e, sum(t.counts[key][1] for t in tables if key in t.counts))
        return out


class Counter:
    """Counts of the expressions that statements compute, as far as they are worth sharing."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._branching: dict[int, tuple[Any, Table]] = {}
        self._largest: dict[int, tuple[Any, list[tuple[Key, PrimExpr]]]] = {}

    def of(self, node: PrimExpr | Stmt) -> Table:
        """Table of the expressions that a statement or expression computes.

        Of a conditional or a loop this is only what at least two of its three parts compute, so that a variable
        does not leave a branch or a loop for computations that are all inside.
        """
        table = Table()
        self._add(node, table)
        return table

    def _add(self, node: PrimExpr | Stmt, table: Table) -> None:
        while True:
            match node:
                case PrimExpr():
                    for key, e in self._computed(node):
                        table.add(key, e, 1)
                    return
                case IfThenElse() | For() | While():
                    table.merge(self._shared(node))
                    return
            # The last part is gone on with here: bodies nest deeply.
            last = None
            for child in node.iter_children():
                for item in child if isinstance(child, (tuple, list)) else (child,):
                    if isinstance(item, (Stmt, PrimExpr)):
                        if last is not None:
                            self._add(last, table)
                        last = item
            if last is None:
                return
            node = last

    def _computed(self, e: PrimExpr) -> list[tuple[Key, PrimExpr]]:
        """The largest expressions in ``e`` that may be shared, those of no interest left out."""
        known = self._largest.get(id(e))
        if known is None:
            found: list[tuple[Key, PrimExpr]] = []
            if self.terms.matters(e):
                if self.terms.eligible(e):
                    found = [(self.terms.key(e), e)]
                else:
                    found = [item for part in parts(e) for item in self._computed(part)]
            known = self._largest[id(e)] = (e, found)
        return known[1]

    def _shared(self, node: IfThenElse | For | While) -> Table:
        known = self._branching.get(id(node))
        if known is None:
            match node:
                case IfThenElse():
                    other = Table() if node.else_case is None else self.of(node.else_case)
                    table = Table.shared(self.of(node.condition), self.of(node.then_case), other)
                case For():
                    table = Table.shared(self.of(node.min), self.of(node.extent), self.of(node.body))
                case _:
                    table = Table.shared(self.of(node.condition), self.of(node.body))
            known = self._branching[id(node)] = (node, table)
        return known[1]


class Queue:
    """Expressions by falling size, those of one size by their text; parts of some may be added while it is read."""

    def __init__(self, terms: Terms, table: Table) -> None:
        self.terms = terms
        # How often each expression was met, as a whole or as the part of another.
        self.counts: dict[Key, list[Any]] = {}
        self._buckets: dict[int, list[list[Any]]] = {}
        self._sizes: list[int] = []
        for e, count in table.counts.values():
            self._insert(e, count)
        for bucket in self._buckets.values():
            if len(bucket) > 1:
                bucket.sort(key=lambda item: terms.text(item[0]))

    def _insert(self, e: PrimExpr, count: int) -> None:
        size = self.terms.size(e)
        bucket = self._buckets.get(size)
        if bucket is None:
            bucket = self._buckets[size] = []
            heappush(self._sizes, -size)
        entry = [e, count, True]
        bucket.append(entry)
        self.counts[self.terms.key(e)] = entry

    def __iter__(self) -> Iterator[tuple[PrimExpr, int]]:
        while self._sizes:
            for entry in self._buckets.pop(-heappop(self._sizes)):
                entry[2] = False
                yield entry[0], entry[1]

    def add_parts(self, e: PrimExpr) -> None:
        """Queue the parts of an expression that is not shared as a whole."""
        for part in self.terms.direct(e):
            if self.terms.matters(part):
                entry = self.counts.get(self.terms.key(part))
                if entry is not None and entry[2]:
                    entry[1] += 1
                else:
                    self._insert(part, 1)
