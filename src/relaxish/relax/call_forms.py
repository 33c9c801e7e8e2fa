"""The ``call_tir`` family: graph-level calls of loop-level and packed functions.

These sit below the operator layer because the BlockBuilder itself makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.attrs import make_node
from ..ir.expr import GlobalVar
from ..ir.op import Op
from ..support.errors import RelaxishError
from .analysis.struct_info import infer_by_sinfo_args
from .expr import Call, Expr, ExternFunc, ShapeExpr, Tuple, Var
from .op_table import OpRecord, register_op
from .struct_info import FuncStructInfo, ObjectStructInfo, StructInfo, TupleStructInfo, as_struct_info
from .utils import convert_to_expr

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


def _define(name: str, infer: Callable[..., StructInfo], *, pure: bool = True, args: tuple[str, ...] = ()) -> Op:
    register_op(OpRecord(name, infer, pure=pure, arg_names=args))
    return Op.get(name)


def _one_sinfo(call: Call, _: Any) -> StructInfo:
    if len(call.sinfo_args) != 1:
        raise RelaxishError(f"{call.op.name}: sinfo_args should have exactly 1 output struct info.")
    if not isinstance(call.args[0], GlobalVar):
        raise RelaxishError(
            f"{call.op.name} expects the first argument to be a GlobalVar referring to a TIR PrimFunc. "
            f"However, the argument {call.args[0]} instead has type {type(call.args[0]).__name__}"
        )
    info: StructInfo = call.sinfo_args[0]
    return info


def _dps_sinfo(call: Call, _: Any) -> StructInfo:
    if len(call.sinfo_args) != 1:
        raise RelaxishError("sinfo_args should have exact 1 output struct info.")
    info: StructInfo = call.sinfo_args[0]
    return info


def _packed_sinfo(call: Call, builder: Any) -> StructInfo:
    if not call.args:
        raise RelaxishError("call_pure_packed must be called with at least one argument")
    inner = Call(call.args[0], call.args[1:], call.attrs, call.sinfo_args)
    info = call.args[0].struct_info_
    if call.sinfo_args:
        return infer_by_sinfo_args(inner)
    if isinstance(info, FuncStructInfo):
        from .analysis.struct_info import derive_call_ret_struct_info

        return derive_call_ret_struct_info(info, inner, builder)
    return ObjectStructInfo()


def _sinfo_args(call: Call, _: Any) -> StructInfo:
    return infer_by_sinfo_args(call)


def _inplace_packed_sinfo(call: Call, _: Any) -> StructInfo:
    return infer_by_sinfo_args(call)


CALL_TIR = _define("relax.call_tir", _one_sinfo, args=("func", "args", "packed_ints"))
CALL_TIR_WITH_GRAD = _define("relax.call_tir_with_grad", _one_sinfo, args=("func", "args", "packed_ints"))
CALL_TIR_INPLACE = _define("relax.call_tir_inplace", _one_sinfo, args=("func", "args", "packed_ints"))
CALL_DPS_PACKED = _define("relax.call_dps_packed", _dps_sinfo, args=("func", "args"))
CALL_PURE_PACKED = _define("relax.call_pure_packed", _packed_sinfo, args=("args",))
CALL_INPLACE_PACKED = _define("relax.call_inplace_packed", _inplace_packed_sinfo, args=("func", "args"))
CALL_BUILTIN = _define("relax.call_builtin_with_ctx", _sinfo_args, pure=False, args=("func", "args"))
MAKE_CLOSURE = _define("relax.make_closure", lambda *_: ObjectStructInfo(), args=("func", "args"))
INVOKE_CLOSURE = _define("relax.invoke_closure", _sinfo_args, pure=False, args=("closure", "args"))
INVOKE_PURE_CLOSURE = _define("relax.invoke_pure_closure", _sinfo_args, args=("closure", "args"))


def _as_tuple(args: Any) -> Any:
    if isinstance(args, Expr):
        if isinstance(args, Tuple) or isinstance(args.struct_info_, TupleStructInfo) and not isinstance(args, Var):
            return args
        return args if isinstance(args.struct_info_, TupleStructInfo) else Tuple([args])
    return Tuple([convert_to_expr(a) for a in args])


def _as_sinfo(out_sinfo: Any) -> StructInfo:
    if isinstance(out_sinfo, (list, tuple)):
        infos = [_as_sinfo(i) for i in out_sinfo]
        return infos[0] if len(infos) == 1 else TupleStructInfo(infos)
    return as_struct_info(out_sinfo)


def _tail(tir_vars: Any) -> tuple[Any, ...]:
    if tir_vars is None:
        return ()
    return (tir_vars if isinstance(tir_vars, Expr) else ShapeExpr(tir_vars),)


def call_tir(gvar: Any, args: Any, out_sinfo: Any, tir_vars: Any = None) -> Call:
    """Call a PrimFunc in destination-passing style: outputs are allocated by whoever lowers the call."""
    return Call(CALL_TIR, (gvar, _as_tuple(args), *_tail(tir_vars)), None, [_as_sinfo(out_sinfo)])


def call_tir_with_grad(
    gvar: Any, args: Any, out_sinfo: Any, te_grad_name: str, te_grad_kwargs: Any = None, tir_vars: Any = None
) -> Call:
    """:func:`call_tir` that names a registered TE gradient."""
    attrs = make_node(
        "relax.attrs.CallTIRWithGradAttrs", te_grad_name=te_grad_name, te_grad_kwargs=dict(te_grad_kwargs or {})
    )
    return Call(CALL_TIR_WITH_GRAD, (gvar, _as_tuple(args), *_tail(tir_vars)), attrs, [_as_sinfo(out_sinfo)])


def _check_inplace(op: str, indices: Sequence[int], count: int, outputs: int) -> None:
    if len(indices) != outputs:
        raise RelaxishError(f"{op}: there must be one in-place index for each of the {outputs} outputs")
    if all(i == -1 for i in indices):
        raise RelaxishError(f"{op}: at least one index must be in place; use the plain form otherwise")
    seen: set[int] = set()
    for index in indices:
        if index < -1 or index >= count:
            raise RelaxishError(f"{op}: in-place index {index} is out of range for {count} arguments")
        if index != -1 and index in seen:
            raise RelaxishError(f"{op}: in-place index {index} appears more than once")
        seen.add(index)


def call_tir_inplace(
    gvar: Any, args: Any, inplace_indices: int | Sequence[int], out_sinfo: Any, tir_vars: Any = None
) -> Call:
    """:func:`call_tir` whose outputs overwrite the arguments at ``inplace_indices`` (-1: a fresh output)."""
    indices = [inplace_indices] if isinstance(inplace_indices, int) else list(inplace_indices)
    info = _as_sinfo(out_sinfo)
    values = _as_tuple(args)
    outputs = len(info.fields) if isinstance(info, TupleStructInfo) else 1
    _check_inplace("relax.call_tir_inplace", indices, len(getattr(values, "fields", ())), outputs)
    attrs = make_node("relax.attrs.CallTIRInplaceAttrs", inplace_indices=indices)
    return Call(CALL_TIR_INPLACE, (gvar, values, *_tail(tir_vars)), attrs, [info])


def _as_func(func: Any) -> Any:
    return ExternFunc(func) if isinstance(func, str) else func


def call_dps_packed(func: Any, args: Any, out_sinfo: Any) -> Call:
    """Call a packed function in destination-passing style."""
    return Call(CALL_DPS_PACKED, (_as_func(func), _as_tuple(args)), None, [_as_sinfo(out_sinfo)])


def _sinfos(sinfo_args: Any) -> list[StructInfo]:
    if sinfo_args is None:
        return []
    items = sinfo_args if isinstance(sinfo_args, (list, tuple)) else [sinfo_args]
    return [_as_sinfo(s) for s in items]


def call_builtin_with_ctx(func: Any, args: Any, *, sinfo_args: Any = None) -> Call:
    """Call a virtual-machine builtin that takes the machine's context first."""
    return Call(CALL_BUILTIN, (_as_func(func), _as_tuple(args)), None, _sinfos(sinfo_args))


def call_pure_packed(func: Any, *args: Any, sinfo_args: Any = None) -> Call:
    """Call a packed function that the caller vouches has no side effects."""
    if sinfo_args is None:
        raise ValueError("R.call_pure_packed is required to have type_args")
    return Call(
        CALL_PURE_PACKED, (_as_func(func), *(convert_to_expr(a) for a in args)), None, _sinfos(sinfo_args)
    )


def call_inplace_packed(func: Any, *args: Any, inplace_indices: int | Sequence[int], sinfo_args: Any = None) -> Call:
    """Call a packed function that may overwrite the listed arguments, which must be dead afterwards."""
    indices = [inplace_indices] if isinstance(inplace_indices, int) else list(inplace_indices)
    if sinfo_args is None:
        raise ValueError("R.call_inplace_packed is required to have type_args")
    attrs = make_node("relax.attrs.CallInplacePackedAttrs", inplace_indices=indices)
    return Call(
        CALL_INPLACE_PACKED, (_as_func(func), *(convert_to_expr(a) for a in args)), attrs, _sinfos(sinfo_args)
    )


def make_closure(func: Any, args: Any) -> Call:
    """A closure: ``func`` with its captured values."""
    return Call(MAKE_CLOSURE, (func, _as_tuple(args)))


def invoke_closure(closure: Any, args: Any, sinfo_args: Any) -> Call:
    """Call a closure that may have side effects."""
    return Call(INVOKE_CLOSURE, (closure, _as_tuple(args)), None, _sinfos(sinfo_args))


def invoke_pure_closure(closure: Any, args: Any, sinfo_args: Any) -> Call:
    """Call a closure known to be pure."""
    return Call(INVOKE_PURE_CLOSURE, (closure, _as_tuple(args)), None, _sinfos(sinfo_args))


