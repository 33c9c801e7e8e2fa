"""NarrowDataType and ForceNarrowIndexToInt32: 64-bit index arithmetic becomes 32-bit where values fit.

Before: ``for i in range(T.int64(16)): A[i * T.int64(8)]``.
After: ``for i in range(16): A[i * 8]``.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...arith import build as B
from ...ir import dtype as dt
from ...ir.expr import Range
from ...ir.functor import Mutator, Visitor
from ...ir.prim import BinaryOp, CmpOp, IntImm, IterVar, Var
from ..function import PrimFunc
from ..stmt import AttrStmt, For
from .base import LoweringError, PrimFuncPass, func_pass

LIMIT = {32: ((-(1 << 31)), (1 << 31) - 1), 64: (-(1 << 63), (1 << 63) - 1)}


class _Fits(Visitor):
    """Which 64-bit loop variables take only small values, in themselves and in every index they occur in."""

    def __init__(self, bits: int) -> None:
        self.low, self.high = LIMIT[bits]
        self.analyzer = Analyzer()
        self.loops: set[Var] = set()
        self.wide: set[Var] = set()

    def visit_For(self, loop: For) -> None:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), True)
        if loop.loop_var.dtype == "int64":
            self.loops.add(loop.loop_var)
            self._check(loop.loop_var, {loop.loop_var})
            self._check(loop.extent, {loop.loop_var})
        self.default_visit(loop)

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        if attr.attr_key in ("thread_extent", "virtual_thread"):
            var = attr.node.var
            self.analyzer.bind(var, Range.from_min_extent(B.const(attr.value.dtype, 0), attr.value), True)
            if var.dtype == "int64":
                self.loops.add(var)
                self._check(var, {var})
        self.default_visit(attr)

    def visit_BinaryOp(self, e: BinaryOp) -> None:
        if e.a.dtype == "int64":
            self._check(e if e.dtype == "int64" else e.a, None)
        self.default_visit(e)

    def _check(self, e: Any, variables: set[Var] | None) -> None:
        low, high = self.analyzer.const_int_bound.bound(e)
        if low < self.low or high > self.high:
            from ...arith.functor import free_vars

            self.wide.update(variables if variables is not None else [v for v in free_vars(e) if v in self.loops])


class _Narrow(Mutator):
    def __init__(self, variables: dict[Var, Var]) -> None:
        self.variables = variables

    def visit_Var(self, var: Var) -> Any:
        return self.variables.get(var, var)

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def visit_IntImm(self, e: Any) -> Any:
        return e

    def visit_BinaryOp(self, e: BinaryOp) -> Any:
        a, b = self.visit(e.a), self.visit(e.b)
        if a is e.a and b is e.b:
            return e
        if a.dtype != b.dtype:
            a, b = _match(a, b)
        return type(e)(a, b) if isinstance(e, CmpOp) else B.BUILDERS[type(e)](a, b)

    def visit_For(self, loop: For) -> Any:
        var = self.variables.get(loop.loop_var)
        if var is None:
            return self.default_visit(loop)
        low = B.cast(var.dtype, self.visit(loop.min))
        extent = B.cast(var.dtype, self.visit(loop.extent))
        return loop.with_fields(loop_var=var, min=low, extent=extent, body=self.visit(loop.body))

    def visit_AttrStmt(self, attr: AttrStmt) -> Any:
        var = self.variables.get(attr.node.var) if isinstance(attr.node, IterVar) else None
        if var is None:
            return self.default_visit(attr)
        size = B.cast(var.dtype, self.visit(attr.value))
        dom = attr.node.dom
        if dom is not None:
            low, extent = (B.cast(var.dtype, self.visit(e)) for e in (dom.min, dom.extent))
            dom = Range.from_min_extent(low, extent)
        axis = IterVar(dom, var, attr.node.iter_type, attr.node.thread_tag)
        return AttrStmt(axis, attr.attr_key, size, self.visit(attr.body))

    def visit_Call(self, e: Any) -> Any:
        # The threads of an all-reduction are named by their variables, not computed with.
        named = getattr(e.op, "name", "") == "tir.tvm_thread_allreduce"
        args = tuple(
            self.variables[a] if named and a in self.variables else self._keep(a, self.visit(a)) for a in e.args
        )
        return e if all(a is b for a, b in zip(args, e.args)) else e.with_fields(args=args)

    @staticmethod
    def _keep(old: Any, new: Any) -> Any:
        """Arguments and values keep their type; only indices may change theirs."""
        return new if new.dtype == old.dtype else B.cast(old.dtype, new)

    def visit_BufferStore(self, store: Any) -> Any:
        value = self._keep(store.value, self.visit(store.value))
        indices = self.visit(store.indices)
        if value is store.value and indices is store.indices:
            return store
        return store.with_fields(value=value, indices=indices)

    def visit_Select(self, e: Any) -> Any:
        cond = self.visit(e.condition)
        a, b = self._keep(e.true_value, self.visit(e.true_value)), self._keep(e.false_value, self.visit(e.false_value))
        return e if (cond is e.condition and a is e.true_value and b is e.false_value) else B.select(cond, a, b)

    def visit_Ramp(self, e: Any) -> Any:
        base, stride = self.visit(e.base), self.visit(e.stride)
        if base is e.base and stride is e.stride:
            return e
        return e.with_fields(base=base, stride=B.cast(base.dtype, stride))

    def visit_LetStmt(self, stmt: Any) -> Any:
        value = self._keep(stmt.value, self.visit(stmt.value))
        body = self.visit(stmt.body)
        return stmt if value is stmt.value and body is stmt.body else stmt.with_fields(value=value, body=body)


def _match(a: Any, b: Any) -> tuple[Any, Any]:
    if isinstance(a, IntImm) and dt.bits(a.dtype) > dt.bits(b.dtype):
        low, high = LIMIT[32]
        if low <= a.value <= high:
            return B.const(b.dtype, a.value), b
    if isinstance(b, IntImm) and dt.bits(b.dtype) > dt.bits(a.dtype):
        low, high = LIMIT[32]
        if low <= b.value <= high:
            return a, B.const(a.dtype, b.value)
    wide = a.dtype if dt.bits(a.dtype) >= dt.bits(b.dtype) else b.dtype
    return B.cast(wide, a), B.cast(wide, b)


def narrow(func: PrimFunc, bits: int = 32) -> PrimFunc:
    """Narrow the loop variables of a function whose values fit."""
    fits = _Fits(bits)
    fits.visit(func.body)
    chosen = {v: Var(v.name, "int32") for v in fits.loops if v not in fits.wide}
    if not chosen or bits != 32:
        return func
    return func.with_body(_Narrow(chosen).visit(func.body))


def NarrowDataType(target_bits: int) -> PrimFuncPass:  # noqa: N802
    """Narrow index arithmetic to ``target_bits`` where bounds allow it."""
    return func_pass(lambda f: narrow(f, target_bits), "tir.NarrowDataType")


def force_narrow(func: PrimFunc) -> PrimFunc:
    """Make all loop variables 32-bit. Raises ValueError where a buffer parameter has 64-bit elements."""
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is not None and buffer.dtype == "int64":
            raise LoweringError(
                f"The buffer {buffer.name} in the function buffer map has dtype int64. The function is "
                f"not allowed to have int64 buffers when forced to narrow to int32."
            )
    fits = _Fits(32)
    fits.visit(func.body)
    chosen = {v: Var(v.name, "int32") for v in fits.loops}
    return func.with_body(_Narrow(chosen).visit(func.body)) if chosen else func


def ForceNarrowIndexToInt32() -> PrimFuncPass:  # noqa: N802
    """Make all index arithmetic 32-bit without asking."""
    return func_pass(force_narrow, "tir.ForceNarrowIndexToInt32")
