"""``log(1 + x)`` is computed as ``log1p(x)``, which keeps the digits of a small ``x``.

Front ends and operators (log1p, softplus) write the sum, and programs keep that form until blocks are lowered. Where both
are in one kernel, rounding ``1 + x`` first would lose all of an ``x`` below the precision of its type.
"""

from __future__ import annotations

from typing import Any

from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import Add, Broadcast, Call, FloatImm
from ...function import PrimFunc
from ...op import log1p
from ..base import StmtExprMutator, is_call

__all__ = ["exact_logarithms"]


def _is_one(e: PrimExpr) -> bool:
    return isinstance(e, FloatImm) and e.value == 1.0 or isinstance(e, Broadcast) and _is_one(e.value)


class _LogarithmRewriter(StmtExprMutator):
    def visit_Call(self, e: Call) -> PrimExpr:
        made: Any = self.default_visit(e)
        if is_call(made, "log") and dt.is_float(made.dtype) and isinstance(made.args[0], Add):
            total = made.args[0]
            for one, x in ((total.a, total.b), (total.b, total.a)):
                if _is_one(one):
                    return log1p(x)
        return made


def exact_logarithms(func: PrimFunc) -> PrimFunc:
    """``func`` with ``log(1 + x)`` as ``log1p(x)``.

    Before: ``B[i] = T.log(A[i] + T.float32(1))``.

    After: ``B[i] = T.log1p(A[i])``.
    """
    body = _LogarithmRewriter().visit(func.body)
    return func if body is func.body else func.with_body(body)
