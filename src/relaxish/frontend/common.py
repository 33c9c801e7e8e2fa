"""Shared parts of frontends: taking parameters out of a module."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..ir import IRModule
from ..ir.transform import Pass
from ..runtime import VMExecutable
from ..support.entry_points import load
from ..support.errors import MissingExtraError

__all__ = ["Pipeline", "build_module", "detach_params", "need"]

#: A pass over the graph, or the name of a pipeline.
Pipeline = str | Pass | Callable[[IRModule], IRModule]


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


def need(module: str, extra: str) -> ModuleType:
    """Import an optional dependency. Raises MissingExtraError naming the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as err:
        raise MissingExtraError(extra, module) from err


def build_module(mod: IRModule, target: str, pipeline: Pipeline | None = None) -> VMExecutable:
    """Build with the driver; None takes the target's own pipeline."""
    build = load("build")
    return build(mod, target) if pipeline is None else build(mod, target, relax_pipeline=pipeline)
