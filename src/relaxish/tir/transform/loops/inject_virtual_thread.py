"""InjectVirtualThread: virtual threads become copies of the statements that depend on them.

Source: Chen et al., "TVM: an automated end-to-end optimizing compiler for deep learning" (OSDI 2018), section 4.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....arith.functor import free_vars
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import Call, IntImm, Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...functor import substitute
from ...stmt import (
    AccessT, Allocate, AttrStmt, BufferStore, DeclBuffer, Evaluate, For, ForKind, IfThenElse, LetStmt, SeqStmt, Stmt,
    While,
)  # fmt: skip
from ..base import (
    LoweringError,
    StmtExprMutator,
    StmtExprVisitor,
    StmtMutator,
    is_call,
    FunctionRewrite,
)
from ..simplify.convert_ssa import convert_body

_UNROLL_BELOW = 16


class _Touched(StmtExprVisitor):
    """Variables whose value, and pointers whose contents, differ between virtual threads."""

    def __init__(self, var: Var) -> None:
        self.edges: dict[Any, set[Any]] = {}
        self.touched: set[Any] = {var}

    def record(self, target: PrimExpr, sources: set[Any]) -> None:
        """Note that ``target`` depends on ``sources``."""
        self.edges.setdefault(target, set()).update(sources)

    def close(self) -> set[Any]:
        """Everything reachable from the virtual thread's variable."""
        grown = True
        while grown:
            grown = False
            for target, sources in self.edges.items():
                if target not in self.touched and sources & self.touched:
                    self.touched.add(target)
                    grown = True
        return self.touched

    def _sources(self, e: PrimExpr | Sequence[PrimExpr]) -> set[Any]:
        return {b.data for b in _buffers(e)} | set(free_vars(e))

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        self.record(stmt.var, self._sources(stmt.value))
        self.visit(stmt.value)
        self.visit(stmt.body)

    def visit_BufferStore(self, stmt: BufferStore) -> None:
        self.record(stmt.buffer.data, self._sources(stmt.value) | self._sources(stmt.indices))
        self.visit(stmt.value)

    def visit_For(self, loop: For) -> None:
        self.record(loop.loop_var, self._sources(loop.min) | self._sources(loop.extent))
        self.visit(loop.body)

    def visit_Allocate(self, stmt: Allocate) -> None:
        self.record(stmt.buffer_var, self._sources(stmt.extents) | self._sources(stmt.condition))
        self.visit(stmt.body)

    def visit_Call(self, e: Call) -> None:
        if is_call(e, "tvm_access_ptr") and int(e.args[4]) & 2:
            self.record(e.args[1], self._sources(e.args[2:4]))
        for arg in e.args:
            self.visit(arg)

    def visit_Evaluate(self, stmt: Evaluate) -> None:
        written = _written_pointers(stmt.value)
        for pointer in written:
            self.record(pointer, self._sources(stmt.value))
        self.visit(stmt.value)


def _buffers(e: PrimExpr | Sequence[PrimExpr]) -> list[Buffer]:
    out: list[Buffer] = []

    class Find(StmtExprVisitor):
        def visit_BufferLoad(self, load: BufferLoad) -> None:
            out.append(load.buffer)
            self.visit(load.indices)

    Find().visit(e)
    return out


def _written_pointers(e: PrimExpr) -> list[Any]:
    out: list[Any] = []

    class Find(StmtExprVisitor):
        def visit_Call(self, c: Call) -> None:
            if is_call(c, "tvm_access_ptr") and int(c.args[4]) & 2:
                out.append(c.args[1])
            for arg in c.args:
                self.visit(arg)

    Find().visit(e)
    return out


class _Inject(StmtExprMutator):
    """Wraps the smallest statements that touch the virtual thread; others run once."""

    def __init__(self, var: Var, count: int, touched: set[Any], allow_share: bool) -> None:
        self.var = var
        self.count = count
        self.touched = touched
        self.allow_share = allow_share
        self.injected = False
        self.seen = False
        self.trigger = False
        self.depth = 0
        self.strides: dict[Any, Any] = {}
        self.buffers: dict[Buffer, Buffer] = {}
        self.analyzer = Analyzer()

    def stmt(self, stmt: Stmt) -> Stmt:
        """Rewrite a statement, wrapping it if it turned out to touch the virtual thread."""
        made = self.visit(stmt)
        if self.seen or self.trigger:
            if not self.injected:
                return self._wrap(made, False)
            self.seen = self.trigger = False
        return made

    def _wrap(self, stmt: Stmt, before: bool) -> Stmt:
        self.seen = self.trigger = False
        self.injected = True
        if before:
            stmt = self.stmt(stmt)
        self.injected = False
        self.seen = False
        if self.depth == 0 and self.count < _UNROLL_BELOW:
            return SeqStmt([substitute(stmt, {self.var: B.const(self.var.dtype, i)}) for i in range(self.count)])
        index = Var(f"{self.var.name}.s", self.var.dtype)
        zero, size = B.const(index.dtype, 0), B.const(index.dtype, self.count)
        return For(index, zero, size, ForKind.SERIAL, substitute(stmt, {self.var: index}))

    # -- expressions ---------------------------------------------------------------------------------------

    def visit_Var(self, var: Var) -> PrimExpr:
        if var in self.touched:
            self.seen = True
        return var

    def _remapped(self, buffer: Buffer, stride: PrimExpr) -> Buffer:
        """The view through which all parts are seen; what is declared stays the view of one part."""
        if buffer not in self.buffers:
            self.buffers[buffer] = buffer.with_fields(shape=(buffer.shape[0] * stride,))
        return self.buffers[buffer]

    def _own_part(self, index: PrimExpr, stride: PrimExpr) -> PrimExpr:
        """The index in the copy of the virtual thread: a single ramp stays one."""
        return self.analyzer.simplify(index + self.var * stride)

    def _access(self, made: AccessT) -> AccessT:
        if made.buffer.data in self.touched:
            self.seen = True
        stride = self.strides.get(made.buffer.data)
        if stride is None:
            return made
        self.seen = True
        if len(made.indices) != 1:
            raise LoweringError("InjectVirtualThread expects rewritten allocations to be flat memory.")
        index = self._own_part(made.indices[0], stride)
        return made.with_fields(buffer=self._remapped(made.buffer, stride), indices=(index,))

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return self._access(self.default_visit(load))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        made = self._access(self.default_visit(store))
        self.trigger = not self.allow_share
        return made

    def visit_Call(self, e: Call) -> PrimExpr:
        if is_call(e, "tvm_access_ptr"):
            stride = self.strides.get(e.args[1])
            if stride is None:
                return self.default_visit(e)
            self.seen = True
            offset, extent = self.visit(e.args[2]), self.visit(e.args[3])
            lanes = dt.lanes(e.args[0].dtype)
            part = self._own_part(offset, stride if lanes == 1 else B.floordiv(stride, B.const(stride.dtype, lanes)))
            return e.with_fields(args=(e.args[0], e.args[1], part, extent, e.args[4]))
        if is_call(e, "tvm_context_id"):
            return e if self.allow_share else self.var
        return self.default_visit(e)

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        self.trigger = not self.allow_share
        return self.default_visit(stmt)

    # -- statements ----------------------------------------------------------------------------------------

    def _must_wrap(self) -> bool:
        """Whether what a statement evaluates first touches the virtual thread and is not in its loop yet."""
        if self.seen and not self.injected:
            return True
        self.seen = False
        return False

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        value = self.visit(attr.value)
        if self._must_wrap():
            return self._wrap(attr, True)
        return attr.with_fields(value=value, body=self.stmt(attr.body))

    def visit_LetStmt(self, stmt: LetStmt) -> Stmt:
        value = self.visit(stmt.value)
        if self._must_wrap():
            return self._wrap(stmt, True)
        return stmt.with_fields(value=value, body=self.stmt(stmt.body))

    def visit_For(self, loop: For) -> Stmt:
        if not B.is_zero(loop.min):
            raise LoweringError("InjectVirtualThread expects loops that start at 0")
        extent = self.visit(loop.extent)
        if self._must_wrap():
            made = self._wrap(loop, True)
            self.depth += 1
            return made
        body = self.stmt(loop.body)
        self.depth += 1
        return loop.with_fields(extent=extent, body=body)

    def visit_IfThenElse(self, stmt: IfThenElse) -> Stmt:
        condition = self.visit(stmt.condition)
        if self._must_wrap():
            return self._wrap(stmt, True)
        then = self.stmt(stmt.then_case)
        other = None
        if stmt.else_case is not None:
            saved, self.depth = self.depth, 0
            other = self.stmt(stmt.else_case)
            self.depth = max(self.depth, saved)
        return stmt.with_fields(condition=condition, then_case=then, else_case=other)

    def visit_While(self, stmt: While) -> Stmt:
        condition = self.visit(stmt.condition)
        if self._must_wrap():
            return self._wrap(stmt, True)
        return stmt.with_fields(condition=condition, body=self.stmt(stmt.body))

    def visit_SeqStmt(self, stmt: SeqStmt) -> Stmt:
        made = []
        for item in stmt.seq:
            saved, self.depth = self.depth, 0
            made.append(self.stmt(item))
            self.depth = max(self.depth, saved)
        return SeqStmt(made)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        return stmt.with_fields(body=self.stmt(stmt.body))

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        extents = self.visit(stmt.extents)
        condition = self.visit(stmt.condition)
        if self._must_wrap():
            return self._wrap(stmt, True)
        if stmt.buffer_var in self.touched or not self.allow_share:
            stride: Any = extents[0]
            for extent in extents[1:]:
                stride = stride * extent
            self.strides[stmt.buffer_var] = stride
            extents = (stride * B.const(stride.dtype, self.count),)
        return stmt.with_fields(extents=extents, condition=condition, body=self.stmt(stmt.body))


class _Find(StmtMutator):
    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        made = self.default_visit(attr)
        if made.attr_key != "virtual_thread":
            return made
        if not isinstance(made.value, IntImm):
            raise LoweringError(f"the number of virtual threads must be constant, got {made.value}")
        analysis = _Touched(made.node.var)
        analysis.visit(made.body)
        share = made.node.thread_tag.startswith("vthread")
        return _Inject(made.node.var, made.value.value, analysis.close(), share).stmt(made.body)


def inject(func: PrimFunc) -> PrimFunc:
    """Expand the virtual threads of a function."""
    body = _Find().visit(func.body)
    return func if body is func.body else func.with_body(convert_body(body))


class InjectVirtualThread(FunctionRewrite):
    """Expand virtual threads: memory each of them writes gets one copy per thread, code is repeated.

    Before::

        with T.launch_thread("vthread", 2) as v:
            B = T.allocate([4], "float32", "local")
            B[3] = A[v]

    After::

        B = T.allocate([8], "float32", "local")
        B[3] = A[0]
        B[7] = A[1]
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return inject(func)
