"""Marks that skip a test where what it needs is absent."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

__all__ = ["requires_cuda", "requires_gpu", "requires_llvm", "requires_package"]


def _skip_unless(present: bool, reason: str) -> Any:
    import pytest

    return pytest.mark.skipif(not present, reason=reason)


def requires_package(*packages: str) -> Any:
    """Skip unless every package can be imported."""
    missing = [p for p in packages if importlib.util.find_spec(p) is None]
    return _skip_unless(not missing, f"needs {', '.join(missing)}")


def requires_cuda(func: Any = None) -> Any:
    """Skip unless an NVIDIA device is there."""
    mark = _skip_unless(os.path.exists("/dev/nvidia0"), "needs an NVIDIA GPU")
    return mark if func is None else mark(func)


def requires_gpu(func: Any = None) -> Any:
    """Skip unless a GPU is there."""
    return requires_cuda(func)


def requires_llvm(func: Any = None) -> Any:
    """Skip unless LLVM code generation is available."""
    mark = requires_package("llvmlite")
    return mark if func is None else mark(func)
