"""Default schedules, few-shot tuning, users' kernels and the first population of a search get tiles from ``carver.recommend``;
the rest of the population is ranked by the models behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import carver, dlight
from relaxish import meta_schedule as ms
from relaxish.dlight.cpu import contraction, variants
from relaxish.meta_schedule.application.few_shot import few_shot_tune
from relaxish.meta_schedule.search_strategy import recommended, warm_start
from relaxish.ir.errors import CheckValueError
from relaxish.meta_schedule.space_generator.hints import tiled_blocks
from relaxish.script import tir as T
from relaxish.target import Target

CPU = Target("llvm -num-cores=2")


@T.prim_func
def product(A: T.Buffer((96, 80), "float32"), B: T.Buffer((80, 112), "float32"), C: T.Buffer((96, 112), "float32")):
    for i, j, k in T.grid(96, 112, 80):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The hints that were given, by whoever asked."""
    given: list[Any] = []

    def note(*args: Any, **named: Any) -> Any:
        hints = carver.recommend(*args, **named)
        given.extend(hints)
        return hints

    for module in (contraction, variants, recommended):
        monkeypatch.setattr(module, "recommend", note)
    return given


def _check(func: Any) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=s).astype("float32") for s in ((96, 80), (80, 112)))
    out = relaxish.nd.array(np.zeros((96, 112), "float32"))
    relaxish.driver.build_tir(func, CPU)["main"](relaxish.nd.array(a), relaxish.nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-4)


def test_default_schedules_ask(asked: list[Any]) -> None:
    with CPU:
        mod = dlight.ApplyDefaultSchedule(*dlight.default_cpu_rules(CPU))(relaxish.ir.IRModule({"main": product}))
    assert asked
    _check(mod["main"].with_attr("global_symbol", "main"))


def test_few_shot_tuning_asks(asked: list[Any]) -> None:
    found = few_shot_tune(product, CPU, valid_count=1, benchmark=False)
    assert asked and found is not None
    _check(found.with_attr("global_symbol", "main"))


def test_kernels_of_users_take_a_hint() -> None:
    hint = carver.recommend(product, CPU, 1)[0]
    sch = dlight.cpu.schedule_with_hint(product, hint, CPU)
    _check(sch.mod["main"].with_attr("global_symbol", "main"))


def _first_population(target: Any, count: int = 16) -> list[Any]:
    context = ms.TuneContext(
        product, target=target, space_generator="post-order-apply", search_strategy="evolutionary", rand_state=2
    )
    context.pre_tuning(count, count)
    return list(context.generate_measure_candidates() or ())


def _tiles(candidate: Any) -> list[list[int]]:
    trace = candidate.sch.trace
    return [
        [int(n) for n in trace.decisions[inst]] for inst in trace.insts if inst.kind.name == "SamplePerfectTile"
    ]  # fmt: skip


@pytest.mark.parametrize("target", [CPU, Target("nvidia/nvidia-a100")], ids=["cpu", "gpu"])
def test_the_first_population_asks(target: Target, asked: list[Any]) -> None:
    """A quarter of it is tiled as recommended, and what a seed gives it gives again."""
    found = _first_population(target)
    assert asked
    wanted = {(*hint.block, *hint.thread) for hint in asked}
    position = -1 if target.kind.name == "llvm" else 2
    extents = (96, 112)
    tilings = [
        (*(extents[n] // t[0] for n, t in enumerate(_tiles(c)[:2])), *(t[position] for t in _tiles(c)[:2]))
        for c in found
    ]
    assert sum(t in wanted for t in tilings) >= len(found) // 4
    again = _first_population(target)
    assert [str(c.sch.trace) for c in found] == [str(c.sch.trace) for c in again]


def test_a_search_goes_on_without_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*args: Any, **named: Any) -> Any:
        raise CheckValueError("nothing to tile")

    monkeypatch.setattr(recommended, "recommend", nothing)
    assert len(_first_population(CPU, 4)) == 4


def test_rows_of_a_hint() -> None:
    """Tasks, register tiles and steps where a sketch has room for them; nothing where it has not."""
    context = ms.TuneContext(
        product, target=CPU, space_generator="post-order-apply", search_strategy="evolutionary", rand_state=2
    )
    context.pre_tuning(4, 4)
    pool = context.search_strategy._pool
    tried = 0
    for sketch in pool.sketches:
        blocks = tiled_blocks(context, sketch.table.trace)
        start = sketch.table.sample(np.random.default_rng(0), 1)[0]
        hint = carver.Hint.from_dict({"block": [48, 16], "thread": [4, 16], "rstep": [40]})
        for row in recommended.rows_of_hint(hint, blocks, sketch.table, start):
            i, j, k = ([int(n) for n in row[t.at : t.at + t.count]] for t in sketch.table.tiles[:3])
            assert i[0] == 2 and i[-1] == 4 and np.prod(i) == 96
            assert j == [7, 1, 1, 16] and k == [2, 40]
            assert (row[sketch.table.num_tile_columns :] == start[sketch.table.num_tile_columns :]).all()
            tried += 1
        for other in (
            {"block": [50, 16], "thread": [5, 16]},
            {"block": [96, 112], "thread": [96, 112]},
            {"block": [48], "thread": [4]},
        ):
            unfit = carver.Hint.from_dict({"rstep": [40], **other})
            assert not len(recommended.rows_of_hint(unfit, blocks, sketch.table, start))
    assert tried


def test_the_first_population_is_ranked_by_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Any] = []
    real = warm_start.estimate_sketch

    def note(context: Any, trace: Any) -> Any:
        made = real(context, trace)
        used.append(made)
        return made

    monkeypatch.setattr(warm_start, "estimate_sketch", note)
    context = ms.TuneContext(
        product, target=CPU, space_generator="post-order-apply", search_strategy="evolutionary", rand_state=2
    )
    context.pre_tuning(4, 4)
    assert context.generate_measure_candidates()
    models = [block.model for made in used if made is not None for block in made.blocks]
    assert models and all(isinstance(m, carver.TilingModel) for m in models)
