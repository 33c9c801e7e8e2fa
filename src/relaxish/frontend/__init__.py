"""Importers: ONNX, PyTorch, and the ``nn`` module system."""

from __future__ import annotations

import importlib
from typing import Any

_PARTS = ("nn", "onnx", "torch", "stablehlo")


def __getattr__(name: str) -> Any:
    """Each frontend loads on first use, so none of their frameworks is needed by the others."""
    if name in _PARTS:
        return importlib.import_module(f"relaxish.frontend.{name}")
    if name == "detach_params":
        return importlib.import_module("relaxish.frontend.common").detach_params
    raise AttributeError(f"module 'relaxish.frontend' has no attribute {name!r}")
