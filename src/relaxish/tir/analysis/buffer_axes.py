"""Axes of a function's buffers that belong together: they are indexed by the same loop over their range.

``C[i, j] += A[i, k] * B[k, j]`` joins the rows of ``A`` and ``C``, the columns of ``B`` and ``C``, and ``A``'s columns
with ``B``'s rows.  Split one, and the others have to be split the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...arith import Analyzer
from ...arith.int_set import eval_set
from ...arith.iter_map import normalize_to_iter_sum
from ...ir.expr import PrimExpr, Range
from ...ir.functor import Visitor
from ...arith.build import is_zero
from ..buffer import Buffer
from ..expr import BufferLoad, Var
from ..stmt import Block, BufferStore, Stmt

__all__ = ["BufferAxis", "BufferAxisGroups", "split_variable"]

#: A buffer and the number of one of its axes.
BufferAxis = tuple[Buffer, int]


def split_variable(index: PrimExpr, ranges: Mapping[Var, Range]) -> Var | None:
    """The variable whose range to shorten so that ``index`` stays in the first part of its range, or None.

    For ``i * 16 + j`` that is ``i``.
    """
    if isinstance(index, Var):
        return index
    try:
        total: Any = normalize_to_iter_sum(index, ranges)
    except ValueError:
        return None
    analyzer = Analyzer()
    if not is_zero(analyzer.simplify(total.base)) or not total.args:
        return None
    highest: Any = total.args[0]
    source = highest.source.source
    if not isinstance(source, Var) or source not in ranges:
        return None
    untouched = analyzer.can_prove(ranges[source].extent // highest.lower_factor <= highest.extent)
    return source if untouched else None


class BufferAxisGroups(Visitor):
    """The groups of axes of a function's body.

    >>> from relaxish import te
    >>> A = te.placeholder((4, 8), name="A")
    >>> func = te.create_prim_func([A, te.compute((8, 4), lambda i, j: A[j, i], name="T")])
    >>> a, t = (func.buffer_map[p] for p in func.params)
    >>> [(b.name, axis) for b, axis in BufferAxisGroups(func.body).group_of((a, 0), set())]
    [('A', 0), ('T', 1)]
    """

    def __init__(self, body: Stmt) -> None:
        self._joined: dict[BufferAxis, list[BufferAxis]] = {}
        self._accesses: list[tuple[Buffer, Sequence[Any]]] = []
        self.visit(body)

    def __contains__(self, axis: BufferAxis) -> bool:
        return axis in self._joined

    def group_of(self, axis: BufferAxis, seen: set[BufferAxis]) -> list[BufferAxis]:
        """All axes that go along with ``axis``, itself first, without those in ``seen``, which they are added to."""
        found: list[BufferAxis] = []
        stack = [axis]
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            found.append(current)
            stack.extend(reversed(self._joined.get(current, ())))
        return found

    def visit_BufferStore(self, store: BufferStore) -> None:
        """Notes the access."""
        self.default_visit(store)
        self._accesses.append((store.buffer, store.indices))

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        """Notes the access."""
        self.default_visit(load)
        self._accesses.append((load.buffer, load.indices))

    def visit_Block(self, block: Block) -> None:
        """Joins the axes that the block's accesses index alike."""
        if block.name_hint == "root":
            self.default_visit(block)
            return
        self._accesses = []
        self.default_visit(block)
        ranges = {iv.var: iv.dom for iv in block.iter_vars}
        for buffer, indices in self._accesses:
            for other, other_indices in self._accesses:
                if other is buffer:
                    continue
                for i, index in enumerate(indices):
                    for j, other_index in enumerate(other_indices):
                        if _match(index, buffer.shape[i], other_index, other.shape[j], ranges):
                            self._join((buffer, i), (other, j))

    def _join(self, a: BufferAxis, b: BufferAxis) -> None:
        self._joined.setdefault(a, []).append(b)
        self._joined.setdefault(b, []).append(a)


def _match(a: PrimExpr, size_a: PrimExpr, b: PrimExpr, size_b: PrimExpr, ranges: Mapping[Var, Range]) -> bool:
    """Whether one index is a variable over its axis's whole range and the other is led by it over its own."""
    if isinstance(b, Var):
        a, size_a, b, size_b = b, size_b, a, size_a
    if not isinstance(a, Var) or a not in ranges:
        return False
    analyzer = Analyzer()
    for var, dom in ranges.items():
        analyzer.bind(var, dom)
    if not analyzer.can_prove_equal(size_a, ranges[a].extent):
        return False
    b = analyzer.simplify(b)
    reach = eval_set(b, ranges)
    if reach.is_nothing() or not (reach.has_lower() and reach.has_upper()):
        return False
    whole = is_zero(analyzer.simplify(reach.min)) and analyzer.can_prove_equal(reach.max + 1, size_b)
    return whole and split_variable(b, ranges) is a
