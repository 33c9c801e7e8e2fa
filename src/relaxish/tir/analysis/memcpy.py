"""Detection of loops that copy one stretch of memory to another, in order."""

from __future__ import annotations

from collections.abc import Sequence

from ...arith import Analyzer, detect_iter_map
from ...arith.domain_touched import domain_touched
from ...arith.int_set import eval_set, from_min_extent
from ...arith.iter_map import IterMapLevel, IterSplitExpr, normalize_iter_map_to_expr
from ...ir.expr import PrimExpr, Range
from ...ir.prim import IntImm, StringImm, Var, const, const_int
from ..buffer import Buffer
from ..expr import BufferLoad
from ...ir.functor import Visitor
from ..stmt import BufferRegion, BufferStore, For, Stmt, unnest

__all__ = ["identify_memcpy"]

#: What is read, and where it is put.
Copy = tuple[BufferRegion, BufferRegion]


class _Refused(Exception):
    """Why a loop is no copy."""


def identify_memcpy(stmt: Stmt) -> list[Copy | StringImm]:
    """For every loop of ``stmt``, outer ones first: (source, destination) if it is a copy of memory, else why it is not.

    A copy takes as many steps as the memory between its first and its last element has elements, on both sides, and
    goes through both in the same order. Loops around it count as fixed.

    >>> from relaxish.script import from_source
    >>> func = from_source('''@T.prim_func
    ... def main(A: T.Buffer((8, 4), "int8"), B: T.Buffer((32,), "int8")):
    ...     for i in range(32):
    ...         B[i] = A[i // 4, i % 4]
    ... ''')
    >>> identify_memcpy(func.body)
    [(A[0:8, 0:4], B[0:32])]
    """
    visitor = _Loops()
    visitor.visit(stmt)
    return visitor.found


class _Loops(Visitor):
    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.found: list[Copy | StringImm] = []

    def visit_For(self, loop: For) -> None:
        try:
            self.found.append(_copy_of(loop, self.analyzer))
        except _Refused as reason:
            self.found.append(StringImm(str(reason)))
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
        self.default_visit(loop)


def _copy_of(loop: For, analyzer: Analyzer) -> Copy:
    """Raises _Refused for a loop that is no copy."""
    ranges: dict[Var, Range] = {}
    steps: PrimExpr = const(1, loop.loop_var.dtype)
    loops, body = unnest(loop)
    for each in loops:
        ranges[each.loop_var] = Range.from_min_extent(each.min, each.extent)
        steps = steps * each.extent
    if not isinstance(body, BufferStore) or body.predicate is not None:
        raise _Refused(f"Expected innermost loop to have BufferStore body, but instead found {body}")
    load = body.value
    if not isinstance(load, BufferLoad) or load.predicate is not None:
        raise _Refused(f"Expected BufferStore's value to be BufferLoad, but instead found {load}")
    steps = analyzer.simplify(steps)
    read, written = (
        _terms(side, access.buffer, access.indices, ranges, steps, analyzer)
        for side, access in (("src", load), ("dst", body))
    )
    _check_order(read, written, analyzer)
    source, target = (
        BufferRegion(buffer, domain_touched(loop, buffer, True, True)) for buffer in (load.buffer, body.buffer)
    )
    return source, target


def _terms(
    side: str, buffer: Buffer, indices: Sequence[PrimExpr], ranges: dict[Var, Range], steps: PrimExpr, analyzer: Analyzer
) -> list[IterSplitExpr]:  # fmt: skip
    """How the loops make up the offset of one access, which goes through a stretch of memory without gaps."""
    offsets = buffer.offset_of(indices)
    if len(offsets) != 1:
        raise _Refused(f"Expected flattened dimension of src/dest to be 1, but {side} has {len(offsets)}")
    found = detect_iter_map(offsets, ranges, True, IterMapLevel.Bijective, analyzer=analyzer)
    if found.errors:
        count, reasons = len(found.errors), "; ".join(map(str, found.errors))
        raise _Refused(f"arith::DetectIterMap({side}) returned {count} errors: [{reasons}] for index {offsets[0]}")
    domains = {var: from_min_extent(r.min, r.extent) for var, r in ranges.items()}
    touched = eval_set(offsets[0], domains)
    if not touched.has_lower() or not touched.has_upper():
        raise _Refused(f"Expected known bounds for {side}, but found {touched} for expression {offsets[0]}")
    if not analyzer.can_prove_equal(steps, touched.max - touched.min + 1):
        raise _Refused(f"Mismatch between loop iterations ({steps}) and number of {side} indices touched ({touched})")
    return sorted(found.indices[0].args, key=_order)


def _order(term: IterSplitExpr) -> tuple[bool, int, int]:
    scale, factor = (const_int(e, 0) for e in (term.scale, term.lower_factor))
    return isinstance(term.scale, IntImm), scale, factor


def _check_order(source: list[IterSplitExpr], target: list[IterSplitExpr], analyzer: Analyzer) -> None:
    """Raises _Refused unless both offsets are the same parts of the same loops, scaled alike."""
    if len(source) != len(target):
        raise _Refused(f"IterMap for src/dst unpacked to different number of IterSplitExpr: {source} and {target}")
    for place, (a, b) in enumerate(zip(source, target, strict=True)):
        pairs = {
            "source": (normalize_iter_map_to_expr(a.source.source), normalize_iter_map_to_expr(b.source.source)),
            "lower_factor": (a.lower_factor, b.lower_factor),
            "extent": (a.extent, b.extent),
            "scale": (a.scale, b.scale),
        }
        for name, (x, y) in pairs.items():
            if not analyzer.can_prove_equal(x, y):
                raise _Refused(f"Term {place} had different {name}, {x} in src and {y} in dst")
