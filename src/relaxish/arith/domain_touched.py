"""Region of a buffer that a statement touches."""

from __future__ import annotations

from typing import Any

from ..ir.functor import Visitor
from ._ir import Range
from .int_set import IntervalSet, eval_set, from_min_extent, from_range, union_all


class _Accesses(Visitor):
    """The index sets of every access to every buffer, loops relaxed to their ranges."""

    def __init__(self) -> None:
        self.domains: dict[Any, IntervalSet] = {}
        self.loads: dict[Any, list[list[IntervalSet]]] = {}
        self.stores: dict[Any, list[list[IntervalSet]]] = {}

    def visit_For(self, stmt: Any) -> None:
        self.domains[stmt.loop_var] = eval_set(from_min_extent(stmt.min, stmt.extent), self.domains)
        self.default_visit(stmt)
        del self.domains[stmt.loop_var]

    def visit_LetStmt(self, stmt: Any) -> None:
        self.visit(stmt.value)
        self.domains[stmt.var] = eval_set(stmt.value, self.domains)
        self.visit(stmt.body)
        del self.domains[stmt.var]

    def visit_AttrStmt(self, stmt: Any) -> None:
        var = getattr(stmt.node, "var", None)
        if stmt.attr_key != "thread_extent" or var is None or var in self.domains:
            self.default_visit(stmt)
            return
        self.domains[var] = from_range(Range(0, stmt.value))
        self.default_visit(stmt)
        del self.domains[var]

    def visit_BufferLoad(self, load: Any) -> None:
        self._touch(self.loads, load)
        self.default_visit(load)

    def visit_BufferStore(self, store: Any) -> None:
        self._touch(self.stores, store)
        self.default_visit(store)

    def visit_Buffer(self, buffer: Any) -> None:
        """The shape of a buffer is no access."""

    def _touch(self, into: dict[Any, list[list[IntervalSet]]], access: Any) -> None:
        dims = into.setdefault(access.buffer, [[] for _ in access.indices])
        for dim, index in zip(dims, access.indices):
            dim.append(eval_set(index, self.domains))


def domain_touched(stmt: Any, buffer: Any, consider_loads: bool, consider_stores: bool) -> list[Range]:
    """The box of elements of ``buffer`` that ``stmt`` may access; empty where it does not.

    Before: ``for i in range(8): A[i] = A[i - 1]``.  Loads touch ``[-1, 7)``, stores ``[0, 8)``, both ``[-1, 8)``.
    """
    found = _Accesses()
    found.visit(stmt)
    dims: list[list[IntervalSet]] = []
    for wanted, accesses in ((consider_loads, found.loads), (consider_stores, found.stores)):
        for i, sets in enumerate(accesses.get(buffer, ()) if wanted else ()):
            if i == len(dims):
                dims.append([])
            dims[i] += sets
    return [union_all(sets).cover_range() for sets in dims]
