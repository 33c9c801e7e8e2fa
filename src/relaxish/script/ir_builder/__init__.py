"""Imperative construction of IR: ``IRBuilder`` and the builders ``ir``, ``tir`` and ``relax``."""

from __future__ import annotations

from typing import Any

from .base import IRBuilder, IRBuilderFrame, Namer

__all__ = ["IRBuilder", "IRBuilderFrame", "Namer", "ir", "relax", "tir"]


def __getattr__(name: str) -> Any:
    if name in ("ir", "tir", "relax"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
