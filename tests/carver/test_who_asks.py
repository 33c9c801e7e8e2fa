"""Default schedules, few-shot tuning and users' kernels get their tiles from ``carver.recommend``; the first population of a
search from the models behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import carver, dlight
from relaxish import meta_schedule as ms
from relaxish.dlight.cpu import contraction, variants
from relaxish.meta_schedule.application.few_shot import few_shot_tune
from relaxish.meta_schedule.search_strategy import warm_start
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

    for module in (contraction, variants):
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
