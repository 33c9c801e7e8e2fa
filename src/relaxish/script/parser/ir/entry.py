"""``I``: what modules are written with."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar, overload
from collections.abc import Callable

from ....ir.module import IRModule
from ...ir_builder.ir import (
    Range, decl_function, def_function, dummy_global_info, lookup_vdevice, module_attrs, module_get_attr,
    module_get_attrs, module_global_infos, module_set_attr, vdevice,
)  # fmt: skip
from ..core.entry import parse
from ..core.utils import capture

__all__ = [
    "Range", "decl_function", "def_function", "dummy_global_info", "ir_module", "lookup_vdevice", "module_attrs",
    "module_get_attr", "module_get_attrs", "module_global_infos", "module_set_attr", "pyfunc", "vdevice",
]  # fmt: skip
_F = TypeVar("_F", bound=Callable[..., Any])


@overload
def ir_module(mod: type, check_well_formed: bool = True) -> IRModule: ...
@overload
def ir_module(mod: None = None, check_well_formed: bool = True) -> Callable[[type], IRModule]: ...
def ir_module(mod: type | None = None, check_well_formed: bool = True) -> IRModule | Callable[[type], IRModule]:
    """Turn a class of decorated functions into an IRModule.

    >>> from relaxish.script import ir as I, tir as T
    >>> @I.ir_module
    ... class Module:
    ...     @T.prim_func
    ...     def main(A: T.Buffer((4,), "float32")):
    ...         for i in range(4):
    ...             A[i] = T.float32(0)
    >>> [gv.name_hint for gv in Module.get_global_vars()]
    ['main']
    """

    def decorate(cls: type, depth: int) -> IRModule:
        if not inspect.isclass(cls):
            raise TypeError(f"Expect a class, but got: {cls}")
        return parse(cls, capture(cls, depth), check_well_formed=check_well_formed)

    if mod is not None:
        return decorate(mod, 3)

    def decorator(cls: type) -> IRModule:
        return decorate(cls, 3)

    decorator.dispatch_token = "ir"  # type: ignore[attr-defined]
    return decorator


ir_module.dispatch_token = "ir"  # type: ignore[attr-defined]


def pyfunc(func: _F) -> _F:
    """Marks a function of a module class that stays plain Python."""
    func.dispatch_token = "pyfunc"  # type: ignore[attr-defined]
    return func


pyfunc.dispatch_token = "pyfunc"  # type: ignore[attr-defined]
