"""Random programs keep their results when passes use what they know of buffer contents."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from relaxish import interp, tir
from relaxish.ir import IRModule
from relaxish.ir.transform import PassContext
from relaxish.tir import (
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    IntImm,
    PrimFunc,
    SeqStmt,
    Var,
    decl_buffer,
    transform,
)

SIZE = 8
PASSES: list[tuple[Any, dict[str, Any]]] = [
    (
        transform.Simplify(),
        {
            "tir.Simplify": {
                "propagate_knowns_to_prove_conditional": True,
                "propagate_knowns_to_simplify_expressions": True,
            }
        },
    ),
    (transform.RemoveNoOp(), {"tir.RemoveNoOp": {"use_dataflow_analysis": True}}),
    (
        transform.ReduceBranchingThroughOvercompute(),
        {"tir.ReduceBranchingThroughOvercompute": {"use_dataflow_analysis": True}},
    ),
]


class Programs:
    """Random stores, loops and branches over two small buffers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.buffers = [decl_buffer([SIZE], "int32", name) for name in "AB"]

    def constant(self, bound: int) -> IntImm:
        return IntImm("int32", self.random.randrange(bound))

    def index(self, loops: list[Var]) -> Any:
        if not loops or self.random.random() < 0.4:
            return self.constant(SIZE)
        var = self.random.choice(loops)
        return self.random.choice([var, var, var, (var + self.constant(SIZE)) % SIZE, SIZE - 1 - var])

    def load(self, loops: list[Var]) -> BufferLoad:
        return BufferLoad(self.random.choice(self.buffers), [self.index(loops)])

    def value(self, loops: list[Var]) -> Any:
        return self.random.choice([self.constant(3), self.load(loops), self.load(loops) + 1, *loops])

    def condition(self, loops: list[Var]) -> Any:
        if not loops or self.random.random() < 0.4:
            return tir.EQ(self.load(loops), self.constant(3))
        var, bound = self.random.choice(loops), self.constant(SIZE)
        return self.random.choice([tir.LT, tir.GE, tir.EQ, tir.NE])(var, bound)

    def statement(self, loops: list[Var], depth: int) -> Any:
        kind = self.random.random()
        if depth == 0 or kind < 0.45:
            return BufferStore(self.random.choice(self.buffers), self.value(loops), [self.index(loops)])
        if kind < 0.65 and len(loops) < 2:
            low = self.random.randrange(3)
            var = Var(f"i{len(loops)}", "int32")
            extent = IntImm("int32", self.random.randrange(1, SIZE - low + 1))
            return For(var, IntImm("int32", low), extent, 0, self.statement([*loops, var], depth - 1))
        if kind < 0.8:
            other = self.statement(loops, depth - 1) if self.random.random() < 0.5 else None
            return IfThenElse(self.condition(loops), self.statement(loops, depth - 1), other)
        return SeqStmt([self.statement(loops, depth - 1) for _ in range(self.random.randrange(2, 4))])

    def function(self) -> PrimFunc:
        params = [Var(name, "handle") for name in "ab"]
        body = SeqStmt([self.statement([], 3) for _ in range(3)])
        return PrimFunc(params, body, None, dict(zip(params, self.buffers)))


def results(func: PrimFunc) -> list[Any]:
    arrays = [np.arange(SIZE, dtype="int32") % 3, (np.arange(SIZE, dtype="int32") * 5 + 1) % 3]
    interp.run_prim_func(func, arrays)
    return arrays


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_results_stay(first: int) -> None:
    for seed in range(first, first + 20):
        func = Programs(seed).function()
        expected = results(func)
        for a_pass, config in PASSES:
            with PassContext(config=config):
                made = a_pass(IRModule({"main": func.with_attr("global_symbol", "main")}))["main"]
            for got, want in zip(results(made), expected):
                np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}, {list(config)}")
