"""InjectDoubleBuffer: a buffer filled in each iteration gets two halves, filled one iteration ahead."""

from __future__ import annotations

from typing import Any

from ....arith import build as B
from ....ir.expr import PrimExpr
from ....ir.prim import IntImm, Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...functor import substitute
from ...stmt import Allocate, AttrStmt, BufferStore, DeclBuffer, Evaluate, For, IfThenElse, SeqStmt, stmt_seq, Stmt
from ..base import (
    LoweringError,
    StmtExprMutator,
    StmtExprVisitor,
    StmtMutator,
    merge_nest,
    options,
    FunctionRewrite,
)
from ..simplify.convert_ssa import convert_body


class _Detect(StmtExprVisitor):
    def __init__(self) -> None:
        self.found: set[Any] = set()

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        if attr.attr_key == "double_buffer_scope":
            self.found.add(attr.node)
        self.visit(attr.body)


class _StripWrites(StmtMutator):
    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        return self.visit(attr.body) if attr.attr_key == "double_buffer_write" else self.default_visit(attr)


class _Storage:
    """What is known of one double buffer."""

    def __init__(self) -> None:
        self.loop: For | None = None
        self.stride: Any = None
        self.write_half: Any = None
        self.read_half: Any = None


class _Inject(StmtExprMutator):
    def __init__(self, split: int, pointers: set[Any]) -> None:
        self.split = split
        self.info = {p: _Storage() for p in pointers}
        self.loops: list[For] = []
        self.allocs: dict[For, list[Stmt]] = {}
        self.prologues: dict[For, list[Stmt]] = {}
        self.buffers: dict[Buffer, Buffer] = {}
        self.producing = False

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        info = self.info.get(stmt.buffer_var)
        if info is None:
            return self.default_visit(stmt)
        info.stride = stmt.extents[0]
        body = self.visit(stmt.body)
        if info.loop is None:
            raise LoweringError("a double buffer must be written inside a loop")
        doubled = stmt.extents[0] * B.const(stmt.extents[0].dtype, 2)
        self.allocs.setdefault(info.loop, []).append(stmt.with_fields(extents=(doubled,), body=Evaluate(0)))
        return body

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        buffer = stmt.buffer
        new = self._doubled(buffer) if buffer.data in self.info else buffer
        return stmt.with_fields(buffer=new, body=self.visit(stmt.body))

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key == "double_buffer_scope":
            return self._producer(attr)
        return self.default_visit(attr)

    def visit_For(self, loop: For) -> Stmt:
        self.loops.append(loop)
        made: Any = self.default_visit(loop)
        if loop in self.prologues:
            if self.split:
                made = self._split(made)
            made = SeqStmt([*self.prologues[loop], made])
        if loop in self.allocs:
            made = merge_nest(self.allocs[loop], made)
        self.loops.pop()
        return made

    def _split(self, loop: For) -> Stmt:
        """Unroll, so that which half is used is known in each copy of the body."""
        dtype = loop.loop_var.dtype
        factor = B.const(dtype, self.split)
        outer = Var(f"{loop.loop_var.name}.outer", dtype)
        count = B.floordiv(loop.extent - B.const(dtype, 1), factor)
        copies = [substitute(loop.body, {loop.loop_var: outer * factor + B.const(dtype, i)}) for i in range(self.split)]
        main = For(outer, B.const(dtype, 0), count, loop.kind, stmt_seq(*copies))
        rest_body = _StripWrites().visit(loop.body)
        rest: list[Stmt] = []
        for i in range(self.split):
            index = count * factor + B.const(dtype, i)
            rest.append(IfThenElse(index < loop.extent, substitute(rest_body, {loop.loop_var: index})))
        return SeqStmt([main, *rest])

    def _doubled(self, buffer: Buffer) -> Buffer:
        if buffer not in self.buffers:
            shape = (buffer.shape[0] * B.const(buffer.shape[0].dtype, 2),)
            self.buffers[buffer] = buffer.with_fields(shape=shape)
        return self.buffers[buffer]

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        made = self.default_visit(store)
        info = self.info.get(store.buffer.data)
        if info is None:
            return made
        if not self.producing or len(made.indices) != 1:
            raise LoweringError("a double buffer may only be written inside its scope, by flat indices")
        index = info.write_half * info.stride + made.indices[0]
        return made.with_fields(buffer=self._doubled(store.buffer), indices=(index,))

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        made = self.default_visit(load)
        info = self.info.get(load.buffer.data)
        if info is None:
            return made
        index = info.read_half * info.stride + made.indices[0]
        return made.with_fields(buffer=self._doubled(load.buffer), indices=(index,))

    def _producer(self, attr: AttrStmt) -> Stmt:
        pointer: Any = attr.node
        if not self.loops:
            raise LoweringError("Double buffer scope must be inside a loop")
        info, loop = self.info[pointer], self.loops[-1]
        info.loop = loop
        var = loop.loop_var
        zero, one, two = (B.const(var.dtype, v) for v in (0, 1, 2))
        half = Var(f"{var.name}.db", var.dtype)
        info.write_half, info.read_half = half, B.floormod(var, two)
        self.producing = True
        body = self.visit(attr.body)
        self.producing = False
        first = substitute(body, {half: zero, var: zero})
        self.prologues.setdefault(loop, []).append(first)
        following = var + one
        body = substitute(body, {half: B.floormod(following, two), var: following})
        return IfThenElse(following < loop.extent, AttrStmt(pointer, "double_buffer_write", IntImm("int32", 1), body))


def inject(func: PrimFunc) -> PrimFunc:
    """Double the marked buffers of a function."""
    detect = _Detect()
    detect.visit(func.body)
    if not detect.found:
        return func
    split = int(options("tir.InjectDoubleBuffer", {"split_loop": 1})["split_loop"])
    return func.with_body(convert_body(_Inject(split, detect.found).visit(func.body)))


class InjectDoubleBuffer(FunctionRewrite):
    """Prefetch into buffers marked ``double_buffer_scope`` one iteration ahead.

    Before::

        for i in range(n):
            B = T.allocate([4], "float32", "shared")
            with T.attr(B.data, "double_buffer_scope", 1):
                B[j] = A[i * 4 + j]
            C[j] = B[j] + 1.0

    After (``split_loop`` 0)::

        B = T.allocate([8], "float32", "shared")
        B[j] = A[j]
        for i in range(n):
            if i + 1 < n:
                with T.attr(B.data, "double_buffer_write", 1):
                    B[(i + 1) % 2 * 4 + j] = A[(i + 1) * 4 + j]
            C[j] = B[i % 2 * 4 + j] + 1.0

    The option ``tir.InjectDoubleBuffer = {"split_loop": n}`` unrolls the loop by ``n``.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return inject(func)
