"""Compiling functions for this process's own processor, for backends that need helpers on the host.

Backends do not import each other: the one that generates machine code for CPUs puts its compiler into this table
(:func:`register_native_compiler`), and is looked for by module name when something asks first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ...runtime.bytecode.plan import ExecutionPlan
from ...support.entry_points import load
from ...support.errors import RelaxishError

__all__ = ["NativeCode", "NativeCompiler", "native_compiler", "register_native_compiler"]


class NativeCode(Protocol):
    """Compiled code in this process; it lives as long as this object."""

    addresses: Mapping[str, int]


class NativeCompiler(Protocol):
    """Services of a CPU backend for other backends."""

    triple: str
    """The processor and system that code is compiled for."""

    def compile(
        self,
        functions: Sequence[tuple[str, Any]],
        text: str = "",
        exports: Sequence[str] = (),
        imports: Mapping[str, int] | None = None,
        level: int = 2,
    ) -> NativeCode:
        """Compile lowered PrimFuncs ``i32 f(pointers, 64-bit integers, doubles)`` and LLVM text, and load the result.

        ``exports`` are symbols of the text wanted in ``addresses``, next to those of the functions; ``imports`` are
        addresses of functions that the code calls. Level 0 compiles fastest, 3 makes the fastest code.
        """
        ...

    def host_code(
        self, functions: Sequence[tuple[str, Any]], target: Any, table: str, plans: Sequence[ExecutionPlan] = ()
    ) -> Any:
        """Host programs of devices, and entries that call them, as an object for a target; LLVM text as another: a
        ``HostCode``."""
        ...


_COMPILER: list[NativeCompiler] = []


def register_native_compiler(make: Callable[[], NativeCompiler]) -> None:
    """Fill the table."""
    _COMPILER[:] = [make()]


def native_compiler() -> NativeCompiler:
    """The compiler. Raises RelaxishError where no backend offers one."""
    if not _COMPILER:
        load("native_compiler")
    if not _COMPILER:
        raise RelaxishError("no backend compiles for this processor")
    return _COMPILER[0]
