"""RenormalizeSplitPattern: nested quotients and remainders of splits take one form.

Before: ``(i * 4 + j) // 8`` beside ``i % 2 * 4 + j``.
After: the quotients are taken apart where ``j`` stays within its block.
"""

from __future__ import annotations

from typing import Any

from ...ir.prim import FloorDiv, FloorMod
from ..function import PrimFunc
from .base import PrimFuncPass, func_pass
from .simplify import AnalyzerMutator


class _Renormalize(AnalyzerMutator):
    def visit_PrimExpr(self, e: Any) -> Any:
        return self.default_visit(e)

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def visit_FloorDiv(self, e: FloorDiv) -> Any:
        return self.analyzer.rewrite_simplify(self.default_visit(e))

    def visit_FloorMod(self, e: FloorMod) -> Any:
        return self.analyzer.rewrite_simplify(self.default_visit(e))


def renormalize(func: PrimFunc) -> PrimFunc:
    """Rewrite the divisions of a function."""
    body = _Renormalize().visit(func.body)
    return func if body is func.body else func.with_body(body)


def RenormalizeSplitPattern() -> PrimFuncPass:  # noqa: N802
    """Bring split patterns to one form."""
    return func_pass(renormalize, "tir.RenormalizeSplitPattern")
