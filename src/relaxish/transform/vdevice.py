"""UpdateVDevice and RealizeVDevice: where tensors live."""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.transform import Pass
from ..relax.expr import Call, Constant, Function, Tuple, TupleGetItem, Var, VarBinding
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from ..support.errors import RelaxishError
from .base import as_module_pass

__all__ = ["RealizeVDevice", "UpdateVDevice"]


class _Replace(PyExprMutator):
    """Struct infos on one device move to another."""

    def __init__(self, old: Any, new: Any) -> None:
        super().__init__()
        self.old = old
        self.new = new

    def visit_struct_info_node(self, info: StructInfo) -> StructInfo:
        info = super().visit_struct_info_node(info)
        if isinstance(info, TupleStructInfo):
            fields = [self.visit_struct_info_node(f) for f in info.fields]
            return info if all(a is b for a, b in zip(fields, info.fields)) else TupleStructInfo(fields)
        if isinstance(info, TensorStructInfo) and info.vdevice == self.old:
            return TensorStructInfo(info.shape, info.dtype, self.new, info.ndim)
        return info

    def visit_constant_(self, op: Constant) -> Any:
        info = self.visit_struct_info_node(op.struct_info)
        return op if info is op.struct_info_ else Constant(op.data, info, op.span)


def UpdateVDevice(new_vdevice: Any, index: int) -> Pass:  # noqa: N802  (public name of the pass)
    """Put ``new_vdevice`` in place of entry ``index`` of the module's ``vdevice`` list, everywhere.

    Raises RelaxishError if the module has no such entry.
    """

    def run(mod: IRModule) -> IRModule:
        devices = list((mod.global_infos or {}).get("vdevice") or ())
        if not 0 <= index < len(devices):
            raise RelaxishError(f"the module has {len(devices)} vdevices, so there is none with index {index}")
        old = devices[index]
        replace = _Replace(old, new_vdevice)
        functions = {v: replace.visit_expr(f) if isinstance(f, Function) else f for v, f in mod.functions.items()}
        infos = {**mod.global_infos, "vdevice": [new_vdevice if d == old else d for d in devices]}
        return IRModule(functions, mod.attrs, infos)

    return as_module_pass(run, "UpdateVDevice")


class _Places:
    """Values that must live together, as a union-find, and the device of each group."""

    def __init__(self) -> None:
        self.parent: dict[Any, Any] = {}
        self.device: dict[Any, Any] = {}

    def find(self, value: Any) -> Any:
        self.parent.setdefault(value, value)
        while self.parent[value] is not value:
            self.parent[value] = self.parent[self.parent[value]]
            value = self.parent[value]
        return value

    def join(self, one: Any, other: Any) -> None:
        a, b = self.find(one), self.find(other)
        if a is not b:
            self.parent[a] = b
            if a in self.device:
                self.settle(b, self.device.pop(a))

    def settle(self, value: Any, device: Any) -> None:
        root = self.find(value)
        known = self.device.setdefault(root, device)
        if known != device:
            raise RelaxishError(f"a value is hinted to live on {known} and on {device}")

    def of(self, value: Any) -> Any:
        return self.device.get(self.find(value)) if value in self.parent else None


def _collect(func: Function, places: _Places) -> None:
    for param in func.params:
        _note(param, places)
    for block in func.body.blocks:
        for binding in block.bindings:
            _note(binding.var, places)
            value = binding.value
            name = value.op.name if isinstance(value, Call) and isinstance(value.op, Op) else ""
            if name == "relax.to_vdevice":
                places.settle(binding.var, value.attrs.dst_vdevice)
                continue
            if name == "relax.hint_on_device":
                places.settle(binding.var, value.attrs.dst_vdevice)
            for used in _tensors(value):
                places.join(used, binding.var)
                _note(used, places)


def _note(value: Any, places: _Places) -> None:
    info = value.struct_info_
    if isinstance(info, TensorStructInfo) and info.vdevice is not None:
        places.settle(value, info.vdevice)


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, (Var, Constant)):
        return [value] if isinstance(value.struct_info_, (TensorStructInfo, TupleStructInfo)) else []
    if isinstance(value, (Call, Tuple)):
        return [t for a in (value.args if isinstance(value, Call) else value.fields) for t in _tensors(a)]
    return _tensors(value.tuple_value) if isinstance(value, TupleGetItem) else []


class _Realize(PyExprMutator):
    """Writes the devices found into struct infos; hints become plain copies."""

    def __init__(self, places: _Places) -> None:
        super().__init__()
        self.places = places

    def _on(self, info: Any, device: Any) -> Any:
        if isinstance(info, TupleStructInfo):
            return TupleStructInfo([self._on(f, device) for f in info.fields])
        if isinstance(info, TensorStructInfo) and info.vdevice is None:
            return TensorStructInfo(info.shape, info.dtype, device, info.ndim)
        return info

    def visit_var_def_(self, var: Var) -> Any:
        device = self.places.of(var)
        if device is None or var in self.var_remap_:
            return super().visit_var_def_(var)
        made = self.with_struct_info(var, self._on(var.struct_info, device))
        if made is not var:
            self.var_remap_[var] = made
        return made

    def visit_constant_(self, op: Constant) -> Any:
        device = self.places.of(op)
        return op if device is None else Constant(op.data, self._on(op.struct_info, device), op.span)

    def visit_call_(self, op: Call) -> Any:
        call = super().visit_call_(op)
        if isinstance(call.op, Op) and call.op.name == "relax.hint_on_device":
            return call.args[0]
        if isinstance(call.op, Op) and call.op.name == "relax.call_tir" and call is not op:
            device = next((t.struct_info_.vdevice for t in _tensors(call.args[1])), None)
            if device is not None:
                return Call(call.op, call.args, call.attrs, [self._on(i, device) for i in call.sinfo_args], call.span)
        return call

    def visit_var_binding_(self, binding: VarBinding) -> None:
        self.reemit_binding(binding, self.visit_expr(binding.value))


def RealizeVDevice() -> Pass:  # noqa: N802  (public name of the pass)
    """Spread the devices named by ``R.hint_on_device``, ``R.to_vdevice`` and annotations over the values computed with
    them, and write them into the struct infos; hints go.

    Raises RelaxishError where two hints disagree.
    """

    def run(mod: IRModule) -> IRModule:
        functions = {}
        for var, func in mod.functions.items():
            if isinstance(func, Function):
                places = _Places()
                _collect(func, places)
                func = _Realize(places).visit_expr(func) if places.device else func
            functions[var] = func
        return IRModule(functions, mod.attrs, mod.global_infos)

    return as_module_pass(run, "RealizeVDevice")
