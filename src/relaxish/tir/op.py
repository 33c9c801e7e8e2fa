"""Intrinsics: math functions, control, external calls, and the low-level names that lowering produces.

Every intrinsic is an :class:`~relaxish.ir.Op` named ``tir.<name>`` with a call effect.  Families are made from
tables; only what does more than build a call has a function of its own.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..ir.errors import CheckTypeError, CheckValueError
from ..ir import dtype as dt
from ..ir.expr import ExprLike, GlobalVar, PrimExpr, as_expr
from ..ir.node import Node
from ..ir.object_generic import ObjectGeneric
from ..ir.op import Op
from ..ir.prim import (
    Call, CallEffectKind, CommReducer, FloatImm, IntImm, IterVar, Reduce, Select, StringImm, Var, const,
)  # fmt: skip
from ..ir.primops import (
    add, bitwise_and, bitwise_neg, bitwise_or, bitwise_xor, cast, div, floordiv, floormod, left_shift, logical_and,
    logical_or, match_types, max_, min_, multiply, right_shift, subtract, truncdiv, truncmod,
)  # fmt: skip
from ..ir.source import Span
from ..ir.types import PointerType
from ..support.entry_points import lazy_package
from ..support.errors import InternalError
from ..support.sequences import as_list
from .buffer import Buffer
from .expr import BufferLoad
from .intrinsics import INTRINSICS, Intrinsic, named

__all__ = [
    "abs", "address_of", "all", "any", "add", "subtract", "multiply", "bitwise_and", "bitwise_not", "bitwise_or",
    "bitwise_xor", "call_cpacked", "call_cpacked_lowered", "call_extern", "call_intrin", "call_llvm_intrin",
    "call_llvm_pure_intrin", "call_packed", "call_packed_lowered", "call_pure_extern", "call_tir", "ceildiv",
    "comm_reducer", "div", "dp4a", "floordiv", "floormod", "if_then_else", "indexdiv", "indexmod", "infinity",
    "isfinite", "isinf", "isnan", "isnullptr", "likely", "logical_and", "logical_or", "lookup_param", "max",
    "max_value", "min", "min_value", "pow", "power", "reinterpret", "ret", "shift_left", "shift_right", "sum", "trace",
    "truncdiv", "truncmod", "undef", "vscale", "get_active_lane_mask", "get_vscale_expr", "start_profile_intrinsic",
    "end_profile_intrinsic", "call_builtin", "sigmoid", "assume", "anylist_getitem", "anylist_resetitem",
    "ignore_loop_partition", "tvm_tuple", "q_multiply_shift", "round", "exp",
]  # fmt: skip

#: What a call takes: scalars, texts and other nodes; a buffer stands for its data pointer.
CallArg: TypeAlias = ExprLike | Node
#: What is reduced: one value, or several side by side.
Terms: TypeAlias = ExprLike | Sequence[ExprLike]

for _name, _record in INTRINSICS.items():
    Op.register(f"tir.{_name}").set_attr("TCallEffectKind", _record.effect)


def _op(name: str) -> Op:
    return Op.register(f"tir.{name}")


def call_builtin(dtype: str, name: str, *args: CallArg, span: Span | None = None) -> Call:
    """A call of the intrinsic ``tir.<name>``."""
    return Call(dtype, _op(name), [_arg(a) for a in args], span=span)


def _arg(value: CallArg) -> CallArg:
    match value:
        case Buffer():
            return value.data
        case Node() if not isinstance(value, PrimExpr) and hasattr(value, "__prim_expr__"):
            return value.__prim_expr__()
    return value


def _builder(record: Intrinsic) -> Callable[..., PrimExpr]:
    """The function that makes calls of an intrinsic, as its record says."""
    name = record.name

    def of_float(x: ExprLike, span: Span | None = None) -> PrimExpr:
        x = as_expr(x)
        if dt.is_integral(x.dtype):
            x = cast(dt.with_lanes("float32", dt.lanes(x.dtype)), x)
        return Call(x.dtype, _op(name), [x], span=span)

    def of_same(x: ExprLike, span: Span | None = None) -> PrimExpr:
        x = as_expr(x)
        return Call(x.dtype, _op(name), [x], span=span)

    def of_int32(x: ExprLike, span: Span | None = None) -> PrimExpr:
        x = as_expr(x)
        return Call(dt.with_lanes("int32", dt.lanes(x.dtype)), _op(name), [x], span=span)

    def of_all(*args: CallArg, span: Span | None = None) -> PrimExpr:
        return call_builtin(record.result, name, *args, span=span)

    builders: dict[str, tuple[Callable[..., PrimExpr], str]] = {
        "float": (of_float, f"Elementwise ``{name}``; integers are converted to float32 first."),
        "same": (of_same, f"Intrinsic ``{name}`` of the operand's own type."),
        "int32": (of_int32, f"Intrinsic ``{name}``, an int32 whatever the operand's type."),
        "plain": (of_all, f"Low-level intrinsic ``{name}``."),
    }
    build, doc = builders[record.builder]
    build.__name__, build.__doc__ = name, doc
    return build


_BUILT = named(lambda record: record.builder)
for _name in _BUILT:
    globals()[_name] = _builder(INTRINSICS[_name])
__all__ += _BUILT
exp: Callable[..., PrimExpr] = globals()["exp"]
sigmoid: Callable[..., PrimExpr] = globals()["sigmoid"]


def _rounding(name: str, fold: Callable[[float], int]) -> Callable[..., PrimExpr]:
    def build(x: ExprLike, span: Span | None = None) -> PrimExpr:
        x = as_expr(x)
        if dt.is_integral(x.dtype):
            return x
        if isinstance(x, FloatImm):
            return FloatImm(x.dtype, fold(x.value)) if math.isfinite(x.value) else x
        return Call(x.dtype, _op(name), [x], span=span)

    build.__name__ = name
    build.__doc__ = f"``{name}``; integers are their own result."
    return build


floor = _rounding("floor", math.floor)
ceil = _rounding("ceil", math.ceil)
round = _rounding("round", builtins.round)
nearbyint = _rounding("nearbyint", builtins.round)
trunc = _rounding("trunc", math.trunc)
__all__ += ["floor", "ceil", "nearbyint", "trunc"]


def logaddexp(a: ExprLike, b: ExprLike, span: Span | None = None) -> PrimExpr:
    """``log(exp(a) + exp(b))``. Raises InternalError for integers."""
    a, b = as_expr(a), as_expr(b)
    for value in (a, b):
        if not dt.is_float(value.dtype):
            raise InternalError(f"logaddexp is of floating point numbers, not of {value.dtype}")
    a, b = match_types(a, b)
    log: Callable[..., PrimExpr] = globals()["log"]
    return log(add(exp(a), exp(b)), span)


__all__ += ["logaddexp"]


def abs(x: ExprLike, span: Span | None = None) -> PrimExpr:
    """Absolute value: ``fabs`` on floats, a select on integers, the operand itself if unsigned."""
    x = as_expr(x)
    if dt.is_uint(x.dtype):
        return x
    if dt.is_int(x.dtype):
        if isinstance(x, IntImm):
            return const(builtins.abs(x.value), x.dtype)
        return Select(x >= const(0, x.dtype), x, const(0, x.dtype) - x)
    if isinstance(x, FloatImm):
        return FloatImm(x.dtype, builtins.abs(x.value))
    return Call(x.dtype, _op("fabs"), [x], span=span)


fabs = abs


def _classify(name: str) -> Callable[..., PrimExpr]:
    def build(x: ExprLike, span: Span | None = None) -> PrimExpr:
        x = as_expr(x)
        result = dt.with_lanes("bool", dt.lanes(x.dtype))
        if dt.is_integral(x.dtype):
            return const(name == "isfinite", result)
        if isinstance(x, FloatImm):
            return const(getattr(math, name)(x.value), result)
        if name == "isnan":
            if dt.bits(x.dtype) == 16:
                x = cast(dt.with_lanes("float32", dt.lanes(x.dtype)), x)
            return Call(result, _op("isnan"), [x], span=span)
        if name == "isinf":
            return logical_and(abs(x).equal(const(math.inf, x.dtype)), logical_not_(isnan(x)))
        return logical_and(logical_not_(isinf(x)), logical_not_(isnan(x)))

    build.__name__ = name
    build.__doc__ = f"Whether the value ``{name}``; bool of the operand's lanes."
    return build


def logical_not_(x: PrimExpr) -> PrimExpr:
    """Negation, as this module's helpers need it."""
    from ..ir.primops import logical_not

    return logical_not(x)


isnan, isinf, isfinite = _classify("isnan"), _classify("isinf"), _classify("isfinite")


def isnullptr(x: ExprLike, span: Span | None = None) -> PrimExpr:
    """Whether a handle is null."""
    return call_builtin("bool", "isnullptr", x)


def infinity(dtype: str, span: Span | None = None) -> PrimExpr:
    """Positive infinity of a floating-point type."""
    if dt.code(dtype) not in ("float", "bfloat") or dt.lanes(dtype) != 1:
        raise CheckValueError(f"Cannot decide infinity for type {dtype}")
    return const(float("inf"), dtype)


_FLOAT_MAX = {
    "float64": 1.7976931348623157e308, "float32": 3.4028234663852886e38, "float16": 65504.0,
    "bfloat16": 3.4028234663852886e38, "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "e4m3_float8": 448.0,
    "e5m2_float8": 57344.0, "float8_e4m3": 240.0, "float8_e3m4": 15.5, "float8_e4m3b11fnuz": 30.0,
    "float8_e4m3fnuz": 240.0, "float8_e5m2fnuz": 57344.0, "float6_e2m3fn": 7.5, "float6_e3m2fn": 28.0,
    "float4_e2m1fn": 6.0,
}  # fmt: skip


def max_value(dtype: str, span: Span | None = None) -> PrimExpr:
    """The largest finite value of a type."""
    element = dt.element_of(dtype)
    if dt.is_float(element):
        return const(_FLOAT_MAX[element], dtype)
    return const(dt.max_value(element), dtype)


def min_value(dtype: str, span: Span | None = None) -> PrimExpr:
    """The smallest finite value of a type."""
    element = dt.element_of(dtype)
    if dt.is_float(element):
        return const(-_FLOAT_MAX[element], dtype)
    return const(dt.min_value(element), dtype)


def power(x: ExprLike, y: ExprLike, span: Span | None = None) -> PrimExpr:
    """``x ** y``; both operands are brought to one floating-point type."""
    x, y = match_types(as_expr(x), as_expr(y))
    if not dt.is_float(x.dtype):
        raise CheckTypeError(f"power only applies to float, got {x.dtype}")
    return Call(x.dtype, _op("pow"), [x, y], span=span)


pow = power


def _float_binary(name: str) -> Callable[..., PrimExpr]:
    def build(x1: ExprLike, x2: ExprLike, span: Span | None = None) -> PrimExpr:
        a, b = as_expr(x1), as_expr(x2)
        return Call(a.dtype, _op(name), [a, b], span=span)

    build.__name__ = name
    build.__doc__ = f"Elementwise ``{name}(x1, x2)``."
    return build


fmod, atan2, copysign = _float_binary("fmod"), _float_binary("atan2"), _float_binary("copysign")
hypot, nextafter, ldexp = _float_binary("hypot"), _float_binary("nextafter"), _float_binary("ldexp")
__all__ += ["fmod", "atan2", "copysign", "hypot", "nextafter", "ldexp"]

shift_left, shift_right, bitwise_not = left_shift, right_shift, bitwise_neg


def indexdiv(a: ExprLike, b: ExprLike, span: Span | None = None) -> PrimExpr:
    """Division of non-negative indices (which rounding is meant does not matter)."""
    return floordiv(a, b, span)


def indexmod(a: ExprLike, b: ExprLike, span: Span | None = None) -> PrimExpr:
    """Remainder of non-negative indices."""
    return floormod(a, b, span)


def ceildiv(lhs: ExprLike, rhs: ExprLike, span: Span | None = None) -> PrimExpr:
    """``ceil(lhs / rhs)`` on integers, as ``(lhs + rhs - 1) // rhs``."""
    lhs, rhs = match_types(as_expr(lhs), as_expr(rhs))
    return floordiv(lhs + rhs - 1, rhs, span)


def if_then_else(cond: ExprLike, t: ExprLike, f: ExprLike, span: Span | None = None) -> PrimExpr:
    """``t if cond else f``, evaluating only the branch taken (unlike Select)."""
    cond = as_expr(cond)
    t, f = match_types(as_expr(t), as_expr(f))
    if cond.dtype != "bool":
        raise CheckTypeError(f"if_then_else only accept the condition to be boolean type, got {cond.dtype}")
    if isinstance(cond, IntImm):
        return t if cond.value else f
    return Call(t.dtype, _op("if_then_else"), [cond, t, f], span=span)


def likely(cond: ExprLike, span: Span | None = None) -> PrimExpr:
    """Mark a condition as usually true."""
    cond = as_expr(cond)
    return cond if isinstance(cond, IntImm) else Call(cond.dtype, _op("likely"), [cond], span=span)


def assume(cond: ExprLike, span: Span | None = None) -> PrimExpr:
    """Promise that a condition holds."""
    return Call("bool", _op("assume"), [as_expr(cond)], span=span)


def undef() -> PrimExpr:
    """A value that nothing may depend on."""
    return Call("int32", _op("undef"), [])


def ret(val: ExprLike, span: Span | None = None) -> PrimExpr:
    """Return a value from a PrimFunc."""
    val = as_expr(val)
    return Call(val.dtype, _op("ret"), [val], span=span)


def reinterpret(dtype: str, value: ExprLike, span: Span | None = None) -> PrimExpr:
    """The same bits as another type."""
    value = as_expr(value)
    if value.dtype == dtype:
        return value
    _check_same_size(dtype, value.dtype)
    return Call(dtype, _op("reinterpret"), [value], span=span)


def _check_same_size(dtype: str, source: str) -> None:
    lanes, source_lanes = dt.lanes(dtype), dt.lanes(source)
    if lanes < 0 or source_lanes < 0 or dt.bits(dtype) * lanes == dt.bits(source) * source_lanes:
        return
    packed = "float4_e2m1fn" in (dt.element_of(dtype), dt.element_of(source))
    if packed and (dt.bits(dtype) + 7) // 8 * lanes == (dt.bits(source) + 7) // 8 * source_lanes:
        return
    raise CheckTypeError(f"Reinterpret requires size match {dtype} vs {source}")


def address_of(obj: Buffer | BufferLoad, span: Span | None = None) -> PrimExpr:
    """The address of a buffer's first element, or of the element that is loaded. Raises ValueError on others."""
    if isinstance(obj, Buffer):
        obj = BufferLoad(obj, [0] * len(obj.shape))
    if not isinstance(obj, BufferLoad):
        raise ValueError(f"Invalid object type: {type(obj)}")
    return Call("handle", _op("address_of"), [obj], span=span)


def lookup_param(param_name: str, span: Span | None = None) -> PrimExpr:
    """A parameter by name."""
    return Call("handle", _op("lookup_param"), [StringImm(param_name)], span=span)


def _packed(name: str) -> Callable[..., PrimExpr]:
    def build(*args: CallArg, span: Span | None = None) -> PrimExpr:
        return Call("int32", _op(name), [_packed_arg(a) for a in args], span=span)

    build.__doc__ = f"``{name}``: call a registered packed function by name."
    return build


def _packed_arg(value: CallArg) -> CallArg:
    if isinstance(value, ObjectGeneric):
        value = value.asobject()
    if isinstance(value, Buffer):
        return _pack_buffer(value)
    return _arg(value)


def _pack_buffer(buf: Buffer) -> PrimExpr:
    shape = Call("handle", _op("tvm_stack_make_shape"), buf.shape)
    strides = Call("handle", _op("tvm_stack_make_shape"), buf.strides) if buf.strides else const(0, "int32")
    args: list[PrimExpr | int] = [buf.data, shape, strides, len(buf.shape), const(0, buf.dtype), buf.elem_offset]
    return Call("handle", _op("tvm_stack_make_array"), args)


call_packed, call_cpacked = _packed("tvm_call_packed"), _packed("tvm_call_cpacked")
call_packed_lowered = _packed("tvm_call_packed_lowered")
call_cpacked_lowered = _packed("tvm_call_cpacked_lowered")
tvm_call_packed, tvm_call_cpacked = call_packed, call_cpacked


def trace(args: list[Any], trace_action: str = "tvm.default_trace_action") -> PrimExpr:
    """Pass values through the packed function ``trace_action``; the last one's type is that of the result."""
    if not isinstance(args, list):
        raise TypeError("tvm.tir.trace consumes the args as list type")
    return Call(args[-1].dtype, _op("tvm_call_trace_packed"), [trace_action, *[_packed_arg(a) for a in args]])


__all__ += ["tvm_call_packed", "tvm_call_cpacked"]


def call_intrin(dtype: str, func_name: str | Op, *args: CallArg, span: Span | None = None) -> PrimExpr:
    """Call an intrinsic by name or :class:`Op`."""
    return Call(dtype, func_name, [_arg(a) for a in args], span=span)


def call_extern(dtype: str, func_name: str, *args: CallArg, span: Span | None = None) -> PrimExpr:
    """Call a C function that may have effects."""
    return Call(dtype, _op("call_extern"), [StringImm(func_name), *[_arg(a) for a in args]], span=span)


def call_pure_extern(dtype: str, func_name: str, *args: CallArg, span: Span | None = None) -> PrimExpr:
    """Call a C function without effects."""
    return Call(dtype, _op("call_pure_extern"), [StringImm(func_name), *[_arg(a) for a in args]], span=span)


def call_llvm_intrin(dtype: str, name: str | PrimExpr, *args: CallArg, span: Span | None = None) -> PrimExpr:
    """Call an LLVM intrinsic by name, e.g. ``"llvm.x86.avx512.vpdpbusd.512"``."""
    return Call(dtype, _op("call_llvm_intrin"), [StringImm(name) if isinstance(name, str) else name, *args], span=span)


def call_llvm_pure_intrin(dtype: str, name: str | PrimExpr, *args: CallArg, span: Span | None = None) -> PrimExpr:
    """Call an LLVM intrinsic that has no effects."""
    first = StringImm(name) if isinstance(name, str) else name
    return Call(dtype, _op("call_llvm_pure_intrin"), [first, *args], span=span)


def call_tir(global_var: GlobalVar, *args: CallArg) -> PrimExpr:
    """Call another PrimFunc of the module."""
    return Call("void", global_var, [_arg(a) for a in args])


def dp4a(vec1: ExprLike, vec2: ExprLike, acc: ExprLike = 0) -> PrimExpr:
    """Dot product of four 8-bit pairs added to an accumulator."""
    return Call("int32", _op("dp4a"), [as_expr(vec1), as_expr(vec2), as_expr(acc)])


def q_multiply_shift(x: ExprLike, y: ExprLike, q: ExprLike, s: ExprLike) -> PrimExpr:
    """Fixed-point multiplication with rounding shift."""
    return call_builtin("int32", "q_multiply_shift", x, y, q, s)


def tvm_tuple(*value: ExprLike) -> PrimExpr:
    """Several values as one call argument."""
    return call_builtin("handle", "tvm_tuple", *value)


def get_vscale_expr(dtype: str, min_size: int = 128) -> PrimExpr:
    """Number of elements of ``dtype`` in a scalable vector of at least ``min_size`` bits."""
    return min_size // dt.bits(dtype) * vscale()


def vscale() -> PrimExpr:
    """The number of 128-bit granules in a scalable vector register."""
    return Call("int32", _op("vscale"), [])


def get_active_lane_mask(dtype: str, base: ExprLike, limit: ExprLike) -> PrimExpr:
    """A predicate that is true for lanes ``base + i < limit``."""
    return call_builtin(dtype, "get_active_lane_mask", base, limit)


def start_profile_intrinsic(id: int) -> PrimExpr:
    """Start of a profiled region."""
    return call_builtin("handle", "start_profile_intrinsic", id)


def end_profile_intrinsic(id: int) -> PrimExpr:
    """End of a profiled region."""
    return call_builtin("handle", "end_profile_intrinsic", id)


def anylist_getitem(list_handle: ExprLike, index: ExprLike) -> PrimExpr:
    """An item of a runtime list."""
    return call_builtin("handle", "anylist_getitem", list_handle, index)


def anylist_resetitem(list_handle: ExprLike, index: ExprLike) -> PrimExpr:
    """Clear an item of a runtime list."""
    return call_builtin("int32", "anylist_resetitem", list_handle, index)


def ignore_loop_partition(predicate: ExprLike) -> PrimExpr:
    """Keep a condition out of loop partitioning."""
    return call_builtin("bool", "ignore_loop_partition", predicate)


def all(*args: CallArg, span: Span | None = None) -> PrimExpr:
    """Conjunction of conditions."""
    if not args:
        raise CheckValueError("Any must take at least 1 argument")
    out = as_expr(args[0])
    for item in args[1:]:
        out = logical_and(out, item)
    return out


def any(*args: CallArg, span: Span | None = None) -> PrimExpr:
    """Disjunction of conditions."""
    if not args:
        raise CheckValueError("Any must take at least 1 argument")
    out = as_expr(args[0])
    for item in args[1:]:
        out = logical_or(out, item)
    return out


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """Make a reduction from a combiner and its identity.

    >>> from relaxish import tir
    >>> mul = tir.comm_reducer(lambda x, y: x * y, lambda t: tir.const(1, dtype=t), name="mul")
    """

    def _over_axis(expr: Terms, axis: IterVar | Sequence[IterVar], where: ExprLike | None, init: Terms | None) -> Terms:
        axes = [axis] if isinstance(axis, IterVar) else list(axis)
        condition = const(1, "bool") if where is None else as_expr(where)
        exprs = list(expr) if isinstance(expr, (tuple, list)) else [as_expr(expr)]
        exprs = [as_expr(e) for e in exprs]
        identity = fidentity(*[e.dtype for e in exprs])
        identities = as_list(identity)
        single = len(exprs) == 1
        lhs = [Var("x" if single else f"lhs_{i}", e.dtype) for i, e in enumerate(exprs)]
        rhs = [Var("y" if single else f"rhs_{i}", e.dtype) for i, e in enumerate(exprs)]
        result = fcombine(lhs[0], rhs[0]) if single else fcombine(lhs, rhs)
        results = as_list(result)
        reducer = CommReducer(lhs, rhs, results, identities)
        inits = [] if init is None else [as_expr(e) for e in as_list(init)]
        outputs = [Reduce(reducer, exprs, axes, condition, i, inits) for i in range(len(exprs))]
        return outputs[0] if single else tuple(outputs)

    def reducer(
        expr: Terms,
        axis: IterVar | Sequence[IterVar] | ExprLike,
        where: ExprLike | None = None,
        init: Terms | None = None,
        *args: ExprLike | None,
    ) -> Terms:
        match axis:
            case IterVar() | [] | [IterVar() | list() | tuple(), *_]:
                return _over_axis(expr, axis, where, init)
        out = fcombine(expr, axis)
        for item in (where, init, *args):
            if item is not None:
                out = fcombine(out, item)
        return out

    reducer.__name__ = name
    reducer.__doc__ = f"Reduce by ``{name}`` over an axis, or combine values given one by one."
    return reducer


sum = comm_reducer(lambda x, y: x + y, lambda t: const(0, dtype=t), name="sum")
min = comm_reducer(lambda x, y: min_(x, y), max_value, name="min")
max = comm_reducer(lambda x, y: max_(x, y), min_value, name="max")


def effect_of(call: Call) -> int:
    """The effect kind of a call; calls of functions are opaque."""
    if isinstance(call.op, Op):
        kind = call.op.get_attr("TCallEffectKind")
        return int(kind) if kind is not None else int(CallEffectKind.Opaque)
    return int(CallEffectKind.Opaque)


__all__ += ["effect_of", "fabs"]
_ = PointerType


__getattr__, __dir__ = lazy_package(globals())  # intrinsics of devices are in op_device
