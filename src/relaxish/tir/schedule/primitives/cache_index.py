"""cache_index: index expressions computed once, ahead of the block, into small buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator, Visitor
from ....ir.prim import const
from ....ir.structural import structural_equal
from ...buffer import Buffer
from ...expr import BufferLoad, CallEffectKind, FloatImm, IntImm, IterVar, StringImm, Var
from ...functor import substitute
from ...op import effect_of
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, SeqStmt
from .. import checks
from ..instruction import InstructionKind, plain, register_kind
from ..rewrite import ScopeRewriter
from ..sref import StmtSRef
from ..walk import block_realizes_below, vars_in
from .cache import check_scope_name

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


class _Indices(Visitor):
    """Index expressions of loads, each once; with a threshold, all their subexpressions with how often they occur."""

    def __init__(self, iter_vars: set[Any], subexpressions: bool) -> None:
        self.iter_vars, self.subexpressions = iter_vars, subexpressions
        self.inside = 0
        self.found: list[tuple[PrimExpr, int]] = []

    def _add(self, expr: PrimExpr) -> None:
        if isinstance(expr, (Var, IntImm, FloatImm, StringImm)) or not self._eligible(expr):
            return
        for position, (known, count) in enumerate(self.found):
            if type(known) is type(expr) and structural_equal(known, expr):
                self.found[position] = (known, count + 1)
                return
        self.found.append((expr, 1))

    def _eligible(self, expr: PrimExpr) -> bool:
        used = vars_in(expr)
        return bool(used) and all(v in self.iter_vars for v in used) and not _reads_or_acts(expr)

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        for index in node.indices:
            if not self.subexpressions:
                self._add(index)
            self.visit(index)

    def visit_PrimExpr(self, node: Any) -> None:
        if self.subexpressions:
            self._add(node)
        self.default_visit(node)

    def visit_Buffer(self, node: Any) -> None:
        pass


def _reads_or_acts(expr: PrimExpr) -> bool:
    hit = False

    class Look(Visitor):
        def visit_BufferLoad(self, node: Any) -> None:
            nonlocal hit
            hit = True

        def visit_Call(self, node: Any) -> None:
            nonlocal hit
            hit = hit or effect_of(node) > CallEffectKind.Pure
            self.default_visit(node)

    Look().visit(expr)
    return hit


def _size(expr: Any) -> int:
    count = 0

    class Count(Visitor):
        def visit_PrimExpr(self, node: Any) -> None:
            nonlocal count
            count += 1
            self.default_visit(node)

    Count().visit(expr)
    return count


def _expressions(block: Block, threshold: int) -> list[PrimExpr]:
    """What to compute ahead: all index expressions, or what occurs at least ``threshold`` times, largest first."""
    collector = _Indices({iv.var for iv in block.iter_vars}, threshold > 0)
    collector.visit(block.body)
    if threshold <= 0:
        return [e for e, _ in collector.found]
    often = [e for e, count in collector.found if count >= threshold]
    return sorted(often, key=_size, reverse=True)


class _Load(Mutator):
    """Replaces the cached expressions by loads."""

    def __init__(self, pairs: Sequence[tuple[PrimExpr, PrimExpr]], everywhere: bool) -> None:
        self.pairs, self.everywhere = pairs, everywhere
        self.index_depth = 0

    def visit_Buffer(self, node: Any) -> Any:
        return node

    def visit_BufferRegion(self, node: Any) -> Any:
        return node

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        self.index_depth += 1
        indices = self.visit(node.indices)
        self.index_depth -= 1
        return node if indices is node.indices else node.with_fields(indices=indices)

    def visit_PrimExpr(self, node: Any) -> Any:
        if self.everywhere or self.index_depth:
            for expr, load in self.pairs:
                if type(expr) is type(node) and structural_equal(expr, node):
                    return load
        return self.default_visit(node)


def _stage(expr: PrimExpr, block: Block, number: int, storage_scope: str) -> tuple[Any, Block, PrimExpr, Buffer]:
    """(nest, block, load that stands for the expression, buffer) of one cached expression."""
    doms = {iv.var: iv.dom for iv in block.iter_vars}
    used = list(vars_in(expr))
    shape = tuple(doms[v].extent for v in used)
    buffer = _index_buffer(f"index_var_{number}", expr.dtype, shape, storage_scope)
    iters = [
        IterVar(Range.from_min_extent(const(0, v.dtype), doms[v].extent), Var(f"v{i}", v.dtype), IterVar.DataPar)
        for i, v in enumerate(used)
    ]
    indices = [iv.var for iv in iters]
    value = substitute(expr, dict(zip(used, indices, strict=True)))
    region = BufferRegion(buffer, tuple(Range.from_min_extent(i, const(1, i.dtype)) for i in indices))
    made = Block(iters, (), (region,), f"index_{number}", BufferStore(buffer, value, indices))
    loops = [Var(f"ax{i}", v.dtype) for i, v in enumerate(used)]
    body: Any = BlockRealize(tuple(loops), const(True, "bool"), made)
    for var, old in reversed(list(zip(loops, used, strict=True))):
        body = For(var, const(0, var.dtype), doms[old].extent, ForKind.SERIAL, body)
    return body, made, BufferLoad(buffer, used), buffer


def _index_buffer(name: str, dtype: str, shape: tuple[Any, ...], storage_scope: str) -> Buffer:
    from ...buffer import decl_buffer

    made = decl_buffer(shape, dtype, name, strides=[1], scope="" if storage_scope == "global" else storage_scope)
    return made


class _Insert(ScopeRewriter):
    def __init__(self, old: Block, new: Block) -> None:
        super().__init__()
        self.old, self.new = old, new

    def rewrite_block(self, node: Block) -> Block:
        return self.new if node is self.old else node


def cache_index(state: ScheduleState, sref: StmtSRef, storage_scope: str, threshold: int) -> list[StmtSRef]:
    """Compute index expressions of a block ahead of it; gives the computing blocks."""
    check_scope_name(storage_scope)
    block = checks.check_block(sref)
    scope = checks.scope_root(state, sref, require_stage_pipeline=True)
    expressions = _expressions(block, threshold)
    stages = [_stage(e, block, i, storage_scope) for i, e in enumerate(expressions)]
    if not stages:
        return []
    worker = _Load([(e, s[2]) for e, s in zip(expressions, stages, strict=True)], threshold > 0)
    made = block.with_fields(body=worker.visit(block.body))
    rewriter = _Insert(block, made)
    old = scope.stmt
    parts = list(old.body.seq) if isinstance(old.body, SeqStmt) else [old.body]
    at = next(i for i, p in enumerate(parts) if any(r.block is block for r in block_realizes_below(p)))
    parts = [rewriter.visit(p) for p in parts]
    parts = [*parts[:at], *[s[0] for s in stages], *parts[at:]]
    allocs = (*old.alloc_buffers, *[s[3] for s in stages])
    new = old.with_fields(body=SeqStmt(parts), alloc_buffers=allocs)
    state.replace(scope, new, {**rewriter.reuse, old: new})
    out = [state.stmt2ref[s[1]] for s in stages]
    for one in out:
        state.mark_new_block(one)
    return out


@register_kind
class CacheIndex(InstructionKind):
    """Index expressions computed ahead."""

    name, method, many_outputs = "CacheIndex", "cache_index", True
    inputs, attrs = ("block",), ("storage_scope", "cse_thresh")

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        return list(cache_index(sch.state, sch.sref(inputs[0]), str(attrs[0]), int(plain(attrs[1])))), None
