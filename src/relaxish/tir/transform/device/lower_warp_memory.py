"""LowerWarpMemory: memory shared by a warp is spread over its lanes' registers and read by shuffles."""

from __future__ import annotations

from typing import Any

from ....arith import Analyzer, detect_linear_equation
from ....arith import build as B
from ....arith.functor import uses_var
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.module import IRModule
from ....ir.prim import Call, IntImm, Ramp, Var, const_int
from ....ir.transform import PassContext
from ....ir.types import PointerType, PrimType
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import Allocate, AttrStmt, BufferStore, DeclBuffer, Evaluate, For, Stmt
from ..base import (
    LoweringError,
    StmtExprMutator,
    StmtExprVisitor,
    StmtMutator,
    call,
    op_name,
    pointer_scope,
    FunctionRewrite,
)

# Matrix instructions take a pointer and, as the next argument, an index into it.
_POINTER_ARGS = {"ptx_mma": (6, 8, 10), "ptx_ldmatrix": (3,), "mma_store": (3,), "mma_fill": (1,)}


class _WarpIndex(StmtExprVisitor):
    """The innermost thread axis, whose lanes make up the warp."""

    def __init__(self, warp_size: int) -> None:
        self.warp_size = warp_size
        self.var: Var | None = None
        self.width = 0

    def visit_PrimExpr(self, e: PrimExpr) -> None:
        return

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        if attr.attr_key == "thread_extent" and attr.node.thread_tag == "threadIdx.x":
            size = const_int(attr.value, 0)
            if not 0 < size <= self.warp_size or self.warp_size % size:
                raise LoweringError(
                    f"Expect threadIdx.x 's size to be no larger than, and a factor of warp size({self.warp_size}) to "
                    f"enable warp memory but get {attr.value} instead"
                )
            if self.var is not None and self.var is not attr.node.var:
                raise LoweringError("Please create only one thread_axis threadIdx.x per kernel")
            self.var, self.width = attr.node.var, size
        self.visit(attr.body)


class _StoreCoeff(StmtExprVisitor):
    """How far apart in memory neighbouring lanes store."""

    def __init__(self, pointer: PrimExpr, lane: Var, analyzer: Analyzer) -> None:
        self.pointer = pointer
        self.lane = lane
        self.analyzer = analyzer
        self.coeff = 0

    def visit_BufferStore(self, store: BufferStore) -> None:
        if store.buffer.data is self.pointer:
            if len(store.indices) != 1:
                raise LoweringError("Expected flat memory to use as warp memory.  Has FlattenBuffer been run?")
            self._pattern(store.indices[0])
        self.default_visit(store)

    def visit_Call(self, e: Call) -> None:
        name = op_name(e)
        if name == "ptx_ldmatrix" and e.args[3] is self.pointer:
            self._pattern(e.args[4])
        elif name == "mma_fill" and e.args[1] is self.pointer and isinstance(e.args[0], IntImm):
            # Each lane clears its own elements; how many there are is how far apart the lanes are.
            self._set(e.args[0].value)
        for arg in e.args:
            self.visit(arg)

    def _pattern(self, index: PrimExpr) -> None:
        if isinstance(index, Ramp):
            if not B.is_one(index.stride):
                raise LoweringError(
                    f"LowerWarpMemory failed due to store index={index}, can only handle continuous store"
                )
            index = index.base
            self._set(dt.lanes(index.dtype) if not uses_var(index, self.lane) else self._linear(index))
            return
        self._set(self._linear(index))

    def _linear(self, index: PrimExpr) -> int:
        found = detect_linear_equation(index, [self.lane])
        if len(found) != 2:
            raise LoweringError(f"LowerWarpMemory failed. Could not simplify the store index `{index}` into the form "
                             "ax + by + cz + ...")  # fmt: skip
        factor = self.analyzer.canonical_simplify(found[0])
        if not isinstance(factor, IntImm) or factor.value <= 0:
            raise LoweringError(
                f"LowerWarpMemory failed due to store index={index}, require positive constant coefficient on warp "
                f"index {self.lane.name} but get {factor}"
            )
        return factor.value

    def _set(self, factor: int) -> None:
        if self.coeff not in (0, factor):
            raise LoweringError("LowerWarpMemory failed due to two different store coefficients to warp index")
        self.coeff = factor


class _WarpAccessRewriter(StmtExprMutator):
    """Rewrites one warp allocation into registers and shuffles."""

    def __init__(self, warp_size: int, analyzer: Analyzer) -> None:
        self.warp_size = warp_size
        self.analyzer = analyzer
        self.buffers: dict[Buffer, Buffer] = {}

    def rewrite(self, stmt: Allocate, threads: list[AttrStmt]) -> Allocate:
        """The allocation as local memory, with its body rewritten; ``threads`` are the axes around it."""
        self.pointer = stmt.buffer_var
        size = 1
        for extent in stmt.extents:
            size *= B.as_int(extent) or 0
        if size <= 0:
            raise LoweringError("warp memory only support constant alloc size")
        size *= dt.lanes(stmt.dtype)
        find = _WarpIndex(self.warp_size)
        find.visit(stmt.body)
        for attr in threads if find.var is None else ():
            find.visit(attr.with_fields(body=Evaluate(0)))
        if find.var is None:
            raise LoweringError("cannot find warp index(threadIdx.x) within the scope of warp memory")
        self.lane, self.width = find.var, find.width
        coeff = _StoreCoeff(self.pointer, self.lane, self.analyzer)
        coeff.visit(stmt.body)
        self.coeff = coeff.coeff or 1
        factor = self.width * self.coeff
        # The number of elements may not fill all lanes evenly.
        self.groups = -(-size // factor)
        self.local = Var(self.pointer.name, PointerType(PrimType(stmt.dtype), "local"))
        extents = (IntImm("int32", self.groups * factor // self.width),)
        return stmt.with_fields(buffer_var=self.local, extents=extents, body=self.visit(stmt.body))

    def visit_Var(self, var: Var) -> PrimExpr:
        return self.local if var is self.pointer else var

    def _remap(self, buffer: Buffer) -> Buffer:
        if buffer not in self.buffers:
            self.buffers[buffer] = buffer.with_fields(data=self.local)
        return self.buffers[buffer]

    def _split(self, index: PrimExpr) -> tuple[Any, Any]:
        """The index within a lane's own memory, and the lane."""
        if isinstance(index, Ramp):
            if not B.is_one(index.stride):
                raise LoweringError("warp memory takes vector accesses of stride 1 only")
            local, lane = self._split(index.base)
            return Ramp(local, B.const(local.dtype, 1), index.lanes), lane
        m = B.const(index.dtype, self.coeff)
        simplify = self.analyzer.simplify
        if self.groups == 1:
            return simplify(B.floormod(index, m)), simplify(B.floordiv(index, m))
        block = B.const(index.dtype, self.coeff * self.width)
        local = B.add(B.mul(B.floordiv(index, block), m), B.floormod(index, m))
        return simplify(local), simplify(B.floordiv(B.floormod(index, block), m))

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        buffer = self._remap(stmt.buffer) if stmt.buffer.data is self.pointer else stmt.buffer
        return stmt.with_fields(buffer=buffer, body=self.visit(stmt.body))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        made = self.default_visit(store)
        if store.buffer.data is not self.pointer:
            return made
        return made.with_fields(buffer=self._remap(store.buffer), indices=(self._split(made.indices[0])[0],))

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        made = self.default_visit(load)
        if load.buffer.data is not self.pointer:
            return made
        local, lane = self._split(made.indices[0])
        if uses_var(local, self.lane):
            raise LoweringError(
                f"LowerWarpMemory failed to rewrite load to shuffle for index {load.indices[0]} local_index={local}"
            )
        value = made.with_fields(buffer=self._remap(load.buffer), indices=(local,))
        if self.analyzer.can_prove_equal(lane, self.lane):
            return value
        mask = call("uint32", "tvm_warp_activemask")
        width, size = IntImm("int32", self.width), IntImm("int32", self.warp_size)
        return call(value.dtype, "tvm_warp_shuffle", mask, value, lane, width, size)

    def visit_Call(self, e: Call) -> PrimExpr:
        args = list(e.args)
        for i in _POINTER_ARGS.get(op_name(e), ()):
            if args[i] is self.pointer:
                args[i + 1] = self._split(args[i + 1])[0]
        return self.default_visit(e.with_fields(args=tuple(args)))


class _WarpMemoryLowerer(StmtMutator):
    def __init__(self, warp_size: int) -> None:
        self.warp_size = warp_size
        self.analyzer = Analyzer()
        self.threads: list[AttrStmt] = []

    def visit_For(self, loop: For) -> Stmt:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), True)
        return self.default_visit(loop)

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key == "thread_extent":
            domain = Range.from_min_extent(B.const(attr.value.dtype, 0), attr.value)
            self.analyzer.bind(attr.node.var, domain, True)
            self.threads.append(attr)
            made = self.default_visit(attr)
            self.threads.pop()
            return made
        return self.default_visit(attr)

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        made = self.default_visit(stmt)
        if pointer_scope(stmt.buffer_var) != "warp":
            return made
        bind = _BindThreads(self.analyzer)
        bind.visit(made.body)
        return _WarpAccessRewriter(self.warp_size, self.analyzer).rewrite(made, self.threads)


class _BindThreads(StmtExprVisitor):
    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer

    def visit_PrimExpr(self, e: PrimExpr) -> None:
        return

    def visit_For(self, loop: For) -> None:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), True)
        self.visit(loop.body)

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        if attr.attr_key in ("thread_extent", "virtual_thread"):
            domain = Range.from_min_extent(B.const(attr.value.dtype, 0), attr.value)
            self.analyzer.bind(attr.node.var, domain, True)
        self.visit(attr.body)


def lower(func: PrimFunc, _mod: IRModule, _ctx: PassContext) -> PrimFunc:
    """Lower the warp memory of a function. Raises ValueError if it has no target."""
    target = func.get_attr("target")
    if target is None:
        raise LoweringError("LowerWarpMemory: Require the target attribute")
    body = _WarpMemoryLowerer(int(target.get_attr("thread_warp_size", 1))).visit(func.body)
    return func if body is func.body else func.with_body(body)


class LowerWarpMemory(FunctionRewrite):
    """Lower memory of scope ``warp``.

    Before (``t``: one of 32 lanes)::

        W = T.allocate([32], "float32", "warp")
        W[t] = A[t]
        B[t] = W[(t + 1) % 32]

    After::

        W = T.allocate([1], "float32", "local")
        W[0] = A[t]
        B[t] = T.tvm_warp_shuffle(T.tvm_warp_activemask(), W[0], (t + 1) % 32, 32, 32)
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc | None:
        return lower(func, mod, ctx)
