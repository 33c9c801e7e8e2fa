"""Iterator maps under the module name by which scripts import them."""

from __future__ import annotations

from .iter_map import detect_iter_map, iter_map_simplify, normalize_iter_map_to_expr, normalize_to_iter_sum
from .iter_map_divide import inverse_affine_iter_map, subspace_divide
from .iter_map_nodes import IterMapExpr, IterMapLevel, IterMapResult, IterMark, IterSplitExpr, IterSumExpr

__all__ = [
    "IterMapExpr", "IterMapLevel", "IterMapResult", "IterMark", "IterSplitExpr", "IterSumExpr", "detect_iter_map",
    "inverse_affine_iter_map", "iter_map_simplify", "normalize_iter_map_to_expr", "normalize_to_iter_sum",
    "subspace_divide",
]  # fmt: skip
