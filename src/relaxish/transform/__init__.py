"""Passes over graph programs, one a file. Names resolve on first use, so that importing this package is cheap."""

from __future__ import annotations

from ..ir.transform import (
    ApplyPassToFunction,
    ModulePass,
    Pass,
    PassContext,
    PassInfo,
    PrintIR,
    Sequential,
    module_pass,
)
from ..support.entry_points import lazy_package, names

__all__ = [
    "ApplyPassToFunction",
    "ModulePass",
    "Pass",
    "PassContext",
    "PassInfo",
    "PrintIR",
    "Sequential",
    "module_pass",
    *names(__name__),
]

__getattr__, __dir__ = lazy_package(globals())
