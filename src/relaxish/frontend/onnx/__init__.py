"""Import of ONNX models."""

from __future__ import annotations

from .importer import from_onnx

__all__ = ["from_onnx"]
