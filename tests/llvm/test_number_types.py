"""Every number type as every other, by machine code and by the interpreter, against exact arithmetic; small types in
memory and in registers.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish.driver import build_tir
from relaxish.interp import run_prim_func
from relaxish.ir import dtype as dt
from relaxish.ir.module import IRModule
from relaxish.script import from_source
from relaxish.tir import PrimFunc

FLOATS = [
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e4m3", "float8_e3m4", "float8_e4m3b11fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn",
    "float4_e2m1fn",
]  # fmt: skip
INTEGERS = [
    "bool", "int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
]  # fmt: skip
KINDS = [*FLOATS, *INTEGERS]
COUNT = 131

EXTREMES = [
    float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-45, 1e-40, 448.0, 464.0, 465.0, 480.0, 57344.0, 61440.0,
    61441.0, 65504.0, 65519.999, 65520.0, -65536.0, 3.3895e38, 3.4e38, 2.5, -1.5, 1e9, -9.0, 300.0,
]  # fmt: skip
TIES = [
    1e300, 1e-300, 1 + 2**-11 + 2**-40, 1 + 2**-11, 1 + 3 * 2**-11 - 2**-40, 1 + 2**-8 + 2**-50, 1 + 2**-8 - 2**-50,
    2**-25 + 2**-70, 3.4028235677973366e38, -(1 + 2**-8 + 2**-50),
]  # fmt: skip


def values(kind: str, count: int = COUNT) -> Any:
    """Extremes, ties and random numbers of a type; types of a byte in all their values as far as there is room."""
    rng = np.random.default_rng(KINDS.index(kind))
    made = dt.numpy_dtype(kind)
    if kind == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if kind in INTEGERS:
        low, high = dt.min_value(kind), dt.max_value(kind)
        special = [low, high, 0, 1, high // 2, 2049, 65519, 65520, (1 << 24) + 1, (1 << 53) + 1, (1 << 60) + (1 << 52)]
        special += [(1 << 60) + (1 << 52) + 1, -(1 << 60) - (1 << 52) - 1, -1]
        numbers = [min(max(s, low), high) for s in special]
        wide = np.uint64 if kind.startswith("u") else np.int64
        while len(numbers) < count:
            numbers.append(int(rng.integers(low, high, endpoint=True, dtype=wide)) >> int(rng.integers(dt.bits(kind))))
        return np.array(numbers, object).astype(wide).astype(made)
    if dt.bits(kind) <= 8:
        codes = rng.permutation(1 << dt.bits(kind)).astype("uint8")
        return np.resize(codes, count).view(made)
    if dt.bits(kind) == 16:
        return rng.integers(0, 65536, count).astype("uint16").view(made)
    special = EXTREMES + (TIES if kind == "float64" else [])
    exponents = rng.uniform(-30, 30, count - len(special))
    numbers = rng.choice([-1, 1], exponents.size) * rng.uniform(1, 2, exponents.size) * 2.0**exponents
    for i in range(0, numbers.size, 3):  # halfway between two numbers of fewer bits
        m = int(rng.choice([1, 2, 3, 7, 10]))
        numbers[i] = np.sign(numbers[i]) * 2.0 ** np.floor(exponents[i]) * (1 + (rng.integers(2**m) + 0.5) / 2**m)
    return np.concatenate([np.array(special), numbers]).astype(made)


def as_integer(value: Any, source: str, target: str) -> int:
    bits = dt.bits(target)
    if source in FLOATS:
        number = float(value)
        if np.isnan(number):
            return 0
        width = 32 if bits < 32 or target == "int32" else 64
        low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
        if target == "uint64" and number >= 0:
            low, high = 0, (1 << 64) - 1
        whole = high if number == np.inf else low if number == -np.inf else min(max(int(number), low), high)
    else:
        whole = int(value)
    whole &= (1 << bits) - 1
    return whole - (1 << bits) if dt.is_int(target) and whole >> (bits - 1) else whole


def rounded(value: Any, target: str) -> Any:
    """By way of float32, whose last bit says whether something was lost: rounding again is then exact."""
    with np.errstate(all="ignore"):
        near = np.float32(value)
        if np.isfinite(float(value)):
            if np.isinf(near):
                near = np.float32(np.copysign(3.4028234663852886e38, near))
            if Fraction(float(near)) != Fraction(value):
                if abs(Fraction(float(near))) > abs(Fraction(value)):
                    near = np.nextafter(near, np.float32(0))
                near = np.uint32(near.view(np.uint32) | np.uint32(1)).view(np.float32)
        return near.astype(dt.numpy_dtype(target))


def expected(x: Any, source: str, target: str) -> Any:
    made = dt.numpy_dtype(target)
    if target == "bool":
        return x.astype("float64") != 0 if source in FLOATS else x.astype("int64") != 0
    if target in INTEGERS:
        wide = "uint64" if target == "uint64" else "int64"
        return np.array([as_integer(v, source, target) for v in x], object).astype(wide).astype(made)
    with np.errstate(all="ignore"):
        if source in FLOATS:
            if target == "float64" or source not in ("float64", "float32"):
                return x.astype("float64") if target == "float64" else x.astype("float32").astype(made)
            return np.array([rounded(float(v), target) for v in x]) if target not in ("float32",) else x.astype(made)
        whole = x.astype("uint64" if source == "uint64" else "int64")
        if dt.bits(target) >= 32:
            return whole.astype(made)
        return np.array([rounded(int(v), target) for v in whole])


def caster(name: str, source: str, target: str, *, plain: bool = False, count: int = COUNT) -> PrimFunc:
    attrs = '{"tir.noalias": True, "relaxish.plain_code": True}' if plain else '{"tir.noalias": True}'
    return from_source(f"""
@T.prim_func
def {name}(A: T.Buffer(({count},), "{source}"), B: T.Buffer(({count},), "{target}")):
    T.func_attr({attrs})
    for i in range({count}):
        with T.block("cast"):
            v = T.axis.spatial({count}, i)
            B[v] = T.Cast("{target}", A[v])
""")


def assert_same(got: Any, want: Any, x: Any, what: str) -> None:
    bits = np.dtype(f"u{want.dtype.itemsize}")
    same = got.view(bits) == want.view(bits)
    if want.dtype.kind not in "biu":
        with np.errstate(all="ignore"):
            same |= np.isnan(got.astype("float64")) & np.isnan(want.astype("float64"))
    assert same.all(), f"{what}: {[(x[i], got[i], want[i]) for i in np.flatnonzero(~same)[:5]]}"


def check_casts(source: str, target: str) -> None:
    others = [kind for kind in KINDS if kind != source]
    funcs = {f"{m}_{kind}": caster(f"{m}_{kind}", source, kind, plain=m == "plain") for kind in others
             for m in ("vector", "plain")}  # fmt: skip
    built = build_tir(IRModule(funcs), target)
    x = values(source)
    for kind in others:
        want = expected(x, source, kind)
        for m in ("vector", "plain"):
            out = relaxish.nd.array(np.zeros(COUNT, dt.numpy_dtype(kind)))
            built[f"{m}_{kind}"](relaxish.nd.array(x), out)
            assert_same(out.numpy(), want, x, f"{source} as {kind}, {m}")


@pytest.mark.parametrize("source", KINDS)
def test_casts(source: str) -> None:
    check_casts(source, "llvm")


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "skylake-avx512"])
@pytest.mark.parametrize("source", KINDS)
def test_casts_on_lesser_processors(source: str, cpu: str) -> None:
    """Without instructions that convert half precision, or with vectors of other lengths."""
    check_casts(source, f"llvm -mcpu={cpu}")


@pytest.mark.parametrize("source", KINDS)
def test_interpreted_casts(source: str) -> None:
    x = values(source)[::3]
    for kind in KINDS:
        if kind == source:
            continue
        out = np.zeros(x.size, dt.numpy_dtype(kind))
        run_prim_func(caster("main", source, kind, count=x.size), [x, out])
        assert_same(out, expected(x, source, kind), x, f"{source} as {kind}")


@pytest.mark.parametrize("kind", ["int4", "uint4", "int2", "uint2"])
@pytest.mark.parametrize("lanes", [1, 8])
def test_integers_of_a_few_bits(kind: str, lanes: int) -> None:
    """A byte an element in memory; arithmetic wraps."""
    inner = "for j in range(8)" if lanes == 1 else "for j in T.vectorized(8)"
    func = from_source(f"""
@T.prim_func
def main(A: T.Buffer((24,), "{kind}"), B: T.Buffer((24,), "{kind}"), C: T.Buffer((24,), "{kind}"),
         D: T.Buffer((24,), "{kind}"), E: T.Buffer((24,), "int32")):
    T.func_attr({{"tir.noalias": True}})
    for i in range(3):
        {inner}:
            C[i * 8 + j] = A[i * 8 + j] + B[i * 8 + j]
            D[i * 8 + j] = A[i * 8 + j]
            E[i * 8 + j] = T.Cast("int32", A[i * 8 + j]) * 3 + T.Cast("int32", B[23 - (i * 8 + j)])
""")
    low, high = dt.min_value(kind), dt.max_value(kind)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(low, high, 24, endpoint=True) for _ in range(2))
    made = dt.numpy_dtype(kind)
    outs = [
        relaxish.nd.array(np.zeros(24, made)),
        relaxish.nd.array(np.zeros(24, made)),
        relaxish.nd.empty((24,), "int32"),
    ]
    build_tir(func, "llvm")(relaxish.nd.array(a.astype(made)), relaxish.nd.array(b.astype(made)), *outs)
    wrapped = [as_integer(s, "int64", kind) for s in a + b]
    assert outs[0].numpy().astype("int64").tolist() == wrapped
    assert outs[1].numpy().astype("int64").tolist() == a.tolist()
    assert outs[2].numpy().tolist() == (a * 3 + b[::-1]).tolist()


@pytest.mark.parametrize(
    "kind", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float4_e2m1fn"]
)
@pytest.mark.parametrize("cpu", ["", " -mcpu=x86-64", " -mcpu=haswell"])
def test_arithmetic_of_small_floats(kind: str, cpu: str) -> None:
    """Computed in a wider type and rounded, for scalars and vectors, with comparisons and functions."""
    func = from_source(f"""
@T.prim_func
def main(A: T.Buffer((37,), "{kind}"), B: T.Buffer((37,), "{kind}"), C: T.Buffer((37,), "{kind}"),
         D: T.Buffer((37,), "{kind}"), E: T.Buffer((37,), "bool"), F: T.Buffer((37,), "{kind}")):
    T.func_attr({{"tir.noalias": True}})
    for i in range(37):
        C[i] = A[i] + B[i]
        D[i] = T.Select(A[i] < B[i], A[i], B[i] * A[i])
        E[i] = A[i] <= B[i]
        F[i] = T.sqrt(T.fabs(A[i]))
""")
    made = dt.numpy_dtype(kind)
    rng = np.random.default_rng(5)
    a, b = (rng.uniform(-2, 2, 37).astype(made) for _ in range(2))
    outs = [relaxish.nd.array(np.zeros(37, t)) for t in (made, made, bool, made)]
    build_tir(func, f"llvm{cpu}")(relaxish.nd.array(a), relaxish.nd.array(b), *outs)
    x, y = a.astype("float32"), b.astype("float32")
    assert_same(outs[0].numpy(), (x + y).astype(made), a, "sum")
    assert_same(outs[1].numpy(), np.where(x < y, x, y * x).astype(made), a, "choice")
    assert (outs[2].numpy() == (x <= y)).all()
    assert_same(outs[3].numpy(), np.sqrt(np.abs(x)).astype(made), a, "root")
