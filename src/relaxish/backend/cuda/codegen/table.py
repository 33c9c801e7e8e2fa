"""The table of intrinsics: how a call of each is written in CUDA C++.

A printer takes the kernel that is being written and the call, and gives C++ text; as a statement the text gets a
semicolon. Printers live in the modules of ``PRINTER_MODULES``, by subject.

    >>> @prints("tir.my_barrier")
    ... def _my_barrier(gen, call):
    ...     gen.need("async")                # device functions of preamble_async.cuh
    ...     return f"my_barrier({gen.expr(call.args[0])})"
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ....ir.expr import PrimExpr
from ....ir.prim import Call, IntImm
from ....support.errors import RelaxishError

if TYPE_CHECKING:
    from .expr import CudaExpressions

__all__ = [
    "PRINTERS",
    "PRINTER_MODULES",
    "Printer",
    "calls",
    "calls_with_all",
    "constant_argument",
    "load_printers",
    "prints",
]

Printer = Callable[["CudaExpressions", Any], str]

PRINTERS: dict[str, Printer] = {}
"""Printers by the operator's full name."""

PRINTER_MODULES = ("intrinsics", "memory_calls", "warp_calls", "matrix_calls", "hopper")
"""Modules of this package that fill the table."""


def prints(*names: str) -> Callable[[Printer], Printer]:
    """Register the printer of some operators."""

    def register(printer: Printer) -> Printer:
        for name in names:
            PRINTERS[name] = printer
        return printer

    return register


def calls(text: str, need: str | None = None) -> Printer:
    """A printer that puts the texts of the arguments into a pattern; ``need`` is a section of the preamble.

    >>> from relaxish.backend.cuda.codegen.table import calls
    >>> sums = calls("my_sum({0}, {1})", need="math")  # prints("tir.my_sum")(sums) would register it
    """

    def printer(gen: CudaExpressions, e: Call) -> str:
        if need is not None:
            gen.need(need)
        return text.format(*(gen.expr(a) for a in e.args))

    return printer


def calls_with_all(function: str, need: str | None = None) -> Printer:
    """A printer of the call of a device function with all arguments, as many as there are."""

    def printer(gen: CudaExpressions, e: Call) -> str:
        if need is not None:
            gen.need(need)
        return f"{function}({', '.join(gen.expr(a) for a in e.args)})"

    return printer


def constant_argument(e: PrimExpr, what: str) -> int:
    """The value of an argument that becomes part of the instruction. Raises RelaxishError if it is not constant."""
    if not isinstance(e, IntImm):
        raise RelaxishError(f"{what} must be constant")
    return int(e.value)


def load_printers() -> None:
    """Fill the table; later calls cost nothing."""
    for name in PRINTER_MODULES:
        import_module(f"{__package__}.{name}")
