"""Contract tests of builders, runners, cost models, search strategies, spaces and callbacks: subclass one, define the
part under test, run pytest.

Each class checks what the tuner relies on, and nothing else. A part that is allowed to do without something (a builder
that cannot build at all, say) says so by an attribute of the class.

>>> from relaxish.testing import StrategyContract
>>> class TestMine(StrategyContract):
...     def make(self):
...         from relaxish.meta_schedule.search_strategy import ReplayTrace
...         return ReplayTrace()
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from ... import te
from ...ir import IRModule
from ...meta_schedule import TuneContext
from ...meta_schedule.analysis.schedules import normalize_mod
from ...meta_schedule.arg_info import ArgInfo
from ...meta_schedule.builder import Builder, BuilderInput, BuilderResult, LocalBuilder
from ...meta_schedule.cost_model import CostModel, RandomModel
from ...meta_schedule.database import MemoryDatabase
from ...meta_schedule.measure.status import MeasureStatus
from ...meta_schedule.measure_callback import MeasureCallback
from ...meta_schedule.runner import Runner, RunnerInput, RunnerResult
from ...meta_schedule.search_strategy import MeasureCandidate, SearchStrategy
from ...meta_schedule.search_strategy.trace_key import trace_key
from ...meta_schedule.space_generator import SpaceGenerator
from ...meta_schedule.task_scheduler import RoundRobin, TaskScheduler
from ...target import Target
from ...tir import Schedule

__all__ = [
    "BuilderContract", "CallbackContract", "CostModelContract", "RunnerContract", "SpaceContract", "StrategyContract",
    "product",
]  # fmt: skip


def product(size: int = 32) -> IRModule:
    """The program of the contracts: a product of square matrices."""
    a, b = te.placeholder((size, size), name="A"), te.placeholder((size, size), name="B")
    k = te.reduce_axis((0, size), name="k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return normalize_mod(te.create_prim_func([a, b, c]))


def _tiled(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, sch.sample_perfect_tile(i, 2, 16))
    j0, j1 = sch.split(j, sch.sample_perfect_tile(j, 2, 16))
    sch.reorder(i0, j0, k, i1, j1)


class _Contract:
    """What the contracts share."""

    target = "llvm -num-cores=1"

    def make(self) -> Any:
        """A new object to be tested."""
        raise NotImplementedError

    def context(self, seed: int = 1, **options: Any) -> TuneContext:
        """A task: the product, tiled twice."""
        given = {"space_generator": _tiled, **options}
        return TuneContext(product(), target=Target(self.target), rand_state=seed, num_threads=1, **given)

    def candidates(self, count: int) -> list[MeasureCandidate]:
        """Different programs of the task."""
        context = self.context(search_strategy="replay-trace")
        found: dict[str, MeasureCandidate] = {}
        context.pre_tuning(10 * count, 10 * count)
        for candidate in context.generate_measure_candidates() or []:
            assert candidate.sch.trace is not None
            found.setdefault(trace_key(candidate.sch.trace), candidate)
        assert len(found) >= count
        return list(found.values())[:count]


class BuilderContract(_Contract):
    """``make()`` gives a :class:`Builder`. ``broken()`` is a program that it cannot build."""

    def good(self) -> list[IRModule]:
        """Programs that it can build."""
        return [candidate.sch.mod for candidate in self.candidates(3)]

    def broken(self) -> IRModule:
        """A program that writes the value of a variable that is defined nowhere."""
        from ...tir import BufferStore, PrimFunc, Var, decl_buffer

        buffer, handle = decl_buffer((4,), "int32", name="B"), Var("b", "handle")
        body = BufferStore(buffer, Var("nowhere", "int32"), [0])
        return IRModule({"main": PrimFunc([handle], body, buffer_map={handle: buffer})})

    def _build(self, mods: list[IRModule]) -> list[BuilderResult]:
        builder: Builder = self.make()
        try:
            return builder.build([BuilderInput(mod, Target(self.target)) for mod in mods])
        finally:
            _shut(builder)

    def test_one_result_for_each_input_in_order(self) -> None:
        results = self._build(self.good())
        assert len(results) == 3 and all(r.artifact_path and not r.error_msg for r in results)
        assert all(r.status is MeasureStatus.OK for r in results)

    def test_a_broken_program_costs_itself_only(self) -> None:
        first, *rest = self.good()
        results = self._build([first, self.broken(), *rest])
        assert [r.error_msg is None for r in results] == [True, False, True, True]
        assert results[1].artifact_path is None and not results[1].status.ok  # type: ignore[union-attr]

    def test_nothing_in_nothing_out(self) -> None:
        assert self._build([]) == []

    def test_futures_give_what_build_gives(self) -> None:
        builder: Builder = self.make()
        try:
            futures = builder.start([BuilderInput(mod, Target(self.target)) for mod in self.good()])
            results = [future.result() for future in futures]
            assert all(future.done() for future in futures)
        finally:
            _shut(builder)
        assert len(results) == 3 and all(r.artifact_path is not None for r in results)


class RunnerContract(_Contract):
    """``make()`` gives a :class:`Runner` that runs what ``builder()`` builds."""

    #: An artifact that cannot be run.
    broken_artifact: str | bytes = b"this is no program"

    def builder(self) -> Builder:
        """Builder of the programs to be run."""
        return LocalBuilder(max_workers=1)

    def inputs(self, count: int) -> list[RunnerInput]:
        """Programs to be run."""
        candidates, builder = self.candidates(count), self.builder()
        try:
            built = builder.build([BuilderInput(c.sch.mod, Target(self.target)) for c in candidates])
        finally:
            _shut(builder)
        kind = Target(self.target).kind.name
        return [RunnerInput(b.artifact_path or "", kind, c.args_info) for b, c in zip(built, candidates, strict=True)]

    def _run(self, inputs: list[RunnerInput]) -> list[RunnerResult]:
        runner: Runner = self.make()
        try:
            futures = runner.run(inputs)
            results = [future.result() for future in futures]
            assert all(future.done() for future in futures)
            return results
        finally:
            _shut(runner)

    def test_times_are_positive_seconds(self) -> None:
        results = self._run(self.inputs(2))
        assert len(results) == 2
        for result in results:
            assert result.error_msg is None and result.run_secs
            assert all(isinstance(t, float) and 0 < t < 10 and math.isfinite(t) for t in result.run_secs)

    def test_a_broken_artifact_costs_itself_only(self) -> None:
        good = self.inputs(2)
        bad = RunnerInput(self.broken_artifact, good[0].device_type, good[0].args_info)
        results = self._run([good[0], bad, good[1]])
        assert [r.error_msg is None for r in results] == [True, False, True]
        assert not results[1].run_secs and not results[1].status.ok  # type: ignore[union-attr]

    def test_a_result_can_be_asked_for_twice(self) -> None:
        runner: Runner = self.make()
        try:
            (future,) = runner.run(self.inputs(1))
            assert future.result() == future.result()
        finally:
            _shut(runner)

    def test_nothing_in_nothing_out(self) -> None:
        assert self._run([]) == []


class CostModelContract(_Contract):
    """``make()`` gives a :class:`CostModel`. ``learns`` says whether predictions of what was measured must get better."""

    learns = True
    #: Measurements that are enough for it to learn something.
    enough = 64

    def _measured(self, count: int) -> tuple[list[MeasureCandidate], list[RunnerResult]]:
        """Programs whose times follow from their innermost tile."""
        candidates = self.candidates(min(count, 24))
        times = []
        for candidate in candidates:
            assert candidate.sch.trace is not None
            inner = [int(str(d[-1])) for d in candidate.sch.trace.decisions.values()]
            times.append(1e-6 * (1 + 31 / (inner[0] * inner[1])))
        return candidates, [RunnerResult([t]) for t in times]

    def test_one_score_for_each_candidate(self) -> None:
        model: CostModel = self.make()
        candidates = self.candidates(5)
        for _ in range(2):
            scores = np.asarray(model.predict(self.context(), candidates))
            assert scores.shape == (5,) and np.isfinite(scores).all()
            model.update(self.context(), *self._measured(self.enough))
        assert np.asarray(model.predict(self.context(), [])).shape == (0,)

    def test_failures_are_learned_without_harm(self) -> None:
        model: CostModel = self.make()
        candidates, results = self._measured(self.enough)
        failed = [RunnerResult(None, "it failed")] * 3 + results[3:]
        model.update(self.context(), candidates, failed)
        assert np.isfinite(np.asarray(model.predict(self.context(), candidates))).all()

    def test_it_learns(self) -> None:
        if not self.learns:
            return
        model: CostModel = self.make()
        candidates, results = self._measured(self.enough)
        for _ in range(math.ceil(self.enough / len(candidates))):
            model.update(self.context(), candidates, results)
        scores = np.asarray(model.predict(self.context(), candidates), dtype=np.float64)
        speeds = np.array([1 / r.run_secs[0] for r in results if r.run_secs])
        assert np.corrcoef(scores, speeds)[0, 1] > 0.5

    def test_a_saved_model_says_the_same(self, tmp_path: Path) -> None:
        model: CostModel = self.make()
        candidates, results = self._measured(self.enough)
        for _ in range(math.ceil(self.enough / len(candidates))):
            model.update(self.context(), candidates, results)
        path = str(tmp_path / "model")
        model.save(path)
        other: CostModel = self.make()
        other.load(path)
        context = self.context()
        np.testing.assert_allclose(other.predict(context, candidates), model.predict(context, candidates), rtol=1e-5)


class StrategyContract(_Contract):
    """``make()`` gives a :class:`SearchStrategy`. ``repeatable`` says whether a seed names one sequence of proposals."""

    repeatable = True

    def _search(self, trials: int, batch: int, seed: int = 1) -> tuple[TuneContext, list[list[MeasureCandidate]]]:
        context = self.context(seed, search_strategy=self.make())
        database = MemoryDatabase()
        context.pre_tuning(trials, batch, None, database, RandomModel(seed=seed))
        rounds: list[list[MeasureCandidate]] = []
        while (made := context.generate_measure_candidates()) is not None:
            rounds.append(made)
            context.notify_runner_results(made, [RunnerResult([1e-3]) for _ in made])
            assert len(rounds) <= trials + 8, "the search does not end"
        context.post_tuning()
        return context, [made for made in rounds if made]

    def test_no_more_than_was_asked_for(self) -> None:
        _, rounds = self._search(12, 5)
        assert rounds and all(len(r) <= 5 for r in rounds) and sum(len(r) for r in rounds) <= 12

    def test_candidates_are_schedules_of_the_task(self) -> None:
        context, rounds = self._search(4, 4)
        assert context.mod is not None
        wanted = [a.as_json() for a in ArgInfo.from_entry_func(context.mod, remove_preproc=True)]
        for candidate in rounds[0]:
            assert candidate.sch.trace is not None and candidate.sch.trace.insts
            assert [a.as_json() for a in candidate.args_info] == wanted

    def test_failures_do_not_end_the_search(self) -> None:
        context = self.context(search_strategy=self.make())
        context.pre_tuning(8, 4, None, MemoryDatabase(), RandomModel(seed=1))
        first = context.generate_measure_candidates()
        assert first
        context.notify_runner_results(first, [RunnerResult(None, "it failed") for _ in first])
        assert context.generate_measure_candidates()
        context.post_tuning()

    def test_a_seed_names_a_search(self) -> None:
        if not self.repeatable:
            return
        keys = []
        for _ in range(2):
            _, rounds = self._search(8, 4, seed=7)
            keys.append([trace_key(c.sch.trace) for r in rounds for c in r if c.sch.trace is not None])
        assert keys[0] == keys[1]

    def test_it_can_be_used_again(self) -> None:
        context = self.context(search_strategy=self.make())
        for _ in range(2):
            context.pre_tuning(4, 4, None, MemoryDatabase(), RandomModel(seed=1))
            assert context.generate_measure_candidates()
            context.post_tuning()

    def test_a_copy_is_independent(self) -> None:
        strategy: SearchStrategy = self.make()
        copy = strategy.clone()
        assert copy is not strategy and type(copy) is type(strategy)
        context = self.context(search_strategy=strategy)
        context.pre_tuning(4, 4, None, MemoryDatabase(), RandomModel(seed=1))
        other = self.context(search_strategy=copy)
        other.pre_tuning(4, 4, None, MemoryDatabase(), RandomModel(seed=1))
        assert context.generate_measure_candidates() and other.generate_measure_candidates()


class SpaceContract(_Contract):
    """``make()`` gives a :class:`SpaceGenerator` for ``mod()``."""

    def mod(self) -> IRModule:
        """The program whose space is asked for."""
        return product()

    def _context(self, generator: SpaceGenerator) -> TuneContext:
        return TuneContext(
            self.mod(), target=Target(self.target), space_generator=generator, rand_state=1, num_threads=1
        )

    def test_sketches_replay(self) -> None:
        context = self._context(self.make())
        sketches = context.generate_design_space()
        assert sketches and context.mod is not None
        for sketch in sketches:
            assert sketch.trace is not None
            again = Schedule(context.mod, seed=3)
            sketch.trace.simplified(remove_postproc=True).apply_to_schedule(again, remove_postproc=True)

    def test_the_module_is_left_as_it_is(self) -> None:
        from ...ir import structural_equal

        context = self._context(self.make())
        assert context.mod is not None
        context.generate_design_space()
        assert structural_equal(context.mod, self._context(self.make()).mod)

    def test_a_copy_gives_as_many_sketches(self) -> None:
        generator: SpaceGenerator = self.make()
        copy = generator.clone()
        assert copy is not generator
        first = self._context(generator).generate_design_space()
        assert len(first) == len(self._context(copy).generate_design_space())


class CallbackContract(_Contract):
    """``make()`` gives a :class:`MeasureCallback`."""

    def scheduler(self) -> TaskScheduler:
        """A scheduler with one task, a database and a cost model."""
        from ...meta_schedule.task_scheduler import TaskRecord

        scheduler = RoundRobin()
        scheduler.tasks_ = [TaskRecord(self.context(search_strategy="replay-trace"))]
        scheduler.database_, scheduler.cost_model_ = MemoryDatabase(), RandomModel(seed=1)
        return scheduler

    def _apply(self, callback: MeasureCallback, built: list[BuilderResult], ran: list[RunnerResult]) -> TaskScheduler:
        scheduler, candidates = self.scheduler(), self.candidates(len(built))
        for item in zip(candidates, built, ran, strict=True):
            callback.on_arrival(scheduler, 0, *item)
            callback.on_result(scheduler, 0, *item)
        callback.apply(scheduler, 0, candidates, built, ran)
        return scheduler

    def test_a_batch_with_failures(self) -> None:
        built = [BuilderResult(b"x"), BuilderResult(None, "does not build"), BuilderResult(b"y")]
        ran = [RunnerResult([1e-3]), RunnerResult(None, "does not build"), RunnerResult(None, "does not run")]
        callback = self.make()
        self._apply(callback, built, ran)
        self._apply(callback, built, ran)

    def test_results_are_left_as_they_are(self) -> None:
        built, ran = [BuilderResult(b"x")], [RunnerResult([1e-3, 2e-3])]
        self._apply(self.make(), built, ran)
        assert built == [BuilderResult(b"x")] and ran == [RunnerResult([1e-3, 2e-3])]


def _shut(part: Any) -> None:
    if hasattr(part, "shutdown"):
        part.shutdown()
