"""Differences of one device's LLVM text from another's."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ....ir.prim import Call
from ....support.errors import RelaxishError

if TYPE_CHECKING:
    from .expressions import ExpressionWriter

__all__ = ["Dialect"]


class Dialect:
    """Address spaces by storage scope, and how to write what only the device knows."""

    name: ClassVar[str] = ""
    triple: ClassVar[str] = ""
    convention: ClassVar[str] = ""
    spaces: ClassVar[dict[str, int]] = {"global": 1, "shared": 3, "shared.dyn": 3, "local": 0}

    def kernel_attributes(self, threads: int) -> str:
        """Attributes of kernels that run up to this many threads in a block."""
        return ""

    def thread_index(self, w: ExpressionWriter, tag: str) -> str:
        """The i32 value of a thread or block index such as ``threadIdx.x``."""
        raise NotImplementedError

    def barrier(self, w: ExpressionWriter, scope: str) -> None:
        """Make the threads of a block (or of a warp) wait for each other."""
        raise NotImplementedError

    def shuffle(self, w: ExpressionWriter, kind: str, call: Call) -> str:
        """The value that another thread of the warp has; ``kind`` is "", "_up" or "_down"."""
        raise RelaxishError(f"{self.name} code generation has no shuffles")

    def active_mask(self, w: ExpressionWriter, dtype: str) -> str:
        """Mask of the threads of the warp that take part."""
        raise RelaxishError(f"{self.name} code generation has no masks of threads")

    def exp2(self, w: ExpressionWriter, x: str, kind: str) -> str:
        """Two to a power, of floats."""
        return w.intrinsic("llvm.exp2", kind, x)

    def log2(self, w: ExpressionWriter, x: str, kind: str) -> str:
        """The logarithm to base two, of floats."""
        return w.intrinsic("llvm.log2", kind, x)

    def trigonometric(self, w: ExpressionWriter, name: str, x: str, kind: str) -> str:
        """Sine or cosine, of floats."""
        return w.intrinsic(f"llvm.{name}", kind, x)

    def rsqrt(self, w: ExpressionWriter, x: str, kind: str) -> str:
        """One over the square root."""
        root = w.intrinsic("llvm.sqrt", kind, x)
        return w.value(f"fdiv {kind} {w.constant_of(kind, 1.0)}, {root}")
