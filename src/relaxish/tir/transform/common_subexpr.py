"""CommonSubexprElimTIR: expressions computed more than once in a statement are computed once.

Before: ``A[i * 8 + j] = B[i * 8 + j] * 2``.
After: ``with T.LetStmt(i * 8 + j) as cse_v1: A[cse_v1] = B[cse_v1] * 2``.
"""

from __future__ import annotations

from typing import Any

from ...arith import build as B
from ...arith.effects import is_pure
from ...ir.functor import Mutator
from ...ir.prim import Broadcast, Call, Cast, FloatImm, IntImm, Ramp, SizeVar, StringImm, Var
from ...ir.expr import PrimExpr
from ..stmt import BufferStore, Evaluate, LetStmt, Stmt
from .base import PrimFuncPass, body_pass, config

_TOO_SMALL = (Var, SizeVar, IntImm, FloatImm, StringImm, Ramp, Broadcast, Cast, Call)


class _Replace(Mutator):
    def __init__(self, target: Any, var: Var) -> None:
        self.target = target
        self.var = var

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def visit(self, x: Any) -> Any:
        if isinstance(x, PrimExpr) and type(x) is type(self.target) and B.deep_equal(x, self.target):
            return self.var
        return super().visit(x)


class _Eliminate(Mutator):
    def __init__(self) -> None:
        self.count = 0

    def visit_PrimExpr(self, e: Any) -> Any:
        return e

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def visit_BufferStore(self, stmt: BufferStore) -> Any:
        return self._statement(stmt)

    def visit_Evaluate(self, stmt: Evaluate) -> Any:
        return stmt

    def _statement(self, stmt: Any) -> Stmt:
        lets: list[tuple[Var, Any]] = []
        for _ in range(8):
            best = self._most_common(stmt)
            if best is None:
                break
            self.count += 1
            var = Var(f"cse_v{self.count}", best.dtype)
            stmt = _Replace(best, var).visit(stmt)
            lets.append((var, best))
        for var, value in reversed(lets):
            stmt = LetStmt(var, value, stmt)
        return stmt  # type: ignore[no-any-return]

    @staticmethod
    def _most_common(stmt: Any) -> Any:
        """The largest pure expression that occurs at least twice, outside of conditional branches."""
        found: list[list[Any]] = []

        def size(e: Any) -> int:
            return 1 + sum(size(c) for c in e.iter_children() if isinstance(c, PrimExpr))

        def walk(e: Any, guarded: bool) -> None:
            if isinstance(e, (tuple, list)):
                for item in e:
                    walk(item, guarded)
                return
            if not isinstance(e, PrimExpr):
                return
            name = getattr(getattr(e, "op", None), "name", "")
            for i, child in enumerate(e.args if type(e) is Call else e.iter_children()):
                walk(child, guarded or (name == "tir.if_then_else" and i > 0))
            if isinstance(e, _TOO_SMALL) or type(e).__name__ == "BufferLoad" or not is_pure(e):
                return
            for entry in found:
                if B.deep_equal(entry[0], e):
                    entry[1] += 1
                    entry[2] = entry[2] and guarded
                    return
            found.append([e, 1, guarded])

        walk(stmt.value, False)
        walk(stmt.indices, False)
        repeated = [e for e, n, guarded in found if n > 1 and not guarded]
        return max(repeated, key=size) if repeated else None


def eliminate(stmt: Stmt) -> Stmt:
    """Share repeated expressions within each store."""
    return _Eliminate().visit(stmt)  # type: ignore[no-any-return]


def CommonSubexprElimTIR(enable_cse_tir: bool = True, identify_equiv_terms: bool = False) -> PrimFuncPass:  # noqa: N802
    """Share repeated expressions; off with ``tir.disable_cse_tir``."""
    del identify_equiv_terms
    enabled = enable_cse_tir and not config("tir.disable_cse_tir", False)
    return body_pass(eliminate if enabled else (lambda s: s), "tir.CommonSubexprElimTIR")


__all__ = ["CommonSubexprElimTIR", "eliminate"]
