"""Dot-product instructions of x86 (VNNI and the pair of AVX-512BW), and vector code where a machine lacks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .expr_gen import ExprGen

__all__ = ["DOT_FEATURES", "dot_fallback"]

# The intrinsics of tir.tensor_intrin.x86, with the feature each needs to be one instruction.
DOT_FEATURES = {
    "llvm.x86.avx512.vpdpbusd.512": "avx512vnni",
    "llvm.x86.avx512.pmaddubs.w.512": "avx512bw",
    "llvm.x86.avx512.pmaddw.d.512": "avx512bw",
}


def dot_fallback(gen: ExprGen, name: str, args: list[Any]) -> str:
    """The value of a dot-product intrinsic in plain vector code."""
    values = [gen.visit(a) for a in args]
    if name.endswith("vpdpbusd.512"):
        return _vpdpbusd(gen, *values)
    if name.endswith("pmaddubs.w.512"):
        return _pmaddubs(gen, *values)
    return _pmaddwd(gen, *values)


def _pick(gen: ExprGen, value: str, ty: str, lanes: int, start: int, step: int, scalar: str) -> str:
    mask = ", ".join(f"i32 {start + step * i}" for i in range(lanes))
    return gen.w.pure(f"shufflevector {ty} {value}, {ty} poison, <{lanes} x i32> <{mask}>", value)


def _widened(gen: ExprGen, value: str, how: str, lanes: int, scalar: str, wide: str) -> str:
    return gen.w.pure(f"{how} <{lanes} x {scalar}> {value} to <{lanes} x {wide}>", value)


def _vpdpbusd(gen: ExprGen, total: str, a: str, b: str) -> str:
    """Sixteen sums of four products, unsigned by signed bytes, added to 32-bit totals."""
    w = gen.w
    left = w.pure(f"bitcast <16 x i32> {a} to <64 x i8>", a)
    right = w.pure(f"bitcast <16 x i32> {b} to <64 x i8>", b)
    for j in range(4):
        x = _widened(gen, _pick(gen, left, "<64 x i8>", 16, j, 4, "i8"), "zext", 16, "i8", "i32")
        y = _widened(gen, _pick(gen, right, "<64 x i8>", 16, j, 4, "i8"), "sext", 16, "i8", "i32")
        product = w.pure(f"mul <16 x i32> {x}, {y}", x, y)
        total = w.pure(f"add <16 x i32> {total}, {product}", total, product)
    return total


def _pair_sums(gen: ExprGen, a: str, b: str, lanes: int, scalar: str, widen_a: str) -> str:
    """``lanes`` 32-bit sums of the products of two neighbours; ``widen_a`` says how ``a`` is extended, ``b`` is signed."""
    parts = []
    for j in range(2):
        x, y = (_pick(gen, v, f"<{2 * lanes} x {scalar}>", lanes, j, 2, scalar) for v in (a, b))
        x, y = _widened(gen, x, widen_a, lanes, scalar, "i32"), _widened(gen, y, "sext", lanes, scalar, "i32")
        parts.append(gen.w.pure(f"mul <{lanes} x i32> {x}, {y}", x, y))
    return gen.w.pure(f"add <{lanes} x i32> {parts[0]}, {parts[1]}", *parts)


def _pmaddubs(gen: ExprGen, a: str, b: str) -> str:
    """Sums of two products, unsigned by signed bytes, saturated to 16 bits."""
    w = gen.w
    total = _pair_sums(gen, a, b, 32, "i8", "zext")
    for name, limit in (("smin", 32767), ("smax", -32768)):
        bound = ", ".join([f"i32 {limit}"] * 32)
        w.module.declare(f"declare <32 x i32> @llvm.{name}.v32i32(<32 x i32>, <32 x i32>)")
        total = w.pure(f"call <32 x i32> @llvm.{name}.v32i32(<32 x i32> {total}, <32 x i32> <{bound}>)", total)
    return w.pure(f"trunc <32 x i32> {total} to <32 x i16>", total)


def _pmaddwd(gen: ExprGen, a: str, b: str) -> str:
    """Sums of two products of signed 16-bit numbers."""
    return _pair_sums(gen, a, b, 16, "i16", "sext")
