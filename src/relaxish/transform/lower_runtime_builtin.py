"""LowerRuntimeBuiltin: operators that the virtual machine implements itself become calls of its builtins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.expr import GlobalVar
from ..ir.op import Op, op_name_of
from ..relax.expr import Call, DataTypeImm, Expr, ExternFunc, PrimValue, ShapeExpr, Tuple, Var
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import FuncStructInfo, ObjectStructInfo, StructInfo, TupleStructInfo, is_void
from ..support.errors import InternalError
from .base import mutated
from ..ir.declared_pass import ModuleRewrite
from ..ir.module import IRModule

__all__ = ["LowerRuntimeBuiltin", "VMBuiltinLower"]

_PACKED = {
    "relax.shape_of": "vm.builtin.shape_of",
    "relax.tensor_to_shape": "vm.builtin.tensor_to_shape",
    "relax.memory.ensure_zero_offset": "vm.builtin.ensure_zero_offset",
}
_OBJECT = ObjectStructInfo()


def _is_void(arg: Expr) -> bool:
    info = arg.struct_info
    return is_void(info)


class _RuntimeBuiltinLowerer(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not op_name_of(call):
            if call is not op and isinstance(call.op, GlobalVar):
                # What a closure gives is any object from here on; the callee was checked when it had a type.
                call.struct_info_ = op.struct_info_
            return call
        name = call.op.name
        if name in _PACKED:
            return Call(ExternFunc(_PACKED[name]), call.args, None, (self._info(call),), call.span)
        rule = _RULES.get(name)
        return call if rule is None else rule(self, call)

    def _info(self, call: Call) -> StructInfo:
        return call.struct_info_ if call.struct_info_ is not None else self.builder_.normalize(call).struct_info

    def _reshape(self, call: Call) -> Call:
        data, shape = call.args
        if not isinstance(shape, (ShapeExpr, Var)):
            raise InternalError(
                "VMBuiltinLower expects the shape arg of R.reshape to be a ShapeExpr or VarNode bound to a ShapeExpr.  "
                f"However, in expression {call}, the shape argument {shape} has type {type(shape).__name__}"
            )
        bound = self.builder_.lookup_binding(shape)
        args = (data, bound if isinstance(bound, ShapeExpr) else shape)
        return Call(ExternFunc("vm.builtin.reshape"), args, None, (self._info(call),), call.span)

    def _to_vdevice(self, call: Call) -> Call:
        device = call.attrs.dst_vdevice
        kind = device.target.get_target_device_type()
        args = (call.args[0], PrimValue(int(kind)), PrimValue(int(device.vdevice_id)))
        return Call(ExternFunc("vm.builtin.to_device"), args, call.attrs, (self._info(call),), call.span)

    def _call_tir_dyn(self, call: Call) -> Call:
        args = (call.args[0], *call.args[1].fields)
        return Call(ExternFunc("vm.builtin.call_tir_dyn"), args, None, (TupleStructInfo(()),), call.span)

    def _make_closure(self, call: Call) -> Call:
        args = (call.args[0], *call.args[1].fields)
        return Call(ExternFunc("vm.builtin.make_closure"), args, None, (_OBJECT,), call.span)

    def _invoke_closure(self, call: Call) -> Call:
        args = Tuple((call.args[0], *call.args[1].fields))
        builtin = ExternFunc("vm.builtin.invoke_closure")
        return Call(Op.get("relax.call_builtin_with_ctx"), (builtin, args), None, (_OBJECT,), call.span)

    def _alloc_builtin(self, call: Call) -> Call:
        raise InternalError(
            f"VMBuiltinLower encountered {call.op.name} in expression {call}.  This operation should have been lowered "
            "earlier using the 'relax.transform.LowerAllocTensor' pass."
        )

    def _alloc_tensor(self, call: Call) -> Call:
        return Call(Op.get("relax.vm.alloc_tensor"), call.args, None, None, call.span)

    def _alloc_storage(self, call: Call) -> Call:
        size, device, scope, _ = call.args
        # Storage is counted in bytes.
        return Call(
            Op.get("relax.vm.alloc_storage"), (size, device, DataTypeImm("uint8"), scope), None, None, call.span
        )

    def _kill(self, call: Call) -> Call:
        return Call(Op.get("relax.vm.kill_object"), call.args, None, None, call.span)

    def _view(self, call: Call) -> Expr:
        data, shape, dtype, offset = call.args
        if _is_void(shape) and _is_void(dtype) and _is_void(offset):
            return data
        source = data.struct_info
        for missing, known, what in ((shape, source.shape, "shape"), (dtype, source.dtype, "dtype")):
            if _is_void(missing) and not known:
                raise InternalError(
                    f"Legalization of {call.op.name} requires that either the output {what} be explicitly specified, "
                    f"or the input {what} is known.  However, in expression {call}, no output {what} is specified, "
                    f"and the input {data} has struct info {source}"
                )
        shape = source.shape if _is_void(shape) else shape
        dtype = DataTypeImm(source.dtype) if _is_void(dtype) else dtype
        offset = PrimValue(0) if _is_void(offset) else offset
        info = FuncStructInfo.opaque_func(derive_func="tvm.relax.struct_info.infer_view_sinfo", purity=True)
        view = ExternFunc("runtime.TVMArrayCreateView", info)
        return Call(view, (data, shape, dtype, offset), None, None, call.span)


_RULES: dict[str, Callable[[_RuntimeBuiltinLowerer, Call], Any]] = {
    "relax.reshape": _RuntimeBuiltinLowerer._reshape,
    "relax.to_vdevice": _RuntimeBuiltinLowerer._to_vdevice,
    "relax.vm.call_tir_dyn": _RuntimeBuiltinLowerer._call_tir_dyn,
    "relax.make_closure": _RuntimeBuiltinLowerer._make_closure,
    "relax.invoke_closure": _RuntimeBuiltinLowerer._invoke_closure,
    "relax.builtin.alloc_tensor": _RuntimeBuiltinLowerer._alloc_builtin,
    "relax.memory.alloc_tensor": _RuntimeBuiltinLowerer._alloc_tensor,
    "relax.memory.alloc_storage": _RuntimeBuiltinLowerer._alloc_storage,
    "relax.memory.kill_storage": _RuntimeBuiltinLowerer._kill,
    "relax.memory.kill_tensor": _RuntimeBuiltinLowerer._kill,
    "relax.memory.view": _RuntimeBuiltinLowerer._view,
}


class LowerRuntimeBuiltin(ModuleRewrite):
    """Replace reshape, shape_of, closures, memory and view operators by the machine's builtins."""

    def rewrite(self, mod: IRModule) -> IRModule:
        return mutated(_RuntimeBuiltinLowerer(mod), mod)


class VMBuiltinLower(LowerRuntimeBuiltin, name="LowerRuntimeBuiltin"):
    """The older name of :func:`LowerRuntimeBuiltin`."""
