"""The ``call_tir`` family: graph-level calls of loop-level and packed functions.

These sit below the operator layer because the BlockBuilder itself makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TYPE_CHECKING

from ..ir.attrs import make_node
from ..ir.expr import ExprLike, GlobalVar
from ..ir.op import Op
from ..support.errors import RelaxishError
from ..support.sequences import as_list
from .analysis.struct_info import derive_call_ret_struct_info, infer_by_sinfo_args
from .call_tir_rules import check_inplace_indices, normalize_call_tir, normalize_call_tir_inplace, validate_call_tir
from .expr import Call, Expr, ExternFunc, ShapeExpr, Tuple, Var
from .op_table import Infer, Legalize, OpRecord, register_op
from .struct_info import (
    fields_of,
    FuncStructInfo,
    ObjectStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    as_struct_info,
)
from .utils import convert_to_expr

if TYPE_CHECKING:
    from .block_builder import BlockBuilder
    from .expr import ArgLike
    from .struct_info import StructInfoLike

__all__ = [
    "call_builtin_with_ctx",
    "call_dps_packed",
    "call_inplace_packed",
    "call_pure_packed",
    "call_tir",
    "call_tir_inplace",
    "call_tir_with_grad",
    "invoke_closure",
    "invoke_pure_closure",
    "make_closure",
]


def _define(name: str, infer: Infer, *, pure: bool = True, **rules: Any) -> Op:
    register_op(OpRecord(name, infer, pure=pure, **rules))
    return Op.get(name)


def _define_call_tir(name: str, normalize: Legalize = normalize_call_tir) -> Op:
    return _define(name, _one_sinfo, normalize=normalize, validate=validate_call_tir)


def _one_sinfo(call: Call, _: BlockBuilder) -> StructInfo:
    if len(call.sinfo_args) != 1:
        raise RelaxishError(f"{call.op.name}: sinfo_args should have exactly 1 output struct info.")
    if not isinstance(call.args[0], GlobalVar):
        raise RelaxishError(
            f"{call.op.name} expects the first argument to be a GlobalVar referring to a TIR PrimFunc. "
            f"However, the argument {call.args[0]} instead has type {type(call.args[0]).__name__}"
        )
    info: StructInfo = call.sinfo_args[0]
    return info


def _dps_sinfo(call: Call, _: BlockBuilder) -> StructInfo:
    if len(call.sinfo_args) != 1:
        raise RelaxishError("sinfo_args should have exact 1 output struct info.")
    info: StructInfo = call.sinfo_args[0]
    return info


def _opaque_result(call: Call, builder: BlockBuilder) -> StructInfo:
    """What the packed function, the first argument, says of its result."""
    callee = call.args[0]
    info = None if isinstance(callee, Op) else callee.struct_info_
    if not isinstance(info, FuncStructInfo) or info.params is not None:
        raise RelaxishError(f"{call.op.name} must be called with an opaque function, but {callee} is not opaque")
    return derive_call_ret_struct_info(info, call, builder)


def _packed_sinfo(call: Call, builder: BlockBuilder) -> StructInfo:
    if not call.args:
        raise RelaxishError("call_pure_packed must be called with at least one argument")
    return _opaque_result(call, builder)


def _inplace_packed_sinfo(call: Call, builder: BlockBuilder) -> StructInfo:
    if len(call.args) < 2:
        raise RelaxishError(
            "call_inplace_packed must be called with at least two arguments (the packed call and at least one argument "
            "to the packed call; if the packed call does not need arguments, use call_pure_packed instead)"
        )
    indices = [int(i) for i in call.attrs.inplace_indices]
    check_inplace_indices(indices, len(call.args) - 1, "call_pure_packed")
    result = _opaque_result(call, builder)
    if len(indices) > 1 and not isinstance(result, TupleStructInfo):
        raise RelaxishError("Multiple outputs given via the inplace indices but the derived StructInfo is not a tuple")
    outputs = result.fields if isinstance(result, TupleStructInfo) and len(indices) > 1 else (result,)
    for index, output in zip(indices, outputs):
        given = call.args[index + 1].struct_info
        if index != -1 and not output.is_base_of(given):
            raise RelaxishError(
                "The derived return StructInfo does not match that for the in-place argument at index "
                f"{index}: {output} vs {given}"
            )
    return result


def _sinfo_args(call: Call, _: BlockBuilder) -> StructInfo:
    return infer_by_sinfo_args(call)


def _builtin_sinfo(call: Call, _: BlockBuilder) -> StructInfo:
    if len(call.sinfo_args) > 1:
        raise RelaxishError(f"a builtin has one result, but the call has {len(call.sinfo_args)} sinfo_args")
    return call.sinfo_args[0] if call.sinfo_args else TupleStructInfo(())


CALL_TIR = _define_call_tir("relax.call_tir")
CALL_TIR_WITH_GRAD = _define_call_tir("relax.call_tir_with_grad")
CALL_TIR_INPLACE = _define_call_tir("relax.call_tir_inplace", normalize_call_tir_inplace)
CALL_DPS_PACKED = _define("relax.call_dps_packed", _dps_sinfo)
CALL_PURE_PACKED = _define("relax.call_pure_packed", _packed_sinfo)
CALL_INPLACE_PACKED = _define("relax.call_inplace_packed", _inplace_packed_sinfo)
CALL_BUILTIN = _define("relax.call_builtin_with_ctx", _builtin_sinfo, pure=False)
MAKE_CLOSURE = _define("relax.make_closure", lambda *_: ObjectStructInfo())
INVOKE_CLOSURE = _define("relax.invoke_closure", _sinfo_args, pure=False)
INVOKE_PURE_CLOSURE = _define("relax.invoke_pure_closure", _sinfo_args)


def _as_tuple(args: Expr | Sequence[ArgLike]) -> Expr:
    if isinstance(args, Expr):
        if isinstance(args, Tuple) or isinstance(args.struct_info_, TupleStructInfo) and not isinstance(args, Var):
            return args
        return args if isinstance(args.struct_info_, TupleStructInfo) else Tuple([args])
    return Tuple([convert_to_expr(a) for a in args])


def _as_sinfo(out_sinfo: StructInfoLike | Sequence[StructInfoLike]) -> StructInfo:
    if isinstance(out_sinfo, Sequence):
        infos = [_as_sinfo(i) for i in out_sinfo]
        return infos[0] if len(infos) == 1 else TupleStructInfo(infos)
    return as_struct_info(out_sinfo)


def _out_sinfo(name: str, out_sinfo: StructInfoLike | Sequence[StructInfoLike]) -> StructInfo:
    """The struct info of what a function in destination-passing style writes; someone must be able to allocate it."""
    info = _as_sinfo(out_sinfo)
    for item in fields_of(info):
        if isinstance(item, TensorStructInfo) and not isinstance(item.shape, ShapeExpr):
            raise RelaxishError(
                f"out_sinfo of {name} should have defined ShapeExpr as shape. However, one given structure info is {item}"
            )
    return info


def _tail(tir_vars: Expr | Sequence[ExprLike] | None) -> tuple[Any, ...]:
    if tir_vars is None:
        return ()
    return (tir_vars if isinstance(tir_vars, Expr) else ShapeExpr(tir_vars),)


def call_tir(
    gvar: GlobalVar,
    args: Expr | Sequence[ArgLike],
    out_sinfo: StructInfoLike | Sequence[StructInfoLike],
    tir_vars: Expr | Sequence[ExprLike] | None = None,
) -> Call:
    """Call a PrimFunc in destination-passing style: outputs are allocated by whoever lowers the call."""
    return Call(CALL_TIR, (gvar, _as_tuple(args), *_tail(tir_vars)), None, [_out_sinfo("call_tir", out_sinfo)])


def call_tir_with_grad(
    gvar: GlobalVar,
    args: Expr | Sequence[ArgLike],
    out_sinfo: StructInfoLike | Sequence[StructInfoLike],
    te_grad_name: str,
    te_grad_kwargs: Mapping[str, Any] | None = None,
    tir_vars: Expr | Sequence[ExprLike] | None = None,
) -> Call:
    """:func:`call_tir` that names a registered TE gradient."""
    attrs = make_node(
        "relax.attrs.CallTIRWithGradAttrs", te_grad_name=te_grad_name, te_grad_kwargs=dict(te_grad_kwargs or {})
    )
    info = _out_sinfo("call_tir_with_grad", out_sinfo)
    return Call(CALL_TIR_WITH_GRAD, (gvar, _as_tuple(args), *_tail(tir_vars)), attrs, [info])


def call_tir_inplace(
    gvar: GlobalVar,
    args: Expr | Sequence[ArgLike],
    inplace_indices: int | Sequence[int],
    out_sinfo: StructInfoLike | Sequence[StructInfoLike],
    tir_vars: Expr | Sequence[ExprLike] | None = None,
) -> Call:
    """:func:`call_tir` whose outputs overwrite the arguments at ``inplace_indices`` (-1: a fresh output)."""
    indices = [inplace_indices] if isinstance(inplace_indices, int) else list(inplace_indices)
    info = _out_sinfo("call_tir", out_sinfo)
    values = _as_tuple(args)
    attrs = make_node("relax.attrs.CallTIRInplaceAttrs", inplace_indices=indices)
    return Call(CALL_TIR_INPLACE, (gvar, values, *_tail(tir_vars)), attrs, [info])


def _as_func(func: Expr | str) -> Expr:
    return ExternFunc(func) if isinstance(func, str) else func


def call_dps_packed(
    func: Expr | str, args: Expr | Sequence[ArgLike], out_sinfo: StructInfoLike | Sequence[StructInfoLike]
) -> Call:
    """Call a packed function in destination-passing style."""
    return Call(CALL_DPS_PACKED, (_as_func(func), _as_tuple(args)), None, [_out_sinfo("call_dps_packed", out_sinfo)])


def _sinfos(sinfo_args: StructInfoLike | Sequence[StructInfoLike] | None) -> list[StructInfo]:
    if sinfo_args is None:
        return []
    items: list[StructInfoLike] = as_list(sinfo_args)
    return [_as_sinfo(s) for s in items]


def call_builtin_with_ctx(
    func: Expr | str,
    args: Expr | Sequence[ArgLike],
    *,
    sinfo_args: StructInfoLike | Sequence[StructInfoLike] | None = None,
) -> Call:
    """Call a virtual-machine builtin that takes the machine's context first."""
    return Call(CALL_BUILTIN, (_as_func(func), _as_tuple(args)), None, _sinfos(sinfo_args))


def call_pure_packed(
    func: Expr | str, *args: Any, sinfo_args: StructInfoLike | Sequence[StructInfoLike] | None = None
) -> Call:
    """Call a packed function that the caller vouches has no side effects."""
    if sinfo_args is None:
        raise ValueError("R.call_pure_packed is required to have type_args")
    return Call(CALL_PURE_PACKED, (_as_func(func), *(convert_to_expr(a) for a in args)), None, _sinfos(sinfo_args))


def call_inplace_packed(
    func: Expr | str,
    *args: Any,
    inplace_indices: int | Sequence[int],
    sinfo_args: StructInfoLike | Sequence[StructInfoLike] | None = None,
) -> Call:
    """Call a packed function that may overwrite the listed arguments, which must be dead afterwards."""
    indices = [inplace_indices] if isinstance(inplace_indices, int) else list(inplace_indices)
    if sinfo_args is None:
        raise ValueError("R.call_inplace_packed is required to have type_args")
    attrs = make_node("relax.attrs.CallInplacePackedAttrs", inplace_indices=indices)
    return Call(CALL_INPLACE_PACKED, (_as_func(func), *(convert_to_expr(a) for a in args)), attrs, _sinfos(sinfo_args))


def make_closure(func: Expr, args: Expr | Sequence[ArgLike]) -> Call:
    """A closure: ``func`` with its captured values."""
    return Call(MAKE_CLOSURE, (func, _as_tuple(args)))


def invoke_closure(
    closure: Expr, args: Expr | Sequence[ArgLike], sinfo_args: StructInfoLike | Sequence[StructInfoLike] | None
) -> Call:
    """Call a closure that may have side effects."""
    return Call(INVOKE_CLOSURE, (closure, _as_tuple(args)), None, _sinfos(sinfo_args))


def invoke_pure_closure(
    closure: Expr, args: Expr | Sequence[ArgLike], sinfo_args: StructInfoLike | Sequence[StructInfoLike] | None
) -> Call:
    """Call a closure known to be pure."""
    return Call(INVOKE_PURE_CLOSURE, (closure, _as_tuple(args)), None, _sinfos(sinfo_args))
