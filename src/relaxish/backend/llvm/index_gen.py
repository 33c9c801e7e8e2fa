"""Integer index arithmetic in 64 bits: linear forms, per-lane offsets, element addresses."""

from __future__ import annotations

from typing import Any

from ...arith.polynomial import add as add_terms
from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.prim import Add, BinaryOp, Broadcast, Cast, FloorDiv, FloorMod, IntImm, Let, Max, Min, Mul, Ramp, Sub, Var
from .emit import FunctionWriter
from .guards import GuardGen, is_index_check
from .ltypes import element_bytes, memory_type

Terms = dict[str, int]
Lin = tuple[Terms, int]
VecLin = tuple[Terms, tuple[int, ...]]
#: Where the elements of an access lie: one form for all lanes, or each lane\'s own.
Offset = VecLin | list[Lin]


def scale_terms(a: Terms, factor: int) -> Terms:
    """The linear form times a constant."""
    return {name: f * factor for name, f in a.items()} if factor else {}


class IndexGen(GuardGen):
    """Mixin of the expression generator: everything about scalar integers used as indices."""

    w: FunctionWriter
    nonneg: set[str]
    lin_cache: dict[Any, Lin]

    def visit(self, expr: PrimExpr) -> str:
        raise NotImplementedError

    # ---- linear forms

    def lin(self, expr: Any) -> Lin:
        """``expr`` (a scalar integer) as a sum of registers times constants plus a constant."""
        kind = type(expr)
        if kind is IntImm:
            return {}, expr.value
        if isinstance(expr, Var):
            found = self.lin_cache.get(expr)
            if found is None:
                found = self.lin_cache[expr] = self._widened(self.visit(expr), expr.dtype)
            return found
        if kind is Add or kind is Sub:
            ta, ca = self.lin(expr.a)
            tb, cb = self.lin(expr.b)
            sign = 1 if kind is Add else -1
            return add_terms(ta, tb, sign), ca + sign * cb
        if kind is Mul:
            return self._lin_mul(expr)
        if kind is FloorDiv or kind is FloorMod:
            return self._lin_floor(expr, kind is FloorDiv)
        if kind is Min or kind is Max:
            a, b = self.materialize(self.lin(expr.a)), self.materialize(self.lin(expr.b))
            op = "smin" if kind is Min else "smax"
            name = self.w.pure(f"call i64 @llvm.{op}.i64(i64 {a}, i64 {b})", a, b, hint="m")
            if (kind is Max and (self._text_nonneg(a) or self._text_nonneg(b))) or (
                self._text_nonneg(a) and self._text_nonneg(b)
            ):
                self.nonneg.add(name)
            return {name: 1}, 0
        if kind is Cast and expr.dtype in ("int64", "int32") and expr.value.dtype in ("int32", "int64"):
            return self.lin(expr.value)
        if kind is Let:
            self.bind_let(expr)
            return self.lin(expr.body)
        if is_index_check(expr):
            return {self.checked_index(expr): 1}, 0
        return self._widened(self.visit_plain(expr), expr.dtype)

    def visit_plain(self, expr: PrimExpr) -> str:
        """The value computed without going through linear forms."""
        return self.visit(expr)

    def bind_let(self, expr: Let) -> None:
        raise NotImplementedError

    def _widened(self, text: str, dtype: str) -> Lin:
        if _is_number(text):
            return {}, int(text)
        bits = dt.bits(dtype)
        if bits == 64:
            return {text: 1}, 0
        how = "zext" if dt.is_uint(dtype) else "sext"
        name = self.w.pure(f"{how} i{bits} {text} to i64", text, hint="x")
        if how == "zext" or text in self.nonneg:
            self.nonneg.add(name)
        return {name: 1}, 0

    def _lin_mul(self, expr: Mul) -> Lin:
        ta, ca = self.lin(expr.a)
        tb, cb = self.lin(expr.b)
        if not tb:
            return scale_terms(ta, cb), ca * cb
        if not ta:
            return scale_terms(tb, ca), ca * cb
        a, b = self.materialize((ta, ca)), self.materialize((tb, cb))
        name = self.w.pure(f"mul nsw i64 {a}, {b}", a, b, hint="p")
        if self._text_nonneg(a) and self._text_nonneg(b):
            self.nonneg.add(name)
        return {name: 1}, 0

    def _lin_floor(self, expr: BinaryOp, is_div: bool) -> Lin:
        ta, ca = self.lin(expr.a)
        tb, cb = self.lin(expr.b)
        if not ta and not tb and cb:
            return {}, (ca // cb if is_div else ca % cb)
        if not tb and cb > 0 and all(f % cb == 0 for f in ta.values()):
            # Every term is a multiple of the divisor: nothing is left to compute.
            if is_div:
                return {n: f // cb for n, f in ta.items()}, ca // cb
            return {}, ca % cb
        a = self.materialize((ta, ca))
        w = self.w
        nonneg = ca >= 0 and all(f > 0 and n in self.nonneg for n, f in ta.items())
        if not tb and cb > 0 and cb & (cb - 1) == 0:
            if is_div:
                name = w.pure(f"{'lshr' if nonneg else 'ashr'} i64 {a}, {cb.bit_length() - 1}", a, hint="q")
            else:
                name = w.pure(f"and i64 {a}, {cb - 1}", a, hint="r")
            if nonneg or not is_div:
                self.nonneg.add(name)
            return {name: 1}, 0
        if not tb and cb > 0:
            name = self._floor_by_constant(a, cb, nonneg, is_div)
            return {name: 1}, 0
        b = self.divisor(expr, a, self.materialize((tb, cb)), "int64")
        return {self._floor_general(a, b, nonneg and self._text_nonneg(b), is_div): 1}, 0

    def _floor_by_constant(self, a: str, divisor: int, nonneg: bool, is_div: bool) -> str:
        w = self.w
        if nonneg:
            name = w.pure(f"{'udiv' if is_div else 'urem'} i64 {a}, {divisor}", a, hint="q")
            self.nonneg.add(name)
            return name
        rem = w.pure(f"srem i64 {a}, {divisor}", a, hint="r")
        sign = w.pure(f"ashr i64 {rem}, 63", rem, hint="s")
        if is_div:
            quo = w.pure(f"sdiv i64 {a}, {divisor}", a, hint="q")
            return w.pure(f"add nsw i64 {quo}, {sign}", quo, sign, hint="q")
        fix = w.pure(f"and i64 {sign}, {divisor}", sign, hint="s")
        name = w.pure(f"add nsw i64 {rem}, {fix}", rem, fix, hint="r")
        self.nonneg.add(name)
        return name

    def _floor_general(self, a: str, b: str, nonneg: bool, is_div: bool) -> str:
        w = self.w
        if nonneg:
            name = w.pure(f"{'udiv' if is_div else 'urem'} i64 {a}, {b}", a, b, hint="q")
            self.nonneg.add(name)
            return name
        quo = w.pure(f"sdiv i64 {a}, {b}", a, b, hint="q")
        rem = w.pure(f"srem i64 {a}, {b}", a, b, hint="r")
        mixed = w.pure(f"xor i64 {rem}, {b}", rem, b, hint="s")
        neg = w.pure(f"icmp slt i64 {mixed}, 0", mixed, hint="c")
        some = w.pure(f"icmp ne i64 {rem}, 0", rem, hint="c")
        both = w.pure(f"and i1 {neg}, {some}", neg, some, hint="c")
        if is_div:
            lower = w.pure(f"sub nsw i64 {quo}, 1", quo, hint="q")
            return w.pure(f"select i1 {both}, i64 {lower}, i64 {quo}", both, lower, quo, hint="q")
        upper = w.pure(f"add nsw i64 {rem}, {b}", rem, b, hint="r")
        return w.pure(f"select i1 {both}, i64 {upper}, i64 {rem}", both, upper, rem, hint="r")

    def _text_nonneg(self, text: str) -> bool:
        return text in self.nonneg or (_is_number(text) and int(text) >= 0)

    def materialize(self, lin: Lin) -> str:
        """A register or literal holding the value of a linear form; outer terms are summed first so that they hoist."""
        terms, const = lin
        if not terms:
            return str(const)
        w = self.w
        depth_of = w.depth_of
        acc = ""
        nonneg = const >= 0
        for name, factor in sorted(terms.items(), key=lambda item: depth_of.get(item[0], 0)):
            piece = name if factor == 1 else w.pure(f"mul nsw i64 {name}, {factor}", name, hint="p")
            nonneg = nonneg and factor > 0 and name in self.nonneg
            acc = piece if not acc else w.pure(f"add nsw i64 {acc}, {piece}", acc, piece, hint="a")
            if nonneg:
                self.nonneg.add(acc)
        if const:
            acc = w.pure(f"add nsw i64 {acc}, {const}", acc, hint="a")
            if nonneg:
                self.nonneg.add(acc)
        return acc

    def index(self, expr: PrimExpr) -> str:
        """The 64-bit value of a scalar integer expression."""
        return self.materialize(self.lin(expr))

    # ---- vectors of indices

    def vec_lin(self, expr: Any) -> VecLin | None:
        """A vector index as one linear form plus a constant for each lane; None when it is not of that shape."""
        if dt.lanes(expr.dtype) == 1:
            terms, const = self.lin(expr)
            return terms, (const,)
        kind = type(expr)
        if kind is Broadcast:
            inner = self.vec_lin(expr.value)
            if inner is None:
                return None
            count = dt.lanes(expr.dtype) // len(inner[1])
            return inner[0], inner[1] * count
        if kind is Ramp:
            base, stride = self.vec_lin(expr.base), self.vec_lin(expr.stride)
            if base is None or stride is None or stride[0]:
                return None
            count = dt.lanes(expr.dtype) // len(base[1])
            steps = stride[1] if len(stride[1]) == len(base[1]) else stride[1] * len(base[1])
            return base[0], tuple(c + s * i for i in range(count) for c, s in zip(base[1], steps, strict=True))
        if kind is Add or kind is Sub:
            a, b = self.vec_lin(expr.a), self.vec_lin(expr.b)
            if a is None or b is None:
                return None
            sign = 1 if kind is Add else -1
            return add_terms(a[0], b[0], sign), tuple(x + sign * y for x, y in zip(a[1], b[1], strict=True))
        if kind is Mul:
            a, b = self.vec_lin(expr.a), self.vec_lin(expr.b)
            if a is None or b is None:
                return None
            if a[0]:
                a, b = b, a
            if a[0] or len(set(a[1])) != 1:
                return None if a[0] or b[0] else (b[0], tuple(x * y for x, y in zip(a[1], b[1], strict=True)))
            factor = a[1][0]
            return scale_terms(b[0], factor), tuple(x * factor for x in b[1])
        if kind is FloorDiv or kind is FloorMod:
            return self._vec_floor(expr, kind is FloorDiv)
        if kind is Cast and dt.is_integral(expr.dtype):
            return self.vec_lin(expr.value) if dt.is_integral(expr.value.dtype) else None
        return None

    def _vec_floor(self, expr: FloorMod, is_div: bool) -> VecLin | None:
        a, b = self.vec_lin(expr.a), self.vec_lin(expr.b)
        if a is None or b is None or b[0] or len(set(b[1])) != 1 or b[1][0] <= 0:
            return None
        divisor = b[1][0]
        if any(f % divisor for f in a[0].values()):
            return None
        if is_div:
            return {n: f // divisor for n, f in a[0].items()}, tuple(c // divisor for c in a[1])
        return {}, tuple(c % divisor for c in a[1])

    # ---- addresses

    def element_pointer(self, base: str, dtype: str, terms: Terms, const: int) -> str:
        """Address of the element at a linear offset from ``base``; outer parts of the sum leave inner loops."""
        w = self.w
        element = memory_type(dt.element_of(dtype))
        pointer = base
        by_depth: dict[int, Terms] = {}
        base_depth = w.depth_of.get(base, 0)
        for name, factor in terms.items():
            by_depth.setdefault(max(base_depth, w.depth_of.get(name, 0)), {})[name] = factor
        for depth in sorted(by_depth):
            offset = self.materialize((by_depth[depth], 0))
            pointer = w.pure(
                f"getelementptr inbounds {element}, ptr {pointer}, i64 {offset}", pointer, offset, hint="g"
            )
        if const:
            pointer = w.pure(
                f"getelementptr inbounds i8, ptr {pointer}, i64 {const * element_bytes(dtype)}", pointer, hint="g"
            )
        return pointer


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()
