"""RealizeVDevice: hints and annotations of devices spread to all that is computed together."""

from __future__ import annotations

from typing import Any

from ..ir.expr import GlobalVar
from ..ir.global_info import VDevice
from ..ir.module import IRModule
from ..ir.op import op_name_of
from ..op.base import to_vdevice
from ..relax.expr import Binding, Call, Expr, Function, Tuple, Var, VarBinding
from ..relax.expr_functor import PyExprMutator, PyExprVisitor
from ..relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from ..relax.utils import followed
from ..support.sequences import of_kind
from .base import map_relax_functions
from ..ir.declared_pass import ModuleRewrite

__all__ = ["RealizeVDevice"]

_HINT = "relax.hint_on_device"


def _device_type(device: VDevice) -> int:
    return device.target.get_target_device_type()


class _Devices:
    """The module's devices."""

    def __init__(self, mod: IRModule) -> None:
        self.known: list[Any] | None = None
        listed = (mod.global_infos or {}).get("vdevice")
        if listed is not None:
            for item in listed:
                if not isinstance(item, VDevice):
                    raise TypeError(
                        f'Each item in an IRModule\'s "vdevice" annotation must be a VDevice, '
                        f"but instead found item of type {type(item).__name__}"
                    )
            self.known = list(listed)

    def hinted(self, call: Call) -> VDevice:
        """The device of a hint. Raises ValueError if the module has none like it."""
        wanted = call.attrs.dst_vdevice
        if self.known is None:
            raise ValueError("The target VDevice in the GlobalInfos was not found.")
        if wanted.vdevice_id < 0:
            raise ValueError("The device id in R.hint_on_device must not be negative")
        for device in self.known:
            if device is wanted or (
                device.vdevice_id == wanted.vdevice_id and _device_type(device) == _device_type(wanted)
            ):
                found: VDevice = device
                return found
        raise ValueError(
            f"Expected to find device with type {_device_type(wanted)} and id {wanted.vdevice_id}, "
            'but no such device was found in the IRModule\'s "vdevice" annotation'
        )


class _Facts(PyExprVisitor):
    """What is said of devices, and which variables must live together."""

    def __init__(self, devices: _Devices) -> None:
        self.devices = devices
        self.known: dict[Var, VDevice] = {}
        self.hinted: dict[Var, VDevice] = {}
        self.together: dict[Var, list[Var]] = {}
        self.values: dict[Var, Any] = {}
        self.current: Var | None = None

    def visit_function_(self, op: Function) -> None:
        super().visit_function_(op)
        self._result(op.body.body, op.ret_struct_info)

    def _result(self, expr: Expr, info: StructInfo) -> None:
        """The annotation of a result holds for the variable that is returned."""
        match info:
            case TensorStructInfo():
                if info.vdevice is not None and isinstance(expr, Var):
                    self.known.setdefault(expr, info.vdevice)
            case TupleStructInfo():
                expr = followed(expr, self.values.get)
                if isinstance(expr, Tuple):
                    if len(expr.fields) != len(info.fields):
                        raise ValueError(
                            f"Function returns a tuple with {len(expr.fields)} elements, "
                            f"but is annotated as returning a tuple with {len(info.fields)} elements"
                        )
                    for item, part in zip(expr.fields, info.fields):
                        self._result(item, part)

    def visit_var_def(self, var: Var) -> None:
        info = var.struct_info_
        if isinstance(info, TensorStructInfo) and info.vdevice is not None:
            self.known[var] = info.vdevice

    def visit_binding(self, binding: Binding) -> None:
        outer, self.current = self.current, binding.var
        super().visit_binding(binding)
        self.current = outer
        self.values[binding.var] = binding.value
        if op_name_of(binding.value) == _HINT and isinstance(binding, VarBinding):
            device = self.devices.hinted(binding.value)
            self.known[binding.var] = device
            source = binding.value.args[0]
            if isinstance(source, Var):
                self.hinted[source] = device

    def visit_call_(self, op: Call) -> None:
        # These two move a tensor: argument and result need not live together.
        if op_name_of(op) not in ("relax.to_vdevice", _HINT):
            super().visit_call_(op)

    def visit_var_(self, op: Var) -> None:
        if self.current is not None:
            self.together.setdefault(self.current, []).append(op)
            self.together.setdefault(op, []).append(self.current)

    def settle(self) -> dict[Var, VDevice]:
        """The device of every variable: first from what is known, then from the inputs of hints."""
        found: dict[Var, VDevice] = {}
        for given in (self.known, self.hinted):
            todo = [var for var in given if var not in found]
            found.update((var, given[var]) for var in todo)
            while todo:
                var = todo.pop()
                for other in self.together.get(var, ()):
                    if other not in found:
                        found[other] = found[var]
                        todo.append(other)
        return found


class _Realize(PyExprMutator):
    """Writes devices into struct infos; hints become copies between devices, or nothing."""

    def __init__(self, devices: _Devices, found: dict[Var, VDevice]) -> None:
        super().__init__()
        self.devices = devices
        self.found = found

    def visit_var_def_(self, var: Var) -> Var:
        known = var in self.var_remap_
        new = super().visit_var_def_(var)
        info, device = new.struct_info_, self.found.get(var)
        if known or device is None or not isinstance(info, TensorStructInfo) or info.vdevice == device:
            return new
        made = type(new)(new.name_hint, TensorStructInfo(info.shape, info.dtype, device, info.ndim), new.span)
        self.var_remap_[var] = made
        return made

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if op_name_of(call) != _HINT:
            return call
        device = self.devices.hinted(call)
        info = call.args[0].struct_info
        if info.vdevice is not None and info.vdevice == device:
            return call.args[0]
        return to_vdevice(call.args[0], device)


class RealizeVDevice(ModuleRewrite):
    """Spread the devices named by ``R.hint_on_device``, ``R.to_vdevice`` and annotations over the values computed with
    them, and write them into the struct infos.

    ::

        y = R.hint_on_device(x, cpu(0))     ->     y: R.Tensor((4,), "float32", "llvm:0") = x
        z = R.add(y, y)                            z: R.Tensor((4,), "float32", "llvm:0") = R.add(y, y)

    A hint on a tensor that lives elsewhere becomes ``R.to_vdevice``.

    Raises ValueError if a hint names a device that the module does not list.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        devices = _Devices(mod)
        facts = _Facts(devices)
        for func in of_kind(mod.functions.values(), Function):
            facts.visit_expr(func)
        realize = _Realize(devices, facts.settle())

        def rewrite(_: GlobalVar, func: Function) -> Function:
            made: Function = realize.visit_expr(func)
            return made

        return map_relax_functions(mod, rewrite)
