"""Relay's names, as scripts of AutoTVM import them: what Relax has goes there, the rest says what to write.

``relay.frontend.from_onnx`` gives a Relax module and its parameters, ``relay.build`` builds it, ``relay.vm`` and graph
executors are ``relaxish.VirtualMachine``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...driver import build as _build
from ...ir.module import IRModule
from ...support.entry_points import public_name
from ...relax.expr import Function, Var, const
from ...target import Target
from . import frontend
from .replacements import missing

__all__ = ["Function", "Var", "build", "const", "frontend", "var"]


def build(
    mod: IRModule,
    target: Target | None = None,
    target_host: Any = None,
    executor: Any = None,
    runtime: Any = None,
    workspace_memory_pools: Any = None,
    constant_memory_pools: Any = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
) -> Any:
    """An executable of a Relax module: run it with ``relaxish.VirtualMachine(lib, relaxish.cpu())``."""
    where = target
    if target_host is not None:
        where = Target(target if target is not None else "llvm", target_host)
    return _build(mod, where, params=params)


def var(name_hint: str, type_annotation: Any = None, shape: Any = None, dtype: str = "float32") -> Var:
    """A variable of a tensor type."""
    from ...relax.struct_info import TensorStructInfo

    info = type_annotation if type_annotation is not None else TensorStructInfo(shape or (), dtype)
    return Var(name_hint, info)


def __getattr__(name: str) -> Any:
    try:
        return public_name(__name__, name)  # what Relax has under names of its own
    except AttributeError:
        raise missing(f"relay.{name}") from None
