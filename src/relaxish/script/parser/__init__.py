"""The TVMScript parser: Python syntax trees to IR, executing only the decorated function's own code."""

from . import ir, tir  # noqa: F401
from .core import Parser
from .entry import from_source, parse
from .source import Source

__all__ = ["Parser", "Source", "from_source", "parse"]
