"""LowerThreadAllreduce: all-reductions between threads become warp shuffles or trees in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import ExprLike, PrimExpr
from ....ir.module import IRModule
from ....ir.prim import Call, CommReducer, IntImm, IterVar, Select, StringImm, Var, uncast
from ....ir.transform import PassContext
from ....support.sequences import of_kind
from ....target.target import Target
from ...buffer import Buffer, decl_buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...functor import substitute
from ...stmt import Allocate, AttrStmt, BufferStore, DeclBuffer, Evaluate, IfThenElse, LetStmt, SeqStmt, stmt_seq, Stmt  # fmt: skip
from ..base import LoweringError, StmtExprMutator, call, is_call, FunctionRewrite

_MASK = "uint32"


def _barrier(scope: str) -> Stmt:
    return Evaluate(call("int32", "tvm_storage_sync", StringImm(scope)))


def _load(buffer: Buffer, index: ExprLike = 0) -> BufferLoad:
    return BufferLoad(buffer, [index])


class _Thread:
    """A ``threadIdx`` axis of the kernel."""

    def __init__(self, axis: IterVar, extent: int) -> None:
        self.var = axis.var
        self.extent = extent
        self.dim = "xyz".index(axis.thread_tag[-1])


def _flatten(threads: list[_Thread]) -> tuple[Any, int]:
    """The linear index of a thread within some axes, and the number of such threads."""
    total = 1
    index: Any = None
    for thread in threads:
        index = thread.var if index is None else index + thread.var * total
        total *= thread.extent
    return (IntImm("int32", 0) if index is None else index), total


class _Group:
    """How the threads of a block divide: those that reduce together, and the groups of them."""

    def __init__(self, reducing: list[_Thread], others: list[_Thread]) -> None:
        reducing.sort(key=lambda t: t.dim)
        others.sort(key=lambda t: t.dim)
        self.index, self.extent = _flatten(reducing)
        self.group, self.groups = _flatten(others)
        self.contiguous = 1
        for thread in sorted([*reducing, *others], key=lambda t: t.dim):
            if thread not in reducing:
                break
            self.contiguous *= thread.extent


class _Reduce:
    """Writes the statements of one all-reduction."""

    def __init__(self, owner: _AllreduceLowerer, reducer: CommReducer, group: _Group, dtypes: list[str]) -> None:
        self.owner = owner
        self.reducer = reducer
        self.group = group
        self.dtypes = dtypes
        self.seq: list[Stmt] = []
        self.allocs: list[Buffer] = []

    def combine(self, a: list[Any], b: list[Any]) -> list[Any]:
        """The reducer applied to two tuples of values."""
        values = dict(zip((*self.reducer.lhs, *self.reducer.rhs), (*a, *b)))
        return [substitute(e, values) for e in self.reducer.result]

    # -- warps ---------------------------------------------------------------------------------------------

    def shuffle(self, name: str, mask: Buffer | None, value: PrimExpr, lane: PrimExpr) -> PrimExpr:
        """A value from another lane of the warp."""
        width = IntImm("int32", self.owner.warp_size)
        first = _load(mask) if mask is not None else IntImm("int32", 0)
        return call(value.dtype, name, first, value, lane, width, width)

    def warp(
        self, values: list[Any], extent: int, mask: PrimExpr, predicate: PrimExpr | None
    ) -> tuple[list[Buffer], list[Buffer]]:
        """Reduce over ``extent`` lanes; the results (valid in lane 0) and the temporary buffers."""
        results = [decl_buffer([1], d, f"red_buf{i}", scope="local") for i, d in enumerate(self.dtypes)]
        loads: list[Stmt] = [BufferStore(b, v, [0]) for b, v in zip(results, values)]
        local = [decl_buffer([1], d, f"t{i}", scope="local") for i, d in enumerate(self.dtypes)]
        self.seq += loads if predicate is None else [IfThenElse(predicate, stmt_seq(*loads))]
        mask_buffer = None
        if self.owner.needs_mask:
            mask_buffer = decl_buffer([1], _MASK, "mask", scope="local")
            self.seq.append(BufferStore(mask_buffer, mask, [0]))
        offset = 1
        while offset * 2 < extent:
            offset *= 2
        while offset > 0:
            for buffer, temporary in zip(results, local):
                # Shuffles stand alone: inside a conditional expression some lanes would not take part.
                other = self.shuffle("tvm_warp_shuffle_down", mask_buffer, _load(buffer), IntImm("int32", offset))
                self.seq.append(BufferStore(temporary, other, [0]))
            made = self.combine([_load(b) for b in results], [_load(b) for b in local])
            stores: list[Stmt] = [BufferStore(b, v, [0]) for b, v in zip(results, made)]
            if offset * 2 > extent:
                # Lanes beyond the extent hold anything, which max or prod would take in.
                stores = [IfThenElse(self.group.index + offset < extent, stmt_seq(*stores))]
            self.seq += stores
            offset //= 2
        return results, local + ([mask_buffer] if mask_buffer is not None else [])

    def one_warp(self, values: list[Any], mask: PrimExpr) -> list[Any]:
        """At most one warp reduces: shuffle, then give everyone lane 0's result."""
        results, self.allocs = self.warp(values, self.group.extent, mask, None)
        buffer = self.allocs[-1] if self.owner.needs_mask else None
        for result in results:
            splat = self.shuffle("tvm_warp_shuffle", buffer, _load(result), self.group.extent * self.group.group)
            self.seq.append(BufferStore(result, splat, [0]))
        return [_load(b) for b in results]

    def many_warps(self, values: list[Any], mask: PrimExpr, dtypes: list[str]) -> list[Any]:
        """Each warp reduces its part, the first warp the parts; shared memory carries both."""
        size, group = self.owner.warp_size, self.group
        warps = group.extent // size
        index_type = group.index.dtype
        staging = [
            decl_buffer([B.const(index_type, warps * group.groups)], d, "red_buf_staging", scope="shared")
            for d in dtypes
        ]
        self.allocs += staging
        results, local = self.warp(values, size, mask, None)
        self.allocs += [*local, *results]
        slot = group.group * warps + B.floordiv(group.index, B.const(index_type, size))
        writes: list[Stmt] = [BufferStore(s, _load(r), [slot]) for s, r in zip(staging, results)]
        lane = B.floormod(group.index, B.const(index_type, size))
        self.seq.append(IfThenElse(B.eq(lane, B.const(index_type, 0)), stmt_seq(*writes)))
        self.seq.append(_barrier("shared"))
        parts = [_load(s, group.group * warps + group.index) for s in staging]
        if warps < size:
            mask = call(_MASK, "bitwise_and", mask, IntImm(_MASK, (1 << warps) - 1))
        results, local = self.warp(parts, warps, mask, group.index < B.const(index_type, warps))
        self.allocs += [*local, *results]
        shared = [decl_buffer([B.const(index_type, group.groups)], d, "red_result", scope="shared") for d in dtypes]
        writes = [BufferStore(s, _load(r), [group.group]) for s, r in zip(shared, results)]
        self.seq.append(IfThenElse(B.eq(group.index, B.const(index_type, 0)), stmt_seq(*writes)))
        self.seq.append(_barrier("shared"))
        return [_load(s, group.group) for s in shared]

    # -- shared memory -------------------------------------------------------------------------------------

    def slot(self, index: PrimExpr) -> PrimExpr:
        """The place of a thread's value in shared memory."""
        group = self.group
        if B.is_zero(group.group):
            return index
        return self.owner.analyzer.simplify(group.group * group.extent + index)

    def tree(self, values: list[Any]) -> list[Any]:
        """Reduce in shared memory, halving the number of threads in each step."""
        group = self.group
        # An earlier iteration may still be reading the same memory.
        self.seq.append(_barrier("shared"))
        size = B.const(group.group.dtype, group.groups * group.extent)
        shared = [decl_buffer([size], d, f"red_buf{i}", scope="shared") for i, d in enumerate(self.dtypes)]
        self.seq += [BufferStore(b, v, [self.slot(group.index)]) for b, v in zip(shared, values)]
        self.seq.append(_barrier("shared"))
        self._tree_steps(shared)
        return [_load(b, self.slot(B.const(group.index.dtype, 0))) for b in shared]

    def _combined(self, shared: list[Buffer], offset: int) -> list[Any]:
        index = self.group.index
        own = [_load(b, self.slot(index)) for b in shared]
        other = [_load(b, self.slot(index + B.const(index.dtype, offset))) for b in shared]
        return self.combine(own, other)

    def _stores(self, shared: list[Buffer], values: list[Any]) -> Stmt:
        return stmt_seq(*[BufferStore(b, v, [self.slot(self.group.index)]) for b, v in zip(shared, values)])

    def _tree_steps(self, shared: list[Buffer]) -> None:
        group, warp = self.group, self.owner.warp_size
        index = group.index
        align = 1
        while group.extent > align:
            align *= 2
        steps: list[tuple[int, int]] = []
        if align > group.extent:
            align //= 2
            steps.append((group.extent - align, align))
        aligned = group.groups == 1 or group.contiguous % warp == 0
        while (align > group.contiguous or align > warp or not aligned) and align > 1:
            align //= 2
            steps.append((align, align))
        for bound, offset in steps:
            body = self._stores(shared, self._combined(shared, offset))
            self.seq.append(IfThenElse(index < bound, body))
            self.seq.append(_barrier("shared"))
        if align > 1:
            self.seq.append(self._in_warp(shared, align))
            self.seq.append(_barrier("shared"))

    def _in_warp(self, shared: list[Buffer], align: int) -> Stmt:
        """The last steps stay within one warp; loads and stores are kept apart by warp barriers."""
        condition = self.group.index < (align >> 1)
        out: list[Stmt] = []
        while align > 1:
            align //= 2
            values = self._combined(shared, align)
            names = [Var(f"w_{align}_{i}", v.dtype) for i, v in enumerate(values)]
            body: Stmt = SeqStmt([_barrier("warp"), self._stores(shared, list(names)), _barrier("warp")])
            for name, value in zip(names, values):
                body = LetStmt(name, value, body)
            out.append(body)
        return IfThenElse(condition, stmt_seq(*out))


class _AllreduceLowerer(StmtExprMutator):
    def __init__(self, target: Target) -> None:
        self.kind = target.kind.name
        self.warp_size = int(target.get_attr("thread_warp_size", 1))
        self.max_threads = int(target.get_attr("max_num_threads", -1))
        self.needs_mask = self.kind != "metal"
        self.analyzer = Analyzer()
        self.threads: list[AttrStmt] = []
        self.reducers: list[CommReducer] = []
        self.loads: dict[Any, Any] = {}
        self.memory: dict[Any, Buffer] = {}

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key == "thread_extent":
            self.threads.append(attr)
            made = self.default_visit(attr)
            self.threads.pop()
            return made
        if attr.attr_key == "reduce_scope":
            reducer: Any = attr.node
            self.reducers.append(reducer)
            made = self.default_visit(attr)
            self.reducers.pop()
            return made
        return self.default_visit(attr)

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        made = self.default_visit(stmt)
        return self._all_reduce(made.value) if is_call(made.value, "tvm_thread_allreduce") else made

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        body = self.visit(stmt.body)
        buffer = self.memory.get(stmt.buffer_var)
        if buffer is None:
            return stmt if body is stmt.body else stmt.with_fields(body=body)
        if buffer.scope() == "shared":
            body = AttrStmt(buffer.data, "volatile_scope", 1, body)
        return Allocate(buffer.data, buffer.dtype, buffer.shape, IntImm("bool", 1), body, stmt.annotations)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        body = self.visit(stmt.body)
        buffer = self.memory.get(stmt.buffer.data, stmt.buffer)
        return stmt if body is stmt.body and buffer is stmt.buffer else DeclBuffer(buffer, body)

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        found = self.loads.get(load.buffer.data)
        if found is not None:
            return found
        return self.default_visit(load)

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        made = self.default_visit(store)
        buffer = self.memory.get(store.buffer.data)
        return made if buffer is None else made.with_fields(buffer=buffer)

    def _group(self, args: Sequence[PrimExpr]) -> _Group:
        # Narrowed indices come with a cast around the thread variable.
        plain = [uncast(a) for a in args]
        wanted = set(of_kind(plain, Var))
        reducing: list[_Thread] = []
        others: list[_Thread] = []
        for attr in self.threads:
            axis: Any = attr.node
            if not axis.thread_tag.startswith("threadIdx"):
                continue
            if not isinstance(attr.value, IntImm):
                raise LoweringError(f"Need constant extent for reduce set {axis.var.name}")
            wanted_here = axis.var in wanted
            wanted.discard(axis.var)
            if attr.value.value != 1:
                (reducing if wanted_here else others).append(_Thread(axis, attr.value.value))
        if wanted:
            raise LoweringError("Not all reduce index are presented in the context")
        return _Group(reducing, others)

    def _all_reduce(self, e: Call) -> Stmt:
        if not self.reducers:
            raise LoweringError("tvm_thread_allreduce must stand inside a reduce_scope attribute")
        reducer = self.reducers[-1]
        size = len(reducer.result)
        if int(e.args[0]) != size:
            raise LoweringError(f"tvm_thread_allreduce of {int(e.args[0])} values under a reducer of {size}")
        condition = e.args[size + 1]
        values = [
            v if B.is_one(condition) else Select(condition, v, start)
            for v, start in zip(e.args[1 : size + 1], reducer.identity_element)
        ]
        # Truth values are kept as bytes, so that their loads come with a cast around them.
        cells: list[Any] = [uncast(a) for a in e.args[size + 2 : 2 * size + 2]]
        buffers = [a.buffer for a in cells]
        group = self._group(e.args[2 * size + 2 :])
        if group.extent == 1:
            return stmt_seq(*[BufferStore(b, v, [0]) for b, v in zip(buffers, values)])
        reduce = _Reduce(self, reducer, group, [v.dtype for v in values])
        if self._by_warp(reduce.dtypes, group):
            mask = call(_MASK, "tvm_warp_activemask")
            if group.extent <= self.warp_size:
                results = reduce.one_warp(values, mask)
            else:
                results = reduce.many_warps(values, mask, [b.dtype for b in buffers])
        else:
            results = reduce.tree(values)
        for buffer, result in zip(buffers, results):
            self.loads[buffer.data] = result
            self.memory[buffer.data] = result.buffer
        body = stmt_seq(*reduce.seq)
        for buffer in reduce.allocs:
            body = Allocate(buffer.data, buffer.dtype, buffer.shape, IntImm("bool", 1), DeclBuffer(buffer, body))
        return body

    def _by_warp(self, dtypes: list[str], group: _Group) -> bool:
        """Whether shuffles can do it: few enough bits, lanes that follow each other, whole warps or parts of one."""
        if self.kind not in ("cuda", "rocm", "metal") or group.contiguous != group.extent:
            return False
        for dtype in dtypes:
            half = dt.element_of(dtype) == "float16"
            if dt.lanes(dtype) > (2 if half else 1) or (not half and dt.bits(dtype) not in (32, 64)):
                return False
        if self.kind == "rocm" and any(dt.bits(d) != 32 for d in dtypes):
            return False
        if self.kind == "rocm":
            return group.extent == self.warp_size
        size = self.warp_size
        several = self.max_threads != -1 and self.max_threads <= size * size and group.extent % size == 0
        if size % group.extent == 0 or several:
            return True
        return group.groups == 1 and group.extent <= size


def lower(func: PrimFunc, _mod: IRModule, _ctx: PassContext) -> PrimFunc:
    """Lower the all-reductions of a function. Raises ValueError if it has no target."""
    target = func.get_attr("target")
    if target is None:
        raise LoweringError("LowerThreadAllreduce: Require the target attribute")
    body = _AllreduceLowerer(target).visit(func.body)
    return func if body is func.body else func.with_body(body)


class LowerThreadAllreduce(FunctionRewrite):
    """Lower ``T.tvm_thread_allreduce``.

    Before (32 threads, cuda)::

        T.attr(T.comm_reducer(lambda x, y: x + y, [0.0]), "reduce_scope", ...)
        T.tvm_thread_allreduce(T.uint32(1), A[t], True, r[0], t)
        B[0] = r[0]

    After::

        T.attr(T.comm_reducer(lambda x, y: x + y, [0.0]), "reduce_scope", ...)
        red_buf0[0] = A[t]
        mask[0] = T.tvm_warp_activemask()
        t0[0] = T.tvm_warp_shuffle_down(mask[0], red_buf0[0], 16, 32, 32)
        red_buf0[0] = red_buf0[0] + t0[0]
        ...                                  # 8, 4, 2, 1
        red_buf0[0] = T.tvm_warp_shuffle(mask[0], red_buf0[0], 0, 32, 32)
        B[0] = red_buf0[0]

    Where shuffles do not fit, a tree in shared memory reduces instead.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc | None:
        return lower(func, mod, ctx)
