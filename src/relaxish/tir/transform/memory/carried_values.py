"""Values that one iteration leaves for the next: buffers that hold them cannot be allocated anew each time.

Where a buffer is used in one loop only, it may live inside of it if each iteration reads what it has itself written
before. That is judged on boxes of indices, relaxed over the loops inside: the one around what is written must hold the
one around what is read, and there must be as many writes as elements in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from ....arith import Analyzer
from ....arith import build as B
from ....arith.int_set import IntervalSet, eval_set
from ....arith.functor import free_vars
from ....ir.expr import PrimExpr, Range
from ....ir.prim import IntImm, Var
from ....ir.structural import same_expression
from ...buffer import Buffer
from ...functor import substitute
from ...stmt import For

__all__ = ["Access", "innermost_whole"]

_S = TypeVar("_S")
Box = list[IntervalSet]


@dataclass
class Access(Generic[_S]):
    """One load or store: ``region`` in terms of loop variables, at ``scope`` and under the branches ``guards``.

    ``conditions`` are the terms of the predicates of the blocks around it, in terms of loop variables as well.
    """

    scope: _S
    region: Sequence[Range]
    is_write: bool
    guards: frozenset[int] = frozenset()
    conditions: tuple[Any, ...] = ()


def innermost_whole(
    buffer: Buffer,
    accesses: Sequence[Access[_S]],
    scope: _S,
    parent: Callable[[_S], _S | None],
    loop_of: Callable[[_S], For | None],
    shared_under: Callable[[For], bool],
) -> _S:
    """The innermost scope from ``scope`` outwards in which all that is read has been written in the same instance.

    ``accesses`` are in program order. ``parent`` gives the scope around one, ``loop_of`` its loop if it is one, and
    ``shared_under`` says whether all iterations of a loop run by threads see the same memory. Where there is none, because
    more is read than is written before or it cannot be told, the outermost of them, within the threads' loop: there the
    fewest values are lost. ``scope`` itself where no loop repeats it.
    """
    if not any(n is not None and n.thread_binding is None for n in map(loop_of, _path(scope, None, parent))):
        return scope
    at: _S | None = scope
    outermost = scope
    while at is not None and not _is_whole(buffer, accesses, at, parent, loop_of, shared_under):
        outermost = at
        loop = loop_of(at)
        at = None if loop is not None and loop.thread_binding is not None else parent(at)
    return outermost if at is None else at


def _path(scope: _S, stop: _S | None, parent: Callable[[_S], _S | None]) -> list[_S]:
    out = []
    at: _S | None = scope
    while at is not None and at is not stop:
        out.append(at)
        at = parent(at)
    return out


def _is_whole(
    buffer: Buffer,
    accesses: Sequence[Access[_S]],
    scope: _S,
    parent: Callable[[_S], _S | None],
    loop_of: Callable[[_S], For | None],
    shared_under: Callable[[For], bool],
) -> bool:
    outside = [n for n in map(loop_of, reversed(_path(scope, None, parent))) if n is not None]
    threads = [n for n in outside if n.thread_binding is not None and shared_under(n)]
    repeated = any(n.thread_binding is None for n in outside)
    around_all = {n.loop_var for n in outside}

    def repeated_by(term: PrimExpr) -> bool:
        """Whether a condition leaves out whole instances of the scope, and not parts of what each of them does."""
        return repeated and around_all.issuperset(free_vars(term))

    # The loops from the scope inwards to each access, outermost first.
    nests = [[n for n in map(loop_of, reversed(_path(x.scope, scope, parent))) if n is not None] for x in accesses]
    written: dict[tuple[int, int], _Seen] = {}
    for position, access in enumerate(accesses):
        if access.is_write:
            continue
        analyzer = Analyzer()
        for n in (*outside, *nests[position]):
            analyzer.bind(n.loop_var, Range.from_min_extent(n.min, n.extent), True)
        before: list[_Seen] = []
        around = 0  # how many loops the read has in common with a write
        for p, other in enumerate(accesses):
            if not other.is_write or not other.guards <= access.guards:
                continue
            if any(not _holds_for(term, access, analyzer) for term in other.conditions if repeated_by(term)):
                continue
            common = _shared(nests[p], nests[position])
            around = max(around, common)
            inside = [*threads, *nests[p][common:]]
            if p < position:
                if (p, common) not in written:
                    written[p, common] = _seen(other.region, inside, None, analyzer)
                before.append(written[p, common])
            # What the loops around both have done in their former iterations is there as well.
            for level in range(common):
                n = nests[p][level]
                if n.thread_binding is None:
                    before.append(_seen(other.region, [*inside, *nests[p][level + 1 : common]], n, analyzer))
        read = _seen(access.region, [*threads, *nests[position][around:]], None, analyzer)
        if not before or not _covers(before, read.box, buffer, analyzer, exact=repeated):
            return False
    return True


def _holds_for(term: PrimExpr, access: Access[_S], analyzer: Analyzer) -> bool:
    """Whether a condition holds wherever an access is made."""
    same = analyzer.simplify(term)
    if any(same_expression(same, analyzer.simplify(known)) for known in access.conditions):
        return True
    with ExitStack() as given:
        for known in access.conditions:
            given.enter_context(analyzer.constraint_scope(known))
        return bool(analyzer.can_prove(term))


def _shared(a: Sequence[For], b: Sequence[For]) -> int:
    """How many of the first loops are the same."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x is not y), min(len(a), len(b)))


def _seen(region: Sequence[Range], inside: Sequence[For], former: For | None, analyzer: Analyzer) -> _Seen:
    """The box of a region over all of the loops ``inside``, and over the ``former`` iterations of one more."""
    domains = {n.loop_var: _domain(n) for n in inside}
    used = {v: None for r in region for v in (*free_vars(r.min), *free_vars(r.extent))}
    turns: Any = None
    if former is None:
        extents = [n.extent for n in inside if n.loop_var in used]
        turns = analyzer.simplify(_product([*extents, *(r.extent for r in region)]))
    elif former.loop_var in used:
        # By another name: its domain is stated in terms of the iteration that is running.
        now, one = former.loop_var, B.const(former.loop_var.dtype, 1)
        before = Var(f"{now.name}_before", now.dtype)
        region = in_loops(region, {now: before})
        domains[before] = IntervalSet(former.min, now - one)
    return _Seen(_relaxed(region, domains, analyzer), B.as_int(turns))


class _Seen(NamedTuple):
    """The box around what an access reaches, and how many times it is made, if that is known."""

    box: Box
    turns: int | None


def _product(extents: Sequence[Any]) -> PrimExpr:
    made: Any = IntImm("int64", 1)
    for extent in extents:
        made = B.mul(*B.widened(made, extent))
    return made


def _domain(loop: For) -> IntervalSet:
    one = B.const(loop.extent.dtype, 1)
    return IntervalSet(loop.min, loop.min + loop.extent - one)


def _relaxed(region: Sequence[Range], domains: Mapping[Any, IntervalSet], analyzer: Analyzer) -> Box:
    out = []
    for dim in region:
        low = eval_set(dim.min, domains, analyzer)
        high = eval_set(dim.min + dim.extent - B.const(dim.extent.dtype, 1), domains, analyzer)
        out.append(IntervalSet(low.min_value, high.max_value))
    return out


def _covers(written: Sequence[_Seen], read: Box, buffer: Buffer, analyzer: Analyzer, exact: bool) -> bool:
    """Whether one of the boxes, or the one around all of them, holds the part of ``read`` that is in the buffer.

    With ``exact`` a box that has more elements than are written does not count.
    """
    if len(written) > 1:
        turns = [w.turns for w in written]
        whole = _Seen(_around([w.box for w in written]), None if None in turns else sum(t or 0 for t in turns))
        written = [*written, whole]
    return any(
        _holds(w.box, read, buffer, analyzer) and not (exact and _has_gaps(w, buffer, analyzer)) for w in written
    )


def _has_gaps(written: _Seen, buffer: Buffer, analyzer: Analyzer) -> bool:
    """Whether a box surely has more elements in the buffer than are written."""
    volume = 1
    for dim, size in zip(written.box, buffer.shape, strict=False):
        if not (dim.has_lower() and dim.has_upper()):
            return False
        if not isinstance(size, IntImm):
            return False
        # A part that starts anywhere in a tile of the dimension before has a box of more tiles at some iterations.
        fewest = analyzer.const_int_bound(analyzer.simplify(dim.max_value - dim.min_value)).min_value
        volume *= min(max(fewest, 0) + 1, size.value)
    return written.turns is not None and written.turns < volume


def _around(boxes: Sequence[Box]) -> Box:
    out = []
    for dims in zip(*boxes, strict=True):
        low, high = dims[0].min_value, dims[0].max_value
        for dim in dims[1:]:
            low = B.minimum(*B.widened(low, dim.min_value))
            high = B.maximum(*B.widened(high, dim.max_value))
        out.append(IntervalSet(low, high))
    return out


def _holds(outer: Box, inner: Box, buffer: Buffer, analyzer: Analyzer) -> bool:
    if len(outer) != len(inner):
        return True  # seen in another shape: nothing can be told
    return all(_dim_holds(a, b, size, analyzer) for a, b, size in zip(outer, inner, buffer.shape, strict=False))


def _dim_holds(outer: IntervalSet, inner: IntervalSet, size: PrimExpr, analyzer: Analyzer) -> bool:
    if not all(s.has_lower() and s.has_upper() for s in (outer, inner)):
        return True
    low, high = inner.min_value, inner.max_value
    last = B.minimum(*B.widened(high, size - B.const(size.dtype, 1)))
    first = B.maximum(low, B.const(low.dtype, 0))
    return any(_is_less_or_same(outer.min_value, end, analyzer) for end in (low, first)) and any(
        _is_less_or_same(end, outer.max_value, analyzer) for end in (high, last)
    )


def _is_less_or_same(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> bool:
    return same_expression(a, b) or analyzer.can_prove(B.le(*B.widened(a, b)))


def in_loops(region: Sequence[Range], bound: Mapping[Any, Any]) -> list[Range]:
    """A region in terms of loop variables: block variables replaced by what they are ``bound`` to."""
    if not bound:
        return list(region)
    return [Range.from_min_extent(substitute(r.min, bound), substitute(r.extent, bound)) for r in region]
