"""Dot-product instructions of x86 (BF16, VNNI and the pair of AVX-512BW), and vector code where a machine lacks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir import dtype as dt
from ...ir.op import op_name_of
from ...ir.prim import Add, Call
from .ltypes import llvm_type, scalar_type, splat

if TYPE_CHECKING:
    from .expr_gen import ExprGen

__all__ = ["DOT_FEATURES", "WORD_DOTS", "added_words", "dot_fallback", "word_dot"]

# The intrinsics of tir.tensor_intrin.x86, with the feature each needs to be one instruction.
DOT_FEATURES = {
    "llvm.x86.avx512.vpdpbusd.512": "avx512vnni",
    "llvm.x86.avx512.pmaddubs.w.512": "avx512bw",
    "llvm.x86.avx512.pmaddw.d.512": "avx512bw",
}
#: Intrinsics that sum the products of the neighbours in 32-bit words.
WORD_DOTS = ("dot_bf16x2", "dot_u8s8x4")
# The instructions of each: lanes -> any of these sets of features.
_WORD_FEATURES: dict[str, dict[int, tuple[frozenset[str], ...]]] = {
    "dot_bf16x2": {
        16: (frozenset(("avx512bf16",)),),
        **dict.fromkeys((8, 4), (frozenset(("avx512bf16", "avx512vl")),)),
    },
    "dot_u8s8x4": {16: (frozenset(("avx512vnni",)),)}
    | dict.fromkeys((8, 4), (frozenset(("avx512vnni", "avx512vl")), frozenset(("avxvnni",)))),
}


def added_words(gen: ExprGen, expr: Add) -> str | None:
    """``total + dot(a, b)``, which is one instruction; None for other sums."""
    for total, dot in ((expr.a, expr.b), (expr.b, expr.a)):
        if isinstance(dot, Call) and op_name_of(dot).removeprefix("tir.") in WORD_DOTS:
            return word_dot(gen, dot, gen.visit(total))
    return None


def word_dot(gen: ExprGen, call: Call, total: str | None = None) -> str:
    """The dot product of two vectors of words, added to ``total`` if there is one."""
    name, dtype = op_name_of(call).removeprefix("tir."), call.dtype
    lanes, ty = dt.lanes(dtype), llvm_type(dtype)
    a, b = (gen.visit(arg) for arg in call.args)
    if total is None:
        total = splat("0.0" if dt.is_float(dtype) else "0", scalar_type(dtype), lanes)
    sets = _WORD_FEATURES[name].get(lanes, ())
    if not any(needs <= gen.features for needs in sets):
        return (_bf16_words if name == "dot_bf16x2" else _byte_words)(gen, lanes, total, a, b)
    operand, instruction = f"<{lanes} x i32>", f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    if name == "dot_bf16x2":
        operand, instruction = f"<{2 * lanes} x bfloat>", f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        a, b = (gen.w.pure(f"bitcast <{lanes} x i32> {x} to {operand}", x) for x in (a, b))
    gen.w.module.declare(f"declare {ty} @{instruction}({ty}, {operand}, {operand})")
    return gen.w.pure(f"call {ty} @{instruction}({ty} {total}, {operand} {a}, {operand} {b})", total, a, b)


def _bf16_words(gen: ExprGen, lanes: int, total: str, a: str, b: str) -> str:
    words, floats = dt.with_lanes("uint32", lanes), dt.with_lanes("float32", lanes)
    for op, number in (("and", "-65536"), ("shl", "16")):
        by = splat(number, "i32", lanes)
        parts = (gen.binary(op, words, x, by) for x in (a, b))
        x, y = (gen.w.pure(f"bitcast {llvm_type(words)} {p} to {llvm_type(floats)}", p) for p in parts)
        total = gen.intrinsic("llvm.fma" if gen.has_fma else "llvm.fmuladd", floats, x, y, total)
    return total


def _byte_words(gen: ExprGen, lanes: int, total: str, a: str, b: str) -> str:
    words, high = dt.with_lanes("int32", lanes), splat("24", "i32", lanes)
    for j in range(4):
        up = splat(str(24 - 8 * j), "i32", lanes)
        x = gen.binary("lshr", words, gen.binary("shl", words, a, up), high)
        y = gen.binary("ashr", words, gen.binary("shl", words, b, up), high)
        total = gen.binary("add", words, total, gen.binary("mul", words, x, y))
    return total


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
