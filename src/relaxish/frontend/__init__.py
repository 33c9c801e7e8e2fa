"""Importers: ONNX, PyTorch, and the ``nn`` module system."""

from __future__ import annotations

from ..support.entry_points import lazy_package

# Each frontend loads on first use, so none of their frameworks is needed by the others.
__getattr__, __dir__ = lazy_package(globals())
