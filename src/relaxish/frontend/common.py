"""What all frontends share: taking parameters out of a module."""

from __future__ import annotations

from typing import Any

from ..ir import IRModule
from ..support.errors import MissingExtraError

__all__ = ["detach_params", "need"]


def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[Any]]]:
    """Take the ``params`` attribute off every function.

    Returns the module without them and a dictionary from function name to its list of arrays.
    """
    detached: dict[str, list[Any]] = {}
    out = mod.clone()
    for var, func in list(mod.functions.items()):
        if func.attrs is not None and "params" in func.attrs:
            detached[var.name_hint] = list(func.attrs["params"])
            out[var] = func.without_attr("params")
    return out, detached


def need(module: str, extra: str) -> Any:
    """Import an optional dependency. Raises MissingExtraError naming the extra to install."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as err:
        raise MissingExtraError(extra, module) from err
