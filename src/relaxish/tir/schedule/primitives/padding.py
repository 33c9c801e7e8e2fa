"""pad_einsum and decompose_padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer
from ....ir.expr import Range
from ....ir.functor import Mutator
from ....ir.prim import const
from ...expr import GE, GT, LE, LT, BufferLoad, Call, IntImm, IterVar, Var
from ...functor import substitute
from ...op import all as tir_all
from ...op import if_then_else
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, SeqStmt
from .. import checks
from ..buffers import derived_buffer
from ..errors import PrimitiveError
from ..instruction import InstructionKind, plain, register_kind
from ..rewrite import BufferSwap, signature_of
from ..sref import StmtSRef
from ..subst import and_predicate, realize_of
from ..walk import block_realizes_below, replace_stmts, seq_or_single
from .reduction import conjuncts, copy_var
from .reindex import check_alone, points

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..state import ScheduleState

__all__ = ["can_decompose_padding"]


# -- pad_einsum --------------------------------------------------------------------------------------------


def _einsum_indices(sref: StmtSRef) -> dict[Any, tuple[Any, ...]]:
    """Buffer to the block variables that index it, one each dimension."""
    found: dict[Any, tuple[Any, ...]] = {}

    class Collect(Mutator):
        def visit_Buffer(self, node: Any) -> Any:
            return node

        def visit_BufferLoad(self, node: Any) -> Any:
            self.note(node)
            return node

        def visit_BufferStore(self, node: Any) -> Any:
            self.note(node)
            self.visit(node.value)
            return node

        def note(self, node: Any) -> None:
            if not all(isinstance(i, (Var, IntImm)) for i in node.indices):
                raise PrimitiveError(
                    "The block {0} is no einsum: it has an index that is not a block variable.", [sref]
                )
            known = found.setdefault(node.buffer, tuple(node.indices))
            if any(a is not b for a, b in zip(known, node.indices, strict=True)):
                raise PrimitiveError("The block {0} accesses a buffer at more than one index.", [sref])

    worker = Collect()
    worker.visit(sref.stmt.body)
    if sref.stmt.init is not None:
        worker.visit(sref.stmt.init)
    return found


def _copy_block(name: str, extents: Sequence[Any], value: Any, target: Any, source: Any) -> tuple[Any, Block]:
    """A nest over ``extents`` storing ``value(indices)``."""
    iter_vars = [
        IterVar(Range.from_min_extent(const(0, e.dtype), e), Var(f"v{i}", e.dtype), IterVar.DataPar)
        for i, e in enumerate(extents)
    ]
    indices = [iv.var for iv in iter_vars]
    block = Block(
        tuple(iter_vars),
        (BufferRegion(source, points(indices)),),
        (BufferRegion(target, points(indices)),),
        name,
        BufferStore(target, value(indices), indices),
    )
    loop_vars = [Var(f"i{i}", e.dtype) for i, e in enumerate(extents)]
    body: Any = BlockRealize(tuple(loop_vars), const(True, "bool"), block)
    for var, extent in reversed(list(zip(loop_vars, extents, strict=True))):
        body = For(var, const(0, var.dtype), extent, ForKind.SERIAL, body)
    return body, block


def pad_einsum(state: ScheduleState, sref: StmtSRef, padding: Sequence[int]) -> None:
    """Round the axes of a block up, with padded copies of what it reads and writes."""
    block = checks.check_block(sref)
    scope = checks.scope_root(state, sref)
    if len(padding) != len(block.iter_vars) or any(p <= 0 for p in padding):
        raise PrimitiveError(
            f"The padding {list(padding)} must hold one positive number for each of the {len(block.iter_vars)} "
            "block variables of {0}.",
            [sref],
        )
    realize = realize_of(sref)
    if any(not isinstance(v, Var) for v in realize.iter_values):
        raise PrimitiveError("The bindings of {0} must be plain loop variables to be padded.", [sref])
    check_alone(sref)
    indices = _einsum_indices(sref)
    analyzer = Analyzer()
    new_extent: dict[Any, Any] = {}
    loop_extent: dict[Any, Any] = {}
    for iv, value, factor in zip(block.iter_vars, realize.iter_values, padding, strict=True):
        old = iv.dom.extent
        rounded = analyzer.simplify((old + (factor - 1)) // factor * factor)
        if not analyzer.can_prove_equal(old, rounded):
            new_extent[iv.var] = rounded
            loop_extent[value] = rounded
    if not new_extent:
        return
    before, after, allocs, swaps = [], [], [], {}
    written = {r.buffer for r in block.writes}
    for buffer, index in indices.items():
        shape = tuple(
            new_extent.get(i, d) if isinstance(i, Var) else d for i, d in zip(index, buffer.shape, strict=True)
        )
        grown = [isinstance(i, Var) and i in new_extent for i in index]
        if not any(grown):
            continue
        new = derived_buffer(buffer, f"{buffer.name}_pad", "global", shape=shape, strides=())
        swaps[buffer] = new
        allocs.append(new)
        if buffer in written:
            nest, _ = _copy_block(f"{buffer.name}_pad", buffer.shape, lambda v, b=new: BufferLoad(b, v), buffer, new)
            after.append(nest)
        else:
            nest, _ = _copy_block(f"{buffer.name}_pad", shape, _guarded(buffer, grown), new, buffer)
            before.append(nest)
    _install(state, scope, sref, new_extent, loop_extent, swaps, before, after, allocs)


def _guarded(buffer: Any, grown: Sequence[bool]) -> Any:
    def value(indices: Sequence[Any]) -> Any:
        inside = tir_all(*[v < d for v, d, g in zip(indices, buffer.shape, grown, strict=True) if g])
        return if_then_else(inside, BufferLoad(buffer, indices), const(0, buffer.dtype))

    return value


def _install(
    state: ScheduleState,
    scope: StmtSRef,
    sref: StmtSRef,
    new_extent: Any,
    loop_extent: Any,
    swaps: Any,
    before: list[Any],
    after: list[Any],
    allocs: list[Any],
) -> None:
    block = sref.stmt
    swap = BufferSwap(swaps)
    made = swap.default_visit(block)
    made = made.with_fields(
        iter_vars=tuple(
            IterVar(Range.from_min_extent(iv.dom.min, new_extent.get(iv.var, iv.dom.extent)), iv.var, iv.iter_type)
            for iv in block.iter_vars
        )
    )
    reuse = {block: made, **swap.reuse}

    class Grow(Mutator):
        def visit_PrimExpr(self, node: Any) -> Any:
            return node

        def visit_For(self, node: For) -> Any:
            body = self.visit(node.body)
            return node.with_fields(body=body, extent=loop_extent.get(node.loop_var, node.extent))

        def visit_BlockRealize(self, node: BlockRealize) -> Any:
            return node.with_fields(block=made) if node.block is block else node

    old = scope.stmt
    parts = list(old.body.seq) if isinstance(old.body, SeqStmt) else [old.body]
    at = next(i for i, p in enumerate(parts) if any(r.block is block for r in block_realizes_below(p)))
    parts[at] = Grow().visit(parts[at])
    parts = [*parts[:at], *before, parts[at], *after, *parts[at + 1 :]]
    new = old.with_fields(body=seq_or_single(parts), alloc_buffers=(*old.alloc_buffers, *allocs))
    state.replace(scope, new, {**reuse, old: new})


@register_kind
class PadEinsum(InstructionKind):
    """Axes of an einsum-like block rounded up to multiples."""

    name, method = "PadEinsum", "pad_einsum"
    inputs, attrs = ("block",), ("padding",)

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        pad_einsum(sch.state, sch.sref(inputs[0]), [int(x) for x in plain(attrs[0])])
        return [], None


# -- decompose_padding -------------------------------------------------------------------------------------


class _Padding:
    """What a padding block does: the condition, the value inside, the value outside, and the box inside."""

    def __init__(self, sref: StmtSRef) -> None:
        block = sref.stmt
        store = block.body
        self.store = store
        call = store.value if isinstance(store, BufferStore) else None
        if not isinstance(call, Call) or getattr(call.op, "name", "") != "tir.if_then_else" or block.init is not None:
            raise PrimitiveError("The block {0} is no padding: its body is not a store of an if_then_else.", [sref])
        self.condition, self.inside, self.outside = call.args
        if any(iv.iter_type != IterVar.DataPar for iv in block.iter_vars):
            raise PrimitiveError("The block {0} is no padding: it has variables that are not data parallel.", [sref])
        self.bounds = {iv.var: [iv.dom.min, iv.dom.min + iv.dom.extent] for iv in block.iter_vars}
        analyzer = Analyzer()
        for term in conjuncts(self.condition):
            self._bound(sref, term, analyzer)
        for var, ends in self.bounds.items():
            self.bounds[var] = [analyzer.simplify(e) for e in ends]

    def _bound(self, sref: StmtSRef, term: Any, analyzer: Analyzer) -> None:
        """Narrow one variable by a comparison of ``var + constant`` with a bound."""
        if isinstance(term, (GT, GE)):
            term = (LT if isinstance(term, GT) else LE)(term.b, term.a)
        if isinstance(term, (LT, LE)):
            for var in self.bounds:
                high = analyzer.simplify(term.b - term.a + var)
                low = analyzer.simplify(term.a - term.b + var)
                from ..walk import vars_in

                step = 0 if isinstance(term, LT) else 1
                if var not in vars_in(high) and var in vars_in(term.a):
                    # a < b with a = var + c: var < b - c
                    self.bounds[var][1] = _smaller(self.bounds[var][1], high + step, analyzer)
                    return
                if var not in vars_in(low) and var in vars_in(term.b):
                    # a < b with b = var + c: var > a - c
                    self.bounds[var][0] = _larger(self.bounds[var][0], low + 1 - step, analyzer)
                    return
        raise PrimitiveError(f"The padding condition {term} of {{0}} is not a bound on one block variable.", [sref])


def _smaller(a: Any, b: Any, analyzer: Analyzer) -> Any:
    return a if analyzer.can_prove(a <= b) else b


def _larger(a: Any, b: Any, analyzer: Analyzer) -> Any:
    return a if analyzer.can_prove(a >= b) else b


def decompose_padding(
    state: ScheduleState, sref: StmtSRef, loop_sref: StmtSRef, check_only: bool = False
) -> StmtSRef | None:
    """Split a padding block into a fill before ``loop`` and a copy of what lies inside; gives the fill block."""
    block = checks.check_block(sref)
    checks.check_loop(loop_sref)
    scope = checks.scope_root(state, sref)
    checks.check_complete(state, sref, scope)
    loops = checks.loops_above(sref)
    if loop_sref not in loops:
        raise PrimitiveError("The loop {1} is not an ancestor of {0}.", [sref, loop_sref])
    realize = realize_of(sref)
    pad = _Padding(sref)
    position = loops.index(loop_sref)
    inner = [s.stmt for s in loops[position:]]
    for outer, below in zip(inner, [*inner[1:], realize], strict=True):
        if outer.body is not below:
            raise PrimitiveError("The block {0} must be alone below {1}.", [sref, loop_sref])
    if check_only:
        return None
    fill, fill_block = _fill_nest(realize, pad, inner)
    copy, copy_block = _copy_nest(realize, pad, inner)
    parent = loop_sref.parent
    assert parent is not None
    old = parent.stmt
    new = old.with_fields(body=replace_stmts(old.body, {id(loop_sref.stmt): seq_or_single([fill, copy])}))
    reuse = {block: copy_block}
    if not isinstance(old, For):
        reuse[old] = new
    state.replace(parent, new, reuse)
    made = state.stmt2ref[fill_block]
    state.mark_new_block(made)
    return made


def _fill_nest(realize: BlockRealize, pad: _Padding, inner: Sequence[For]) -> tuple[Any, Block]:
    block = realize.block
    fresh = {iv.var: copy_var(iv.var, "") for iv in block.iter_vars}
    store = pad.store.with_fields(value=pad.outside)
    made = signature_of(
        block.with_fields(
            iter_vars=tuple(IterVar(iv.dom, fresh[iv.var], iv.iter_type) for iv in block.iter_vars),
            body=substitute(store, fresh),
            name_hint=block.name_hint + "_pad_const",
        )
    )
    renamed = {n.loop_var: copy_var(n.loop_var, "") for n in inner}
    body: Any = BlockRealize(
        tuple(substitute(v, renamed) for v in realize.iter_values), substitute(realize.predicate, renamed), made
    )
    for n in reversed(inner):
        body = n.with_fields(loop_var=renamed[n.loop_var], body=body)
    return body, made


def _copy_nest(realize: BlockRealize, pad: _Padding, inner: Sequence[For]) -> tuple[Any, Block]:
    block = realize.block
    analyzer = Analyzer()
    inner_vars = {n.loop_var: n for n in inner}
    shifted: dict[Any, Any] = {}
    iter_vars: list[IterVar] = []
    values: list[Any] = []
    extents: dict[Any, Any] = {}
    predicate = realize.predicate
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        low, high = pad.bounds[iv.var]
        extent = analyzer.simplify(high - low)
        iter_vars.append(IterVar(Range.from_min_extent(const(0, iv.var.dtype), extent), iv.var, iv.iter_type))
        shifted[iv.var] = iv.var if checks.is_zero(low) else iv.var + low
        if isinstance(value, Var) and value in inner_vars and value not in extents:
            extents[value] = extent
            values.append(value)
            continue
        values.append(analyzer.simplify(value - low))
        for term in (low <= value, value < high):
            if not analyzer.can_prove(term):
                predicate = and_predicate(predicate, term)
    for iv in iter_vars:
        analyzer.bind(iv.var, iv.dom)

    class Shift(Mutator):
        def visit_Buffer(self, node: Any) -> Any:
            return node

        def visit_Var(self, node: Any) -> Any:
            return shifted.get(node, node)

        def visit_BufferLoad(self, node: Any) -> Any:
            return node.with_fields(indices=tuple(analyzer.simplify(self.visit(i)) for i in node.indices))

        def visit_BufferStore(self, node: Any) -> Any:
            indices = tuple(analyzer.simplify(self.visit(i)) for i in node.indices)
            return node.with_fields(value=self.visit(node.value), indices=indices)

    store = Shift().visit(pad.store.with_fields(value=pad.inside))
    made = signature_of(block.with_fields(iter_vars=tuple(iter_vars), body=store))
    body: Any = BlockRealize(tuple(values), predicate, made)
    for n in reversed(inner):
        body = n.with_fields(body=body, extent=extents.get(n.loop_var, n.extent))
    return body, made


def can_decompose_padding(state: ScheduleState, block: StmtSRef, loop: StmtSRef) -> bool:
    """Whether ``decompose_padding`` would succeed."""
    try:
        decompose_padding(state, block, loop, check_only=True)
    except PrimitiveError:
        return False
    return True


@register_kind
class DecomposePadding(InstructionKind):
    """Fill and copy of a padding block apart."""

    name, method = "DecomposePadding", "decompose_padding"
    inputs = ("block", "loop")

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        return [decompose_padding(sch.state, sch.sref(inputs[0]), sch.sref(inputs[1]))], None
