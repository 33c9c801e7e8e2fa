"""Printer for shading languages: memory without addresses, subgroups in place of warps."""

from __future__ import annotations

from typing import ClassVar

from ....ir import dtype as dt
from ....ir.prim import BinaryOp, Call, Var
from ....support.errors import RelaxishError
from ....tir.stmt import Allocate
from .kernel import KernelPrinter
from .pieces import Piece

__all__ = ["ShaderPrinter"]


class ShaderPrinter(KernelPrinter):
    """A printer of a shading language.

    Besides what all printers do the language defines ``workgroup_barrier``, :meth:`remainder`, :meth:`shuffle` and
    :meth:`declare`.
    """

    workgroup_barrier: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.globals: list[str] = []
        self.fields: list[str] = []
        self.buffers = 0

    def remainder(self, a: Piece, b: Piece) -> Piece:
        """Of floats, with the sign of the dividend."""
        raise NotImplementedError

    def shuffle(self, kind: str, e: Call) -> Piece:
        """A value of another lane; ``kind`` is "", "_up" or "_down"."""
        raise NotImplementedError

    def declare(self, name: str, element: str, count: int, shared: bool) -> None:
        """An array of a workgroup or of a thread."""
        raise NotImplementedError

    def cast(self, value: Piece, source: str, target: str) -> Piece:
        return Piece(f"{self.type_name(target)}({value})")

    def pointer(self, data: Var, element: str) -> Piece:
        known = self.memory_types.get(data)
        if known is not None and known != element:
            raise RelaxishError(f"{self.language} cannot see memory of {known} as {element} ({data.name})")
        return super().pointer(data, element)

    def workgroup_size(self, name: str) -> tuple[int, int, int]:
        """Threads of a workgroup along x, y, z, which a shader has to state as constants."""
        block = self.facts.block_size()
        if block is None:
            raise RelaxishError(
                f"the kernel {name} needs a constant number of threads in a workgroup for {self.language}"
            )
        return block

    def visit_BinaryOp(self, e: BinaryOp) -> Piece:
        if type(e).__name__ == "Mod" and dt.is_float(e.dtype):
            return self.remainder(self.expr(e.a), self.expr(e.b))
        return super().visit_BinaryOp(e)

    visit_CmpOp = visit_BinaryOp
    visit_LogicalOp = visit_BinaryOp

    def call_fmod(self, e: Call) -> Piece:
        return self.remainder(self.expr(e.args[0]), self.expr(e.args[1]))

    def call_tvm_warp_shuffle(self, e: Call) -> Piece:
        return self.shuffle("", e)

    def call_tvm_warp_shuffle_up(self, e: Call) -> Piece:
        return self.shuffle("_up", e)

    def call_tvm_warp_shuffle_down(self, e: Call) -> Piece:
        return self.shuffle("_down", e)

    def do_tvm_storage_sync(self, call: Call) -> None:
        if call.args[0].value == "global":
            raise RelaxishError(f"{self.language} cannot synchronise all workgroups of a kernel")
        self.line(self.workgroup_barrier)

    def allocate(self, stmt: Allocate, scope: str) -> None:
        if scope not in ("shared", "local"):
            raise RelaxishError(f"{self.language} kernels have no memory of scope {scope!r} ({stmt.buffer_var.name})")
        element, count = self.array_facts(stmt)
        name = self.bind(stmt.buffer_var)
        self.memory_types[stmt.buffer_var] = element
        self.declare(name, element, count, scope == "shared")
