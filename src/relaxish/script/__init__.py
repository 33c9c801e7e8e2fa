"""TVMScript: IR as Python text, for both levels.

``from relaxish.script import ir as I, relax as R, tir as T`` gives the namespaces that scripts use;
``from_source`` parses text, and ``node.script()`` prints it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["from_source", "ir", "ir_module", "parse", "relax", "tir"]


def __getattr__(name: str) -> Any:
    import importlib

    if name in ("ir", "tir", "relax", "parser", "printer", "ir_builder", "highlight"):
        return importlib.import_module(f"{__name__}.{name}")
    if name in ("parse", "from_source"):
        return importlib.import_module(f"{__name__}.parser").parse
    if name == "ir_module":
        return importlib.import_module(f"{__name__}.ir").ir_module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
