"""The part of every allocated buffer that a program touches: what CompactBufferAllocation shrinks buffers to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....arith.effects import CallEffectKind, side_effect
from ....arith.functor import free_vars
from ....arith.int_set import IntervalSet, eval_set, from_range, intersect_all, union_all
from ....arith.region import estimate_region_upper_bound
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.prim import Call, IntImm, IterVar, Let, Ramp, Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...stmt import (
    Allocate,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Stmt,
)  # fmt: skip
from ..base import StmtExprVisitor, is_call
from ..simplify.condition_bounds import solve_condition

Region = list[Range]

_SCOPE_RANKS = {"global": 0, "": 0, "shared": 1, "warp": 2}


def is_shared_under(scope: str, tag: str) -> bool:
    """Whether all threads along the axis ``tag`` see the same memory of ``scope``."""
    head = scope.partition(".")[0]
    if head == "warp":
        return tag == "threadIdx.x"
    thread_rank = 1 if tag.startswith(("threadIdx", "vthread", "cthread")) else 0
    return _SCOPE_RANKS.get(head, 3) <= thread_rank


class _Aliases(StmtExprVisitor):
    """Which buffers lie on each pointer."""

    def __init__(self) -> None:
        self.found: dict[Var, list[Buffer]] = {}

    def visit_Buffer(self, buffer: Buffer) -> None:
        known = self.found.setdefault(buffer.data, [])
        if not any(b is buffer for b in known):
            known.append(buffer)


class RegionCollector(StmtExprVisitor):
    """Unions all accesses of a buffer, relaxed over what runs between its allocation and the access."""

    def __init__(self, inbound: bool) -> None:
        self.inbound = inbound
        self.analyzer = Analyzer()
        self.regions: dict[Buffer, Region] = {}
        self._aliases: dict[Var, list[Buffer]] = {}
        self._axes: list[tuple[Var, str]] = []
        self._depths: dict[Var, int] = {}
        self._touched: dict[Buffer, list[IntervalSet]] = {}
        self._domains: dict[Var, IntervalSet] = {}
        self._lets: set[Var] = set()
        self._bound: set[Var] = set()  # all variables that loops, threads and lets have defined so far
        self._hints: dict[Var, IntervalSet] = {}
        self._narrowed = False  # whether a condition around limits a domain
        self._pending: list[Any] = []
        self._declared: dict[Buffer, list[Region]] = {}
        self._explicit: dict[Buffer, Region] = {}

    def collect(self, body: Stmt) -> dict[Buffer, Region]:
        """The touched region of every buffer allocated in ``body``."""
        aliases = _Aliases()
        aliases.visit(body)
        self._aliases = aliases.found
        self.visit(body)
        return self.regions

    # -- what is around ------------------------------------------------------------------------------------

    @contextmanager
    def _axis(self, var: Var, dom: Range, tag: str) -> Iterator[None]:
        self._axes.append((var, tag))
        self.analyzer.bind(var, dom, True)
        self._domains[var] = from_range(dom)
        self._bound.add(var)
        yield
        del self._domains[var]
        self._axes.pop()

    @contextmanager
    def _under(self, condition: PrimExpr) -> Iterator[None]:
        """Inside: domains as the condition narrows them; a condition that bounds no variable waits as a predicate."""
        domains, hints, pending = dict(self._domains), dict(self._hints), len(self._pending)
        narrowed = self._narrowed
        solved = solve_condition(condition, self._domains, self._hints)
        if solved is None:
            self._pending.append(condition)
        for var, dom in (solved or {}).items():
            known = self._domains if var in self._domains else self._hints
            new = from_range(dom)
            known[var] = intersect_all([known[var], new]) if var in known else new
            self._narrowed = True
        yield
        self._domains, self._hints, self._narrowed = domains, hints, narrowed
        del self._pending[pending:]

    def visit_For(self, loop: For) -> None:
        tag = loop.thread_binding.thread_tag if loop.thread_binding and loop.kind == ForKind.THREAD_BINDING else ""
        self.visit(loop.min)
        self.visit(loop.extent)
        with self._axis(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), tag):
            self.visit(loop.body)

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        self.visit(attr.value)
        if attr.attr_key not in ("thread_extent", "virtual_thread") or not isinstance(attr.node, IterVar):
            self.visit(attr.body)
            return
        axis = attr.node
        dom = axis.dom or Range.from_min_extent(B.const(attr.value.dtype, 0), attr.value)
        with self._axis(axis.var, dom, axis.thread_tag):
            self.visit(attr.body)

    def _let(self, node: LetStmt | Let) -> None:
        self.visit(node.value)
        index = dt.is_integral(node.value.dtype) and dt.lanes(node.value.dtype) == 1
        if index:
            self.analyzer.bind(node.var, node.value, True)
            self._domains[node.var] = IntervalSet(node.value, node.value)
            self._lets.add(node.var)
        self._bound.add(node.var)
        self.visit(node.body)
        if index:
            del self._domains[node.var]

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        self._let(stmt)

    def visit_Let(self, e: Let) -> None:
        self._let(e)

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        self._branches(stmt.condition, stmt.then_case, stmt.else_case)

    def visit_Call(self, e: Call) -> None:
        if is_call(e, "if_then_else"):
            self._branches(*e.args)
        else:
            self.visit(e.args)

    def _branches(self, condition: PrimExpr, first: PrimExpr | Stmt, second: Stmt | PrimExpr | None) -> None:
        self.visit(condition)
        with self._under(condition):
            self.visit(first)
        if second is not None:
            with self._under(B.not_(condition)):
                self.visit(second)

    # -- allocations ---------------------------------------------------------------------------------------

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        with self._under(realize.predicate):
            self.visit(realize.block)

    def visit_Block(self, block: Block) -> None:
        saved = dict(self._declared)
        own: dict[Buffer, list[Region]] = {}
        for part in (*block.reads, *block.writes):
            own.setdefault(part.buffer, []).append(list(part.region))
        self._declared.update(own)
        for key, parts in (("explicit_read_region", block.reads), ("explicit_write_region", block.writes)):
            for index in block.annotations.get(key, ()):
                if 0 <= int(index) < len(parts):
                    self._explicit[parts[int(index)].buffer] = list(parts[int(index)].region)
        for buffer in block.alloc_buffers:
            self._depths[buffer.data] = len(self._axes)
        for match in block.match_buffers:
            self._touch(match.source.buffer, list(match.source.region))
        self.visit(block.body)
        self._declared = saved
        self._explicit.clear()
        for buffer in block.alloc_buffers:
            self._conclude(buffer)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> None:
        self.visit(stmt.body)

    def visit_Allocate(self, stmt: Allocate) -> None:
        buffers = self._aliases.get(stmt.buffer_var, [])
        # Memory that is seen in two ways, or as another type, keeps its size.
        single = len(buffers) == 1 and buffers[0].dtype == stmt.dtype
        if single:
            self._depths[stmt.buffer_var] = len(self._axes)
        self.visit(stmt.extents)
        self.visit(stmt.body)
        if single:
            self._conclude(buffers[0])

    # -- accesses ------------------------------------------------------------------------------------------

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self._touch(load.buffer, self._explicit.get(load.buffer) or points(load.indices))
        self.visit(load.indices)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self._touch(store.buffer, self._explicit.get(store.buffer) or points(store.indices))
        self.visit(store.value)
        self.visit(store.indices)

    def visit_Var(self, var: Var) -> None:
        """A bare pointer reaches what the blocks around declare, and everything where they declare nothing."""
        for buffer in self._aliases.get(var, ()):
            everything = [[Range.from_min_extent(B.const(n.dtype, 0), n) for n in buffer.shape]]
            for region in self._declared.get(buffer, everything):
                self._touch(buffer, region)

    def _touch(self, buffer: Buffer, region: Region) -> None:
        depth = self._depths.get(buffer.data)
        if depth is None:
            return
        domains = dict(self._domains)
        for var, tag in self._axes[:depth]:
            if not (tag and is_shared_under(buffer.scope(), tag)):
                domains.pop(var, None)
        for var in self._lets & domains.keys():  # a name for a value that an iterator may be part of runs with it
            values = eval_set(domains[var], {v: dom for v, dom in domains.items() if v is not var})
            if values.has_lower() and values.has_upper():
                domains[var] = values
        predicate: Any = IntImm("bool", 1)
        for condition in self._pending:
            predicate = B.and_(predicate, _truth(condition))
        sets = self._relax(region, self.analyzer.simplify(predicate), domains)
        known = self._touched.get(buffer)
        self._touched[buffer] = sets if known is None else [union_all(pair) for pair in zip(known, sets)]

    def _relax(self, region: Region, predicate: PrimExpr, domains: Mapping[Var, IntervalSet]) -> list[IntervalSet]:
        nowhere = Range.from_min_extent(IntImm("int32", 0), IntImm("int32", 0))
        ranges = {var: _cover(self.analyzer, dom, nowhere) for var, dom in domains.items()}
        if not self._narrowed:
            return estimate_region_upper_bound(region, ranges, predicate, self.analyzer)
        # What holds under a condition only must not stay with the analyzer.
        analyzer = Analyzer()
        for var, dom in self._domains.items():
            analyzer.bind(var, _cover(self.analyzer, dom, nowhere), True)
        return estimate_region_upper_bound(region, ranges, predicate, analyzer)

    # -- results -------------------------------------------------------------------------------------------

    def _conclude(self, buffer: Buffer) -> None:
        """Settle the region of a buffer at its allocation; what no allocation can have stays as it was."""
        sets = self._touched.get(buffer)
        if sets is None or len(sets) != len(buffer.shape):
            return
        self.regions[buffer] = [self._dimension(s, full) for s, full in zip(sets, buffer.shape)]

    def _dimension(self, touched: IntervalSet, full: PrimExpr) -> Range:
        original = Range.from_min_extent(B.const(full.dtype, 0), full)
        found = _cover(self.analyzer, touched, original)
        low, extent = found.min, found.extent
        if self.inbound:
            low = B.maximum(B.const(low.dtype, 0), low)
            if not self.analyzer.can_prove_less_equal_than_symbolic_shape_value(extent, full):
                extent = B.minimum(*B.widened(full, extent))
        low, extent = self.analyzer.simplify(low), self.analyzer.simplify(extent)
        if side_effect(extent) > CallEffectKind.Pure:
            return original
        gone = self._bound - self._domains.keys()
        if any(var in gone for e in (low, extent) for var in free_vars(e)):
            return original  # it is not known at the allocation
        axes = {var for var, _ in self._axes}
        if any(var in axes for var in free_vars(extent)):
            # Memory cannot be allocated by the iteration; a constant bound can.
            limit = self.analyzer.const_int_bound.bound(extent)[1]
            if limit >= (1 << 62):
                return original
            extent = B.const(extent.dtype, limit)
        return Range.from_min_extent(low, extent)


def _truth(condition: PrimExpr) -> PrimExpr:
    return condition if condition.dtype == "bool" else B.ne(condition, B.const(condition.dtype, 0))


def points(indices: Sequence[PrimExpr]) -> Region:
    out = []
    for e in indices:
        if isinstance(e, Ramp):
            lanes = B.as_int(e.lanes)
            out.append(Range.from_min_extent(e.base, B.mul(e.stride, B.const(e.stride.dtype, lanes or 1))))
        else:
            out.append(Range.from_min_extent(e, B.const(e.dtype, 1)))
    return out


def _cover(analyzer: Analyzer, s: IntervalSet, default: Range) -> Range:
    if not (s.has_lower() and s.has_upper()):
        return default
    if s.min_value is s.max_value:
        return Range.from_min_extent(s.min_value, B.const(s.min_value.dtype, 1))
    one = B.const(s.max_value.dtype, 1)
    return Range.from_min_extent(s.min_value, analyzer.simplify(B.sub(B.add(s.max_value, one), s.min_value)))
