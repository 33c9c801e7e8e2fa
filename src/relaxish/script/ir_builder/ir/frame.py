"""The frame of modules."""

from __future__ import annotations

from typing import Any

from ....ir.attrs import DictAttrs
from ....ir.expr import GlobalVar
from ....ir.module import IRModule
from ..base import IRBuilder, IRBuilderFrame

__all__ = ["IRModuleFrame", "find_module_frame"]


class IRModuleFrame(IRBuilderFrame):
    """A module being written: declared functions, then their definitions."""

    def __init__(self) -> None:
        super().__init__()
        self.global_vars: dict[str, GlobalVar] = {}
        self.signatures: dict[str, Any] = {}
        self.functions: dict[str, Any] = {}
        self.attrs: dict[str, Any] = {}
        self.global_infos: dict[str, list[Any]] = {}

    def finish(self) -> None:
        functions = {}
        for name, gv in self.global_vars.items():
            if name not in self.functions:
                raise ValueError(f"function {name} is declared but not defined")
            functions[gv] = self.functions[name]
        builder = IRBuilder.current()
        if builder.result is not None:
            raise ValueError("IRBuilder.result is already set")
        attrs = DictAttrs(self.attrs) if self.attrs else None
        builder.result = IRModule(functions, attrs, self.global_infos)


def find_module_frame(method: str) -> IRModuleFrame:
    """The module being written. Raises ValueError if there is none."""
    frame = IRBuilder.current().find(IRModuleFrame)
    if frame is None:
        raise ValueError(f"IRModule frame not found. Please ensure '{method}' is called under I.ir_module()")
    return frame
