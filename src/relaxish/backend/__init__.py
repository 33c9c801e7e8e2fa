"""Code generators, one folder a target family; siblings never import each other."""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {"DispatchSampling": "dispatch", "DispatchSortScan": "dispatch"}


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
