"""Code generators, one folder a target family; siblings never import each other."""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "DispatchSampling": "dispatch",
    "DispatchSortScan": "dispatch",
    "get_pattern": "pattern_registry",
    "get_patterns_with_prefix": "pattern_registry",
    "register_patterns": "pattern_registry",
}
_MODULES = ("dispatch", "pattern_registry", "patterns")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
