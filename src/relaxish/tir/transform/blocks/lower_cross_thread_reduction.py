"""LowerCrossThreadReduction: reductions over loops bound to threads become all-reductions between the threads."""

from __future__ import annotations

from typing import Any

from ....arith import Analyzer, IterMapLevel, detect_iter_map
from ....arith import build as B
from ....arith.functor import free_vars, uses_var
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Visitor
from ....ir.prim import EQ, IntImm, IterVar, Var, const
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...functor import substitute
from ...stmt import AttrStmt, Block, BlockRealize, BufferRegion, BufferStore, Evaluate, For, ForKind, SeqStmt, stmt_seq, Stmt  # fmt: skip
from ..base import LoweringError, StmtExprMutator, StmtMutator, call, FunctionRewrite
from .reducers import Reduction, ReductionError
from ..simplify.regions import conjuncts

_GONE: Any = None


def _tag(loop: For) -> str:
    return loop.thread_binding.thread_tag if loop.thread_binding is not None else ""


def scratchpads(buffers: list[Buffer], prefix: str) -> list[Buffer]:
    """A thread-local scalar for each buffer."""
    from ....ir.types import PointerType, PrimType

    out = []
    for buffer in buffers:
        name = f"{prefix}_thread_{buffer.name}"
        pointer = Var(name, PointerType(PrimType(buffer.dtype), "local"))
        out.append(Buffer(pointer, buffer.dtype, [1], [1], None, name, 0, 0, ""))
    return out


def _cells(buffers: list[Buffer]) -> list[BufferRegion]:
    return [BufferRegion(b, [Range(0, 1)]) for b in buffers]


class _Redirect(StmtExprMutator):
    """Makes a block accumulate into scalars instead of its own buffers."""

    def __init__(self, buffers: list[Buffer], scalars: list[Buffer]) -> None:
        self.map = dict(zip(buffers, scalars))

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        new = self.map.get(load.buffer)
        return self.default_visit(load) if new is None else BufferLoad(new, [0])

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        new = self.map.get(store.buffer)
        made = self.default_visit(store)
        return made if new is None else BufferStore(new, made.value, [0])


class _InThread(StmtMutator):
    """The nest of a reduction with its block replaced, or dropped, and its thread loops taken off."""

    def __init__(self, source: BlockRealize, target: BlockRealize | None) -> None:
        self.source = source
        self.target = target

    def visit_BlockRealize(self, realize: BlockRealize) -> Stmt | None:
        return self.target if realize is self.source else realize

    def visit_For(self, loop: For) -> Stmt:
        body = self.visit(loop.body)
        if body is None:
            return _GONE
        if loop.thread_binding is not None:
            return body if _reduces_under(body) or body is not loop.body else loop
        return loop if body is loop.body else loop.with_fields(body=body)

    def visit_SeqStmt(self, stmt: SeqStmt) -> Stmt:
        made = [m for m in (self.visit(s) for s in stmt.seq) if m is not None]
        return stmt_seq(*made) if made else _GONE


def _reduces_under(stmt: Stmt) -> bool:
    class Find(Visitor):
        found = False

        def visit_PrimExpr(self, e: PrimExpr) -> None:
            return

        def visit_Block(self, block: Block) -> None:
            self.found = self.found or any(iv.iter_type == IterVar.CommReduce for iv in block.iter_vars)

    find = Find()
    find.visit(stmt)
    return find.found


class _CrossThreadReductionLowerer(StmtMutator):
    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.blocks: list[Block] = []
        self.loops: list[For] = []
        self.ranges: dict[Var, Range] = {}
        self.replaced: dict[For, Stmt] = {}
        self.allocated: dict[Block, list[Buffer]] = {}
        # Buffers that hold an all-reduced value in every thread: pointer -> thread axes of the reduction.
        self.reduced: dict[Any, list[tuple[str, Range]]] = {}

    # -- walking -------------------------------------------------------------------------------------------

    def visit_For(self, loop: For) -> Stmt:
        self.loops.append(loop)
        self.ranges[loop.loop_var] = Range.from_min_extent(loop.min, loop.extent)
        made = self.default_visit(loop)
        self.loops.pop()
        del self.ranges[loop.loop_var]
        return self.replaced.get(loop, made)

    def visit_Block(self, block: Block) -> Block:
        saved, self.ranges = self.ranges, {}
        self.blocks.append(block)
        body = self.visit(block.body)
        self.blocks.pop()
        self.ranges = saved
        added = self.allocated.get(block, [])
        if body is block.body and not added:
            return block
        return block.with_fields(body=body, alloc_buffers=(*block.alloc_buffers, *added))

    def visit_BlockRealize(self, realize: BlockRealize) -> Stmt:
        if not self.blocks:
            return self.default_visit(realize)
        loops = self._reduction_loops(realize)
        if any(_tag(loop).startswith(("threadIdx", "blockIdx")) for loop in loops):
            self._lower(realize, loops)
            return realize
        made = self.default_visit(realize)
        return self._broadcast(realize, made)

    # -- which blocks --------------------------------------------------------------------------------------

    def _reduction_loops(self, realize: BlockRealize) -> list[For]:
        """The loops that the reduction iterators of a reduction block run over; empty for other blocks."""
        block = realize.block
        kinds = {iv.iter_type for iv in block.iter_vars}
        if block.init is None or IterVar.CommReduce not in kinds or kinds - {IterVar.DataPar, IterVar.CommReduce}:
            return []
        if not self._affine(realize) or self._writes_by_reduction(block):
            return []
        variables: set[Any] = set()
        for iv, value in zip(block.iter_vars, realize.iter_values):
            if iv.iter_type == IterVar.CommReduce:
                variables.update(free_vars(value))
        return [loop for loop in self.loops if loop.loop_var in variables]

    def _affine(self, realize: BlockRealize) -> bool:
        found = detect_iter_map(
            list(realize.iter_values), dict(self.ranges), realize.predicate, IterMapLevel.Surjective
        )
        return bool(found.indices)

    @staticmethod
    def _writes_by_reduction(block: Block) -> bool:
        reducing = {iv.var for iv in block.iter_vars if iv.iter_type == IterVar.CommReduce}
        return any(
            uses_var(e, lambda v: v in reducing) for w in block.writes for r in w.region for e in (r.min, r.extent)
        )

    def _check(self, realize: BlockRealize, loops: list[For]) -> Reduction:
        inner = self.loops[self.loops.index(loops[0]) :]
        if len(inner) != len(loops):
            raise LoweringError(
                f"Cross-thread reduction requires all the reduction-related loops to be the deepest among all "
                f"statements outside the desired block. However, block {realize.block.name_hint} needs cross-thread "
                f"reduction and the reduction-related loops {[v.loop_var.name for v in loops]} are not the deepest"
            )
        for loop in loops:
            tag = _tag(loop)
            if tag and not tag.startswith("threadIdx"):
                raise LoweringError(
                    f"Cross-thread reduction requires all the reduction-related loops that are bound to GPU thread "
                    f"axes to only be bound `threadIdx.x/y/z`. However, loop {loop.loop_var.name} violates the "
                    f"condition: it is bound to {tag}"
                )
        try:
            found = Reduction(realize.block)
        except ReductionError as error:
            raise LoweringError(f"Cross-thread reduction of block {realize.block.name_hint} failed: {error}") from None
        if len({b.scope() == "local" for b in found.buffers}) > 1:
            raise LoweringError(
                "Cross-thread reduction requires all reduction buffers to be all local or all non-local"
            )
        return found

    # -- lowering ------------------------------------------------------------------------------------------

    def _lower(self, realize: BlockRealize, loops: list[For]) -> None:
        reduction = self._check(realize, loops)
        bound = [loop for loop in loops if loop.thread_binding is not None]
        in_thread = len(bound) < len(loops) or not B.is_one(realize.predicate)
        cross = scratchpads(reduction.buffers, "cross")
        partial = scratchpads(reduction.buffers, "in") if in_thread else []
        self.allocated.setdefault(self.blocks[-1], []).extend([*cross, *partial])
        body = stmt_seq(*_statements(realize, reduction, loops, bound, cross, partial))
        for loop in reversed(bound):
            body = loop.with_fields(body=body)
        self.replaced[loops[0]] = body
        axes = [(_tag(loop), Range.from_min_extent(loop.min, loop.extent)) for loop in bound]
        for buffer in reduction.buffers:
            self.reduced[buffer.data] = axes

    def _broadcast(self, realize: BlockRealize, made: BlockRealize) -> Stmt:
        """Consumers of thread-local results run in all the threads that reduced them, as they did before."""
        block = realize.block
        if not all(w.buffer.scope() != "" for w in block.writes):
            return made
        inside = {_tag(loop) for loop in self.loops}
        missing: dict[str, Range] = {}
        for read in block.reads:
            if read.buffer.scope() != "local":
                continue
            for tag, dom in self.reduced.get(read.buffer.data, ()):
                if tag not in inside:
                    missing[tag] = dom
        if not missing:
            return made
        local = [w.buffer for w in block.writes if w.buffer.scope() == "local"]
        for buffer in local:
            self.reduced[buffer.data] = list(missing.items())
        if local:
            return self._in_threads(made, missing, False)
        return self._in_threads(made, missing, True)

    @staticmethod
    def _in_threads(made: BlockRealize, missing: dict[str, Range], only_first: bool) -> Stmt:
        first: Any = IntImm("bool", 1)
        variables = {tag: Var("t" + tag[-1], dom.extent.dtype) for tag, dom in missing.items()}
        if only_first:
            for tag, dom in missing.items():
                first = B.and_(first, EQ(variables[tag], dom.min))
        out: Any = made.with_fields(predicate=B.and_(first, made.predicate))
        for tag, dom in reversed(list(missing.items())):
            binding = IterVar(None, Var("", dom.extent.dtype), IterVar.ThreadIndex, tag)
            out = For(variables[tag], dom.min, dom.extent, ForKind.THREAD_BINDING, out, binding)
        return out


def _statements(
    realize: BlockRealize, reduction: Reduction, loops: list[For], bound: list[For], cross: list[Buffer],
    partial: list[Buffer],
) -> list[Stmt]:  # fmt: skip
    """Start the thread's own sum, accumulate, reduce between threads, write back."""
    block, name = realize.block, realize.block.name_hint
    out: list[Stmt] = []
    target = None
    if partial:
        identities = reduction.reducer.identity_element
        starts = [BufferStore(b, e, [0]) for b, e in zip(partial, identities)]
        out.append(_opaque(Block((), (), _cells(partial), f"{name}_in_thread_init", stmt_seq(*starts))))
        own = block.with_fields(
            reads=tuple(r for r in block.reads if r.buffer not in reduction.buffers),
            writes=tuple(_cells(partial)),
            name_hint=f"{name}_in_thread",
            body=_Redirect(reduction.buffers, partial).visit(block.body),
            init=None,
        )
        target = realize.with_fields(block=own)
    nest = _InThread(realize, target).visit(loops[0])
    if nest is not None:
        out.append(nest)
    out.append(_all_reduce(realize, reduction, bound, cross, partial))
    out.append(_write_back(realize, reduction, loops, bound, cross))
    return out


def _opaque(block: Block) -> BlockRealize:
    return BlockRealize((), True, block)


def _all_reduce(
    realize: BlockRealize, reduction: Reduction, bound: list[For], cross: list[Buffer], partial: list[Buffer]
) -> Stmt:
    block = realize.block
    sources: list[PrimExpr] = [BufferLoad(b, [0]) for b in partial] if partial else list(reduction.rhs)
    args: list[Any] = [IntImm("uint32", len(cross)), *sources, IntImm("bool", 1)]
    args += [BufferLoad(b, [0]) for b in cross]
    args += [loop.loop_var for loop in bound]
    null = call("handle", "reinterpret", IntImm("uint64", 0))
    body = AttrStmt(reduction.reducer, "reduce_scope", null, Evaluate(call("handle", "tvm_thread_allreduce", *args)))
    name = f"{block.name_hint}_cross_thread"
    if partial:
        return _opaque(Block((), _cells(partial), _cells(cross), name, body))
    reads = tuple(r for r in block.reads if r.buffer not in reduction.buffers)
    return BlockRealize(realize.iter_values, True, Block(block.iter_vars, reads, _cells(cross), name, body))


def _write_back(
    realize: BlockRealize, reduction: Reduction, loops: list[For], bound: list[For], cross: list[Buffer]
) -> Stmt:
    block = realize.block
    values: dict[Any, Any] = {}
    iter_vars, bindings = [], []
    for iv, value in zip(block.iter_vars, realize.iter_values):
        if iv.iter_type != IterVar.CommReduce:
            fresh = iv.var.with_fields()
            values[iv.var] = fresh
            iter_vars.append(IterVar(iv.dom, fresh, iv.iter_type, iv.thread_tag))
            bindings.append(value)
    indices = substitute(reduction.indices, values)
    stores = [BufferStore(b, BufferLoad(c, [0]), indices) for b, c in zip(reduction.buffers, cross)]
    predicate: Any = IntImm("bool", 1)
    if reduction.buffers[0].scope() != "local":
        # All threads hold the result; one of them is enough to write it where all can see it.
        for loop in bound:
            predicate = B.and_(predicate, EQ(loop.loop_var, const(0, loop.loop_var.dtype)))
    reducing = {loop.loop_var for loop in loops}
    for part in conjuncts(realize.predicate):
        if not uses_var(part, lambda v: v in reducing):
            predicate = B.and_(predicate, part)
    made = Block(
        iter_vars, _cells(cross), substitute(block.writes, values), f"{block.name_hint}_write_back", stmt_seq(*stores)
    )
    return BlockRealize(bindings, predicate, made)


def lower(func: PrimFunc) -> PrimFunc:
    """Lower the cross-thread reductions of a function."""
    body = _CrossThreadReductionLowerer().visit(func.body)
    return func if body is func.body else func.with_body(body)


class LowerCrossThreadReduction(FunctionRewrite):
    """Lower reductions whose loops are bound to ``threadIdx``.

    Before::

        for i in range(128):
            for k in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = 0.0
                    B[vi] = B[vi] + A[vi, vk]

    After::

        for i in range(128):
            for k in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("B_cross_thread"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    T.attr(T.comm_reducer(lambda x, y: x + y, [0.0]), "reduce_scope", ...)
                    T.tvm_thread_allreduce(T.uint32(1), A[vi, vk], True, cross_thread_B[0], k)
                with T.block("B_write_back"):
                    vi = T.axis.spatial(128, i)
                    T.where(k == 0)
                    B[vi] = cross_thread_B[0]

    Reduction loops that are not bound, and predicates, give each thread a partial result first.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return lower(func)
