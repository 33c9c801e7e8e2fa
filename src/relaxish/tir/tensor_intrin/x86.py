"""Dot-product instructions of x86: four 8-bit products summed into each of sixteen 32-bit lanes."""

from __future__ import annotations

from typing import Any

from ...ir.prim import const
from ..buffer import Buffer
from ..expr import Broadcast, Ramp
from ..function import PrimFunc, TensorIntrin
from ..op import call_llvm_pure_intrin, reinterpret
from ..stmt import BufferStore
from .build import dot_description, intrin_buffer, root_func

__all__ = ["AVX512_DOT_16x4_INTRIN", "VNNI_DOT_16x4_INTRIN", "define"]

VNNI_DOT_16x4_INTRIN = "dot_16x4_vnni"
AVX512_DOT_16x4_INTRIN = "dot_16x4_avx512"


def _buffers() -> tuple[Any, Any, Any]:
    return (
        intrin_buffer([4], "uint8", "A"),
        intrin_buffer([16, 4], "int8", "B"),
        intrin_buffer([16], "int32", "C"),
    )


def _description() -> PrimFunc:
    a, b, c = _buffers()
    return dot_description(
        a,
        b,
        c,
        [("i", 16, "S"), ("k", 4, "R")],
        lambda i, k: [i],
        lambda i, k: (a[k].astype("int32") * b[i, k].astype("int32"), [(a, [k]), (b, [i, k])]),
    )


def _operands(a: Buffer, b: Buffer, c: Buffer) -> tuple[Any, Any, Any, Any]:
    """(A as one 32-bit word, B as 64 bytes, C as a vector, C's index)."""
    word = reinterpret("int32", a.vload([0], "uint8x4"))
    lanes = Ramp(const(0, "int32"), const(1, "int32"), const(16, "int32"))
    return word, b.vload([0, 0], "int8x64"), c.vload([0], "int32x16"), lanes


def _vnni() -> PrimFunc:
    a, b, c = _buffers()
    word, weights, total, lanes = _operands(a, b, c)
    value = call_llvm_pure_intrin(
        "int32x16", "llvm.x86.avx512.vpdpbusd.512", total, Broadcast(word, 16), reinterpret("int32x16", weights)
    )
    return root_func([a, b, c], [c, a, b], [c], BufferStore(c, value, [lanes]))


def _avx512() -> PrimFunc:
    a, b, c = _buffers()
    word, weights, total, lanes = _operands(a, b, c)
    pairs = call_llvm_pure_intrin(
        "int16x32", "llvm.x86.avx512.pmaddubs.w.512", reinterpret("uint8x64", Broadcast(word, 16)), weights
    )
    ones = Broadcast(const(1, "int16"), 32)
    value = total + call_llvm_pure_intrin("int32x16", "llvm.x86.avx512.pmaddw.d.512", pairs, ones)
    return root_func([a, b, c], [c, a, b], [c], BufferStore(c, value, [lanes]))


def define() -> None:
    """Register both."""
    TensorIntrin.register(VNNI_DOT_16x4_INTRIN, _description(), _vnni(), override=True)
    TensorIntrin.register(AVX512_DOT_16x4_INTRIN, _description(), _avx512(), override=True)


_PROGRAMS = {
    "dot_product_16x4_u8i8i32_desc": _description,
    "dot_product_16x4_u8i8i32_vnni": _vnni,
    "dot_product_16x4_u8i8i32_avx512": _avx512,
}


def __getattr__(name: str) -> PrimFunc:
    """What the intrinsics do, and how, as programs."""
    if name not in _PROGRAMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _PROGRAMS[name]()
