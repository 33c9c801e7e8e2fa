"""The hook through which low layers print: ``script/printer`` fills it, nodes only call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TYPE_CHECKING

from ..support.depth import deep_programs
from ..support.entry_points import load

if TYPE_CHECKING:
    from .node import Node

__all__ = ["SCRIPT_PRINTER", "render", "show"]


class _PrinterTable:
    """Holds the functions that the script layer installs."""

    script: Callable[[Any, dict[str, Any]], str] | None = None
    show: Callable[[Any, str | None, bool | None, dict[str, Any]], None] | None = None


SCRIPT_PRINTER = _PrinterTable()


def _load() -> None:
    if SCRIPT_PRINTER.script is None:
        load("printer")  # it fills the table


def fallback(node: Node) -> str:
    """A plain dump for the rare case that the printer itself is broken or absent."""
    fields = getattr(node, "_fields", ())
    inner = ", ".join(f"{f}={fallback(getattr(node, f))}" for f in fields if f != "span")
    return f"{type(node).__name__}({inner})" if fields else repr(node) if isinstance(node, (str, int)) else str(node)


@deep_programs()
def render(node: Node, config: dict[str, Any]) -> str:
    """TVMScript text of ``node``."""
    try:
        _load()
    except ImportError:
        return fallback(node)
    if SCRIPT_PRINTER.script is None:
        return fallback(node)
    return SCRIPT_PRINTER.script(node, config)


def show(node: Node, style: str | None, black_format: bool | None, config: dict[str, Any]) -> None:
    """Print ``node`` highlighted."""
    _load()
    if SCRIPT_PRINTER.show is None:
        print(fallback(node))
        return
    SCRIPT_PRINTER.show(node, style, black_format, config)
