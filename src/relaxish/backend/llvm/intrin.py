"""Calls in TIR: mathematics, bit operations, pointers, conditionals, external functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...ir import dtype as dt
from ...ir.expr import GlobalVar, PrimExpr
from ...ir.op import Op
from ...ir.prim import LT, Broadcast, Call, Cast, Div, FloatImm, IntImm, Ramp, StringImm
from ...support.errors import RelaxishError
from ...tir.intrinsics import LLVM_LANEWISE
from ..common.atomics import ATOMICS
from ..common.divisors import constant_of
from .atomics import atomic_update
from .index_gen import scale_terms
from .ltypes import kernel_symbol, llvm_type, quoted, scalar_type, splat, zero_of
from .matrix import DOT_FEATURES, WORD_DOTS, dot_fallback, word_dot

if TYPE_CHECKING:
    from .expr_gen import ExprGen

Emit = Callable[["ExprGen", Call], str]
_TABLE: dict[str, Emit] = {}

# Functions with a polynomial form in VectorMath.
_POLY = ("exp exp2 exp10 log log2 log10 log1p sigmoid tanh sin cos tan atan sinh cosh erf rsqrt").split()
# Functions that LLVM maps to instructions.
_DIRECT = {
    "sqrt": "llvm.sqrt",
    "floor": "llvm.floor",
    "ceil": "llvm.ceil",
    "trunc": "llvm.trunc",
    "round": "llvm.roundeven",
    "nearbyint": "llvm.nearbyint",
    "fabs": "llvm.fabs",
    "copysign": "llvm.copysign",
}
# Functions left to the C library, lane by lane: rare in models.
_LIBM = "asin acos asinh acosh atanh atan2 hypot fmod nextafter".split()


def register(name: str) -> Callable[[Emit], Emit]:
    """Say how ``tir.<name>`` becomes code."""

    def add(emit: Emit) -> Emit:
        _TABLE[name] = emit
        return emit

    return add


def call_value(gen: ExprGen, expr: Call) -> str:
    """The value of a call expression."""
    op = expr.op
    if isinstance(op, GlobalVar):
        return _call_symbol(gen, kernel_symbol(op.name_hint), expr.args, expr.dtype)
    if not isinstance(op, Op):
        raise RelaxishError(f"the LLVM backend cannot call {op!r}")
    name = op.name.removeprefix("tir.")
    if gen.lacks_arithmetic(expr.dtype) and name not in ("if_then_else", "likely") and gen.wider.computes(expr):
        return gen.visit(gen.wider.narrow(expr))
    emit = _TABLE.get(name)
    if emit is None:
        lower = op.get_attr("llvm.FLowerIntrinsic") or op.get_attr("default.FLowerIntrinsic")
        if lower is not None:
            return gen.visit(lower(expr))
        raise RelaxishError(f"the LLVM backend has no code for the intrinsic {op.name}")
    return emit(gen, expr)


# ---- mathematics


def _in_float32(gen: ExprGen, expr: Call, compute: Callable[..., str]) -> str:
    """Evaluate in float32, converting narrower types there and back."""
    lanes = dt.lanes(expr.dtype)
    wide = dt.with_lanes("float32", lanes)
    args = [gen.convert(gen.visit(a), a.dtype, wide) for a in expr.args]
    return gen.convert(compute(*args), wide, expr.dtype)


def _poly(name: str) -> Emit:
    def emit(gen: ExprGen, expr: Call) -> str:
        if expr.dtype.startswith("float64"):
            if name == "sigmoid":
                x = gen.w.pure(f"fneg {llvm_type(expr.dtype)} {gen.visit(expr.args[0])}", gen.visit(expr.args[0]))
                one = splat("1.0", "double", dt.lanes(expr.dtype))
                return gen.binary(
                    "fdiv", expr.dtype, one, gen.binary("fadd", expr.dtype, one, _libm(gen, "exp", expr.dtype, [x]))
                )
            if name == "rsqrt":
                one = splat("1.0", "double", dt.lanes(expr.dtype))
                root = gen.intrinsic("llvm.sqrt", expr.dtype, gen.visit(expr.args[0]))
                return gen.binary("fdiv", expr.dtype, one, root)
            return _libm(gen, name, expr.dtype, [gen.visit(a) for a in expr.args])
        math_gen = gen.math(dt.lanes(expr.dtype))
        return _in_float32(gen, expr, getattr(math_gen, name))

    return emit


def _direct(intrinsic: str) -> Emit:
    def emit(gen: ExprGen, expr: Call) -> str:
        if not dt.is_float(expr.dtype):
            return gen.visit(expr.args[0])
        quotient = expr.args[0]
        if isinstance(quotient, Div) and intrinsic not in ("llvm.sqrt", "llvm.fabs", "llvm.copysign"):
            # Rounding to integers shows the last bit, which a product with the inverse may have wrong.
            exact = gen.binary("fdiv", expr.dtype, gen.visit(quotient.a), gen.visit(quotient.b))
            return gen.intrinsic(intrinsic, expr.dtype, exact)
        return gen.intrinsic(intrinsic, expr.dtype, *(gen.visit(a) for a in expr.args))

    return emit


def _libm(gen: ExprGen, name: str, dtype: str, args: list[str]) -> str:
    """Call a C library function on every lane."""
    lanes = dt.lanes(dtype)
    scalar = scalar_type(dtype)
    symbol = name + ("f" if scalar == "float" else "")
    gen.w.module.declare(f"declare {scalar} @{symbol}({', '.join([scalar] * len(args))})")
    out = []
    for lane in range(lanes):
        items = args
        if lanes > 1:
            items = [_extract(gen, a, dtype, lane) for a in args]
        out.append(gen.w.local(f"call {scalar} @{symbol}({', '.join(f'{scalar} {a}' for a in items)})"))
    return out[0] if lanes == 1 else gen.from_lanes(out, scalar)


def _extract(gen: ExprGen, value: str, dtype: str, lane: int) -> str:
    return gen.w.pure(f"extractelement {llvm_type(dtype)} {value}, i64 {lane}", value)


def _c_function(name: str) -> Emit:
    def emit(gen: ExprGen, expr: Call) -> str:
        if expr.dtype.startswith("float64"):
            return _libm(gen, name, expr.dtype, [gen.visit(a) for a in expr.args])
        wide = dt.with_lanes("float32", dt.lanes(expr.dtype))
        return _in_float32(gen, expr, lambda *args: _libm(gen, name, wide, list(args)))

    return emit


for _name in _POLY:
    _TABLE[_name] = _poly(_name)
for _name, _intrinsic in _DIRECT.items():
    _TABLE[_name] = _direct(_intrinsic)
for _name in _LIBM:
    _TABLE[_name] = _c_function(_name)


@register("pow")
def _pow(gen: ExprGen, expr: Call) -> str:
    base, exponent = expr.args
    constant = _float_constant(exponent)
    if not dt.is_float(expr.dtype):
        raise RelaxishError("pow of integers has no LLVM form; cast to a float type first")
    x = gen.visit(base)
    if constant is not None and constant == int(constant) and 0 <= abs(constant) <= 4:
        return _small_power(gen, expr.dtype, x, int(constant))
    if constant in (0.5, -0.5) and expr.dtype.startswith("float"):
        root = gen.intrinsic("llvm.sqrt", expr.dtype, x)
        if constant == 0.5:
            return root
        return gen.binary("fdiv", expr.dtype, _one(expr.dtype), root)
    if expr.dtype.startswith("float64"):
        return _libm(gen, "pow", expr.dtype, [x, gen.visit(exponent)])
    wide = dt.with_lanes("float32", dt.lanes(expr.dtype))
    return _in_float32(gen, expr, lambda *args: _libm(gen, "pow", wide, list(args)))


def _float_constant(expr: PrimExpr) -> float | None:
    expr = expr.value if isinstance(expr, Broadcast) else expr
    return float(expr.value) if isinstance(expr, (FloatImm, IntImm)) else None


def _one(dtype: str) -> str:
    from .ltypes import float_literal

    return splat(float_literal(1.0, dtype), scalar_type(dtype), dt.lanes(dtype))


def _small_power(gen: ExprGen, dtype: str, x: str, power: int) -> str:
    if power == 0:
        return _one(dtype)
    result = x
    for _ in range(abs(power) - 1):
        result = gen.binary("fmul", dtype, result, x)
    return result if power > 0 else gen.binary("fdiv", dtype, _one(dtype), result)


@register("ldexp")
def _ldexp(gen: ExprGen, expr: Call) -> str:
    m = gen.math(dt.lanes(expr.dtype))
    y = gen.convert(gen.visit(expr.args[1]), expr.args[1].dtype, dt.with_lanes("float32", dt.lanes(expr.dtype)))
    return gen.binary("fmul", expr.dtype, gen.visit(expr.args[0]), m.exp2(y))


@register("fma")
def _fma(gen: ExprGen, expr: Call) -> str:
    return gen.intrinsic("llvm.fma", expr.dtype, *(gen.visit(a) for a in expr.args))


for _name in WORD_DOTS:
    _TABLE[_name] = word_dot


@register("isnan")
def _isnan(gen: ExprGen, expr: Call) -> str:
    x = gen.wider.wide(expr.args[0])
    value = gen.visit(x)
    if not dt.is_float(x.dtype):
        return "false"
    return gen.w.pure(f"fcmp uno {llvm_type(x.dtype)} {value}, {value}", value)


def _against_infinity(gen: ExprGen, expr: Call, how: str) -> str:
    from .ltypes import float_literal

    x = gen.wider.wide(expr.args[0])
    ty = llvm_type(x.dtype)
    value = gen.intrinsic("llvm.fabs", x.dtype, gen.visit(x))
    limit = splat(float_literal(math.inf, x.dtype), scalar_type(x.dtype), dt.lanes(x.dtype))
    return gen.w.pure(f"fcmp {how} {ty} {value}, {limit}", value)


@register("isinf")
def _isinf(gen: ExprGen, expr: Call) -> str:
    return _against_infinity(gen, expr, "oeq")


@register("isfinite")
def _isfinite(gen: ExprGen, expr: Call) -> str:
    return _against_infinity(gen, expr, "one")


# ---- bits


def _bitwise(op: str) -> Emit:
    def emit(gen: ExprGen, expr: Call) -> str:
        args = [gen.convert(gen.visit(a), a.dtype, expr.dtype) for a in expr.args]
        return gen.binary(op, expr.dtype, *args)

    return emit


def _shift(left: bool) -> Emit:
    """Every bit goes out when the count is negative or the width and more: 0, or what the sign says."""

    def emit(gen: ExprGen, expr: Call) -> str:
        dtype = expr.dtype
        arithmetic = not left and dt.is_int(dtype)
        value, count = (gen.convert(gen.visit(a), a.dtype, dtype) for a in expr.args)
        name = "shl" if left else "ashr" if arithmetic else "lshr"
        width, ty, lanes = dt.bits(dtype), llvm_type(dtype), dt.lanes(dtype)
        known = constant_of(expr.args[1])
        if known is not None and 0 <= known < width:
            return gen.binary(name, dtype, value, count)
        cond = llvm_type(dt.with_lanes("bool", lanes))
        limit, last = (splat(str(n), scalar_type(dtype), lanes) for n in (width, width - 1))
        inside = gen.w.pure(f"icmp ult {ty} {count}, {limit}", count)
        safe = gen.w.pure(f"select {cond} {inside}, {ty} {count}, {ty} {last}", inside, count)
        made = gen.binary(name, dtype, value, safe)
        if arithmetic:
            return made
        return gen.w.pure(f"select {cond} {inside}, {ty} {made}, {ty} {zero_of(dtype)}", inside, made)

    return emit


for _name, _op in {
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
}.items():
    _TABLE[_name] = _bitwise(_op)
_TABLE["shift_left"], _TABLE["shift_right"] = _shift(True), _shift(False)


@register("bitwise_not")
def _bitwise_not(gen: ExprGen, expr: Call) -> str:
    ones = splat("-1" if not dt.is_bool(expr.dtype) else "true", scalar_type(expr.dtype), dt.lanes(expr.dtype))
    return gen.binary("xor", expr.dtype, gen.visit(expr.args[0]), ones)


@register("popcount")
def _popcount(gen: ExprGen, expr: Call) -> str:
    return gen.intrinsic("llvm.ctpop", expr.dtype, gen.visit(expr.args[0]))


@register("clz")
def _clz(gen: ExprGen, expr: Call) -> str:
    source = expr.args[0].dtype
    ty = llvm_type(source)
    from .expr_gen import type_suffix

    full = f"llvm.ctlz.{type_suffix(source)}"
    gen.w.module.declare(f"declare {ty} @{full}({ty}, i1)")
    x = gen.visit(expr.args[0])
    value = gen.w.pure(f"call {ty} @{full}({ty} {x}, i1 false)", x)
    return gen.convert(value, source, expr.dtype)


@register("reinterpret")
def _reinterpret(gen: ExprGen, expr: Call) -> str:
    source, target = expr.args[0].dtype, expr.dtype
    value = gen.visit(expr.args[0])
    a, b = llvm_type(source), llvm_type(target)
    if a == b:
        return value
    if dt.is_handle(source) or dt.is_handle(target):
        return gen.convert(value, source, target)
    if dt.bits(source) < 8 and dt.bits(source) == dt.bits(target) and dt.lanes(source) == dt.lanes(target):
        # Floats of a few bits are bytes in registers, integers are not.
        return gen.w.pure(f"{'trunc' if dt.is_float(source) else 'zext'} {a} {value} to {b}", value)
    return gen.w.pure(f"bitcast {a} {value} to {b}", value)


@register("large_uint_imm")
def _large_uint(gen: ExprGen, expr: Call) -> str:
    low, high = expr.args[0].value, expr.args[1].value
    value = (high << 32) | (low & 0xFFFFFFFF)
    return str(value - (1 << 64) if value >> 63 else value)


@register("q_multiply_shift")
def _q_multiply_shift(gen: ExprGen, expr: Call) -> str:
    """Fixed-point multiply with rounding: (x * y * 2^-(q - s) + 1/2) floored."""
    x, y, q, s = expr.args
    lanes = dt.lanes(expr.dtype)
    wide = dt.with_lanes("int64", lanes)
    ty = llvm_type(wide)
    total = q.value - s.value
    product = gen.binary(
        "mul", wide, gen.convert(gen.visit(x), x.dtype, wide), gen.convert(gen.visit(y), y.dtype, wide)
    )
    if total > 0:
        rounding = splat(str(1 << (total - 1)), "i64", lanes)
        product = gen.w.pure(f"add {ty} {product}, {rounding}", product)
        product = gen.w.pure(f"ashr {ty} {product}, {splat(str(total), 'i64', lanes)}", product)
    return gen.convert(product, wide, expr.dtype)


# ---- control


@register("if_then_else")
def _if_then_else(gen: ExprGen, expr: Call) -> str:
    cond, a, b = expr.args
    decided = gen.decide(cond)
    flag = gen.visit(cond) if decided is None else str(decided).lower()
    if flag == "true":
        return gen.visit(a)
    if flag == "false":
        return gen.visit(b)
    if dt.lanes(cond.dtype) > 1 or not (gen.must_guard(a) or gen.must_guard(b)):
        return gen.select_value(flag, cond.dtype, a, b)
    return gen.branch_value(flag, a, b, zero_of(expr.dtype), expr.dtype)


def _first_argument(gen: ExprGen, expr: Call) -> str:
    return gen.visit(expr.args[0])


@register("check_index")
def _check_index(gen: ExprGen, expr: Call) -> str:
    return gen.checked_lanes(expr)


def _nothing(gen: ExprGen, expr: Call) -> str:
    return "0"


for _name in ("likely", "tvm_thread_invariant"):
    _TABLE[_name] = _first_argument
for _name in (
    "tvm_storage_sync", "assume", "type_annotation", "prefetch", "start_profile_intrinsic", "end_profile_intrinsic", "tvm_check_return",
):  # fmt: skip
    _TABLE[_name] = _nothing


@register("undef")
def _undef(gen: ExprGen, expr: Call) -> str:
    return zero_of(expr.dtype)


@register("isnullptr")
def _isnullptr(gen: ExprGen, expr: Call) -> str:
    value = gen.visit(expr.args[0])
    return gen.w.pure(f"icmp eq ptr {value}, null", value)


# ---- vectors


def _half(high: bool) -> Emit:
    def emit(gen: ExprGen, expr: Call) -> str:
        lanes = dt.lanes(expr.args[0].dtype)
        value = gen.visit(expr.args[0])
        start = lanes // 2 if high else 0
        return gen.shuffle(value, lanes, scalar_type(expr.dtype), range(start, start + lanes // 2))

    return emit


_TABLE["vectorhigh"] = _half(True)
_TABLE["vectorlow"] = _half(False)


@register("vectorcombine")
def _combine(gen: ExprGen, expr: Call) -> str:
    values = [gen.visit(a) for a in expr.args]
    return gen.concat(values, [dt.lanes(a.dtype) for a in expr.args], expr.dtype)


@register("get_active_lane_mask")
def _active_lanes(gen: ExprGen, expr: Call) -> str:
    """The lanes of ``base``, ``base + 1``, ... that lie below the limit."""
    base, limit = expr.args
    lanes = dt.lanes(expr.dtype)
    wide = Cast("int64", base), Cast("int64", limit)
    return gen.visit(LT(Ramp(wide[0], IntImm("int64", 1), lanes), Broadcast(wide[1], lanes)))


# ---- pointers and calls


@register("address_of")
def _address_of(gen: ExprGen, expr: Call) -> str:
    load = expr.args[0]
    offset = gen.offset_of(load.buffer, load.indices)
    if isinstance(offset, list):
        terms, const = offset[0]
    else:
        terms, const = offset[0], offset[1][0]
    inner = dt.lanes(load.buffer.dtype)
    terms, const = scale_terms(terms, inner), const * inner
    return gen.element_pointer(gen.base_pointer(load.buffer.data), dt.element_of(load.buffer.dtype), terms, const)


@register("tvm_access_ptr")
def _access_ptr(gen: ExprGen, expr: Call) -> str:
    annotation, data, offset = expr.args[:3]
    terms, const = gen.lin(offset)
    inner = dt.lanes(annotation.dtype)
    pointer = gen.base_pointer(data)
    return gen.element_pointer(pointer, dt.element_of(annotation.dtype), scale_terms(terms, inner), const * inner)


def _is_pointer_call(expr: PrimExpr) -> bool:
    return dt.is_handle(expr.dtype)


def _call_symbol(gen: ExprGen, name: str, args: Sequence[PrimExpr], dtype: str) -> str:
    typed = ", ".join(gen.typed(a) for a in args)
    types = ", ".join(llvm_type(a.dtype) for a in args)
    result = llvm_type(dtype) if dtype and dtype != "void" else "void"
    gen.w.module.declare(f"declare {result} @{quoted(name)}({types})")
    text = f"call {result} @{quoted(name)}({typed})"
    if any(_is_pointer_call(a) for a in args):
        gen.w.touch_all()
    if result == "void":
        gen.w.line(text)
        return "0"
    return gen.w.effect(text)


def _print(gen: ExprGen, args: Sequence[PrimExpr]) -> str:
    """C's ``printf``, whose arguments are of any number and at least as wide as ``int`` and ``double``, seen at once."""
    typed = []
    for a in args:
        wide = (
            "float64"
            if dt.is_float(a.dtype)
            else "int32"
            if not dt.is_handle(a.dtype) and dt.bits(a.dtype) < 32
            else a.dtype
        )
        typed.append(gen.typed(a if wide == a.dtype else Cast(wide, a)))
    gen.w.module.declare("declare i32 @printf(ptr, ...)")
    gen.w.module.declare("declare i32 @fflush(ptr)")
    made = gen.w.effect(f"call i32 (ptr, ...) @printf({', '.join(typed)})")
    gen.w.effect("call i32 @fflush(ptr null)")
    return made


@register("call_extern")
def _call_extern(gen: ExprGen, expr: Call) -> str:
    name = expr.args[0].value
    if name == "printf":
        return _print(gen, expr.args[1:])
    if name in ATOMICS:
        return atomic_update(gen, ATOMICS[name], expr.args[1:])
    return _call_symbol(gen, name, expr.args[1:], expr.dtype)


_TABLE["call_pure_extern"] = _call_extern


@register("call_llvm_intrin")
def _call_llvm(gen: ExprGen, expr: Call) -> str:
    first = expr.args[0]
    if isinstance(first, StringImm):
        name = first.value
    else:
        from ...target.codegen import llvm_get_intrinsic_name

        name = llvm_get_intrinsic_name(first.value)
    args = list(expr.args[1:])
    # An old form carries the number of overloading arguments first.
    if args and isinstance(args[0], IntImm) and args[0].dtype == "uint32":
        args = args[1:]
    if name.startswith("amx."):
        return gen.tile_product(expr)
    if DOT_FEATURES.get(name) not in (None, *gen.features):
        return dot_fallback(gen, name, args)
    types = [_in_llvm(a.dtype) for a in args]
    values = [_recast(gen, gen.visit(a), llvm_type(a.dtype), t) for a, t in zip(args, types, strict=True)]
    result = _in_llvm(expr.dtype) if expr.dtype and expr.dtype != "void" else "void"
    full = _mangled(name, expr.dtype, args)
    gen.w.module.declare(f"declare {result} @{full}({', '.join(types)})")
    text = f"call {result} @{full}({', '.join(f'{t} {v}' for t, v in zip(types, values, strict=True))})"
    if result == "void":
        gen.w.line(text)
        gen.w.touch_all()
        return "0"
    made = gen.w.pure(text, *values) if expr.op.name.endswith("pure_intrin") else gen.w.effect(text)
    return _recast(gen, made, result, llvm_type(expr.dtype))


def _in_llvm(dtype: str) -> str:
    """The type that LLVM's own intrinsics take: bfloat16 as such, which elsewhere is its bits."""
    own = llvm_type(dtype)
    return own.replace("i16", "bfloat") if dt.code(dtype) == "bfloat" else own


def _recast(gen: ExprGen, value: str, source: str, target: str) -> str:
    return value if source == target else gen.w.pure(f"bitcast {source} {value} to {target}", value)


_TABLE["call_llvm_pure_intrin"] = _call_llvm


def _mangled(name: str, dtype: str, args: list[Any]) -> str:
    """Add the type suffix that overloaded intrinsics carry, unless the name has it already."""
    from .expr_gen import type_suffix

    base = name.removeprefix("llvm.")
    if base in LLVM_LANEWISE:
        return f"{name}.{type_suffix(dtype)}"
    if base.startswith("vector.reduce.") and base.count(".") == 2:
        return f"{name}.{type_suffix(args[-1].dtype)}"
    return name


@register("ret")
def _ret(gen: ExprGen, expr: Call) -> str:
    gen.return_value(expr.args[0])  # type: ignore[attr-defined]
    return "0"


@register("atomic_add")
def _atomic_add(gen: ExprGen, expr: Call) -> str:
    return atomic_update(gen, "add", expr.args, "monotonic")
