"""Loops whose copies run ahead: asynchronous copies into a ring of buffers, one barrier a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...buffer import Buffer
from ....ir.expr import PrimExpr
from ....arith import Analyzer
from ....ir import dtype as dt
from ....ir.functor import post_order_visit
from ....ir.prim import Var, const, const_int
from ...expr import BufferLoad
from ...functor import substitute
from ...stmt import AttrStmt, BufferStore, Evaluate, For, ForKind, IfThenElse, SeqStmt, Stmt, stmt_list
from ..base import call, op_name, seq
from .barriers import barrier
from .names import SHARED, STAGES
from .program import Nest, TileLoweringError, accesses, loads_of, nest_of, stores_of
from .skewed import Plan, commit_copies, is_skewed, stage_count, wait_for_copies

if TYPE_CHECKING:
    from .gpu import GpuKernel

__all__ = ["Pipeline"]


class Pipeline:
    """The pipelined loops of a kernel."""

    def __init__(self, kernel: GpuKernel) -> None:
        self.kernel = kernel
        self.stages: dict[Buffer, int] = {}
        self.managed: list[Any] = []
        self.rings: dict[Any, tuple[list[Nest], int]] = {}
        self.plans: dict[Any, Plan] = {}
        post_order_visit(kernel.body, self._look)

    def _look(self, node: Any) -> None:
        if not isinstance(node, For) or STAGES not in node.annotations:
            return
        copies_ahead = self.kernel.arch.copies_ahead
        stages, skewed = stage_count(node), is_skewed(node)
        if not skewed and (stages < 2 or not copies_ahead):
            return
        nests = [nest_of(item) for item in stmt_list(node.body)]
        stored: dict[Any, int] = {}
        for store in stores_of(node.body):
            stored[store.buffer] = stored.get(store.buffer, 0) + 1
        places = [n for n, nest in enumerate(nests) if nest is not None and self._runs_ahead(nest, stored, node)]
        if skewed:
            plan = self.plans[node.loop_var] = Plan.of(node, places, self.kernel.body, copies_ahead)
            viewed = [b for b in plan.versions if b.data in self.kernel.viewed]
            if viewed:
                raise TileLoweringError(
                    f"T.Pipelined: {viewed[0].name} goes from stage to stage, and has a view (T.view)"
                )
            self.stages |= plan.versions
            return
        ahead = [nest for n in places if (nest := nests[n]) is not None]
        if ahead:
            self.rings[node.loop_var] = (ahead, stages)
            for nest in ahead:
                self.stages[nest.store.buffer] = stages

    def _runs_ahead(self, nest: Nest, stored: dict[Any, int], loop: For) -> bool:
        """Whether a copy depends on nothing that the loop computes, and nobody else uses the memory it fills."""
        body = nest.body
        if nest.op != "copy" or not isinstance(body, BufferStore) or body.buffer.scope() not in SHARED:
            return False
        if stored.get(body.buffer) != 1 or body.buffer in self.stages or body.buffer.data in self.kernel.viewed:
            return False
        sources = loads_of(body)
        if not sources or any(x.buffer.scope() != "global" or x.buffer.data in self.kernel.written for x in sources):
            return False
        total = sum(1 for x in accesses(self.kernel.body) if x.buffer is body.buffer)
        inside = sum(1 for x in accesses(loop.body) if x.buffer is body.buffer)
        return total == inside

    # -- lowering ------------------------------------------------------------------------------------------------------------

    def loop(self, node: Any) -> Stmt:
        """A loop, pipelined where it asks for it and has copies that can run ahead."""
        plan = self.plans.get(node.loop_var)
        if plan is not None:
            node = self.kernel.products.around(self.kernel, node)
            return self.kernel.products.leave(self.kernel, plan.lower(self.kernel, node, self._copy))
        ring = self.rings.get(node.loop_var)
        if ring is None:
            return self.kernel.plain_loop(node)
        ahead, stages = ring
        k = self.kernel
        node = k.products.around(k, node)
        buffers = [n.store.buffer for n in ahead]
        targets = set(buffers)
        count = node.extent
        start = node.min

        def copies(turn: Any, managed: Any) -> Stmt:
            made = []
            for nest in ahead:
                for buffer in buffers:
                    k.memory.turns[buffer] = turn % stages
                made.append(self._copy(nest, {node.loop_var: start + turn}, managed))
            return seq(made)

        first = []
        for early in range(stages - 1):
            fetch = copies(const(early, "int32"), ())
            first.append(fetch if const_int(count, early) > early else IfThenElse(count > early, fetch))
            first.append(commit_copies())
        turn = Var(node.loop_var.name, node.loop_var.dtype)
        outer = list(self.managed)
        self.managed = [*outer, *buffers]
        later = copies(turn + (stages - 1), buffers)
        for buffer in buffers:
            k.memory.turns[buffer] = turn % stages
        rest = [
            item for item in stmt_list(node.body)
            if not ((n := nest_of(item)) is not None and isinstance(n.body, BufferStore) and n.body.buffer in targets and n.op == "copy")
        ]  # fmt: skip
        body = k.visit(substitute(seq(rest), {node.loop_var: start + turn})) if rest else Evaluate(const(0, "int32"))
        self.managed = outer
        for buffer in buffers:
            k.memory.turns.pop(buffer, None)
        made = For(turn, const(0, turn.dtype), count, ForKind.SERIAL, seq([
            wait_for_copies(stages - 2), barrier(), IfThenElse(turn + (stages - 1) < count, later), commit_copies(), body,
        ]))  # fmt: skip
        return seq([*first, k.products.leave(k, made), wait_for_copies(0)])

    def _copy(self, nest: Nest, values: dict[Var, PrimExpr], managed: Any) -> Stmt:
        k = self.kernel
        fresh = {v: Var(v.name, v.dtype) for v, _ in nest.loops}
        loops = tuple((fresh[v], e) for v, e in nest.loops)
        body = substitute(substitute(nest.body, values), fresh)
        made = k.elementwise(Nest("copy", loops, body, None, nest.attrs, nest.kinds), managed)
        return made.with_fields(body=_Async(k).convert(made.body)) if hasattr(made, "body") else made


class _Async:
    """Vectors copied from global to shared memory, as copies that nobody waits for yet."""

    def __init__(self, kernel: GpuKernel) -> None:
        self.views = {kept.view for kept in kernel.memory.shared.values()}

    def convert(self, stmt: Stmt) -> Stmt:
        """The statement with asynchronous copies where there are such."""
        match stmt:
            case SeqStmt():
                return seq([self.convert(s) for s in stmt.seq])
            case AttrStmt():
                return stmt.with_fields(body=self.convert(stmt.body))
            case IfThenElse():
                other = None if stmt.else_case is None else self.convert(stmt.else_case)
                return IfThenElse(stmt.condition, self.convert(stmt.then_case), other)
            case For():
                lanes: Any = stmt.extent
                if stmt.kind == ForKind.VECTORIZED and isinstance(stmt.body, BufferStore):
                    return self._vector(stmt.body, stmt.loop_var, lanes.value) or stmt
                return stmt.with_fields(body=self.convert(stmt.body))
            case BufferStore():
                return self._vector(stmt, None, 1) or stmt
        return stmt

    def _vector(self, store: Any, var: Var | None, width: int) -> Stmt | None:
        value, condition = store.value, None
        if op_name(value) == "if_then_else" and getattr(value.args[2], "value", None) == 0:
            condition, value = value.args[0], value.args[1]
        nbytes = width * dt.bits(store.buffer.dtype) // 8
        if store.buffer not in self.views or not isinstance(value, BufferLoad) or nbytes not in (4, 8, 16):
            return None
        source = value.buffer
        if source.scope() != "global" or source.strides or value.dtype != store.buffer.dtype:
            return None
        if const_int(source.elem_offset, 0) != 0:
            return None
        place: PrimExpr = const(0, "int32")
        for index, extent in zip(value.indices, source.shape, strict=True):
            place = place * extent + index
        zero = {} if var is None else {var: const(0, var.dtype)}
        analyzer = Analyzer()
        args = [
            # Offsets count elements of the pointers' own types: bytes of the arena.
            store.buffer.data, substitute(store.indices[0], zero) * (dt.bits(store.buffer.dtype) // 8), source.data,
            analyzer.simplify(substitute(place, zero)), const(nbytes, "int32"),
        ]  # fmt: skip
        if condition is not None:
            args.append(substitute(condition, zero))
        return Evaluate(call(store.buffer.dtype, "ptx_cp_async", *args))
