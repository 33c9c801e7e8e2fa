"""The TVMScript parser: Python syntax trees to IR, executing only the decorated function's own code."""

from . import _core, core, ir, relax, tir
from .core.diagnostics import Source
from .core.entry import from_source, parse
from .core.parser import Parser
from .ir import ir_module
from .tir import prim_func

__all__ = ["Parser", "Source", "_core", "core", "from_source", "ir", "ir_module", "parse", "prim_func", "relax", "tir"]
