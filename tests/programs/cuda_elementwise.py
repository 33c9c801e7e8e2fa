"""Elementwise CUDA kernels of every operation, type and vector width: small programs with threads and vectors."""

from __future__ import annotations

from relaxish import te, tir
from relaxish.ir import IRModule
from relaxish.tir import Schedule

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
UNARY = (
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "sigmoid", "floor", "ceil", "trunc", "round", "nearbyint",
    "fabs",
)  # fmt: skip
BINARY_FLOAT = ("atan2", "copysign", "hypot", "nextafter", "pow", "fmod")
QUESTIONS = ("isnan", "isinf", "isfinite")


def scheduled(name, func, lanes, threads=32):
    """The function's one block in blocks of threads, each with ``lanes`` elements."""
    sch = Schedule(func.with_attr("global_symbol", name))
    for block in sch.get_child_blocks(sch.get_block("root")):
        (loop,) = sch.get_loops(block)
        outer, middle, inner = sch.split(loop, [None, threads, lanes])
        sch.bind(outer, "blockIdx.x")
        sch.bind(middle, "threadIdx.x")
        if lanes > 1:
            sch.vectorize(inner)
    return (
        sch.mod["main"]
        if "main" in [v.name_hint for v in sch.mod.get_global_vars()]
        else next(iter(sch.mod.functions.values()))
    )


def elementwise(name, form, dtypes, lanes=1, n=256):
    """A kernel that computes ``form`` of the elements of inputs of some types."""
    inputs = [te.placeholder((n,), name=f"A{i}", dtype=d) for i, d in enumerate(dtypes)]
    out = te.compute((n,), lambda i: form(*[a[i] for a in inputs]), name="B")
    return scheduled(name, te.create_prim_func([*inputs, out]), lanes)


def _float_operations(dtype):
    for name in UNARY:
        yield name, getattr(tir, name), (dtype,)
    for name in BINARY_FLOAT:
        yield name, getattr(tir, name), (dtype, dtype)
    for name in QUESTIONS:
        yield name, lambda x, f=getattr(tir, name): f(x).astype("int32"), (dtype,)
    yield "fma", lambda a, b, c: tir.call_intrin(dtype, "tir.fma", a, b, c), (dtype, dtype, dtype)
    yield "ldexp", lambda a, b: tir.ldexp(a, b), (dtype, "int32")


def _integer_operations(dtype):
    for name, form in (
        ("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b), ("left", lambda a, b: a << b),
        ("right", lambda a, b: a >> b), ("floordiv", tir.floordiv), ("floormod", tir.floormod), ("truncdiv", tir.truncdiv),
        ("truncmod", tir.truncmod),
    ):  # fmt: skip
        yield name, form, (dtype, dtype)
    yield "not", lambda a: ~a, (dtype,)
    yield "popcount", tir.popcount, (dtype,)
    yield "clz", lambda a: tir.clz(a), (dtype,)


def _common_operations(dtype):
    for name, form in (
        ("add", lambda a, b: a + b), ("sub", lambda a, b: a - b), ("mul", lambda a, b: a * b), ("min", tir.min),
        ("max", tir.max), ("select", lambda a, b: tir.Select(a < b, b, a)), ("lazy", lambda a, b: tir.if_then_else(a > b, a, b)),
        ("equal", lambda a, b: (a == b).astype("int32")), ("less", lambda a, b: tir.any(a <= b, a != b).astype("int32")),
        ("both", lambda a, b: tir.all(a >= b, tir.Not(a > b)).astype(dtype)),
    ):  # fmt: skip
        yield name, form, (dtype, dtype)
    yield "scaled", lambda a: a * tir.const(3, dtype) + tir.const(1, dtype), (dtype,)


def operations(dtype):
    """(name, form, input types) of everything that a type can do."""
    yield from _common_operations(dtype)
    if dtype in FLOATS:
        yield "div", lambda a, b: a / b, (dtype, dtype)
        yield from _float_operations(dtype)
    else:
        yield from _integer_operations(dtype)


def module_of(dtype, lanes):
    """All operations of a type on scalars or vectors."""
    return IRModule({
        f"{name}_{dtype}_{lanes}": elementwise(f"{name}_{dtype}_{lanes}", form, types, lanes) for name, form, types in operations(dtype)
    })  # fmt: skip


def casts(lanes, dtypes):
    """A kernel for every conversion from one type to another."""
    return IRModule({
        f"cast_{a}_{b}_{lanes}": elementwise(f"cast_{a}_{b}_{lanes}", lambda x, b=b: x.astype(b), (a,), lanes)
        for a in dtypes for b in dtypes if a != b
    })  # fmt: skip
