"""NarrowDataType and ForceNarrowIndexToInt32: 64-bit index arithmetic becomes 32-bit where values fit.

Before: ``for i in range(T.int64(16)): A[i * T.int64(8)]``.
After: ``for i in range(16): A[i * 8]``.
"""

from __future__ import annotations

from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.prim import Cast, IntImm, Var
from ...function import PrimFunc
from ...stmt import AttrStmt, Block, For, Stmt
from ..base import LoweringError, StmtExprVisitor, FunctionRewrite
from .index_types import IndexTypeRewriter


def _limits(bits: int) -> tuple[int, int]:
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


class _Widths:
    """How many bits an expression needs, given those of all expressions around it."""

    def __init__(self, target_bits: int) -> None:
        self.target_bits = target_bits
        self.bits = target_bits
        self.low, self.high = _limits(target_bits)
        self.analyzer = Analyzer()

    def enter(self, e: PrimExpr) -> int:
        """Widen for ``e``, if it does not fit; returns the width to restore."""
        saved = self.bits
        if dt.is_int(e.dtype) and dt.bits(e.dtype) > self.target_bits:
            low, high = self.analyzer.const_int_bound.bound(e)
            if low < self.low or high > self.high:
                self.bits = 64
        return saved

    def bind(self, var: Var, low: PrimExpr, extent: PrimExpr) -> None:
        """Note the values of a loop or thread variable."""
        self.analyzer.bind(var, Range.from_min_extent(low, extent), True)


class _Fits(StmtExprVisitor):
    """Finds the type of each loop, thread and block variable: narrow if all expressions it occurs in are."""

    def __init__(self, target_bits: int) -> None:
        self.widths = _Widths(target_bits)
        self.extents: dict[Var, str] = {}
        self.found: dict[Var, int] = {}

    def visit_PrimExpr(self, e: PrimExpr) -> None:
        saved = self.widths.enter(e)
        self.default_visit(e)
        self.widths.bits = saved

    def visit_IntImm(self, e: IntImm) -> None:
        return

    def visit_Var(self, var: Var) -> None:
        if var in self.extents:
            saved = self.widths.enter(var)
            bits = min(dt.bits(self.extents[var]), self.widths.bits)
            self.found[var] = max(self.found.get(var, 0), bits)
            self.widths.bits = saved

    def _define(self, var: Var, low: PrimExpr, extent: PrimExpr) -> None:
        self.widths.bind(var, low, extent)
        self.extents[var] = extent.dtype

    def visit_For(self, loop: For) -> None:
        self._define(loop.loop_var, loop.min, loop.extent)
        self.default_visit(loop)

    def visit_Block(self, block: Block) -> None:
        for iv in block.iter_vars:
            assert iv.dom is not None
            self._define(iv.var, iv.dom.min, iv.dom.extent)
        self.default_visit(block)

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        if attr.attr_key in ("thread_extent", "virtual_thread"):
            node: Any = attr.node
            self._define(node.var, B.const(attr.value.dtype, 0), attr.value)
        self.visit(attr.value)
        self.visit(attr.body)


class _Narrow(IndexTypeRewriter):
    """Narrows the chosen variables, and the constants and casts of index expressions that fit."""

    def __init__(self, target_bits: int, variables: dict[Var, Var]) -> None:
        super().__init__()
        self.variables = variables
        self.widths = _Widths(target_bits)

    def visit(self, x: Any) -> Any:
        if not hasattr(x, "dtype") or not hasattr(x, "span") or hasattr(x, "shape"):
            return super().visit(x)
        saved = self.widths.enter(x)
        made = super().visit(x)
        self.widths.bits = saved
        return made

    def _narrow(self, dtype: str) -> str:
        return f"int{min(dt.bits(dtype), self.widths.bits)}" if dt.is_int(dtype) and dt.is_scalar(dtype) else dtype

    def visit_IntImm(self, e: IntImm) -> PrimExpr:
        dtype = self._narrow(e.dtype) if self.in_index else e.dtype
        return e if dtype == e.dtype else IntImm(dtype, e.value)

    def visit_Cast(self, e: Cast) -> PrimExpr:
        made = self.default_visit(e)
        dtype = self._narrow(e.dtype) if self.in_index else e.dtype
        return made if dtype == e.dtype else B.cast(dtype, made.value)

    def visit_For(self, loop: For) -> Stmt:
        self.widths.bind(loop.loop_var, loop.min, loop.extent)
        return super().visit_For(loop)

    def visit_Block(self, block: Block) -> Block:
        for iv in block.iter_vars:
            assert iv.dom is not None
            self.widths.bind(iv.var, iv.dom.min, iv.dom.extent)
        return super().visit_Block(block)

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key in ("thread_extent", "virtual_thread"):
            node: Any = attr.node
            self.widths.bind(node.var, B.const(attr.value.dtype, 0), attr.value)
        return super().visit_AttrStmt(attr)


def narrow(func: PrimFunc, bits: int = 32) -> PrimFunc:
    """Narrow the index arithmetic of a function as far as its values fit."""
    fits = _Fits(bits)
    fits.visit(func.body)
    variables = {v: Var(v.name, f"int{b}") for v, b in fits.found.items() if b != dt.bits(v.dtype)}
    body = _Narrow(bits, variables).visit(func.body)
    return func if body is func.body else func.with_body(body)


class NarrowDataType(FunctionRewrite):
    """Narrow loop variables, constants and casts of index arithmetic to ``target_bits`` where bounds allow it.

    Before::

        for i in range(T.int64(16)):
            B[i] = A[i * T.int64(8) + T.int64(1)]

    After ``NarrowDataType(32)``::

        for i in range(16):
            B[i] = A[i * 8 + 1]

    A variable stays wide if one expression it occurs in may leave the narrow range.
    """

    target_bits: int

    def rewrite(self, f: PrimFunc) -> PrimFunc:
        return narrow(f, self.target_bits)


class _Force(IndexTypeRewriter):
    """Makes every 64-bit constant, index variable and index cast 32-bit."""

    def visit_IntImm(self, e: IntImm) -> PrimExpr:
        if e.dtype != "int64":
            return e
        low, high = _limits(32)
        if not low <= e.value <= high:
            raise LoweringError(f"the constant {e.value} does not fit 32 bits")
        return IntImm("int32", e.value)

    def visit_Var(self, var: Var) -> Var:
        if self.in_index and var.dtype == "int64" and var not in self.variables:
            self.variables[var] = Var(var.name, "int32")
        return super().visit_Var(var)

    def visit_Cast(self, e: Cast) -> PrimExpr:
        made = self.default_visit(e)
        return B.cast("int32", made.value) if self.in_index and e.dtype == "int64" else made

    def visit_Block(self, block: Block) -> Block:
        for buffer in block.alloc_buffers:
            if buffer.dtype == "int64":
                raise LoweringError(
                    f"The buffer {buffer.name} allocated in the function has dtype int64. The function is not allowed "
                    "to allocate int64 buffers when forced to narrow to int32."
                )
        return super().visit_Block(block)


def force_narrow(func: PrimFunc) -> PrimFunc:
    """Make all index arithmetic 32-bit. Raises ValueError where a buffer has 64-bit elements."""
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is not None and buffer.dtype == "int64":
            raise LoweringError(
                f"The buffer {buffer.name} in the function buffer map has dtype int64. The function is "
                f"not allowed to have int64 buffers when forced to narrow to int32."
            )
    force = _Force()
    buffer_map = {p: force.define(b) for p, b in func.buffer_map.items()}
    body = force.visit(func.body)
    params = tuple(force.variables.get(p, p) for p in func.params)
    same = body is func.body and all(buffer_map[p] is b for p, b in func.buffer_map.items())
    return func if same else func.with_fields(params=params, body=body, buffer_map=buffer_map)


class ForceNarrowIndexToInt32(FunctionRewrite):
    """Make all index arithmetic, loop variables and buffer shapes 32-bit without asking whether values fit."""

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return force_narrow(func)
