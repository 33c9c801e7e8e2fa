"""Kernels ready to run on the CPU: lowered device functions, compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.module import IRModule, functions_of
from ...support.errors import RelaxishError
from ...tir import PrimFunc
from ..common.native_compile import NativeCode, native_compiler
from . import async_calls, dot_calls, hopper_calls, matrix_calls, warp_calls  # noqa: F401 -- fill the table of intrinsics
from .launch import Dim, launch_program
from .program import ThreadProgram
from .runtime import compile_program
from .thread_function import make_thread_program

__all__ = ["EmulatedKernels"]


class EmulatedKernels:
    """The kernels of a module of lowered device functions.

    ``checked`` looks for races, accesses out of bounds and the like; without, kernels run faster.
    """

    def __init__(self, device: IRModule, *, checked: bool = True, level: int = 0) -> None:
        self.checked = checked
        self.programs: dict[str, ThreadProgram] = {}
        for var, func in functions_of(device, PrimFunc):
            name = str((func.attrs or {}).get("global_symbol") or var.name_hint)
            self.programs[name] = make_thread_program(name, func, checked)
        self.code: NativeCode = compile_program(list(self.programs.values()), level)
        self.triple = native_compiler().triple

    def program(self, name: str) -> ThreadProgram:
        """A kernel by name. Raises RelaxishError when there is none."""
        found = self.programs.get(name)
        if found is None:
            raise RelaxishError(f"there is no kernel {name}; the module has {', '.join(self.programs) or 'none'}")
        return found

    def launch(
        self,
        name: str,
        grid: Dim,
        block: Dim,
        shared: int,
        args: Sequence[tuple[str, Any]],
        *,
        cluster: Dim = (1, 1, 1),
        extent: Callable[[int], int | None] = lambda address: None,
        **options: Any,
    ) -> None:
        """Run a kernel; arguments are pairs of kind ("pointer", "tensor_map" or a dtype) and value."""
        program = self.program(name)
        launch_program(
            program, self.code.addresses[name], grid, block, shared, args, triple=self.triple, cluster=cluster,
            extent=extent, checked=self.checked, **options,
        )  # fmt: skip

    def kinds(self) -> Mapping[str, tuple[str, ...]]:
        """Kinds of every kernel's parameters."""
        return {name: program.kinds for name, program in self.programs.items()}
