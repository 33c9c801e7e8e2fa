"""The struct-info lattice: subtype check, least common ancestor, erasure, results of calls, symbolic variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from ...ir.expr import STATIC_TYPE, PrimExpr
from ...ir.prim import IntImm
from ...ir.prim import Var as TirVar
from ...ir.types import PrimType
from ...support.errors import InternalError, RelaxishError
from ..expr import Call, Expr, ShapeExpr, Var, as_shape_dim
from ..scalars import prim_vars, prove_equal, substitute_prim
from ..struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    as_struct_info,
)
from ..ty import DynTensorType, FuncType, ObjectType, PackedFuncType, ShapeType, TupleType, Type

__all__ = [
    "BaseCheckResult",
    "collect_non_negative_expressions",
    "definable_tir_vars_in_struct_info",
    "derive_call_ret_struct_info",
    "erase_struct_info",
    "erase_to_well_defined",
    "get_static_type",
    "map_struct_info",
    "struct_info_base_check",
    "struct_info_lca",
    "tir_vars_in_struct_info",
]


class BaseCheckResult(IntEnum):
    """Outcome of a subtype check.

    ``FAIL_L0``: surely disjoint; ``FAIL_L1``: not a subtype, though values may overlap; ``FAIL_L2``: cannot be
    proven at compile time, a run-time check may still pass; ``PASS``: a subtype.
    """

    FAIL_L0 = 0
    FAIL_L1 = 1
    FAIL_L2 = 2
    PASS = 3


L0, L1, L2, PASS = BaseCheckResult.FAIL_L0, BaseCheckResult.FAIL_L1, BaseCheckResult.FAIL_L2, BaseCheckResult.PASS


def struct_info_base_check(base: StructInfo, derived: StructInfo, analyzer: Any = None) -> BaseCheckResult:
    """Whether ``base`` describes everything ``derived`` does, and how badly not."""
    if base is derived or isinstance(base, ObjectStructInfo):
        return PASS
    if isinstance(base, TensorStructInfo) and isinstance(derived, TensorStructInfo):
        return _check_tensor(base, derived, analyzer)
    if isinstance(base, ShapeStructInfo) and isinstance(derived, ShapeStructInfo):
        return _check_shape(base, derived, analyzer)
    if isinstance(base, PrimStructInfo) and isinstance(derived, PrimStructInfo):
        if base.dtype != derived.dtype:
            return L0
        if base.value is None:
            return PASS
        return L2 if derived.value is None else _check_prim(base.value, derived.value, analyzer)
    if isinstance(base, TupleStructInfo) and isinstance(derived, TupleStructInfo):
        if len(base.fields) != len(derived.fields):
            return L0
        checks = [struct_info_base_check(b, d, analyzer) for b, d in zip(base.fields, derived.fields)]
        return min(checks, default=PASS)
    if isinstance(base, FuncStructInfo) and isinstance(derived, FuncStructInfo):
        return _check_func(base, derived, analyzer)
    if not isinstance(base, StructInfo) or not isinstance(derived, StructInfo):
        return struct_info_base_check(as_struct_info(base), as_struct_info(derived), analyzer)
    if type(base) is type(derived):
        return _check_custom(base, derived)
    return L1 if isinstance(derived, ObjectStructInfo) else L0


def _check_custom(base: StructInfo, derived: StructInfo) -> BaseCheckResult:
    from ...ir import structural_equal

    tensor = getattr(base, "tensor_sinfo", None)
    if tensor is None:
        return PASS if structural_equal(base, derived, map_free_vars=False) else L0
    # Tensors spread over devices: those of another mesh or placement may still overlap.
    there: Any = derived
    same = structural_equal(base.device_mesh, there.device_mesh) and structural_equal(base.placement, there.placement)  # type: ignore[attr-defined]
    return min(struct_info_base_check(tensor, there.tensor_sinfo), PASS if same else L1)


def _check_prim(base: PrimExpr, derived: PrimExpr, analyzer: Any) -> BaseCheckResult:
    if base is derived:
        return PASS
    if isinstance(base, IntImm) and isinstance(derived, IntImm):
        return PASS if base.value == derived.value else L0
    return PASS if prove_equal(base, derived, analyzer) else L2


def _check_dims(base: Any, derived: Any, analyzer: Any) -> BaseCheckResult:
    if len(base) != len(derived):
        return L0
    worst = PASS
    for lhs, rhs in zip(base, derived):
        worst = min(worst, _check_prim(lhs, rhs, analyzer))
        if worst is L0:
            break
    return worst


def _check_ndim(base: int, derived: int) -> BaseCheckResult:
    if base == -1 or base == derived:
        return PASS
    return L1 if derived == -1 else L0


def _check_shape(base: ShapeStructInfo, derived: ShapeStructInfo, analyzer: Any) -> BaseCheckResult:
    rank = _check_ndim(base.ndim, derived.ndim)
    if rank is not PASS or base.values is None:
        return rank
    return L2 if derived.values is None else _check_dims(base.values, derived.values, analyzer)


def _check_tensor(base: TensorStructInfo, derived: TensorStructInfo, analyzer: Any) -> BaseCheckResult:
    if base.dtype and base.dtype != derived.dtype:
        return L0 if derived.dtype else L1
    rank = _check_ndim(base.ndim, derived.ndim)
    if rank is not PASS:
        return rank
    if base.vdevice is not None:
        if derived.vdevice is None:
            return L1
        if not same_vdevice(base.vdevice, derived.vdevice):
            return L0
    if base.shape is None:
        return PASS
    if derived.shape is None:
        return L2
    if base.shape is derived.shape:
        return PASS
    if isinstance(base.shape, ShapeExpr) and isinstance(derived.shape, ShapeExpr):
        return _check_dims(base.shape.values, derived.shape.values, analyzer)
    return L2


def same_vdevice(lhs: Any, rhs: Any) -> bool:
    """Whether two VDevices are the same or structurally equal."""
    if lhs is rhs:
        return True
    if lhs is None or rhs is None:
        return False
    from ...ir import structural_equal

    return bool(structural_equal(lhs, rhs))


def _check_func(base: FuncStructInfo, derived: FuncStructInfo, analyzer: Any) -> BaseCheckResult:
    if base.purity and not derived.purity:
        return L0
    if base.params is None:
        if base.derive_func is not None:
            return PASS if base.derive_func == derived.derive_func else L2
        return struct_info_base_check(base.ret, derived.ret, analyzer)
    if derived.params is None:
        return L2
    from ...ir import structural_equal

    # Symbolic variables of the parameters are renamed to each other here, and only here.
    if structural_equal(base, derived):
        return PASS
    if len(base.params) != len(derived.params):
        return L0
    params = min((struct_info_base_check(b, d, analyzer) for b, d in zip(base.params, derived.params)), default=PASS)
    return min(L2 if params is L1 else params, struct_info_base_check(base.ret, derived.ret, analyzer))


def struct_info_lca(lhs: StructInfo, rhs: StructInfo, analyzer: Any = None) -> StructInfo:
    """The finest struct info that describes both."""
    if lhs is rhs or isinstance(lhs, ObjectStructInfo):
        return lhs
    if isinstance(lhs, TensorStructInfo) and isinstance(rhs, TensorStructInfo):
        return _lca_tensor(lhs, rhs, analyzer)
    if isinstance(lhs, ShapeStructInfo) and isinstance(rhs, ShapeStructInfo):
        if lhs.values is not None and rhs.values is not None and _dims_equal(lhs.values, rhs.values, analyzer):
            return lhs
        return ShapeStructInfo(ndim=lhs.ndim if lhs.ndim == rhs.ndim else -1)
    if isinstance(lhs, PrimStructInfo) and isinstance(rhs, PrimStructInfo) and lhs.dtype == rhs.dtype:
        if lhs.value is None or (rhs.value is not None and prove_equal(lhs.value, rhs.value, analyzer)):
            return lhs
        return PrimStructInfo(lhs.dtype)
    if isinstance(lhs, TupleStructInfo) and isinstance(rhs, TupleStructInfo) and len(lhs.fields) == len(rhs.fields):
        merged = [struct_info_lca(a, b, analyzer) for a, b in zip(lhs.fields, rhs.fields)]
        same = all(m is f for m, f in zip(merged, lhs.fields))
        return lhs if same else TupleStructInfo(merged)
    if isinstance(lhs, FuncStructInfo) and isinstance(rhs, FuncStructInfo):
        return _lca_func(lhs, rhs, analyzer)
    if not isinstance(lhs, StructInfo) or not isinstance(rhs, StructInfo):
        return struct_info_lca(as_struct_info(lhs), as_struct_info(rhs), analyzer)
    if type(lhs) is type(rhs) and _check_custom(lhs, rhs) is PASS:
        return lhs
    return ObjectStructInfo()


def _dims_equal(lhs: Any, rhs: Any, analyzer: Any) -> bool:
    return len(lhs) == len(rhs) and all(prove_equal(a, b, analyzer) for a, b in zip(lhs, rhs))


def _lca_tensor(lhs: TensorStructInfo, rhs: TensorStructInfo, analyzer: Any) -> TensorStructInfo:
    dtype = lhs.dtype if lhs.dtype == rhs.dtype else ""
    ndim = lhs.ndim if lhs.ndim == rhs.ndim else -1
    vdevice = lhs.vdevice if same_vdevice(lhs.vdevice, rhs.vdevice) else None
    shape = None
    if lhs.shape is not None and rhs.shape is not None:
        same = lhs.shape is rhs.shape or (
            isinstance(lhs.shape, ShapeExpr)
            and isinstance(rhs.shape, ShapeExpr)
            and _dims_equal(lhs.shape.values, rhs.shape.values, analyzer)
        )
        shape = lhs.shape if same else None
    if shape is not None:
        if dtype == lhs.dtype and vdevice is lhs.vdevice:
            return lhs
        return TensorStructInfo(shape, dtype, vdevice)
    return TensorStructInfo(None, dtype, vdevice, ndim)


def _lca_func(lhs: FuncStructInfo, rhs: FuncStructInfo, analyzer: Any) -> FuncStructInfo:
    purity = lhs.purity and rhs.purity
    if lhs.params is None and lhs.derive_func is not None:
        return lhs if lhs.derive_func == rhs.derive_func else FuncStructInfo.opaque_func(purity=purity)
    ret = struct_info_lca(lhs.ret, rhs.ret, analyzer)
    if lhs.params is None:
        return lhs if ret is lhs.ret else FuncStructInfo.opaque_func(ret=ret, purity=purity)
    if rhs.params is None:
        return FuncStructInfo.opaque_func(ret=ret, purity=purity)
    from ...ir import structural_equal

    if structural_equal(lhs, rhs):
        return lhs
    if len(lhs.params) != len(rhs.params):
        return FuncStructInfo.opaque_func(ret=ret, purity=purity)
    params = [struct_info_lca(a, b, analyzer) for a, b in zip(lhs.params, rhs.params)]
    if ret is lhs.ret and all(a is b for a, b in zip(params, lhs.params)):
        return lhs
    return FuncStructInfo(params, ret, purity)


def map_struct_info(
    info: StructInfo, prim: Callable[[PrimExpr], PrimExpr], expr: Callable[[Any], Any] | None = None
) -> StructInfo:
    """Rebuild with every scalar expression sent through ``prim`` and every shape variable through ``expr``."""
    if isinstance(info, TensorStructInfo):
        shape = info.shape
        if shape is None:
            return info
        if isinstance(shape, ShapeExpr):
            dims = [prim(v) for v in shape.values]
            if all(a is b for a, b in zip(dims, shape.values)):
                return info
            return TensorStructInfo(ShapeExpr(dims), info.dtype, info.vdevice)
        new = expr(shape) if expr is not None else shape
        return info if new is shape else TensorStructInfo(new, info.dtype, info.vdevice)
    if isinstance(info, ShapeStructInfo):
        if info.values is None:
            return info
        dims = [prim(v) for v in info.values]
        return info if all(a is b for a, b in zip(dims, info.values)) else ShapeStructInfo(dims)
    if isinstance(info, PrimStructInfo):
        if info.value is None:
            return info
        value = prim(info.value)
        return info if value is info.value else PrimStructInfo(value=value)
    if isinstance(info, TupleStructInfo):
        fields = [map_struct_info(f, prim, expr) for f in info.fields]
        return info if all(a is b for a, b in zip(fields, info.fields)) else TupleStructInfo(fields)
    if isinstance(info, FuncStructInfo):
        params = None if info.params is None else [map_struct_info(p, prim, expr) for p in info.params]
        ret = map_struct_info(info.ret, prim, expr)
        same = ret is info.ret and (params is None or all(a is b for a, b in zip(params, info.params or ())))
        return info if same else FuncStructInfo(params, ret, info.purity, info.span, info.derive_func)
    return info


def erase_struct_info(
    info: StructInfo,
    shape_var: Callable[[TirVar], PrimExpr | None],
    var: Callable[[Any], Any] | None = None,
) -> StructInfo:
    """Keep only what is defined: a dimension with an unknown variable costs the whole shape, not its rank."""
    if isinstance(info, TensorStructInfo):
        if info.shape is None:
            return info
        if isinstance(info.shape, ShapeExpr):
            dims = _defined_dims(info.shape.values, shape_var)
            if dims is None:
                return TensorStructInfo(None, info.dtype, info.vdevice, info.ndim)
            if all(a is b for a, b in zip(dims, info.shape.values)):
                return info
            return TensorStructInfo(ShapeExpr(dims), info.dtype, info.vdevice)
        new = var(info.shape) if var is not None else None
        if new is None:
            return TensorStructInfo(None, info.dtype, info.vdevice, info.ndim)
        if not isinstance(new, (Var, ShapeExpr)):
            raise InternalError(f"a shape can be a ShapeExpr or a Var, not {type(new).__name__}")
        return info if new is info.shape else TensorStructInfo(new, info.dtype, info.vdevice)
    if isinstance(info, ShapeStructInfo):
        if info.values is None:
            return info
        dims = _defined_dims(info.values, shape_var)
        if dims is None:
            return ShapeStructInfo(ndim=info.ndim)
        return info if all(a is b for a, b in zip(dims, info.values)) else ShapeStructInfo(dims)
    if isinstance(info, PrimStructInfo):
        if info.value is None:
            return info
        dims = _defined_dims((info.value,), shape_var)
        if dims is None:
            return PrimStructInfo(info.dtype)
        return info if dims[0] is info.value else PrimStructInfo(value=dims[0])
    if isinstance(info, TupleStructInfo):
        fields = [erase_struct_info(f, shape_var, var) for f in info.fields]
        return info if all(a is b for a, b in zip(fields, info.fields)) else TupleStructInfo(fields)
    # The struct info of a function is well defined by itself: its parameters define what it mentions.
    return info


def _defined_dims(dims: Any, shape_var: Callable[[TirVar], PrimExpr | None]) -> list[PrimExpr] | None:
    out = []
    for dim in dims:
        mapping: dict[TirVar, PrimExpr] = {}
        for symbol in prim_vars(dim):
            new = shape_var(symbol)
            if new is None:
                return None
            new = as_shape_dim(new)
            if new is not symbol:
                mapping[symbol] = new
        out.append(substitute_prim(dim, mapping) if mapping else dim)
    return out


def erase_to_well_defined(
    sinfo: StructInfo,
    shape_var_map: Mapping[TirVar, PrimExpr] | None = None,
    var_map: Mapping[Var, Expr] | None = None,
) -> StructInfo:
    """Drop what names variables outside the maps; variables inside are replaced by what they map to."""
    shapes, values = shape_var_map or {}, var_map or {}
    return erase_struct_info(as_struct_info(sinfo), shapes.get, values.get)


def get_static_type(sinfo: StructInfo) -> Type:
    """The legacy type of a struct info: its kind, rank and dtype, without any shape.

    Raises TypeError for a struct info that has no type.
    """
    sinfo = as_struct_info(sinfo)
    if isinstance(sinfo, TensorStructInfo):
        return DynTensorType(sinfo.ndim, sinfo.dtype)
    if isinstance(sinfo, ShapeStructInfo):
        return ShapeType(sinfo.ndim)
    if isinstance(sinfo, PrimStructInfo):
        return PrimType(sinfo.dtype)
    if isinstance(sinfo, TupleStructInfo):
        return TupleType([get_static_type(f) for f in sinfo.fields])
    if isinstance(sinfo, FuncStructInfo):
        if sinfo.params is None:
            return PackedFuncType()
        return FuncType([get_static_type(p) for p in sinfo.params], get_static_type(sinfo.ret))
    if isinstance(sinfo, ObjectStructInfo) or hasattr(sinfo, "tensor_sinfo"):
        return ObjectType()
    raise TypeError(f"no static type for struct info of kind {type(sinfo).__name__}")


STATIC_TYPE["of"] = get_static_type


def bind_struct_info(
    param: StructInfo, arg: StructInfo, shapes: dict[TirVar, PrimExpr], variables: dict[Any, Any]
) -> None:
    """Record what each symbolic variable of ``param`` stands for when it receives a value like ``arg``."""
    if isinstance(param, TensorStructInfo):
        if not isinstance(arg, TensorStructInfo) or param.shape is None:
            return
        if isinstance(param.shape, ShapeExpr):
            dims = arg.dims()
            if dims is not None and len(dims) == len(param.shape.values):
                _bind_dims(param.shape.values, dims, shapes)
        elif arg.shape is not None:
            variables.setdefault(param.shape, arg.shape)
    elif isinstance(param, ShapeStructInfo):
        if isinstance(arg, ShapeStructInfo) and param.values is not None and arg.values is not None:
            if len(param.values) == len(arg.values):
                _bind_dims(param.values, arg.values, shapes)
    elif isinstance(param, PrimStructInfo):
        if isinstance(arg, PrimStructInfo) and param.value is not None and arg.value is not None:
            _bind_dims((param.value,), (arg.value,), shapes)
    elif isinstance(param, TupleStructInfo):
        if isinstance(arg, TupleStructInfo):
            for p, a in zip(param.fields, arg.fields):
                bind_struct_info(p, a, shapes, variables)


def _bind_dims(params: Any, args: Any, shapes: dict[TirVar, PrimExpr]) -> None:
    for param, arg in zip(params, args):
        if isinstance(param, TirVar):
            shapes.setdefault(param, arg)


def infer_by_sinfo_args(call: Call, _: Any = None) -> StructInfo:
    """Result of a packed call: what its ``sinfo_args`` say."""
    if not call.sinfo_args:
        return ObjectStructInfo()
    return call.sinfo_args[0] if len(call.sinfo_args) == 1 else TupleStructInfo(call.sinfo_args)


_DERIVE: dict[str, Callable[..., StructInfo]] = {
    "relax.infer_by_sinfo_args": infer_by_sinfo_args,
    "tvm.relax.struct_info.infer_by_sinfo_args": infer_by_sinfo_args,
}


def _derive_by(rule: Any, call: Call, builder: Any) -> StructInfo:
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
        bind_struct_info(param, info, shapes, variables)
        if _check_argument(param, info, shapes, analyzer) <= L1:
            raise RelaxishError(f"Argument {index} type mismatch: expected {param}, given {info}")
    return erase_struct_info(func_sinfo.ret, shapes.get, variables.get)


def _check_argument(param: Any, arg: Any, shapes: Mapping[TirVar, PrimExpr], analyzer: Any) -> BaseCheckResult:
    """The subtype check of an argument, with variables that are parameter dimensions standing for what they got."""
    if isinstance(param, FuncStructInfo):
        return struct_info_base_check(param, arg, analyzer)
    if isinstance(param, TupleStructInfo) and isinstance(arg, TupleStructInfo):
        if len(param.fields) != len(arg.fields):
            return L0
        return min((_check_argument(p, a, shapes, analyzer) for p, a in zip(param.fields, arg.fields)), default=PASS)
    actual = map_struct_info(param, lambda dim: shapes.get(dim, dim) if isinstance(dim, TirVar) else dim)
    result = struct_info_base_check(actual, arg, analyzer)
    if result is L0 and actual is not param and struct_info_base_check(param, arg, analyzer) is not L0:
        # Two values for one symbolic dimension: whether they agree is for the run time to say.
        return L2
    return result


def _prim_fields(info: StructInfo, out: list[PrimExpr]) -> None:
    if isinstance(info, TensorStructInfo):
        out.extend(info.dims() or ())
    elif isinstance(info, ShapeStructInfo):
        out.extend(info.values or ())
    elif isinstance(info, PrimStructInfo):
        if info.value is not None:
            out.append(info.value)
    elif isinstance(info, TupleStructInfo):
        for item in info.fields:
            _prim_fields(item, out)
    elif isinstance(info, FuncStructInfo):
        for item in info.params or ():
            _prim_fields(item, out)
        _prim_fields(info.ret, out)


def prim_exprs_in_struct_info(info: StructInfo) -> list[PrimExpr]:
    """Every scalar expression in it, in order."""
    out: list[PrimExpr] = []
    _prim_fields(as_struct_info(info), out)
    return out


def tir_vars_in_struct_info(sinfo: StructInfo) -> list[TirVar]:
    """The symbolic variables, each once, in order of appearance."""
    found: dict[TirVar, None] = {}
    for value in prim_exprs_in_struct_info(sinfo):
        found.update(dict.fromkeys(prim_vars(value)))
    return list(found)


def definable_tir_vars_in_struct_info(sinfo: StructInfo) -> list[TirVar]:
    """The symbolic variables that a parameter of this struct info defines: dimensions that are a bare variable."""
    return list(dict.fromkeys(v for v in prim_exprs_in_struct_info(sinfo) if isinstance(v, TirVar)))


def collect_non_negative_expressions(sinfo: StructInfo) -> list[PrimExpr]:
    """Dimensions that occur in shapes, and so are known to be at least zero; numbers are left out."""
    from ...ir import structural_equal, structural_hash

    sinfo = as_struct_info(sinfo)
    if isinstance(sinfo, PrimStructInfo):
        return []
    if isinstance(sinfo, TupleStructInfo):
        found = [value for item in sinfo.fields for value in collect_non_negative_expressions(item)]
    else:
        found = [v for v in prim_exprs_in_struct_info(sinfo) if not (isinstance(v, IntImm) and v.value >= 0)]
    seen: dict[int, list[PrimExpr]] = {}
    out = []
    for value in found:
        same = seen.setdefault(structural_hash(value), [])
        if not any(structural_equal(value, other) for other in same):
            same.append(value)
            out.append(value)
    return out
