"""Mathematics: what scalar intrinsics are called in CUDA C++, by element type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import Call, StringImm
from ....support import config
from ....support.errors import RelaxishError
from ...common.csource.intrinsics import C_FUNCTIONS
from .table import Printer, calls, prints
from .types import HALVES, type_name
from ....ir.plain import plain

if TYPE_CHECKING:
    from .expr import CudaExpressions

__all__ = ["call_name", "library_names"]

# Functions with the usual C names: float32 takes an ``f`` at the end.
_C_MATH = {**C_FUNCTIONS, "exp10": "exp10", "rsqrt": "rsqrt", "round": "rint"}
del _C_MATH["fma"]  # it has a form of its own for each type
# Exponentials of halves are exact enough, and shorter, by way of float.
_HALF = {
    "log": "hlog", "log2": "hlog2", "log10": "hlog10",
    "sqrt": "hsqrt", "rsqrt": "hrsqrt", "sin": "hsin", "cos": "hcos", "floor": "hfloor", "ceil": "hceil",
    "trunc": "htrunc", "nearbyint": "hrint", "round": "hrint", "fabs": "__habs",
}  # fmt: skip
# Functions of the special function unit, a few units in the last place off everywhere.
_FAST = {"exp": "__expf", "exp2": "fast_exp2", "exp10": "__exp10f"}
_BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "shift_left": "<<", "shift_right": ">>"}


def call_name(name: str, dtype: str) -> str | None:
    """The function for an intrinsic on this type; None when the type has none and float32 must do the work."""
    element = dt.element_of(dtype)
    if element in HALVES:
        return _HALF.get(name)
    base = _C_MATH.get(name)
    if base is None or element not in ("float32", "float64"):
        return None
    if element == "float32":
        return _FAST[name] if name in _FAST and config.FAST_MATH.value else base + "f"
    return base


def library_names() -> set[str]:
    """All functions of the CUDA library that intrinsics become."""
    plain = set(_C_MATH.values())
    return plain | {f"{name}f" for name in plain} | set(_HALF.values()) | set(_FAST.values())


def _function(name: str) -> Printer:
    """The function itself, or that of a type wide enough to hold the argument exactly."""

    def printer(gen: CudaExpressions, e: Call) -> str:
        element = dt.element_of(e.args[0].dtype)
        found = call_name(name, element)
        if found is not None:
            return gen.apply(e.dtype, list(e.args), lambda *a: f"{found}({', '.join(a)})")
        kind = type_name(dt.element_of(e.dtype))
        exact = "float64" if dt.is_integral(element) and dt.bits(element) > 24 else "float32"
        wide, through = call_name(name, exact), type_name(exact)
        return gen.apply(e.dtype, list(e.args), lambda *a: f"({kind}){wide}({', '.join(f'({through}){x}' for x in a)})")

    return printer


for _name in _C_MATH:
    prints(f"tir.{_name}")(_function(_name))


@prints("tir.pow")
def _pow(gen: CudaExpressions, e: Call) -> str:
    if dt.is_integral(e.dtype):
        gen.need("math")
        return gen.apply(e.dtype, list(e.args), lambda a, b: f"integer_power({a}, {b})")
    return _function("pow")(gen, e)


@prints("tir.nextafter")
def _next_after(gen: CudaExpressions, e: Call) -> str:
    if dt.element_of(e.dtype) in HALVES:
        gen.need("math")
        return gen.apply(e.dtype, list(e.args), lambda a, b: f"next_after({a}, {b})")
    return _function("nextafter")(gen, e)


def _computed_in(dtype: str) -> str:
    """The type in which a function of floats is computed that has no form of its own for narrow ones."""
    return "float64" if dt.element_of(dtype) == "float64" else "float32"


@prints("tir.ldexp")
def _ldexp(gen: CudaExpressions, e: Call) -> str:
    kind, computed = type_name(dt.element_of(e.dtype)), _computed_in(e.dtype)
    ldexp, through = call_name("ldexp", computed), type_name(computed)
    return gen.apply(e.dtype, list(e.args), lambda a, b: f"({kind}){ldexp}(({through}){a}, (int){b})")


@prints("tir.sigmoid")
def _sigmoid(gen: CudaExpressions, e: Call) -> str:
    kind, computed = type_name(dt.element_of(e.dtype)), _computed_in(e.dtype)
    exp, through = call_name("exp", computed), type_name(computed)
    return gen.apply(e.dtype, list(e.args), lambda a: f"({kind})(1 / (1 + {exp}(-({through}){a})))")


@prints("tir.fma")
def _fma(gen: CudaExpressions, e: Call) -> str:
    return f"fused({', '.join(gen.expr(a) for a in e.args)})"


def _infix(sign: str) -> Printer:
    def printer(gen: CudaExpressions, e: Call) -> str:
        made = f"({gen.expr(e.args[0])} {sign} {gen.expr(e.args[1])})"
        narrow = dt.lanes(e.dtype) == 1 and dt.bits(e.dtype) < 32
        return f"(({type_name(e.dtype)}){made})" if narrow else made

    return printer


for _name, _sign in _BITWISE.items():
    prints(f"tir.{_name}")(_infix(_sign))


@prints("tir.bitwise_not")
def _not(gen: CudaExpressions, e: Call) -> str:
    inner = gen.expr(e.args[0])
    narrow = dt.lanes(e.dtype) == 1 and dt.bits(e.dtype) < 32
    return f"(({type_name(e.dtype)})~{inner})" if narrow else f"(~{inner})"


def _counted(narrow: str, wide: str, missing: Callable[[int], int]) -> Printer:
    """A count of bits; ``missing``: how many too many there are when a type of fewer bits is seen as 32."""

    def printer(gen: CudaExpressions, e: Call) -> str:
        bits, element = dt.bits(e.args[0].dtype), dt.element_of(e.args[0].dtype)
        kind = type_name(dt.element_of(e.dtype))
        unsigned = type_name(element if dt.is_uint(element) else f"u{element}")
        function, less = (wide, 0) if bits == 64 else (narrow, missing(bits))
        rest = f" - {less}" if less else ""
        return gen.apply(e.dtype, list(e.args), lambda a: f"({kind})({function}(({unsigned}){a}){rest})")

    return printer


prints("tir.popcount")(_counted("__popc", "__popcll", lambda _: 0))
prints("tir.clz")(_counted("__clz", "__clzll", lambda bits: 32 - bits))


def _question(plain: str, half: str) -> Printer:
    def printer(gen: CudaExpressions, e: Call) -> str:
        element = dt.element_of(e.args[0].dtype)
        if element in HALVES:
            return gen.apply(e.dtype, list(e.args), lambda a: f"({half.format(a)})")
        if element not in ("float32", "float64"):
            return gen.apply(e.dtype, list(e.args), lambda a: f"({plain.format(f'(float){a}')})")
        return gen.apply(e.dtype, list(e.args), lambda a: f"({plain.format(a)})")

    return printer


prints("tir.isnan")(_question("(bool)isnan({0})", "__hisnan({0})"))
prints("tir.isinf")(_question("(bool)isinf({0})", "__hisinf({0}) != 0"))
prints("tir.isfinite")(_question("(bool)isfinite({0})", "(bool)isfinite((float){0})"))


@prints("tir.q_multiply_shift")
def _multiply_shift(gen: CudaExpressions, e: Call) -> str:
    gen.need("math")
    x, y, q, s = e.args
    places = f"{gen.expr(_scalar(q))}, {gen.expr(_scalar(s))}"
    return gen.apply(e.dtype, [x, y], lambda a, b: f"multiply_shift({a}, {b}, {places})")


@prints("tir.q_multiply_shift_per_axis")
def _multiply_shift_per_axis(gen: CudaExpressions, e: Call) -> str:
    gen.need("math")
    if dt.lanes(e.dtype) != 1:
        raise RelaxishError("CUDA code generation multiplies and shifts by axis only scalars")
    return f"multiply_shift_per_axis({', '.join(gen.expr(a) for a in e.args)})"


def _scalar(e: PrimExpr) -> PrimExpr:
    """What all lanes have in common."""
    return plain(e) if dt.lanes(e.dtype) != 1 else e


@prints("tir.if_then_else")
def _if_then_else(gen: CudaExpressions, e: Call) -> str:
    return gen.conditional(*e.args)


@prints("tir.reinterpret")
def _reinterpret(gen: CudaExpressions, e: Call) -> str:
    return f"bits_as<{type_name(e.dtype)}>({gen.expr(e.args[0])})"


@prints("tir.large_uint_imm")
def _large_uint(gen: CudaExpressions, e: Call) -> str:
    low, high = (int(a.value) for a in e.args)
    return f"{(high << 32) | low}ULL"


prints("tir.likely", "tir.tvm_thread_invariant", "tir.ignore_loop_partition")(calls("{0}"))


@prints("tir.undef")
def _undefined(gen: CudaExpressions, e: PrimExpr) -> str:
    return f"({type_name(e.dtype)})0" if dt.lanes(e.dtype) == 1 else f"{type_name(e.dtype)}()"


prints("tir.vectorlow")(calls("lower_half({0})"))
prints("tir.vectorhigh")(calls("upper_half({0})"))
prints("tir.vectorcombine")(calls("joined({0}, {1})"))
prints("tir.prefetch")(calls('asm volatile("prefetch.global.L2 [%0];" ::"l"({0}))'))


@prints("tir.dp4a")
def _dot(gen: CudaExpressions, e: Call) -> str:
    signed = dt.is_int(e.args[0].dtype)
    if signed != dt.is_int(e.args[1].dtype):
        raise RelaxishError("dp4a multiplies operands of one signedness")
    word = "int" if signed else "unsigned int"
    words = ", ".join(f"bits_as<{word}>({gen.expr(a)})" for a in e.args[:2])
    total = gen.expr(e.args[2]) if len(e.args) > 2 else "0"
    return f"(({type_name(e.dtype)})__dp4a({words}, ({word}){total}))"


@prints("tir.call_extern", "tir.call_pure_extern")
def _extern(gen: CudaExpressions, e: Call) -> str:
    name, args = e.args[0].value, list(e.args[1:])
    if (
        dt.lanes(e.dtype) != 1
        and args
        and all(dt.lanes(a.dtype) in (1, dt.lanes(e.dtype)) for a in args)
        and len(args) <= 3
    ):
        return gen.apply(e.dtype, args, lambda *a: f"{name}({', '.join(a)})")
    if name in ("atomicAdd", "atomicExch") and e.dtype == "int64":
        # The language has these of unsigned numbers only, whose bits are the same.
        address, value = (gen.expr(a) for a in args)
        return f"(long long){name}((unsigned long long*)({address}), (unsigned long long)({value}))"
    if name in ("atomicMax", "atomicMin") and not (dt.is_int(e.dtype) or dt.is_uint(e.dtype)):
        gen.need("extreme")
        address, value = (gen.expr(a) for a in args)
        largest = "true" if name == "atomicMax" else "false"
        return f"atomic_extreme<{largest}>({address}, ({type_name(e.dtype)})({value}))"
    return f"{name}({', '.join(gen.expr(a) for a in args)})"


@prints("tir.assume", "tir.start_profile_intrinsic", "tir.end_profile_intrinsic")
def _mark(gen: CudaExpressions, e: Call) -> str:
    """Profiling raises a performance event that the tools count; what is assumed leaves no code."""
    if e.op.name == "tir.assume":
        return ""
    return f'asm volatile("pmevent {int(e.args[0].value) % 16};")'


@prints("tir.ret")
def _return(gen: CudaExpressions, e: Call) -> str:
    value = e.args[0]
    if isinstance(value, StringImm):
        raise RelaxishError("a kernel returns nothing")
    return "return"


prints("tir.thread_return")(calls("return"))
