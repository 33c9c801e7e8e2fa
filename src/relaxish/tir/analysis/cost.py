"""How much a program computes and allocates."""

from __future__ import annotations

from typing import Any

from ...ir import dtype as dt
from ...ir.functor import Visitor
from ...ir.module import IRModule
from ..expr import IntImm
from ..function import PrimFunc

__all__ = ["calculate_allocated_bytes", "estimate_tir_flops"]


class _Flops(Visitor):
    """Counts arithmetic on values; index arithmetic is free."""

    def __init__(self) -> None:
        self.total = 0.0
        self.times = 1.0

    def visit_For(self, node: Any) -> None:
        if not isinstance(node.extent, IntImm):
            raise ValueError(f"the loop {node.loop_var.name} has no constant extent, so its work cannot be counted")
        outer = self.times
        self.times = outer * int(node.extent.value)
        self.visit(node.body)
        self.times = outer

    def visit_BlockRealize(self, node: Any) -> None:
        self.visit(node.block)

    def visit_Block(self, node: Any) -> None:
        known = node.annotations.get("estimated_flops") if node.annotations else None
        if known is not None:
            self.total += float(getattr(known, "value", known)) * self.times
            return
        self.visit(node.body)

    def visit_BufferStore(self, node: Any) -> None:
        self.visit(node.value)

    def visit_BufferLoad(self, node: Any) -> None:
        pass

    def visit_IfThenElse(self, node: Any) -> None:
        before = self.total
        self.visit(node.then_case)
        taken = self.total - before
        if node.else_case is not None:
            self.total = before
            self.visit(node.else_case)
            self.total = max(self.total, before + taken)

    def _count(self, node: Any) -> None:
        self.total += self.times * dt.lanes(node.dtype)
        self.default_visit(node)

    def visit_BinaryOp(self, node: Any) -> None:
        self._count(node)

    visit_Not = _count

    def visit_Cast(self, node: Any) -> None:
        self.visit(node.value)

    def visit_Select(self, node: Any) -> None:
        self.visit(node.condition)
        before = self.total
        self.visit(node.true_value)
        first = self.total
        self.total = before
        self.visit(node.false_value)
        self.total = max(first, self.total)

    def visit_Call(self, node: Any) -> None:
        for arg in node.args:
            self.visit(arg)


def estimate_tir_flops(stmt_or_mod: Any) -> float:
    """Arithmetic operations of a statement, function or module; blocks may state their own count.

    A block annotation ``estimated_flops`` overrides what the body would give.
    """
    counter = _Flops()
    if isinstance(stmt_or_mod, IRModule):
        for func in stmt_or_mod.functions.values():
            if isinstance(func, PrimFunc):
                counter.visit(func.body)
    elif isinstance(stmt_or_mod, PrimFunc):
        counter.visit(stmt_or_mod.body)
    else:
        counter.visit(stmt_or_mod)
    return counter.total


class _Bytes(Visitor):
    def __init__(self) -> None:
        self.current: dict[str, int] = {}
        self.peak: dict[str, int] = {}

    def _enter(self, scope: str, size: int) -> None:
        self.current[scope] = self.current.get(scope, 0) + size
        self.peak[scope] = max(self.peak.get(scope, 0), self.current[scope])

    def visit_Allocate(self, node: Any) -> None:
        size = dt.nbytes(node.dtype)
        for extent in node.extents:
            if not isinstance(extent, IntImm):
                size = 0
                break
            size *= int(extent.value)
        scope = getattr(node.buffer_var.type_annotation, "storage_scope", "") or "global"
        self._enter(scope, size)
        self.visit(node.body)
        self.current[scope] -= size

    def visit_PrimExpr(self, node: Any) -> None:
        pass


def calculate_allocated_bytes(func_or_mod: Any) -> dict[str, Any]:
    """Bytes allocated per memory scope, at most at one time, for every function."""
    if isinstance(func_or_mod, PrimFunc):
        functions = {"main": func_or_mod}
    elif isinstance(func_or_mod, IRModule):
        functions = {gv.name_hint: f for gv, f in func_or_mod.functions.items() if isinstance(f, PrimFunc)}
    else:
        raise TypeError(f"expected an IRModule or a PrimFunc, got {type(func_or_mod).__name__}")
    out = {}
    for name, func in functions.items():
        worker = _Bytes()
        worker.visit(func.body)
        out[name] = dict(worker.peak)
    return out
