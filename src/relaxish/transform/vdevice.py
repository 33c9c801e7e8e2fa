"""UpdateVDevice: another device in place of one of the module's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.global_info import VDevice
from ..ir.module import IRModule
from ..relax.expr import Call, Constant, Expr, Function, is_call_of
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from ..support.errors import RelaxishError
from ..ir.declared_pass import ModuleRewrite

__all__ = ["ReplaceVDevices", "UpdateVDevice"]


class ReplaceVDevices(PyExprMutator):
    """Struct infos, constants and copies on one device move to another: ``replacement(vdevice)``, or to none at all."""

    def __init__(self, replacement: Callable[[Any], Any]) -> None:
        super().__init__()
        self.replacement = replacement

    def visit_struct_info_node(self, info: StructInfo) -> StructInfo:
        info = super().visit_struct_info_node(info)
        match info:
            case TupleStructInfo():
                fields = [self.visit_struct_info_node(f) for f in info.fields]
                return info if all(a is b for a, b in zip(fields, info.fields)) else TupleStructInfo(fields)
            case TensorStructInfo() if info.vdevice is not None:
                new = self.replacement(info.vdevice)
                return info if new is info.vdevice else TensorStructInfo(info.shape, info.dtype, new, info.ndim)
        return info

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if is_call_of(call, "relax.to_vdevice", "relax.hint_on_device"):
            new = self.replacement(call.attrs.dst_vdevice)
            if new is None:
                return call.args[0]
            if new is not call.attrs.dst_vdevice:
                values = {**call.attrs.values, "dst_vdevice": new}
                return Call(call.op, call.args, call.attrs.with_fields(values=values), call.sinfo_args, call.span)
        return call

    def visit_constant_(self, op: Constant) -> Expr:
        info = self.visit_struct_info_node(op.struct_info)
        return op if info is op.struct_info_ else Constant(op.data, info, op.span)


class UpdateVDevice(ModuleRewrite):
    """Put ``new_vdevice`` in place of entry ``index`` of the module's ``vdevice`` list, everywhere.

    Raises RelaxishError if the module has no such entry.
    """

    new_vdevice: VDevice
    index: int

    def rewrite(self, mod: IRModule) -> IRModule:
        devices = list((mod.global_infos or {}).get("vdevice") or ())
        if not 0 <= self.index < len(devices):
            raise RelaxishError(f"the module has {len(devices)} vdevices, so there is none with index {self.index}")
        old = devices[self.index]
        replace = ReplaceVDevices(lambda device: self.new_vdevice if device == old else device)
        functions = {v: replace.visit_expr(f) if isinstance(f, Function) else f for v, f in mod.functions.items()}
        infos = {**mod.global_infos, "vdevice": [self.new_vdevice if d == old else d for d in devices]}
        return IRModule(functions, mod.attrs, infos)
