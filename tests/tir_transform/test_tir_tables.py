"""Tables written as chains of selections shrink to the elements that unrolled loops ask for."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import IRModule, te
from relaxish.ir.functor import post_order_visit
from relaxish.script import tir as T
from relaxish.tir import And, IntImm, Not, Or, Schedule, Select, Var, transform
from relaxish.tir.transform.simplify.tables import truth
from relaxish.topi.utils import const_matrix

X = Var("x", "int32")
YES, NO = IntImm("bool", 1), IntImm("bool", 0)


@pytest.mark.parametrize(("cond", "known"), [
    (YES, True), (X < 3, None), (And(X < 3, NO), False), (And(X < 3, YES), None), (Or(X < 3, YES), True),
    (Or(X < 3, NO), None), (Not(And(NO, X < 3)), True), (T.EQ(T.FloorMod(7, 4), 3), True), (T.FloorDiv(-7, 4) < -2, False),
    (T.EQ(T.FloorMod(7, 0), 0), None),
])  # fmt: skip
def test_what_constants_decide(cond, known):
    assert truth(cond) is known


def selections(func):
    found = []
    post_order_visit(func.body, lambda node: found.append(node) if isinstance(node, Select) else None)
    return len(found)


def test_unrolled_loops_look_elements_up():
    table = const_matrix(np.arange(1, 13, dtype="float32").reshape(3, 4))
    x = te.placeholder((4,), "float32", name="x")
    out = te.compute((3, 4), lambda i, j: table[i, j] * x[j], name="out")
    sch = Schedule(te.create_prim_func([x, out]))
    sch.compute_inline("const_matrix")
    assert selections(sch.mod["main"]) == 12
    for loop in sch.get_loops("out"):
        sch.unroll(loop)
    mod = transform.UnrollLoop()(transform.LowerOpaqueBlock()(transform.ConvertBlocksToOpaque()(sch.mod)))
    # The chain's last link, the first element, is left for Simplify.
    assert selections(mod["main"]) == 1
    assert selections(transform.Simplify()(mod)["main"]) == 0


def test_a_lone_selection_stays():
    @T.prim_func(private=True)
    def func(a: T.Buffer((2,), "float32")):
        for i in T.unroll(2):
            a[i] = T.Select(i == 0, T.float32(1), T.float32(2))

    mod = transform.UnrollLoop()(transform.LowerOpaqueBlock()(IRModule({"main": func})))
    assert selections(mod["main"]) == 2
