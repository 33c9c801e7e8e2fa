"""InjectRollingBuffer: what one iteration computed and the next one needs again is kept, not computed anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arith import build as B
from ...ir.expr import Range
from ...ir.functor import Visitor
from ...ir.prim import Add, IntImm, Mul, Var
from ..buffer import Buffer
from ..function import PrimFunc
from ..functor import substitute
from ..stmt import AttrStmt, BufferRealize, BufferStore, For, IfThenElse
from .base import LoweringError, PrimFuncPass, StmtExprMutator, func_pass


@dataclass
class _Rolling:
    """The axis along which a buffer rolls, and for each axis its loop, overlap and iteration."""

    axis: int
    overlaps: list[int]
    iters: list[Any]
    extent: int


class _Inject(StmtExprMutator):
    def __init__(self) -> None:
        self.loops: list[For] = []
        self.marked: list[Buffer] = []
        self.rolling: dict[Buffer, _Rolling] = {}

    def visit_For(self, loop: For) -> Any:
        self.loops.append(loop)
        made = self.default_visit(loop)
        self.loops.pop()
        return made

    def visit_AttrStmt(self, attr: AttrStmt) -> Any:
        if attr.attr_key == "rolling_buffer_scope" and isinstance(attr.node, Buffer):
            self.marked.append(attr.node)
            return self.visit(attr.body)
        return self.default_visit(attr)

    def visit_BufferRealize(self, stmt: BufferRealize) -> Any:
        if stmt.buffer not in self.marked:
            return self.default_visit(stmt)
        info = self._info(stmt)
        if info is None:
            raise LoweringError(f"{stmt.buffer.name} cannot roll: no axis of it overlaps between iterations")
        self.rolling[stmt.buffer] = info
        bounds = list(stmt.bounds)
        keep = [
            Range.from_min_extent(b.min, IntImm(b.min.dtype, info.extent)) if i == info.axis else b
            for i, b in enumerate(bounds)
        ]
        body = self.visit(stmt.body)
        low = [Range.from_min_extent(B.const(r.min.dtype, 0), r.extent) for r in keep]
        return BufferRealize(stmt.buffer, low, stmt.condition, body)

    def _info(self, stmt: BufferRealize) -> _Rolling | None:
        overlaps, iters, axis = [], [], -1
        strides: list[int] = []
        for i, bound in enumerate(stmt.bounds):
            var, stride = _linear(bound.min)
            extent = B.as_int(bound.extent)
            iters.append(var)
            strides.append(stride)
            overlaps.append(0 if var is None or extent is None else max(extent - stride, 0))
            loop = next((x for x in reversed(self.loops) if x.loop_var is var), None)
            if loop is not None and overlaps[-1] > 0 and axis < 0:
                axis = i
        if axis < 0:
            return None
        return _Rolling(axis, overlaps, iters, B.as_int(stmt.bounds[axis].extent) or 0)

    def _roll(self, info: _Rolling, indices: Any) -> tuple[Any, ...]:
        size = B.const(indices[info.axis].dtype, info.extent)
        return tuple(B.floormod(e, size) if i == info.axis else e for i, e in enumerate(indices))

    def visit_BufferLoad(self, load: Any) -> Any:
        made = self.default_visit(load)
        info = self.rolling.get(load.buffer)
        return made if info is None else made.with_fields(indices=self._roll(info, made.indices))

    def visit_BufferStore(self, store: BufferStore) -> Any:
        made = self.default_visit(store)
        info = self.rolling.get(store.buffer)
        if info is None:
            return made
        condition: Any = None
        for var, overlap, index in zip(info.iters, info.overlaps, made.indices):
            if var is None or not overlap:
                continue
            inner = substitute(index, {var: B.const(var.dtype, 0)})
            fresh = B.or_(B.lt(var, B.const(var.dtype, 1)), B.ge(inner, B.const(inner.dtype, overlap)))
            condition = fresh if condition is None else B.and_(condition, fresh)
        made = made.with_fields(indices=self._roll(info, made.indices))
        return made if condition is None else IfThenElse(condition, made)


def _linear(e: Any) -> tuple[Var | None, int]:
    """The loop variable and factor of ``var``, ``var * c`` or ``var * c + d``."""
    if isinstance(e, Add) and isinstance(e.b, IntImm):
        e = e.a
    if isinstance(e, Var):
        return e, 1
    if isinstance(e, Mul) and isinstance(e.a, Var) and isinstance(e.b, IntImm):
        return e.a, e.b.value
    return None, 0


class _Marked(Visitor):
    found = False

    def visit_PrimExpr(self, e: Any) -> None:
        return

    def visit_Buffer(self, buffer: Any) -> None:
        return

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        self.found = self.found or attr.attr_key == "rolling_buffer_scope"
        self.visit(attr.body)


def inject(func: PrimFunc) -> PrimFunc:
    """Roll the marked buffers of a function."""
    marked = _Marked()
    marked.visit(func.body)
    return func.with_body(_Inject().visit(func.body)) if marked.found else func


def InjectRollingBuffer() -> PrimFuncPass:  # noqa: N802
    """Keep a window of a marked buffer over the iterations of the loop along which it slides.

    Before (each iteration ``i`` computes rows ``[i, i + 3)``)::

        for i in range(8):
            with T.realize(B[i:i + 3]):
                for j in range(3): B[i + j] = A[i + j]

    After: three rows that are used in turn; all but the first iteration compute only the row that is new::

        for i in range(8):
            with T.realize(B[0:3]):
                for j in range(3):
                    if i < 1 or j >= 2: B[(i + j) % 3] = A[i + j]
    """
    return func_pass(inject, "tir.InjectRollingBuffer")
