"""Vector mathematics by polynomials, in straight-line LLVM text.

LLVM turns vector ``exp`` and its like into one library call for each lane. These forms stay in vector registers; their
relative error in float32 is a few 1e-7 over the range where the result is a normal number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .emit import FunctionWriter
from .ltypes import float_literal, splat, vector_type

_EXP_TAIL = (0.49999231479455286, 0.16667114677436848, 0.0418901589825097, 0.008312518547119587)
_ERF_P = (
    1.128379143870108, 0.19154688523787206, 0.052874979795115414, 0.003808008965920118, 0.0002846833965032839,
    2.025923971568644e-06,
)  # fmt: skip
_ERF_Q = (
    1.0, 0.5030866840741534, 0.11455819456018417, 0.015054787589547997, 0.0011706869096632748, 3.7831736419809435e-05,
)  # fmt: skip
_TANH_P = (
    4.89352455891786e-03, 6.37261928875436e-04, 1.48572235717979e-05, 5.12229709037114e-08, -8.60467152213735e-11,
    2.00018790482477e-13, -2.76076847742355e-16,
)  # fmt: skip
_TANH_Q = (4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06)
_LOG_P = (
    3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1, -1.2420140846e-1,
    1.1676998740e-1, -1.1514610310e-1, 7.0376836292e-2,
)  # fmt: skip
_SIN_P = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
_COS_P = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)
_ATAN_P = (-3.33329491539e-1, 1.99777106478e-1, -1.38776856032e-1, 8.05374449538e-2)


class VectorMath:
    """Float32 functions on ``lanes`` lanes (one lane means a scalar)."""

    def __init__(self, writer: FunctionWriter, lanes: int, has_fma: bool, has_scalef: bool = False) -> None:
        self.w = writer
        self.has_scalef = has_scalef and lanes == 16
        self.lanes = lanes
        self.has_fma = has_fma
        self.f = vector_type(lanes, "float")
        self.i = vector_type(lanes, "i32")
        self.b = vector_type(lanes, "i1")
        self.suffix = "f32" if lanes == 1 else f"v{lanes}f32"

    # ---- building blocks

    def const(self, value: float) -> str:
        """A float constant in every lane."""
        return splat(float_literal(value, "float32"), "float", self.lanes)

    def iconst(self, value: int) -> str:
        """An integer constant in every lane."""
        value &= 0xFFFFFFFF
        return splat(str(value - (1 << 32) if value >> 31 else value), "i32", self.lanes)

    def op(self, name: str, a: str, b: str) -> str:
        """A two-operand float instruction."""
        return self.w.pure(f"{name} {self.f} {a}, {b}", a, b)

    def iop(self, name: str, a: str, b: str) -> str:
        """A two-operand integer instruction."""
        return self.w.pure(f"{name} {self.i} {a}, {b}", a, b)

    def fma(self, a: str, b: str, c: str) -> str:
        """``a * b + c``, fused where the machine can."""
        if not self.has_fma:
            return self.op("fadd", self.op("fmul", a, b), c)
        return self.call("llvm.fma", a, b, c)

    def call(self, name: str, *args: str) -> str:
        """An overloaded LLVM intrinsic."""
        full = f"{name}.{self.suffix}"
        self.w.module.declare(f"declare {self.f} @{full}({', '.join([self.f] * len(args))})")
        text = ", ".join(f"{self.f} {a}" for a in args)
        return self.w.pure(f"call {self.f} @{full}({text})", *args)

    def bits(self, a: str) -> str:
        """The bit pattern of floats as integers."""
        return self.w.pure(f"bitcast {self.f} {a} to {self.i}", a)

    def from_bits(self, a: str) -> str:
        """Floats from their bit pattern."""
        return self.w.pure(f"bitcast {self.i} {a} to {self.f}", a)

    def cmp(self, how: str, a: str, b: str) -> str:
        """A float comparison."""
        return self.w.pure(f"fcmp {how} {self.f} {a}, {b}", a, b)

    def select(self, cond: str, a: str, b: str) -> str:
        """Lane-wise choice."""
        return self.w.pure(f"select {self.b} {cond}, {self.f} {a}, {self.f} {b}", cond, a, b)

    def poly(self, x: str, coefficients: Sequence[float]) -> str:
        """A polynomial, lowest coefficient first, by Horner's rule."""
        acc = self.const(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            acc = self.fma(acc, x, self.const(c))
        return acc

    def abs(self, x: str) -> str:
        """Absolute value."""
        return self.call("llvm.fabs", x)

    def with_sign_of(self, magnitude: str, x: str) -> str:
        """``magnitude`` carrying the sign of ``x``."""
        return self.call("llvm.copysign", magnitude, x)

    # ---- functions

    def exp(self, x: str) -> str:
        """e to the x; 0 below -87, infinity above 88.72, NaN for NaN."""
        return self._exp_scaled(x, 1.4426950408889634, (0.693359375, -2.12194440e-4), -87.0, 88.7228391)

    def _exp_scaled(self, x: str, per: float, parts: tuple[float, float], low: float, high: float) -> str:
        # Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits: no conversion that NaN could upset.
        magic = self.const(12582912.0)
        if self.has_scalef:
            # scalef saturates by itself; the clamp only keeps the polynomial finite.
            x = self._clamp(x, low * 1.2, high * 1.01)
        t = self.fma(x, self.const(per), magic)
        n = self.op("fsub", t, magic)
        r = self.fma(n, self.const(-parts[0]), x)
        r = self.fma(n, self.const(-parts[1]), r)
        if per == 1.0:
            r = self.op("fmul", r, self.const(math.log(2)))
        tail = self.poly(r, _EXP_TAIL)
        p = self.op("fadd", self.fma(self.op("fmul", r, r), tail, r), self.const(1.0))
        if self.has_scalef:
            name = "llvm.x86.avx512.mask.scalef.ps.512"
            self.w.module.declare(f"declare {self.f} @{name}({self.f}, {self.f}, {self.f}, i16, i32)")
            args = f"{self.f} {p}, {self.f} {n}, {self.f} zeroinitializer, i16 -1, i32 4"
            return self.w.pure(f"call {self.f} @{name}({args})", p, n)
        scale = self.from_bits(self.iop("shl", self.iop("add", self.bits(t), self.iconst(126)), self.iconst(23)))
        value = self.op("fmul", self.op("fmul", p, scale), self.const(2.0))
        value = self.select(self.cmp("olt", x, self.const(low)), self.const(0.0), value)
        return self.select(self.cmp("ogt", x, self.const(high)), self.const(math.inf), value)

    def exp2(self, x: str) -> str:
        """2 to the x."""
        return self._exp_scaled(x, 1.0, (1.0, 0.0), -126.0, 127.9999924)

    def exp10(self, x: str) -> str:
        """10 to the x."""
        return self.exp(self.op("fmul", x, self.const(math.log(10))))

    def log(self, x: str) -> str:
        """Natural logarithm; NaN below 0, minus infinity at 0."""
        tiny = self.cmp("olt", x, self.const(1.1754943508222875e-38))
        scaled = self.select(tiny, self.op("fmul", x, self.const(8388608.0)), x)
        bits = self.bits(scaled)
        # Exponent relative to sqrt(1/2), so that the mantissa lies in [sqrt(1/2), sqrt(2)).
        shifted = self.iop("sub", bits, self.iconst(0x3F3504F3))
        exponent = self.iop("ashr", shifted, self.iconst(23))
        mantissa = self.from_bits(self.iop("sub", bits, self.iop("shl", exponent, self.iconst(23))))
        e = self.w.pure(f"sitofp {self.i} {exponent} to {self.f}", exponent)
        e = self.select(tiny, self.op("fsub", e, self.const(23.0)), e)
        m = self.op("fsub", mantissa, self.const(1.0))
        z = self.op("fmul", m, m)
        y = self.op("fmul", self.op("fmul", self.poly(m, _LOG_P), m), z)
        y = self.fma(e, self.const(-2.12194440e-4), y)
        y = self.fma(z, self.const(-0.5), y)
        value = self.fma(e, self.const(0.693359375), self.op("fadd", m, y))
        value = self.select(self.cmp("oeq", x, self.const(math.inf)), x, value)
        value = self.select(self.cmp("oeq", x, self.const(0.0)), self.const(-math.inf), value)
        return self.select(self.cmp("uge", x, self.const(0.0)), self._keep_nan(x, value), self.const(math.nan))

    def _keep_nan(self, x: str, value: str) -> str:
        return self.select(self.cmp("uno", x, x), x, value)

    def log2(self, x: str) -> str:
        """Logarithm to base 2."""
        return self.op("fmul", self.log(x), self.const(1.4426950408889634))

    def log10(self, x: str) -> str:
        """Logarithm to base 10."""
        return self.op("fmul", self.log(x), self.const(0.4342944819032518))

    def log1p(self, x: str) -> str:
        """log(1 + x), exact for small x: the rounding error of 1 + x is put back by division."""
        one = self.const(1.0)
        u = self.op("fadd", x, one)
        corrected = self.op("fmul", self.log(u), self.op("fdiv", x, self.op("fsub", u, one)))
        special = self.cmp("oeq", u, one)
        value = self.select(special, x, corrected)
        return self.select(self.cmp("oeq", x, self.const(math.inf)), x, value)

    def sigmoid(self, x: str) -> str:
        """1 / (1 + exp(-x))."""
        one = self.const(1.0)
        negative = self.w.pure(f"fneg {self.f} {x}", x)
        return self.op("fdiv", one, self.op("fadd", one, self.exp(negative)))

    def tanh(self, x: str) -> str:
        """Hyperbolic tangent."""
        limit = 7.90531110763549805
        clamped = self._clamp(x, -limit, limit)
        t = self.op("fmul", clamped, clamped)
        numerator = self.op("fmul", clamped, self.poly(t, _TANH_P))
        value = self.op("fdiv", numerator, self.poly(t, _TANH_Q))
        small = self.cmp("olt", self.abs(x), self.const(0.0004))
        return self.select(small, x, value)

    def _clamp(self, x: str, low: float, high: float) -> str:
        # Comparisons that are false for NaN keep it.
        x = self.select(self.cmp("olt", x, self.const(low)), self.const(low), x)
        return self.select(self.cmp("ogt", x, self.const(high)), self.const(high), x)

    def erf(self, x: str) -> str:
        """The error function."""
        c = self._clamp(x, -3.95, 3.95)
        t = self.op("fmul", c, c)
        return self.op("fdiv", self.op("fmul", c, self.poly(t, _ERF_P)), self.poly(t, _ERF_Q))

    def _reduced_angle(self, x: str) -> tuple[str, str]:
        magic = self.const(12582912.0)
        t = self.fma(x, self.const(2.0 / math.pi), magic)
        n = self.op("fsub", t, magic)
        r = self.fma(n, self.const(-1.5703125), x)
        r = self.fma(n, self.const(-4.837512969970703e-4), r)
        r = self.fma(n, self.const(-7.549789948768648e-8), r)
        return r, self.bits(t)

    def _sin_cos(self, x: str, quarter: int) -> str:
        r, n = self._reduced_angle(x)
        if quarter:
            n = self.iop("add", n, self.iconst(quarter))
        z = self.op("fmul", r, r)
        sine = self.fma(self.op("fmul", self.poly(z, _SIN_P), z), r, r)
        cosine = self.fma(self.op("fmul", self.poly(z, _COS_P), z), z, self.fma(z, self.const(-0.5), self.const(1.0)))
        odd = self.iop("and", n, self.iconst(1))
        is_odd = self.w.pure(f"icmp ne {self.i} {odd}, {self.iconst(0)}", odd)
        value = self.select(is_odd, cosine, sine)
        flip = self.iop("shl", self.iop("and", n, self.iconst(2)), self.iconst(30))
        return self.from_bits(self.iop("xor", self.bits(value), flip))

    def sin(self, x: str) -> str:
        """Sine, good for arguments up to some thousands."""
        return self._sin_cos(x, 0)

    def cos(self, x: str) -> str:
        """Cosine, good for arguments up to some thousands."""
        return self._sin_cos(x, 1)

    def tan(self, x: str) -> str:
        """Tangent."""
        return self.op("fdiv", self.sin(x), self.cos(x))

    def atan(self, x: str) -> str:
        """Arc tangent."""
        a = self.abs(x)
        big = self.cmp("ogt", a, self.const(2.414213562373095))
        mid = self.cmp("ogt", a, self.const(0.4142135623730950))
        one = self.const(1.0)
        reduced = self.select(
            big,
            self.op("fdiv", self.const(-1.0), a),
            self.select(mid, self.op("fdiv", self.op("fsub", a, one), self.op("fadd", a, one)), a),
        )
        offset = self.select(big, self.const(math.pi / 2), self.select(mid, self.const(math.pi / 4), self.const(0.0)))
        z = self.op("fmul", reduced, reduced)
        value = self.fma(self.op("fmul", self.poly(z, _ATAN_P), z), reduced, reduced)
        return self.with_sign_of(self.op("fadd", offset, value), x)

    def sinh(self, x: str) -> str:
        """Hyperbolic sine; by its series near zero, where the exponentials would cancel."""
        e = self.exp(self.abs(x))
        half = self.const(0.5)
        large = self.op("fmul", half, self.op("fsub", e, self.op("fdiv", self.const(1.0), e)))
        z = self.op("fmul", x, x)
        near = self.fma(self.op("fmul", z, x), self.poly(z, (1 / 6, 1 / 120, 1 / 5040, 1 / 362880)), x)
        return self.select(self.cmp("olt", self.abs(x), self.const(1.0)), near, self.with_sign_of(large, x))

    def cosh(self, x: str) -> str:
        """Hyperbolic cosine."""
        e = self.exp(self.abs(x))
        return self.op("fmul", self.const(0.5), self.op("fadd", e, self.op("fdiv", self.const(1.0), e)))

    def rsqrt(self, x: str) -> str:
        """1 / sqrt(x)."""
        return self.op("fdiv", self.const(1.0), self.call("llvm.sqrt", x))
