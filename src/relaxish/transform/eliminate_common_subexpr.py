"""EliminateCommonSubexpr: what was computed before is used again."""

from __future__ import annotations

from ..ir.transform import Pass
from ..relax.common_subexpr import eliminate_common_subexpr
from .base import as_module_pass, map_relax_functions

__all__ = ["EliminateCommonSubexpr"]


def EliminateCommonSubexpr(call_only: bool = False) -> Pass:
    """Compute equal pure values once.

    ::

        lv0 = R.add(x, y)                ->    lv0 = R.add(x, y)
        lv1 = R.add(x, y)                      lv1 = lv0
        gv = R.multiply(lv0, lv1)              gv = R.multiply(lv0, lv0)

    The copies are left for CanonicalizeBindings and DeadCodeElimination.  With ``call_only`` only calls are shared,
    not tuples, projections and shapes.
    """
    return as_module_pass(
        lambda mod: map_relax_functions(mod, lambda _, func: eliminate_common_subexpr(func, call_only)),
        "EliminateCommonSubexpr",
        1,
    )
