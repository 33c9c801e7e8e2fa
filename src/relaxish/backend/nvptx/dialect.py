"""LLVM for NVIDIA devices. Source of names and semantics: LLVM's NVPTX usage guide, and the PTX manual."""

from __future__ import annotations

from typing import ClassVar

from ...ir import dtype as dt
from ...ir.prim import Call
from ...support.errors import RelaxishError
from ..common.llvmsource import Dialect
from ..common.llvmsource.expressions import ExpressionWriter
from ..common.llvmsource.types import llvm_type

__all__ = ["NVPTX"]

_WARP = 32


class NVPTX(Dialect):
    """PTX kernels; mathematics by the approximate instructions of the hardware."""

    name = "nvptx"
    triple = "nvptx64-nvidia-cuda"
    convention = "ptx_kernel"
    spaces: ClassVar[dict[str, int]] = {"global": 1, "shared": 3, "shared.dyn": 3, "local": 0}

    def kernel_attributes(self, threads: int) -> str:
        return f'"nvvm.maxntid"="{threads}"'

    def thread_index(self, w: ExpressionWriter, tag: str) -> str:
        where, _, axis = tag.partition(".")
        register = {"threadIdx": "tid", "blockIdx": "ctaid"}.get(where)
        if register is None:
            raise RelaxishError(f"PTX has no threads of the kind {tag}")
        return w.call(f"llvm.nvvm.read.ptx.sreg.{register}.{axis}", "i32")

    def barrier(self, w: ExpressionWriter, scope: str) -> None:
        if scope == "warp":
            w.call("llvm.nvvm.bar.warp.sync", "void", ("i32", "-1"))
        elif scope.startswith("shared"):
            w.call("llvm.nvvm.barrier.cta.sync.aligned.all", "void", ("i32", "0"))
        else:
            raise RelaxishError("a kernel cannot synchronise all its blocks")

    def shuffle(self, w: ExpressionWriter, kind: str, call: Call) -> str:
        mask, value, lane, width = call.args[:4]
        if dt.lanes(call.dtype) != 1 or dt.bits(call.dtype) > 32:
            raise RelaxishError(f"shuffles move 32 bits, not {call.dtype}")
        mode = {"": "idx", "_up": "up", "_down": "down"}[kind]
        # The last operand holds the size of the group (as a mask) and the last lane that may be read.
        group = (_WARP - int(width.value)) << 8 | (0 if mode == "up" else _WARP - 1)
        word = w.visit(value)
        if call.dtype != "int32":
            word = _as_word(w, word, call.dtype)
        moved = w.call(
            f"llvm.nvvm.shfl.sync.{mode}.i32",
            "i32",
            ("i32", w.convert(w.visit(mask), mask.dtype, "int32")),
            ("i32", word),
            ("i32", w.convert(w.visit(lane), lane.dtype, "int32")),
            ("i32", str(group)),
        )
        return moved if call.dtype == "int32" else _from_word(w, moved, call.dtype)

    def active_mask(self, w: ExpressionWriter, dtype: str) -> str:
        return w.convert(w.call("llvm.nvvm.activemask", "i32"), "uint32", dtype)

    def exp2(self, w: ExpressionWriter, x: str, kind: str) -> str:
        return self._lanewise(w, "llvm.nvvm.ex2.approx.f", x, kind)

    def log2(self, w: ExpressionWriter, x: str, kind: str) -> str:
        return self._lanewise(w, "llvm.nvvm.lg2.approx.f", x, kind)

    def trigonometric(self, w: ExpressionWriter, name: str, x: str, kind: str) -> str:
        return self._lanewise(w, f"llvm.nvvm.{name}.approx.f", x, kind)

    def rsqrt(self, w: ExpressionWriter, x: str, kind: str) -> str:
        if kind.endswith("double"):
            return super().rsqrt(w, x, kind)
        return self._lanewise(w, "llvm.nvvm.rsqrt.approx.f", x, kind)

    def _lanewise(self, w: ExpressionWriter, name: str, x: str, kind: str) -> str:
        """The instructions are of single numbers of single precision."""
        if kind in ("float", "double"):
            if kind == "double":
                x = w.value(f"fptrunc double {x} to float")
            made = w.call(name, "float", ("float", x))
            return w.value(f"fpext float {made} to double") if kind == "double" else made
        lanes = int(kind[1:].partition(" ")[0])
        parts = [self._lanewise(w, name, w.lane(x, f"float32x{lanes}", i), "float") for i in range(lanes)]
        return w.vector(parts, f"float32x{lanes}")


def _as_word(w: ExpressionWriter, value: str, dtype: str) -> str:
    kind, bits = llvm_type(dtype), dt.bits(dtype)
    if dt.is_float(dtype):
        value = w.value(f"bitcast {kind} {value} to i{bits}")
        kind = f"i{bits}"
    return w.value(f"zext {kind} {value} to i32") if kind != "i32" else value


def _from_word(w: ExpressionWriter, value: str, dtype: str) -> str:
    kind, bits = llvm_type(dtype), 1 if dt.is_bool(dtype) else dt.bits(dtype)
    if bits < 32:
        value = w.value(f"trunc i32 {value} to i{bits}")
    return w.value(f"bitcast i{bits} {value} to {kind}") if dt.is_float(dtype) else value
