"""Module builders, shared by both levels: what ``I`` offers."""

from __future__ import annotations

from typing import Any

from ....ir.expr import BaseFunc, GlobalVar, Range
from ....ir.global_info import DummyGlobalInfo, GlobalInfo, VDevice
from ....relax.struct_info import FuncStructInfo, StructInfo
from ....tir.function import PrimFunc
from ..attrs import plain_attr
from ..base import IRBuilder, Namer
from .frame import IRModuleFrame, find_module_frame

__all__ = [
    "IRModuleFrame", "Range", "decl_function", "def_function", "dummy_global_info", "ir_module", "lookup_global_info",
    "lookup_vdevice",
    "module_attrs", "module_get_attr", "module_get_attrs", "module_global_infos", "module_set_attr", "vdevice",
]  # fmt: skip


def ir_module() -> IRModuleFrame:
    """Open a module."""
    return IRModuleFrame()


def decl_function(func_name: str, func_signature: BaseFunc) -> GlobalVar:
    """Declare a function, so that others may call it before it is defined."""
    frame = find_module_frame("I.decl_function")
    if func_name in frame.global_vars:
        raise ValueError(f"function {func_name} already exists")
    gv = GlobalVar(func_name)
    gv.struct_info_ = _signature(func_signature)
    frame.global_vars[func_name] = gv
    frame.signatures[func_name] = func_signature
    return gv


def def_function(func_name: str, func: BaseFunc) -> None:
    """Define a declared function."""
    frame = find_module_frame("I.def_function")
    gv = frame.global_vars.get(func_name)
    if gv is None:
        raise ValueError(f"function {func_name} does not exist, declare it first.")
    frame.functions[func_name] = func
    gv.struct_info_ = _signature(func) or gv.struct_info_


def _signature(func: BaseFunc) -> StructInfo | None:
    return func.struct_info if isinstance(func, PrimFunc) else getattr(func, "struct_info_", None)


def module_attrs(attrs: dict[str, Any], allow_overwrite: bool = False) -> None:
    """Set the module's attributes."""
    # Python runs the class body too, before the parser does.
    if not IRBuilder.is_in_scope():
        return
    frame = find_module_frame("I.module_attrs")
    if frame.attrs and not allow_overwrite:
        raise ValueError(f"Duplicate module attrs, previous one is: {frame.attrs}")
    frame.attrs = {k: plain_attr(v) for k, v in attrs.items()}


def module_get_attrs() -> dict[str, Any]:
    """The attributes set so far."""
    return dict(find_module_frame("I.module_get_attrs").attrs)


def module_get_attr(attr_key: str) -> Any:
    """One attribute set so far, or None."""
    return find_module_frame("I.module_get_attr").attrs.get(attr_key)


def module_set_attr(attr_key: str, attr_value: object, allow_overwrite: bool = False) -> None:
    """Set one attribute."""
    # Python runs the class body too, before the parser does.
    if not IRBuilder.is_in_scope():
        return
    frame = find_module_frame("I.module_set_attr")
    if attr_key in frame.attrs and not allow_overwrite:
        raise ValueError(f"Duplicate module attr {attr_key}, previous one is: {frame.attrs[attr_key]}")
    frame.attrs[attr_key] = attr_value


def module_global_infos(global_infos: dict[str, Any]) -> None:
    """Set the module's global information."""
    # Python runs the class body too, before the parser does.
    if not IRBuilder.is_in_scope():
        return
    frame = find_module_frame("I.module_global_infos")
    if frame.global_infos:
        raise ValueError(f"Duplicate module global_infos, previous one is: {frame.global_infos}")
    frame.global_infos = {k: list(v) for k, v in global_infos.items()}


def dummy_global_info() -> DummyGlobalInfo:
    """Global information that says nothing."""
    return DummyGlobalInfo()


def vdevice(target: str | dict[str, Any] | None = None, vdevice_id: int = 0, memory_scope: str = "global") -> VDevice:
    """A virtual device."""
    return VDevice(target, vdevice_id, memory_scope)


def lookup_global_info(kind: str, index: int) -> GlobalInfo:
    """Global information of the module being written, by kind and position. Raises ValueError."""
    infos = find_module_frame("I.lookup_global_info").global_infos.get(kind, [])
    if not 0 <= index < len(infos):
        raise ValueError(f"The module has no global info {kind}[{index}]")
    return infos[index]


def lookup_vdevice(target_kind: str | None = None, device_index: int = -1) -> VDevice:
    """A virtual device of the module being written, by kind and position among that kind."""
    frame = find_module_frame("I.lookup_vdevice")
    infos = frame.global_infos.get("vdevice")
    if not infos:
        raise ValueError("The target VDevice in the GlobalInfos was not found.")
    if not target_kind or target_kind == "vdevice":
        return infos[device_index]
    count = 0
    for item in infos:
        kind = getattr(getattr(item.target, "kind", None), "name", None)
        if kind == target_kind:
            if count == device_index:
                return item
            count += 1
    raise ValueError("The target VDevice in the GlobalInfos was not found.")


def _name_nothing(obj: GlobalVar, name: str) -> None:
    return None


Namer.table[GlobalVar] = _name_nothing
