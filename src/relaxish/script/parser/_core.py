"""The parser's parts under the one name that dialects import them from."""

from .core import dispatch, doc, utils
from .core.diagnostics import Diagnostics, Source
from .core.dispatch import OpMethod, register_op
from .core.entry import parse, scan_macro
from .core.error import ParserError
from .core.macro import ScriptMacro
from .core.parser import Parser

__all__ = [
    "Diagnostics", "OpMethod", "Parser", "ParserError", "ScriptMacro", "Source", "dispatch", "doc", "parse",
    "register_op", "scan_macro", "utils",
]  # fmt: skip
