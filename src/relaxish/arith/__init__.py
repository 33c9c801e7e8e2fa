"""Integer arithmetic on index expressions: bounds, simplification, integer sets, iterator maps."""

from __future__ import annotations

from . import _ffi_api
from .analyzer import Analyzer, ConstraintScope, Extension, ProofStrength
from .const_int_bound import ConstIntBound
from .deduce import deduce_bound
from .domain_touched import domain_touched
from .int_constraints import IntConstraints, IntConstraintsTransform, IntGroupBounds
from .int_set import IntervalSet, IntSet, PresburgerSet, eval_set, neg_inf, pos_inf
from .int_set import intersect_all as intersect
from .int_set import union_all as union
from .iter_map import (
    IterMapExpr,
    IterMapLevel,
    IterMapResult,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    detect_iter_map,
    iter_map_simplify,
    normalize_iter_map_to_expr,
    normalize_to_iter_sum,
)
from .iter_map_divide import inverse_affine_iter_map, subspace_divide
from .linear import detect_clip_bound, detect_common_subexpr, detect_linear_equation
from .modular_set import ModularSet
from .narrow_predicate import narrow_predicate_expression
from .region import (
    estimate_region_lower_bound,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
    union_lower_bound,
)
from .solve_equations import solve_linear_equations
from .solve_inequalities import solve_linear_inequalities

__all__ = [
    "Analyzer", "ConstIntBound", "ConstraintScope", "Extension", "IntConstraints", "IntConstraintsTransform",
    "IntGroupBounds", "IntSet", "IntervalSet", "IterMapExpr", "IterMapLevel", "IterMapResult", "IterMark",
    "IterSplitExpr", "IterSumExpr", "ModularSet", "PresburgerSet", "ProofStrength", "_ffi_api", "deduce_bound",
    "detect_clip_bound", "detect_common_subexpr", "detect_iter_map", "detect_linear_equation", "domain_touched",
    "estimate_region_lower_bound", "estimate_region_strict_bound", "estimate_region_upper_bound", "eval_set",
    "intersect", "inverse_affine_iter_map", "iter_map_simplify", "narrow_predicate_expression", "neg_inf", "normalize_iter_map_to_expr",
    "normalize_to_iter_sum", "pos_inf", "solve_linear_equations", "solve_linear_inequalities", "subspace_divide",
    "union", "union_lower_bound",
]  # fmt: skip
