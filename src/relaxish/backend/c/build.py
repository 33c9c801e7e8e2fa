"""From lowered tensor programs to C text and a library that runs."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.module import IRModule
from ...runtime.kernels.kernel import KernelSpec
from ...tir.transform.numerics.lower_intrin import LowerDivision
from ..common.csource import device_functions
from ..common.signature import kernel_spec
from .compiler import compile_object
from .printer import CPrinter

__all__ = ["CompiledC", "c_source", "compile_c"]

_INCLUDES = "".join(f"#include <{name}.h>\n" for name in ("math", "stdbool", "stdint", "stdlib", "string"))


@dataclass
class CompiledC:
    """Object code with what callers must know."""

    object_bytes: bytes
    kernels: dict[str, KernelSpec]
    source: str
    messages: list[str]


def c_source(mod: IRModule) -> tuple[str, list[str]]:
    """(C text of lowered functions, messages of their assertions by error code)."""
    printer = CPrinter()
    functions = [printer.add(name, func) for name, func in device_functions(LowerDivision()(mod))]
    parts = [_INCLUDES, *printer.externs.values(), *printer.helpers.values(), *functions]
    return "\n".join(parts), printer.messages


def compile_c(mod: IRModule) -> CompiledC:
    """Compile lowered functions with the machine's C compiler; each ``f`` becomes ``f`` and ``f__packed``."""
    source, messages = c_source(mod)
    kernels = {name: kernel_spec(name, func) for name, func in device_functions(mod)}
    return CompiledC(compile_object(source), kernels, source, messages)
