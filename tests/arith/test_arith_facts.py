"""Conditions in force are found as by comparing with every one of them."""

from __future__ import annotations

import random

import pytest

from relaxish import tir
from relaxish.arith import Analyzer
from relaxish.arith import build as B
from relaxish.arith.facts import Facts, look
from relaxish.arith.rewrite_simplify import _look_of_negation, _negated

VARS = {
    "int32": [tir.Var("i", "int32"), tir.SizeVar("n", "int32")],
    "int64": [tir.Var("j", "int64"), tir.Var("i", "int64")],
    "float32": [tir.Var("x", "float32"), tir.Var("y", "float32")],
}
BOOLS = [tir.Var("p", "bool"), tir.Var("q", "bool")]
OPERATORS = [tir.Add, tir.Sub, tir.Mul, tir.Min, tir.Max]
COMPARISONS = [tir.EQ, tir.NE, tir.LT, tir.LE, tir.GT, tir.GE]


def value(rng, dtype, depth):
    kind = rng.randrange(6 if depth else 2)
    if kind == 0:
        return rng.choice(VARS[dtype])
    if kind == 1:
        return (
            tir.FloatImm(dtype, rng.choice([0.0, -0.0, 1.0]))
            if dtype == "float32"
            else tir.IntImm(dtype, rng.randrange(3))
        )
    if kind == 2 and dtype != "float32":
        return tir.Cast(dtype, value(rng, rng.choice(list(VARS)), depth - 1))
    return rng.choice(OPERATORS)(value(rng, dtype, depth - 1), value(rng, dtype, depth - 1))


def condition(rng, depth):
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice(BOOLS)
    if kind == 1 and depth:
        return tir.Not(condition(rng, depth - 1))
    if kind == 2 and depth:
        return rng.choice([tir.And, tir.Or])(condition(rng, depth - 1), condition(rng, depth - 1))
    dtype = rng.choice(list(VARS))
    return rng.choice(COMPARISONS)(value(rng, dtype, 2), value(rng, dtype, 2))


@pytest.mark.parametrize("seed", range(20))
def test_found_as_by_comparing_with_all(seed):
    rng = random.Random(seed)
    facts, known = Facts(), []
    # The same seed makes an equal condition of other nodes.
    pool = [rng.randrange(400) for _ in range(60)]
    found = 0
    for _ in range(300):
        if rng.random() < 0.2 and known:
            size = rng.randrange(len(known))
            facts.forget(size)
            del known[size:]
        fact = condition(random.Random(rng.choice(pool)), 2)
        facts.learn(fact)
        known.append(fact)
        assert len(facts) == len(known) and facts.since(1) == known[1:]
        asked = condition(random.Random(rng.choice(pool)), 2)
        negation = _negated(asked)
        assert _look_of_negation(asked) == look(negation)
        for wanted in (asked, negation):
            expected = next((i for i, x in enumerate(known) if B.deep_equal(x, wanted)), None)
            assert facts.place(wanted) == expected
            assert expected is None or facts.may_hold(look(wanted))
            found += expected is not None and wanted is asked
    assert found > 10


def test_the_first_fact_decides():
    i = VARS["int32"][0]
    less = lambda: tir.LT(i, tir.IntImm("int32", 4))
    simplifier = Analyzer().rewrite
    for facts, expected in (([less()], 1), ([_negated(less())], 0), ([less(), _negated(less())], 1), ([], None)):
        simplifier.literals.forget(0)
        for fact in facts:
            simplifier.literals.learn(fact)
        got = simplifier.match_literal(less())
        assert (None if got is None else int(got.value)) == expected
