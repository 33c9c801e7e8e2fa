"""EliminateCommonSubexpr: what was computed before is used again."""

from __future__ import annotations

from ..relax.common_subexpr import eliminate_common_subexpr
from .base import map_relax_functions
from ..ir.declared_pass import ModuleRewrite
from ..ir.module import IRModule

__all__ = ["EliminateCommonSubexpr"]


class EliminateCommonSubexpr(ModuleRewrite, opt_level=1):
    """Compute equal pure values once.

    ::

        lv0 = R.add(x, y)                ->    lv0 = R.add(x, y)
        lv1 = R.add(x, y)                      lv1 = lv0
        gv = R.multiply(lv0, lv1)              gv = R.multiply(lv0, lv0)

    The copies are left for CanonicalizeBindings and DeadCodeElimination.  With ``call_only`` only calls are shared,
    not tuples, projections and shapes.
    """

    call_only: bool = False

    def rewrite(self, mod: IRModule) -> IRModule:
        return map_relax_functions(mod, lambda _, func: eliminate_common_subexpr(func, self.call_only))
