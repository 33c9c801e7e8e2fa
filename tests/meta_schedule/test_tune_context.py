"""A tune context tells its space and its strategy about itself as it is made."""

from __future__ import annotations

from typing import Any

import pytest

import relaxish
from relaxish import meta_schedule as ms
from relaxish.ir import IRModule
from relaxish.script import tir as T
from relaxish.target import Target
from relaxish.tir import Schedule

CPU = "llvm --num-cores=4"


@T.prim_func
def matmul(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (64, 64))
    B = T.match_buffer(b, (64, 64))
    C = T.match_buffer(c, (64, 64))
    for i, j, k in T.grid(64, 64, 64):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def test_rules_of_the_target_are_there_at_once() -> None:
    context = ms.TuneContext(matmul, target=CPU, space_generator="post-order-apply")
    space = context.space_generator
    assert space is not None and space.sch_rules and space.postprocs and space.mutator_probs
    assert context.mod is not None
    direct = space.generate_design_space(context.mod)
    assert len(direct) == len(context.generate_design_space()) == 3


def test_strategies_start_without_the_context() -> None:
    for kind in ("evolutionary", "replay-trace", "replay-func"):
        context = ms.TuneContext(
            matmul, target=CPU, space_generator="post-order-apply", search_strategy=kind, rand_state=3
        )
        strategy = context.search_strategy
        assert strategy is not None
        strategy.pre_tuning(
            2, 2, context.generate_design_space(), ms.database.MemoryDatabase(), ms.cost_model.RandomModel()
        )
        assert len(strategy.generate_measure_candidates() or ()) == 2
        strategy.post_tuning()


def test_parts_hear_of_the_context_once() -> None:
    heard: list[tuple[str, Any]] = []

    class Space(ms.space_generator.PySpaceGenerator):
        def _initialize_with_tune_context(self, context: Any) -> None:
            heard.append(("space", context))

        def generate_design_space(self, mod: IRModule) -> list[Schedule]:
            return [Schedule(mod)]

    class Strategy(ms.search_strategy.PySearchStrategy):
        def _initialize_with_tune_context(self, context: Any) -> None:
            heard.append(("strategy", context))

        def pre_tuning(self, *args: Any, **named: Any) -> None:
            pass

    context = ms.TuneContext(matmul, target=Target(CPU), space_generator=Space(), search_strategy=Strategy())
    assert heard == [("space", context), ("strategy", context)]
    context.pre_tuning(4)
    assert len(heard) == 2
    copy = context.clone()
    assert heard[2:] == [("space", copy), ("strategy", copy)] and copy.mod is context.mod


def test_without_target_or_module() -> None:
    context = ms.TuneContext(matmul, space_generator="post-order-apply")
    assert context.space_generator is not None and context.space_generator.postprocs == []
    empty = ms.TuneContext(target=CPU, space_generator="post-order-apply", search_strategy="evolutionary")
    with pytest.raises(ValueError, match="no module"):
        empty.generate_design_space()
    assert empty.search_strategy is not None
    with pytest.raises(ValueError, match="needs a context with module"):
        empty.search_strategy.pre_tuning(
            2, 2, [Schedule(IRModule({"main": matmul}))], ms.database.MemoryDatabase(), ms.cost_model.RandomModel()
        )


def test_modules_are_left_as_they_are() -> None:
    mod = IRModule({"main": matmul.with_attr("global_symbol", "main")})
    given = ms.TuneContext(mod, target=CPU).mod
    relaxish.ir.assert_structural_equal(given, mod)
    named = ms.TuneContext(IRModule({"product": matmul.with_attr("global_symbol", "product")}), target=CPU).mod
    relaxish.ir.assert_structural_equal(named, mod)
    alone = ms.TuneContext(matmul, target=CPU).mod
    assert alone is not None and bool(alone["main"].attrs["tir.noalias"])
