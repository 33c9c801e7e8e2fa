"""BF16ComputeLegalize and FP8ComputeLegalize: arithmetic on narrow floats is done in a wider one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import (
    Add,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    CmpOp,
    Div,
    EQ,
    FloatImm,
    GE,
    GT,
    LE,
    LT,
    Max,
    Min,
    Mul,
    NE,
    Select,
    Shuffle,
    Sub,
    Var,
)  # fmt: skip
from ....ir.types import PointerType, PrimType
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import Allocate, AttrStmt, BufferRealize, BufferStore, DeclBuffer, Stmt
from ..base import LoweringError, StmtExprVisitor, is_call, pointer_scope, FunctionRewrite
from .dtype_conversion import convert_float
from .retyping import RetypingMutator

Match = Callable[[str], bool]

_LEGALIZED = (Add, Sub, Mul, Div, Min, Max, LT, LE, GT, GE, EQ, NE)


def is_bfloat16(dtype: str) -> bool:
    """Whether a type is (a vector of) bfloat16."""
    return dt.code(dtype) == "bfloat"


def is_float8(dtype: str) -> bool:
    """Whether a type is (a vector of) an 8-bit float."""
    return dtype.startswith(("float8", "e4m3_float8", "e5m2_float8"))


def natively_supported(func: PrimFunc, least: tuple[int, int]) -> bool:
    """Whether the function is for a CUDA device of at least this compute capability."""
    target = func.get_attr("target")
    if target is None or target.kind.name != "cuda":
        return False
    arch = str(target.attrs.get("arch", "")).removeprefix("sm_").rstrip("af")
    return arch.isdigit() and (int(arch[:-1] or 0), int(arch[-1])) >= least


class _Plan(StmtExprVisitor):
    """Local memory of constant size that holds narrow floats, and that nothing sees as bare memory."""

    def __init__(self, match: Match, promoted: str) -> None:
        self.match = match
        self.promoted = promoted
        self.variables: dict[Var, Var] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def visit_Allocate(self, stmt: Allocate) -> None:
        if self.match(stmt.dtype) and all(B.as_int(e) is not None for e in stmt.extents):
            dtype = dt.with_lanes(self.promoted, dt.lanes(stmt.dtype))
            pointer = PointerType(PrimType(dtype), pointer_scope(stmt.buffer_var))
            self.variables[stmt.buffer_var] = Var(stmt.buffer_var.name, pointer)
        self.visit((stmt.extents, stmt.condition, stmt.body))

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        self.visit((attr.value, attr.body))

    def visit_Buffer(self, buffer: Buffer) -> None:
        data = self.variables.get(buffer.data)
        if data is not None and buffer not in self.buffers:
            dtype = dt.with_lanes(self.promoted, dt.lanes(buffer.dtype))
            self.buffers[buffer] = buffer.with_fields(data=data, dtype=dtype)

    def visit_Call(self, e: Call) -> None:
        self.visit(e.args)

    def visit_Var(self, var: Var) -> None:
        if self.variables.pop(var, None) is not None:
            self.buffers = {old: new for old, new in self.buffers.items() if old.data is not var}


class ComputeLegalizer(RetypingMutator):
    """Promotes values where they are computed with; loads and stores of outer memory keep the narrow type."""

    convert = staticmethod(convert_float)

    def __init__(self, match: Match, promoted: str) -> None:
        self.match = match
        self.promoted = promoted
        self.variables: dict[Var, Var] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def run(self, func: PrimFunc) -> PrimFunc:
        """The function with promoted arithmetic."""
        plan = _Plan(self.match, self.promoted)
        plan.visit(func.body)
        self.variables, self.buffers = plan.variables, plan.buffers
        body = self.visit(func.body)
        return func if body is func.body else func.with_body(body)

    def _wide(self, dtype: str) -> str:
        return dt.with_lanes(self.promoted, dt.lanes(dtype))

    def _promote(self, value: PrimExpr) -> PrimExpr:
        if not self.match(value.dtype):
            return value
        if isinstance(value, Cast) and value.value.dtype == self._wide(value.dtype):
            return value.value
        return self.convert(value, self._wide(value.dtype))

    def _visited(self, value: PrimExpr) -> PrimExpr:
        return self._promote(self.visit(value))

    # -- expressions ---------------------------------------------------------------------------------------

    def visit_FloatImm(self, e: FloatImm) -> PrimExpr:
        return FloatImm(self.promoted, e.value) if self.match(e.dtype) else e

    def visit_Cast(self, e: Cast) -> PrimExpr:
        value = self._visited(e.value)
        if self.match(e.dtype):
            return B.cast(self._wide(e.dtype), value)
        return e if value is e.value else B.cast(e.dtype, value)

    def visit_Select(self, e: Select) -> PrimExpr:
        condition = self.visit(e.condition)
        a, b = self._visited(e.true_value), self._visited(e.false_value)
        same = condition is e.condition and a is e.true_value and b is e.false_value
        return e if same else Select(condition, a, b)

    def visit_Broadcast(self, e: Broadcast) -> PrimExpr:
        value = self._visited(e.value)
        return e if value is e.value else Broadcast(value, e.lanes)

    def visit_Shuffle(self, e: Shuffle) -> PrimExpr:
        vectors = [self._visited(v) for v in e.vectors]
        return e if all(a is b for a, b in zip(vectors, e.vectors)) else Shuffle(vectors, e.indices)

    def visit_Call(self, e: Call) -> PrimExpr:
        if is_call(e, "reinterpret"):
            return self.default_visit(e)
        args = tuple(self._visited(a) for a in e.args)
        if self.match(e.dtype):
            return e.with_fields(dtype=self._wide(e.dtype), args=args)
        return e if all(a is b for a, b in zip(args, e.args)) else e.with_fields(args=args)

    def visit_BinaryOp(self, e: BinaryOp) -> PrimExpr:
        if not isinstance(e, _LEGALIZED):
            return self.default_visit(e)
        a, b = self._visited(e.a), self._visited(e.b)
        return e if a is e.a and b is e.b else B.BUILDERS[type(e)](a, b)

    def visit_CmpOp(self, e: CmpOp) -> PrimExpr:
        return self.visit_BinaryOp(e)

    def bound(self, var: Var, value: PrimExpr) -> tuple[Var, Any]:
        """A variable gets the type of its value, which may have become wider."""
        made = self._visited(value)
        if made.dtype != value.dtype:
            self.variables[var] = Var(var.name, made.dtype)
        return self.visit_Var(var), made

    # -- memory --------------------------------------------------------------------------------------------

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return self.default_visit(load)

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        value, indices, buffer = self.visit(store.value), self.visit(store.indices), self.visit(store.buffer)
        if value is store.value and indices is store.indices and buffer is store.buffer:
            return store
        if store.predicate is not None:
            raise LoweringError("Predicated buffer store is not currently supported in data type legalizer pass.")
        lanes = (dt.lanes(indices[-1].dtype) if indices else 1) * dt.lanes(buffer.dtype)
        if self.match(buffer.dtype) and not self.match(value.dtype):
            value = self.convert(value, dt.with_lanes(dt.element_of(buffer.dtype), lanes))
        elif value.dtype != dt.with_lanes(dt.element_of(buffer.dtype), lanes) and self.match(value.dtype):
            value = B.cast(dt.with_lanes(dt.element_of(buffer.dtype), dt.lanes(value.dtype)), value)
        return BufferStore(buffer, value, indices, None, span=store.span)

    def visit_BufferRealize(self, stmt: BufferRealize) -> Stmt:
        made: Any = self.default_visit(stmt)
        return made.with_fields(buffer=self.visit(stmt.buffer)) if stmt.buffer in self.buffers else made

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        made: Any = self.default_visit(stmt)
        return made.with_fields(buffer=self.visit(stmt.buffer)) if stmt.buffer in self.buffers else made

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        extents, condition, body = self.visit(stmt.extents), self.visit(stmt.condition), self.visit(stmt.body)
        var = self.variables.get(stmt.buffer_var)
        if var is not None:
            return Allocate(var, self._wide(stmt.dtype), extents, condition, body)
        same = extents is stmt.extents and condition is stmt.condition and body is stmt.body
        return stmt if same else stmt.with_fields(extents=extents, condition=condition, body=body)


def legalize_compute(func: PrimFunc, match: Match, promoted: str) -> PrimFunc:
    """Promote arithmetic on matching floats."""
    return ComputeLegalizer(match, promoted).run(func)


class BF16ComputeLegalize(FunctionRewrite):
    """Compute bfloat16 arithmetic in float32; local memory of constant size holds float32 too.

    Before::

        C = T.decl_buffer((8,), "bfloat16")
        for i in range(8):
            C[i] = A[i] + A[i]
            D[i] = T.exp(C[i])

    After (``wide`` and ``narrow`` stand for shifts of reinterpreted bits, rounded half to even)::

        C = T.decl_buffer((8,), "float32")
        for i in range(8):
            C[i] = wide(A[i]) + wide(A[i])
            D[i] = narrow(T.exp(C[i]))

    Functions for CUDA devices from sm_80 on, which have the arithmetic, stay as they are.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return func if natively_supported(func, (8, 0)) else legalize_compute(func, is_bfloat16, "float32")


class FP8ComputeLegalize(FunctionRewrite):
    """Compute 8-bit float arithmetic in a wider type.

    Before::

        D[i] = A[i] * B[i]                 # float8_e5m2

    After (``wide`` and ``narrow`` stand for shifts of reinterpreted bits, rounded half to even)::

        D[i] = narrow(wide(A[i]) * wide(B[i]))

    Functions for CUDA devices from sm_89 on, which have the arithmetic, stay as they are.
    """

    promote_dtype_str: str = "float32"

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return func if natively_supported(func, (8, 9)) else legalize_compute(func, is_float8, self.promote_dtype_str)
