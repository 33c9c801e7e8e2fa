"""Questions about struct info: how two stand to one another, results of calls, symbolic variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...ir.expr import STATIC_TYPE, PrimExpr
from ...ir.prim import const_int
from ...ir.prim import Var as TirVar
from ...support.errors import RelaxishError
from ...support.sequences import of_kind
from ..expr import Call, Expr, Var
from ..scalars import prim_vars
from ..struct_info import (
    BaseCheckResult,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    StructInfo,
    TupleStructInfo,
    as_struct_info,
)
from ..ty import Type

if TYPE_CHECKING:
    from ...arith import Analyzer

__all__ = [
    "BaseCheckResult",
    "collect_non_negative_expressions",
    "definable_tir_vars_in_struct_info",
    "derive_call_ret_struct_info",
    "erase_to_well_defined",
    "get_static_type",
    "struct_info_base_check",
    "struct_info_lca",
    "tir_vars_in_struct_info",
]


def struct_info_base_check(base: StructInfo, derived: StructInfo, analyzer: Analyzer | None = None) -> BaseCheckResult:
    """Whether ``base`` describes everything ``derived`` does, and how badly not."""
    return as_struct_info(base).check(as_struct_info(derived), analyzer)


def struct_info_lca(lhs: StructInfo, rhs: StructInfo, analyzer: Analyzer | None = None) -> StructInfo:
    """The finest struct info that describes both."""
    return as_struct_info(lhs).lca(as_struct_info(rhs), analyzer)


def erase_to_well_defined(
    sinfo: StructInfo,
    shape_var_map: Mapping[TirVar, PrimExpr] | None = None,
    var_map: Mapping[Var, Expr] | None = None,
) -> StructInfo:
    """Drop what names variables outside the maps; variables inside are replaced by what they map to."""
    shapes, values = shape_var_map or {}, var_map or {}
    return as_struct_info(sinfo).erase(shapes.get, values.get)


def get_static_type(sinfo: StructInfo) -> Type:
    """The legacy type of a struct info: its kind, rank and dtype, without any shape.

    Raises TypeError for a struct info that has no type.
    """
    return as_struct_info(sinfo).static_type


STATIC_TYPE["of"] = get_static_type


def infer_by_sinfo_args(call: Call, _: Any = None) -> StructInfo:
    """Result of a packed call: what its ``sinfo_args`` say."""
    if not call.sinfo_args:
        return ObjectStructInfo()
    return call.sinfo_args[0] if len(call.sinfo_args) == 1 else TupleStructInfo(call.sinfo_args)


_DERIVE: dict[str, Callable[..., StructInfo]] = {
    "relax.infer_by_sinfo_args": infer_by_sinfo_args,
    "tvm.relax.struct_info.infer_by_sinfo_args": infer_by_sinfo_args,
}


def _derive_by(rule: str | Callable[..., StructInfo], call: Call, builder: Any) -> StructInfo:
    if isinstance(rule, str):
        found = _DERIVE.get(rule)
        if found is None:
            from ...runtime.registry import get_global_func

            found = get_global_func(rule)
        rule = found
    made: StructInfo = rule(call, builder)
    return made


def derive_call_ret_struct_info(func_sinfo: FuncStructInfo, call: Call, ctx: Any) -> StructInfo:
    """Struct info of a call's result, from the callee's signature and the arguments' struct infos.

    Raises RelaxishError when the number or kind of the arguments cannot fit.
    """
    if func_sinfo.params is None:
        if func_sinfo.derive_func is not None:
            return _derive_by(func_sinfo.derive_func, call, ctx)
        return func_sinfo.ret
    if len(func_sinfo.params) != len(call.args):
        raise RelaxishError(
            f"Number of arguments and parameters mismatch: the callee takes {len(func_sinfo.params)}, "
            f"but the call gives {len(call.args)}"
        )
    shapes: dict[TirVar, PrimExpr] = {}
    variables: dict[Any, Any] = {}
    analyzer = ctx.get_analyzer() if hasattr(ctx, "get_analyzer") else None
    for index, (param, arg) in enumerate(zip(func_sinfo.params, call.args)):
        info = arg.struct_info
        param.bind(info, shapes, variables)
        if _check_argument(param, info, shapes, analyzer) <= BaseCheckResult.FAIL_L1:
            raise RelaxishError(f"Argument {index} type mismatch: expected {param}, given {info}")
    return func_sinfo.ret.erase(shapes.get, variables.get)


def _check_argument(
    param: StructInfo, arg: StructInfo, shapes: Mapping[TirVar, PrimExpr], analyzer: Analyzer | None
) -> BaseCheckResult:
    """The subtype check of an argument, with variables that are parameter dimensions standing for what they got."""
    match param:
        case FuncStructInfo():
            return param.check(arg, analyzer)
        case TupleStructInfo() if isinstance(arg, TupleStructInfo):
            if len(param.fields) != len(arg.fields):
                return BaseCheckResult.FAIL_L0
            return min(
                (_check_argument(p, a, shapes, analyzer) for p, a in zip(param.fields, arg.fields)),
                default=BaseCheckResult.PASS,
            )
    actual = param.map(lambda dim: shapes.get(dim, dim) if isinstance(dim, TirVar) else dim)
    result = actual.check(arg, analyzer)
    if (
        result is BaseCheckResult.FAIL_L0
        and actual is not param
        and param.check(arg, analyzer) is not BaseCheckResult.FAIL_L0
    ):
        # Two values for one symbolic dimension: whether they agree is for the run time to say.
        return BaseCheckResult.FAIL_L2
    return result


def tir_vars_in_struct_info(sinfo: StructInfo) -> list[TirVar]:
    """The symbolic variables, each once, in order of appearance."""
    found: dict[TirVar, None] = {}
    for value in as_struct_info(sinfo).prim_exprs():
        found.update(dict.fromkeys(prim_vars(value)))
    return list(found)


def definable_tir_vars_in_struct_info(sinfo: StructInfo) -> list[TirVar]:
    """The symbolic variables that a parameter of this struct info defines: dimensions that are a bare variable."""
    return list(dict.fromkeys(of_kind(as_struct_info(sinfo).prim_exprs(), TirVar)))


def collect_non_negative_expressions(sinfo: StructInfo) -> list[PrimExpr]:
    """Dimensions that occur in shapes, and so are known to be at least zero; numbers are left out."""
    from ...ir import structural_equal, structural_hash

    sinfo = as_struct_info(sinfo)
    match sinfo:
        case PrimStructInfo():
            return []
        case TupleStructInfo():
            found = [value for item in sinfo.fields for value in collect_non_negative_expressions(item)]
        case _:
            found = [v for v in as_struct_info(sinfo).prim_exprs() if const_int(v, -1) < 0]
    seen: dict[int, list[PrimExpr]] = {}
    out = []
    for value in found:
        same = seen.setdefault(structural_hash(value), [])
        if not any(structural_equal(value, other) for other in same):
            same.append(value)
            out.append(value)
    return out
