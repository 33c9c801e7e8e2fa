"""Simplified expressions take the same values as the originals, at random points of random expressions."""

from __future__ import annotations

import random
from typing import Any

import pytest

from relaxish import arith, tir
from relaxish.arith import build as B
from relaxish.arith.int_set import neg_inf, pos_inf
from relaxish.ir import Range

RANGES = ((0, 8), (-5, 9), (0, 100), (3, 4), (-20, 21))


def value_of(e: Any, env: dict[Any, int]) -> Any:
    """Evaluate by Python integers, independent of the code under test."""
    kind = type(e).__name__
    if kind == "IntImm":
        return e.value
    if kind == "Var":
        return env[e]
    if kind == "Not":
        return int(not value_of(e.a, env))
    if kind == "Select":
        return value_of(e.true_value if value_of(e.condition, env) else e.false_value, env)
    a, b = value_of(e.a, env), value_of(e.b, env)
    table = {
        "Add": lambda: a + b, "Sub": lambda: a - b, "Mul": lambda: a * b, "FloorDiv": lambda: a // b,
        "FloorMod": lambda: a % b, "Div": lambda: B.trunc_div(a, b), "Mod": lambda: a - b * B.trunc_div(a, b),
        "Min": lambda: min(a, b), "Max": lambda: max(a, b), "EQ": lambda: int(a == b), "NE": lambda: int(a != b),
        "LT": lambda: int(a < b), "LE": lambda: int(a <= b), "GT": lambda: int(a > b), "GE": lambda: int(a >= b),
        "And": lambda: int(bool(a and b)), "Or": lambda: int(bool(a or b)),
    }  # fmt: skip
    return table[kind]()


class Generator:
    """Random integer and boolean expressions."""

    def __init__(self, rng: random.Random, variables: list[Any]) -> None:
        self.rng = rng
        self.variables = variables

    def number(self, depth: int) -> Any:
        rng = self.rng
        if depth == 0 or rng.random() < 0.15:
            return rng.choice(self.variables) if rng.random() < 0.7 else tir.IntImm("int32", rng.randint(-9, 16))
        kind = rng.choice(
            ["Add", "Sub", "Mul", "FloorDiv", "FloorMod", "Min", "Max", "Add", "Sub", "Select", "Div", "Mod"]
        )
        if kind == "Select":
            return tir.Select(self.truth(depth - 1), self.number(depth - 1), self.number(depth - 1))
        a = self.number(depth - 1)
        if kind in ("FloorDiv", "FloorMod", "Div", "Mod", "Mul"):
            b = tir.IntImm("int32", rng.choice([2, 3, 4, 8, 12, 16]))
        else:
            b = self.number(depth - 1)
        return getattr(tir, kind)(a, b)

    def truth(self, depth: int) -> Any:
        rng = self.rng
        if depth > 0 and rng.random() < 0.3:
            if rng.random() < 0.3:
                return tir.Not(self.truth(depth - 1))
            return rng.choice([tir.And, tir.Or])(self.truth(depth - 1), self.truth(depth - 1))
        kind = rng.choice([tir.EQ, tir.NE, tir.LT, tir.LE, tir.GT, tir.GE])
        return kind(self.number(max(depth - 1, 0)), self.number(max(depth - 1, 0)))


def _setup(seed: int) -> tuple[random.Random, list[Any], list[tuple[int, int]], Any, Generator]:
    rng = random.Random(seed)
    variables = [tir.Var(n, "int32") for n in "xyz"]
    ranges = [rng.choice(RANGES) for _ in variables]
    analyzer = arith.Analyzer()
    for var, (low, high) in zip(variables, ranges):
        analyzer.bind(var, Range(low, high))
    return rng, variables, ranges, analyzer, Generator(rng, variables)


def _points(
    rng: random.Random, variables: list[Any], ranges: list[tuple[int, int]], count: int
) -> list[dict[Any, int]]:
    return [{v: rng.randrange(lo, hi) for v, (lo, hi) in zip(variables, ranges)} for _ in range(count)]


@pytest.mark.parametrize("seed", range(60))
def test_simplify_keeps_values(seed: int) -> None:
    rng, variables, ranges, analyzer, generate = _setup(seed)
    for _ in range(12):
        e = generate.number(3) if rng.random() < 0.6 else generate.truth(3)
        results = [analyzer.simplify(e), analyzer.rewrite_simplify(e), analyzer.canonical_simplify(e)]
        for env in _points(rng, variables, ranges, 25):
            expected = value_of(e, env)
            for result in results:
                assert value_of(result, env) == expected, f"{e}  ->  {result}  at {env}"


@pytest.mark.parametrize("seed", range(30))
def test_bounds_hold(seed: int) -> None:
    rng, variables, ranges, analyzer, generate = _setup(seed + 1000)
    for _ in range(12):
        e = generate.number(3)
        bound, mod = analyzer.const_int_bound(e), analyzer.modular_set(e)
        box = arith.eval_set(e, {v: Range(*r) for v, r in zip(variables, ranges)})
        for env in _points(rng, variables, ranges, 25):
            value = value_of(e, env)
            assert bound.min_value <= value <= bound.max_value, f"{e} {bound} {env}"
            assert (value - mod.base) % mod.coeff == 0 if mod.coeff else value == mod.base, f"{e} {mod} {env}"
            low, high = box.min_value, box.max_value
            assert low is neg_inf() or value_of(low, env) <= value, f"{e} {box} {env}"
            assert high is pos_inf() or value <= value_of(high, env), f"{e} {box} {env}"


@pytest.mark.parametrize("seed", range(40))
def test_constraints_keep_values(seed: int) -> None:
    rng, variables, ranges, analyzer, generate = _setup(seed + 5000)
    for _ in range(8):
        cond, e = generate.truth(2), generate.number(3) if rng.random() < 0.5 else generate.truth(3)
        with analyzer.constraint_scope(cond):
            result = analyzer.simplify(e)
        for env in _points(rng, variables, ranges, 40):
            if value_of(cond, env):
                assert value_of(result, env) == value_of(e, env), f"{e} -> {result} given {cond} at {env}"
