"""The TVMScript printer: IR of both levels to text that the parser reads back."""

from __future__ import annotations

from typing import Any

from ...ir.node import Node
from ...ir.printing import SCRIPT_PRINTER
from ...support.object_path import ObjectPath
from . import doc, ir_module, plain, tir_block, tir_buffer, tir_expr, tir_func, tir_stmt
from .config import PrinterConfig
from .doc_printer import doc_to_python, to_python_script
from .render import render, show

__all__ = ["ObjectPath", "PrinterConfig", "doc", "doc_to_python", "render", "show", "to_python_script"]


def _install() -> None:
    SCRIPT_PRINTER.script = render
    SCRIPT_PRINTER.show = show


_install()


def script(node: Node, **config: Any) -> str:
    """The text of any IR node."""
    return render(node, config)
