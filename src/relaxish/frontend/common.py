"""What all frontends share: taking parameters out of a module."""

from __future__ import annotations

import importlib
from typing import Any

from ..ir import IRModule
from ..support.entry_points import load
from ..support.errors import MissingExtraError

__all__ = ["build_module", "detach_params", "need"]


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
    try:
        return importlib.import_module(module)
    except ImportError as err:
        raise MissingExtraError(extra, module) from err


def build_module(mod: IRModule, target: str, pipeline: Any = None) -> Any:
    """Build with the driver; None takes the target's own pipeline."""
    build = load("build")
    return build(mod, target) if pipeline is None else build(mod, target, relax_pipeline=pipeline)
