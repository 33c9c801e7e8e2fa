"""CompactBufferAllocation: buffers shrink to the region that is touched where they live.

Before: inside loop ``i`` a ``(128,)`` buffer of which iteration ``i`` touches ``[i * 8, i * 8 + 8)``.
After: an ``(8,)`` buffer, its indices shifted by ``i * 8``.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...arith import build as B
from ...arith.functor import free_vars
from ...arith.int_set import IntervalSet, IntSetEvaluator, constraint_sets, from_min_extent, union
from ...arith.region import estimate_region_upper_bound
from ...ir.expr import Range
from ...ir.functor import Mutator, Visitor
from ...ir.prim import FloorDiv, FloorMod, IntImm
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, IfThenElse
from .base import PrimFuncPass, func_pass


class _Access:
    """What is known of one buffer: loops outside its allocation, and the union of touched boxes."""

    __slots__ = ("depth", "opaque", "region")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.region: list[IntervalSet] | None = None
        self.opaque = False


class _Collect(Visitor):
    """Finds the touched region of every allocated buffer, relaxing the loops inside its allocation."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.loops: list[tuple[Any, Range, For]] = []
        self.loop_vars: set[Any] = set()
        self.conditions: list[Any] = []
        self.buffers: dict[Buffer, _Access] = {}
        self.by_data: dict[Any, Buffer] = {}

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        dom = Range.from_min_extent(loop.min, loop.extent)
        self.analyzer.bind(loop.loop_var, dom, True)
        self.loops.append((loop.loop_var, dom, loop))
        self.loop_vars.add(loop.loop_var)
        self.visit(loop.body)
        self.loops.pop()

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        self.visit(node.condition)
        self.conditions.append(node.condition)
        self.visit(node.then_case)
        self.conditions.pop()
        if node.else_case is not None:
            self.conditions.append(B.not_(node.condition))
            self.visit(node.else_case)
            self.conditions.pop()

    def visit_Select(self, e: Any) -> None:
        self._branch(e.condition, e.true_value, e.false_value)

    def visit_Call(self, e: Any) -> None:
        if getattr(e.op, "name", "") == "tir.if_then_else":
            self._branch(*e.args)
        else:
            for arg in e.args:
                self.visit(arg)

    def _branch(self, cond: Any, a: Any, b: Any) -> None:
        self.visit(cond)
        self.conditions.append(cond)
        self.visit(a)
        self.conditions[-1] = B.not_(cond)
        self.visit(b)
        self.conditions.pop()

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        self.conditions.append(realize.predicate)
        block = realize.block
        for buffer in block.alloc_buffers:
            self.buffers[buffer] = _Access(len(self.loops))
            self.by_data[buffer.data] = buffer
        for match in block.match_buffers:
            self._touch(match.source.buffer, match.source.region)
        # A block that says what it touches may be opaque inside.
        for region in (*block.reads, *block.writes):
            if "explicit_read_region" in block.annotations or "explicit_write_region" in block.annotations:
                self._touch(region.buffer, region.region)
        self.visit(block.body)
        self.conditions.pop()

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        for index in load.indices:
            self.visit(index)
        self._touch(load.buffer, _points(load.indices))

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.visit(store.value)
        for index in store.indices:
            self.visit(index)
        self._touch(store.buffer, _points(store.indices))

    def visit_Buffer(self, buffer: Any) -> None:
        return

    def visit_BufferRegion(self, region: BufferRegion) -> None:
        return

    def visit_Var(self, var: Any) -> None:
        buffer = self.by_data.get(var)
        if buffer is not None:
            self.buffers[buffer].opaque = True

    def _touch(self, buffer: Buffer, region: Any) -> None:
        access = self.buffers.get(buffer)
        if access is None or access.opaque:
            return
        if any(_contains(r.min, (BufferLoad,)) for r in region):
            access.opaque = True  # the place is read from memory: it bounds nothing
            return
        inner = {var: dom for var, dom, _ in self.loops[access.depth:]}
        threads = {
            var: dom for var, dom, loop in self.loops[: access.depth]
            if loop.kind == ForKind.THREAD_BINDING and _shared_by(buffer, loop)
        }
        inner.update(threads)
        boxes = self._relax(region, inner)
        if boxes is None:
            access.opaque = True
        elif access.region is None:
            access.region = boxes
        else:
            access.region = [union(self.analyzer, a, b) for a, b in zip(access.region, boxes)]

    def _relax(self, region: Any, domains: dict[Any, Range]) -> list[IntervalSet] | None:
        if not domains:
            return [from_min_extent(r.min, r.extent) for r in region]
        if any(_contains(r.min, (FloorDiv, FloorMod)) for r in region):
            try:
                return estimate_region_upper_bound(region, domains, True)
            except (ValueError, TypeError):
                return None
        sets = {v: from_min_extent(r.min, r.extent) for v, r in domains.items()}
        facts = [f for c in self.conditions for f in constraint_sets(c) if any(v in domains for v in free_vars(f[0]))]
        facts = [f for f in facts if not _mentions(f[1], domains)]
        evaluator = IntSetEvaluator(self.analyzer, sets, True, facts)
        out = []
        for r in region:
            low = evaluator.eval(self.analyzer.simplify(r.min))
            if not low.has_lower() or not low.has_upper():
                return None
            top = B.sub(B.add(low.max_value, r.extent), B.const(low.max_value.dtype, 1))
            out.append(IntervalSet(low.min_value, top))
        return out


def _mentions(s: IntervalSet, domains: dict[Any, Range]) -> bool:
    ends = [e for e in (s.min_value, s.max_value) if e.dtype != "handle"]
    return any(v in domains for e in ends for v in free_vars(e))


def _contains(e: Any, kinds: tuple[type, ...]) -> bool:
    stack = [e]
    while stack:
        x = stack.pop()
        if type(x) in kinds:
            return True
        stack.extend(c for c in x.iter_children() if hasattr(c, "iter_children"))
    return False


def _points(indices: Any) -> list[Range]:
    from ...arith.int_set import int_set_of_vector

    out = []
    for e in indices:
        s = int_set_of_vector(e)
        one = B.const(s.min_value.dtype, 1)
        extent = one if s.min_value is s.max_value else B.add(B.sub(s.max_value, s.min_value), one)
        out.append(Range.from_min_extent(s.min_value, extent))
    return out


def _shared_by(buffer: Buffer, loop: For) -> bool:
    """Whether all threads of ``loop`` see the same memory of ``buffer``."""
    assert loop.thread_binding is not None
    tag = loop.thread_binding.thread_tag
    scope = buffer.scope()
    if scope.startswith("shared"):
        return tag.startswith(("threadIdx", "vthread"))
    if scope.startswith("warp"):
        return tag == "threadIdx.x"
    return scope == "global" and tag.startswith(("threadIdx", "blockIdx", "vthread"))


class _Plan:
    """New shape and offset of a buffer."""

    __slots__ = ("buffer", "mins")

    def __init__(self, buffer: Buffer, mins: list[Any]) -> None:
        self.buffer = buffer
        self.mins = mins


def _plan(
    analyzer: Analyzer, buffer: Buffer, access: _Access, is_strict: bool, loops: set[Any]
) -> _Plan | None:
    if access.opaque or access.region is None or buffer.strides or len(access.region) != len(buffer.shape):
        return None
    mins, shape, changed = [], [], False
    for s, full in zip(access.region, buffer.shape):
        if not (s.has_lower() and s.has_upper()):
            mins.append(B.const(full.dtype, 0))
            shape.append(full)
            continue
        low = analyzer.simplify(s.min_value)
        extent = analyzer.simplify(B.add(B.sub(s.max_value, s.min_value), B.const(s.min_value.dtype, 1)))
        if not isinstance(extent, IntImm) and any(v in loops for v in free_vars(extent)):
            # Memory cannot be allocated by the iteration; a constant bound can.
            high = analyzer.const_int_bound.bound(extent)[1]
            if high < (1 << 31):
                extent = B.const(extent.dtype, high)
            elif is_strict:
                low, extent = B.const(full.dtype, 0), full
        # A region that reaches beyond the buffer is cut to it; predicates keep the excess from being touched.
        grows = analyzer.const_int_bound.bound(B.sub(full, extent))[0] < 0
        if grows and isinstance(full, IntImm) and isinstance(extent, IntImm):
            low, extent = B.const(full.dtype, 0), full
        if not is_strict and analyzer.const_int_bound.bound(low)[0] < 0:
            low = B.const(full.dtype, 0)
        if isinstance(low, IntImm) and low.value < 0:
            low, extent = B.const(full.dtype, 0), full
        mins.append(low)
        shape.append(B.cast(full.dtype, extent))
        changed = changed or not B.is_zero(low) or not B.deep_equal(extent, full)
    return _Plan(buffer.with_fields(shape=tuple(shape)), mins) if changed else None


class _Rewrite(Mutator):
    def __init__(self, plans: dict[Buffer, _Plan], analyzer: Analyzer) -> None:
        self.plans = plans
        self.analyzer = analyzer

    def _shift(self, plan: _Plan, indices: Any) -> list[Any]:
        return [
            e if B.is_zero(low) else self.analyzer.simplify(e - low)
            for e, low in zip(indices, plan.mins)
        ]

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        new = self.default_visit(load)
        plan = self.plans.get(load.buffer)
        return new if plan is None else BufferLoad(plan.buffer, self._shift(plan, new.indices), new.predicate)

    def visit_BufferStore(self, store: BufferStore) -> Any:
        new = self.default_visit(store)
        plan = self.plans.get(store.buffer)
        if plan is None:
            return new
        return BufferStore(plan.buffer, new.value, self._shift(plan, new.indices), new.predicate, store.span)

    def visit_BufferRegion(self, region: BufferRegion) -> Any:
        plan = self.plans.get(region.buffer)
        if plan is None:
            return region
        mins = self._shift(plan, [r.min for r in region.region])
        box = [Range.from_min_extent(m, r.extent) for m, r in zip(mins, region.region)]
        return BufferRegion(plan.buffer, box)

    def visit_For(self, loop: For) -> Any:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), True)
        return self.default_visit(loop)

    def visit_Block(self, block: Block) -> Any:
        new = self.default_visit(block)
        allocs = []
        for buffer in new.alloc_buffers:
            plan = self.plans.get(buffer)
            allocs.append(plan.buffer if plan is not None else buffer)
        if any(a is not b for a, b in zip(allocs, new.alloc_buffers)):
            new = new.with_fields(alloc_buffers=tuple(allocs))
        return new


class _Alignment(Visitor):
    """Collects ``buffer_dim_align`` of the blocks that write a buffer."""

    def __init__(self) -> None:
        self.wanted: dict[Any, list[tuple[int, int, int]]] = {}

    def visit_PrimExpr(self, e: Any) -> None:
        return

    def visit_Block(self, block: Block) -> None:
        for item in block.annotations.get("buffer_dim_align", ()):
            index, axis, factor, offset = (int(v) for v in item)
            buffer = block.writes[index].buffer
            self.wanted.setdefault(buffer, []).append((axis, factor, offset))
        if block.init is not None:
            self.visit(block.init)
        self.visit(block.body)

    def visit_BufferStore(self, store: Any) -> None:
        return


def _align_strides(buffer: Buffer, wanted: list[tuple[int, int, int]]) -> Buffer:
    aligns = {axis % len(buffer.shape): (factor, offset) for axis, factor, offset in wanted}
    stride: Any = B.const(buffer.shape[0].dtype, 1)
    strides: list[Any] = []
    for axis in range(len(buffer.shape) - 1, -1, -1):
        if axis in aligns and isinstance(stride, IntImm):
            factor, offset = aligns[axis]
            stride = B.const(stride.dtype, stride.value + (factor + offset - stride.value % factor) % factor)
        strides.append(stride)
        stride = B.mul(stride, buffer.shape[axis])
    return buffer.with_fields(strides=tuple(reversed(strides)))


def compact(func: PrimFunc, is_strict: bool = True) -> PrimFunc:
    """Shrink all allocations of a function."""
    collect = _Collect()
    for buffer in func.buffer_map.values():
        for extent in buffer.shape:
            collect.analyzer.mark_global_non_neg_value(extent)
    collect.visit(func.body)
    if not collect.buffers:
        return func
    plans: dict[Buffer, _Plan] = {}
    alignment = _Alignment()
    alignment.visit(func.body)
    for buffer, access in collect.buffers.items():
        plan = _plan(collect.analyzer, buffer, access, is_strict, collect.loop_vars)
        if buffer in alignment.wanted:
            zero = [B.const(e.dtype, 0) for e in buffer.shape]
            plan = plan or _Plan(buffer, zero)
            plan.buffer = _align_strides(plan.buffer, alignment.wanted[buffer])
        if plan is not None:
            plans[buffer] = plan
    if not plans:
        return func
    body = _Rewrite(plans, collect.analyzer).visit(func.body)
    return func if body is func.body else func.with_body(body)


def CompactBufferAllocation(is_strict: bool = True) -> PrimFuncPass:  # noqa: N802
    """Shrink allocations to the touched region; with ``is_strict`` never to less than proven."""
    return func_pass(lambda f: compact(f, is_strict), "tir.CompactBufferAllocation")
