"""Dot-product instructions of AArch64: four 8-bit products summed into each of four 32-bit lanes.

Source: Arm C Language Extensions, "Advanced SIMD intrinsics" (SMULL, SADDLP, ADDP, SDOT, UDOT).
"""

from __future__ import annotations


from ...ir.expr import PrimExpr
from ...ir.prim import const
from ..buffer import Buffer
from ..expr import Broadcast, Ramp
from ..function import PrimFunc, TensorIntrin
from ..op import call_llvm_pure_intrin, reinterpret
from ..op_device import vectorhigh, vectorlow
from ..stmt import BufferStore
from .build import dot_description, intrin_buffer, root_func

__all__ = [
    "ARM_DOT_4x4_i8_NEON_INTRIN", "ARM_DOT_4x4_i8_SDOT_INTRIN", "ARM_DOT_4x4_u8_HDOT_INTRIN",
    "ARM_DOT_4x4_u8_UDOT_INTRIN", "define",
]  # fmt: skip

ARM_DOT_4x4_i8_NEON_INTRIN = "dot_4x4_i8i8s32_neon"
ARM_DOT_4x4_i8_SDOT_INTRIN = "dot_4x4_i8i8s32_sdot"
ARM_DOT_4x4_u8_UDOT_INTRIN = "dot_4x4_u8u8u32_udot"
ARM_DOT_4x4_u8_HDOT_INTRIN = "dot_4x4_u8u8i32_hdot"


def _buffers(dtype: str, out: str) -> tuple[Buffer, Buffer, Buffer]:
    return intrin_buffer([4], dtype, "A"), intrin_buffer([4, 4], dtype, "B"), intrin_buffer([4], out, "C")


def _description(dtype: str, out: str) -> PrimFunc:
    a, b, c = _buffers(dtype, out)
    return dot_description(
        a, b, c, [("i", 4, "S"), ("k", 4, "R")], lambda i, k: [i],
        lambda i, k: (a[k].astype(out) * b[i, k].astype(out), [(a, [k]), (b, [i, k])]),
    )  # fmt: skip


def _lanes() -> Ramp:
    return Ramp(const(0, "int32"), const(1, "int32"), const(4, "int32"))


def _repeated(a: Buffer, dtype: str, times: int) -> PrimExpr:
    """The four values of A, ``times`` over."""
    word = reinterpret("int32", a.vload([0], f"{dtype}x4"))
    return reinterpret(f"{dtype}x{4 * times}", Broadcast(word, times))


def _dot(dtype: str, out: str, instruction: str) -> PrimFunc:
    a, b, c = _buffers(dtype, out)
    values = c.vload([0], f"{out}x4"), _repeated(a, dtype, 4), b.vload([0, 0], f"{dtype}x16")
    value = call_llvm_pure_intrin(f"{out}x4", instruction, *values)
    return root_func([a, b, c], [c, a, b], [c], BufferStore(c, value, [_lanes()]))


def _neon() -> PrimFunc:
    a, b, c = _buffers("int8", "int32")
    left, right = _repeated(a, "int8", 2), b.vload([0, 0], "int8x16")
    sums = []
    for half in (vectorlow, vectorhigh):
        product = call_llvm_pure_intrin("int16x8", "llvm.aarch64.neon.smull.v8i16", left, half("int8x8", right))
        sums.append(call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.saddlp.v4i32.v8i16", product))
    total = call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.addp.v4i32", *sums)
    return root_func([a, b, c], [c, a, b], [c], BufferStore(c, c.vload([0], "int32x4") + total, [_lanes()]))


def define() -> None:
    """Register the four."""
    signed = _description("int8", "int32")
    udot, sdot = (f"llvm.aarch64.neon.{kind}dot.v4i32.v16i8" for kind in "us")
    TensorIntrin.register(ARM_DOT_4x4_i8_NEON_INTRIN, signed, _neon())
    TensorIntrin.register(ARM_DOT_4x4_i8_SDOT_INTRIN, signed, _dot("int8", "int32", sdot))
    TensorIntrin.register(ARM_DOT_4x4_u8_UDOT_INTRIN, _description("uint8", "uint32"), _dot("uint8", "uint32", udot))
    TensorIntrin.register(ARM_DOT_4x4_u8_HDOT_INTRIN, _description("uint8", "int32"), _dot("uint8", "int32", udot))
