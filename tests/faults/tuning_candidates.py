"""Hostile candidates: fast programs that are wrong, crash, hang, eat memory, or are right only sometimes.

A space offers a right schedule among dozens that put another computation in the place of the program, each of them
faster than the right one. Whatever the search does, and whichever way its records are applied afterwards, the program
that comes out must compute what was asked for.

``campaign(budget_s, seed)`` runs rounds of it until the time is up and gives the figures: candidates ``tried``, hostile
ones ``refused``, programs ``applied``, and those of them that were ``wrong`` (which must be 0).
"""

from __future__ import annotations

import random
import tempfile
import time
from typing import Any

import numpy as np

from relaxish import IRModule, Target, relax, te
from relaxish import meta_schedule as ms
from relaxish.driver import build_tir
from relaxish.meta_schedule.database import Database, JSONDatabase, MemoryDatabase, OrderedUnionDatabase, UnionDatabase
from relaxish.meta_schedule.runner import EvaluatorConfig, LocalRunner
from relaxish.script import tir as T
from relaxish.tir import TensorIntrin

N = 64
TARGET = Target("llvm -num-cores=2")
QUICK = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=0)


def program() -> Any:
    """A matrix product, whose innermost tile of rows is what hostile candidates replace."""
    a = te.placeholder((N, N), "float32", name="A")
    b = te.placeholder((N, N), "float32", name="B")
    k = te.reduce_axis((0, N), name="k")
    return te.create_prim_func([a, b, te.compute((N, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])


@T.prim_func
def tile(a: T.handle, b: T.handle, c: T.handle) -> None:
    """What is asked for: the whole product."""
    A = T.match_buffer(a, (64, 64), "float32", offset_factor=1)
    B = T.match_buffer(b, (64, 64), "float32", offset_factor=1)
    C = T.match_buffer(c, (64, 64), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(C[0:64, 0:64], A[0:64, 0:64], B[0:64, 0:64])
        T.writes(C[0:64, 0:64])
        for i, j, k in T.grid(64, 64, 64):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


_HEAD = """
@T.prim_func
def made(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (64, 64), "float32", offset_factor=1)
    B = T.match_buffer(b, (64, 64), "float32", offset_factor=1)
    C = T.match_buffer(c, (64, 64), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(C[0:64, 0:64], A[0:64, 0:64], B[0:64, 0:64])
        T.writes(C[0:64, 0:64])
"""
_RIGHT = "C[i, j] = C[i, j] + A[i, k] * B[k, j]"
_LOOP = "for i, j, k in T.grid(64, 64, {k}):\n    "
_BODIES: dict[str, str] = {
    # Wrong everywhere, in places, by little, or for some inputs only.
    "nothing": "T.evaluate(0)",
    "zeros": "for i, j in T.grid(64, 64):\n    C[i, j] = T.float32(0)",
    "copy": "for i, j in T.grid(64, 64):\n    C[i, j] = A[i, j]",
    "sum": "for i, j in T.grid(64, 64):\n    C[i, j] = A[i, j] + B[i, j]",
    "half_rows": "for i, j, k in T.grid(32, 64, 64):\n    " + _RIGHT,
    "all_but_a_row": "for i, j, k in T.grid(63, 64, 64):\n    " + _RIGHT,
    "one_element": "for i, j, k in T.grid(64, 64, 64):\n    if i + j < 126:\n        " + _RIGHT,
    "clipped": _LOOP.format(k=64) + "C[i, j] = C[i, j] + T.max(A[i, k], T.float32(0)) * B[k, j]",
    "absolute": _LOOP.format(k=64) + "C[i, j] = C[i, j] + T.abs(A[i, k]) * B[k, j]",
    "transposed": _LOOP.format(k=64) + "C[i, j] = C[i, j] + A[i, k] * B[j, k]",
    "swapped": _LOOP.format(k=64) + "C[i, j] = C[i, j] + A[k, i] * B[k, j]",
    "squared": _LOOP.format(k=64) + "C[i, j] = C[i, j] + A[i, k] * A[i, k]",
    "negative": _LOOP.format(k=64) + "C[i, j] = C[i, j] - A[i, k] * B[k, j]",
    "biased": _LOOP.format(k=64) + "C[i, j] = C[i, j] + A[i, k] * B[k, j] + T.float32(0.0005)",
    "scaled": _LOOP.format(k=64) + "C[i, j] = C[i, j] + A[i, k] * B[k, j] * T.float32(1.002)",
    "half_precision": _LOOP.format(k=64)
    + 'C[i, j] = C[i, j] + T.Cast("float32", T.Cast("float16", A[i, k])) * T.Cast("float32", T.Cast("float16", B[k, j] * T.float32(1.001)))',
    "last_only": "for i, j in T.grid(64, 64):\n    C[i, j] = A[i, 63] * B[63, j]",
    "nan": "for i, j in T.grid(64, 64):\n    C[i, j] = T.sqrt(T.float32(-1) - T.abs(A[i, j]))",
    "infinite": "for i, j in T.grid(64, 64):\n    C[i, j] = T.exp(A[i, j] + T.float32(1000))",
    # Right results at a price: arguments are destroyed, or memory around them.
    "eats_input": _LOOP.format(k=64) + _RIGHT + "\nA[0, 0] = T.float32(0)",
    "poisons_input": "for i, j in T.grid(64, 64):\n    A[i, j] = T.sqrt(T.float32(-1) - B[i, j] * B[i, j])",
    "denormal_input": "for i, j in T.grid(64, 64):\n    B[i, j] = T.float32(1e-40)",
    "beyond_the_end": _LOOP.format(k=64) + _RIGHT + "\nC[64, 3] = T.float32(7)",
    "before_the_start": _LOOP.format(k=64) + _RIGHT + "\nC[-1, 5] = T.float32(7)",
    # No results.
    "segfault": "C[1099511, 0] = T.float32(1)\nfor i in range(8):\n    C[i * 10995116, 0] = T.float32(1)",
    "abort": 'T.evaluate(T.call_extern("void", "abort"))',
    "exits": 'T.evaluate(T.call_extern("void", "_exit", 0))',
    "hangs": "while A[0, 0] < T.float32(10):\n    A[0, 0] = A[0, 0] * T.float32(0.5)",
    "hungry": "while A[0, 0] < T.float32(10):\n"
    '    T.evaluate(T.call_extern("handle", "memset", T.call_extern("handle", "malloc", T.int64(1 << 26)), 1, T.int64(1 << 26)))',
    "stack": 'T.evaluate(T.call_extern("void", "raise", 11))',
    # Right only sometimes: it is slow, and then wrong; or it depends on chance.
    "slow_then_wrong": 'T.evaluate(T.call_extern("int32", "usleep", 20000))\nfor i, j in T.grid(64, 64):\n    C[i, j] = B[i, j]',
    "by_chance": _LOOP.format(k=64) + _RIGHT
    + '\nif T.call_extern("int32", "rand") % 2 == 0:\n    C[3, 3] = C[3, 3] + T.float32(1)',
    "by_the_clock": _LOOP.format(k=64) + _RIGHT
    + '\nif T.call_extern("int64", "time", T.int64(0)) % T.int64(2) >= T.int64(0):\n    C[0, 0] = T.float32(0)',
}  # fmt: skip
# Reductions that end too early, by more and more.
_BODIES.update({f"short_{k}": _LOOP.format(k=k) + _RIGHT for k in (63, 62, 60, 56, 48, 32, 16, 8, 4, 2)})
_BODIES.update({f"every_{k}": f"for i, j, k in T.grid(64, 64, {64 // k}):\n    C[i, j] = C[i, j] + A[i, k * {k}] * B[k * {k}, j]" for k in (2, 4, 8)})  # fmt: skip
HOSTILE = sorted(_BODIES)
_SLOW = ("hostile_hangs", "hostile_hungry")
_WHOLE = 60.0


def _parse(body: str) -> Any:
    from relaxish.script import from_source

    indented = "".join(f"        {line}\n" for line in body.splitlines())
    return from_source(_HEAD + indented)


def register() -> list[str]:
    """Register the right tile and the hostile ones as instructions; their names, the right one first."""
    for name in HOSTILE:
        TensorIntrin.register(f"hostile_{name}", tile, _parse(_BODIES[name]), override=True)
    return ["right", *[f"hostile_{name}" for name in HOSTILE]]


def space_of(names: list[str]) -> Any:
    """A space whose one decision is the instruction; the right program is one of many."""

    def schedule(sch: Any) -> None:
        block = sch.get_block("C")
        i, j, k = sch.get_loops(block)
        choice = sch.sample_categorical(list(range(len(names))), [1.0 / len(names)] * len(names))
        sch.annotate(i, "pragma_auto_unroll_max_step", choice)
        name = names[int(sch.get(choice))]
        if name != "right":
            sch.decompose_reduction(block, i)
            sch.tensorize(i, name)

    return ms.space_generator.ScheduleFn(schedule, sch_rules=[], postprocs=[], mutator_probs={})


def is_right(mod: IRModule, rng: np.random.Generator) -> bool:
    """Whether a module's ``main`` is the matrix product."""
    from relaxish import nd

    a, b = (rng.standard_normal((N, N)).astype("float32") for _ in range(2))
    x, y, z = nd.array(a), nd.array(b), nd.array(np.full((N, N), np.nan, "float32"))
    build_tir(mod, TARGET)["main"](x, y, z)
    return bool(
        np.allclose(z.numpy(), a @ b, rtol=1e-4, atol=1e-4) and (x.numpy() == a).all() and (y.numpy() == b).all()
    )


def routes(database: Database, work_dir: str) -> dict[str, IRModule | None]:
    """What each way of applying a database makes of the program; None where nothing may be applied."""
    func = program()
    mod = ms.TuneContext(func).mod
    assert mod is not None
    schedule = ms.tir_integration.compile_tir(database, func, TARGET)
    found: dict[str, IRModule | None] = {"compile_tir": None if schedule is None else schedule.mod}
    found["query_ir_module"] = database.query_ir_module(mod, TARGET)
    record = database.query_tuning_record(mod, TARGET)
    found["query_tuning_record"] = None if record is None else record.as_measure_candidate().sch.mod
    for name, scope in (
        ("union", UnionDatabase(MemoryDatabase(), database)),
        ("ordered union", OrderedUnionDatabase(MemoryDatabase(), database)),
        ("pass", database),
        ("reopened", JSONDatabase(work_dir=work_dir) if isinstance(database, JSONDatabase) else database),
    ):
        with TARGET, scope:
            applied = relax.transform.MetaScheduleApplyDatabase()(IRModule({"main": func}))
        found[name] = applied
    pruned = MemoryDatabase()
    database.dump_pruned(pruned)
    found["pruned"] = pruned.query_ir_module(mod, TARGET)
    return found


def one_round(seed: int, validate: bool, limit: int | None = None) -> dict[str, int]:
    """Tune over a space of hostile candidates and apply the result every way there is."""
    rng = random.Random(seed)
    names = register()
    hostile = [name for name in names[1:] if limit is None or name not in _SLOW]
    rng.shuffle(hostile)
    names = ["right", *hostile[:limit]]
    rng.shuffle(names)
    figures = {"tried": 0, "refused": 0, "applied": 0, "wrong": 0}
    with tempfile.TemporaryDirectory() as work_dir:
        runner = LocalRunner(timeout_sec=3, evaluator_config=QUICK, memory_limit=1 << 30)
        builder = ms.builder.LocalBuilder(max_workers=2, timeout_sec=30)
        try:
            database = ms.tune_tir(
                program(), TARGET, work_dir, 3 * len(names), num_trials_per_iter=32, builder=builder, runner=runner,
                cost_model="random", strategy=ms.search_strategy.ReplayFunc(), space=space_of(names), seed=seed,
                validate=validate,
            )  # fmt: skip
        finally:
            runner.shutdown()
            builder.shutdown()
        figures["tried"] = len(database)
        found = routes(database, work_dir)
        figures["refused"] = sum(1 for r in database.get_all_tuning_records() if r.numerically_valid is False)
        check = np.random.default_rng(seed)
        for name, mod in found.items():
            if mod is not None:
                figures["applied"] += 1
                if not is_right(mod, check):
                    figures["wrong"] += 1
                    print(f"seed {seed}: {name} applied a wrong program")
    return figures


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Rounds until the time is up, at least one; checked at the end of tuning and at application in turns.

    Short campaigns take a dozen of the candidates, and none of those that take seconds each.
    """
    end = time.monotonic() + budget_s
    total: dict[str, int] = {}
    number = 0
    while not number or time.monotonic() < end:
        for key, value in one_round(seed + number, bool(number % 2), None if budget_s >= _WHOLE else 12).items():
            total[key] = total.get(key, 0) + value
        number += 1
    return total


def main(budget_s: float = 120.0, seed: int = 0) -> dict[str, int]:
    """The campaign's figures."""
    return campaign(budget_s, seed)


if __name__ == "__main__":
    print(main())
