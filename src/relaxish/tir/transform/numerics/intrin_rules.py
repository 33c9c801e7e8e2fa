"""Lowering of mathematical intrinsics by target: library functions, LLVM intrinsics, or simpler mathematics.

These rules come after those that ``register_intrin_lowering`` adds for the same target. A rule gives None where it has
nothing to say, as of a type that the library has no function for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.op import Op
from ....ir.prim import Call, Select, StringImm
from ..base import call

__all__ = ["RULES", "Rule"]

Rule = Callable[[Call], Any]


# -- functions of a library ------------------------------------------------------------------------------------


def _extern(name: Callable[[str, str], str]) -> Callable[[str], Rule]:
    """Rules that call the function that ``name`` gives for a type and an operator; none where it is empty."""

    def of(operator: str) -> Rule:
        def rule(e: Call) -> PrimExpr | None:
            found = name(e.dtype, operator)
            return call(e.dtype, "call_pure_extern", StringImm(found), *e.args) if found else None

        return rule

    return of


def _c_name(dtype: str, operator: str) -> str:
    """The name in the C library: ``expf``, ``exp``."""
    return {"float32": operator + "f", "float64": operator}.get(dtype, "")


def _cuda_name(dtype: str, operator: str) -> str:
    """The name in the CUDA mathematics library."""
    element = dt.element_of(dtype)
    if element in ("float16", "bfloat16"):
        return {"fabs": "__habs", "round": "hrint"}.get(operator, "h" + operator)
    if dt.is_float(element):
        return {64: operator, 32: operator + "f"}.get(dt.bits(element), "")
    return {32: "__" + operator, 64: f"__{operator}ll"}.get(dt.bits(element), "")


def _cuda_fast_name(dtype: str, operator: str) -> str:
    """The less exact function that the hardware has for single precision."""
    return f"__{operator}f" if dt.element_of(dtype) == "float32" else _cuda_name(dtype, operator)


def _cuda_tangent(dtype: str, operator: str) -> str:
    element = dt.element_of(dtype)
    if element == "float16":
        raise ValueError(f"cuda {operator} unsupported for float16")
    return {"float64": operator, "float32": operator + "f"}.get(element, "")


def _cuda_bits(dtype: str, _operator: str) -> str:
    return {"uint32": "__popc", "uint64": "__popcll"}.get(dt.element_of(dtype), "")


def _shuffle(name: str) -> Rule:
    """Shuffles know the size of a warp: the last argument goes."""

    def rule(e: Call) -> PrimExpr:
        return Call(e.dtype, Op.get(f"tir.cuda.{name}"), e.args[:4])

    return rule


# -- LLVM ------------------------------------------------------------------------------------------------------


def _llvm(e: Call, name: str, *args: Any) -> PrimExpr:
    return call(e.dtype, "call_llvm_pure_intrin", StringImm(name), *args)


def _intrinsic(name: str) -> Rule:
    return lambda e: _llvm(e, name, *e.args)


def _prefetch(e: Call) -> Call:
    return call(e.dtype, "call_llvm_intrin", StringImm("llvm.prefetch"), *e.args)


def _leading_zeros(e: Call) -> PrimExpr:
    """Of zero too: the second operand of the intrinsic would leave that case open."""
    (x,) = e.args
    return B.cast(e.dtype, call(x.dtype, "call_llvm_pure_intrin", StringImm("llvm.ctlz"), x, B.const("bool", 0)))


# -- functions by other functions --------------------------------------------------------------------------------


def _exp(x: PrimExpr) -> PrimExpr:
    return call(x.dtype, "exp", x)


def _log(x: PrimExpr) -> PrimExpr:
    return call(x.dtype, "log", x)


def _sqrt(x: PrimExpr) -> PrimExpr:
    return call(x.dtype, "sqrt", x)


def _of(formula: Callable[[Any, Callable[[float], Any]], Any]) -> Rule:
    """A rule from a formula of the operand and a maker of constants of its type."""
    return lambda e: formula(e.args[0], lambda value: B.const(e.dtype, value))


def _tanh(x: PrimExpr, const: Callable[[float], Any]) -> PrimExpr:
    """By the exponential that does not overflow on either side of zero."""
    one, falling, rising = const(1.0), _exp(const(-2.0) * x), _exp(const(2.0) * x)
    return Select(x >= const(0.0), (one - falling) / (one + falling), (rising - one) / (rising + one))


_LLVM: dict[str, Rule] = {
    **{
        name: _intrinsic(f"llvm.{name}")
        for name in ("ceil", "cos", "exp", "exp2", "fabs", "floor", "log", "log10", "log2", "nearbyint", "pow",
                     "round", "sin", "sqrt", "trunc")
    },
    "fma": _intrinsic("llvm.fmuladd"),
    "popcount": _intrinsic("llvm.ctpop"),
    "prefetch": _prefetch,
    "clz": _leading_zeros,
    "exp10": _of(lambda x, const: _exp(x * const(math.log(10.0)))),
    "tanh": _of(_tanh),
    "tan": _of(lambda x, const: call(x.dtype, "sin", x) / call(x.dtype, "cos", x)),
    "cosh": _of(lambda x, const: (_exp(x) + _exp(const(-1.0) * x)) / const(2.0)),
    "sinh": _of(lambda x, const: (_exp(x) - _exp(const(-1.0) * x)) / const(2.0)),
    "asinh": _of(lambda x, const: _log(x + _sqrt(x * x + const(1.0)))),
    "acosh": _of(lambda x, const: _log(x + _sqrt(x * x - const(1.0)))),
    "atanh": _of(lambda x, const: _log((const(1.0) + x) / (const(1.0) - x)) * const(0.5)),
}  # fmt: skip

_CUDA: dict[str, Rule] = {
    **{
        name: _extern(_cuda_name)(name)
        for name in ("atan", "ceil", "cosh", "erf", "exp2", "fabs", "floor", "fmod", "nearbyint", "pow", "round", "sinh",
                     "sqrt", "tanh", "trunc")
    },
    **{name: _extern(_cuda_fast_name)(name) for name in ("cos", "exp", "exp10", "log", "log10", "log2", "sin")},
    "tan": _extern(_cuda_tangent)("tan"),
    "popcount": _extern(_cuda_bits)("popcount"),
    "tvm_warp_shuffle": _shuffle("__shfl_sync"),
    "tvm_warp_shuffle_up": _shuffle("__shfl_up_sync"),
    "tvm_warp_shuffle_down": _shuffle("__shfl_down_sync"),
    "tvm_warp_activemask": lambda e: Call(e.dtype, Op.get("tir.cuda.__activemask"), ()),
}  # fmt: skip

_DEFAULT: dict[str, Rule] = {
    name: _extern(_c_name)(name)
    for name in ("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "erf",
                 "exp", "floor", "hypot", "ldexp", "log", "log1p", "log2", "nearbyint", "nextafter", "pow", "round",
                 "sin", "sinh", "sqrt", "tan", "tanh")
}  # fmt: skip

for _name in ("__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__activemask"):
    Op.register(f"tir.cuda.{_name}")

RULES: Mapping[str, Mapping[str, Rule]] = {"llvm": _LLVM, "cuda": _CUDA, "default": _DEFAULT}
"""Rules by target kind and operator."""
