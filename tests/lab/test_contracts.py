"""Our own parts under the contracts that others test theirs with."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from relaxish import lab
from relaxish.meta_schedule.builder import Builder, BuilderInput, BuilderResult, LocalBuilder
from relaxish.meta_schedule.cost_model import CostModel, MLPModel, RandomModel, XGBModel
from relaxish.meta_schedule.measure_callback import AddToDatabase, RemoveBuildArtifact, UpdateCostModel
from relaxish.meta_schedule.runner import EvaluatorConfig, LocalRunner, RunnerInput
from relaxish.meta_schedule.search_strategy import EvolutionarySearch, ReplayFunc, ReplayTrace
from relaxish.meta_schedule.space_generator import PostOrderApply, ScheduleFn, SpaceGeneratorUnion
from relaxish.testing.contracts import parts as contracts


class TestLocalBuilder(contracts.BuilderContract):
    def make(self) -> Builder:
        return LocalBuilder(max_workers=1)


class TestLocalRunner(contracts.RunnerContract):
    def make(self) -> LocalRunner:
        return LocalRunner(evaluator_config=EvaluatorConfig(1, 2, 0))


def _replayed(count: int) -> list[Any]:
    """Candidates of the recorded product."""
    space = lab.load_space("gemm")
    strategy = lab.create_strategy("replay-trace")
    strategy.start(space, 1, 2 * count, 2 * count)
    strategy.propose(2 * count)
    return strategy._waiting[:count]  # type: ignore[attr-defined]


class TestReplayBuilder(contracts.BuilderContract):
    def candidates(self, count: int) -> list[Any]:
        return _replayed(count)

    def make(self) -> Builder:
        return lab.ReplayBuilder(lab.load_space("gemm"))


class TestReplayRunner(contracts.RunnerContract):
    def candidates(self, count: int) -> list[Any]:
        return _replayed(count)

    def builder(self) -> Builder:
        return lab.ReplayBuilder(lab.load_space("gemm"))

    def make(self) -> Any:
        return lab.ReplayRunner(lab.load_space("gemm"), "recorded")


class TestXGBModel(contracts.CostModelContract):
    def make(self) -> CostModel:
        return XGBModel(num_warmup_samples=32, num_tuning_cores=1)


@pytest.mark.slow
class TestMLPModel(contracts.CostModelContract):
    learns = False  # of so few measurements

    def make(self) -> CostModel:
        return MLPModel()


class TestRandomModel(contracts.CostModelContract):
    learns = False

    def make(self) -> CostModel:
        return RandomModel(seed=3)


class TestPartialModel(contracts.CostModelContract):
    def make(self) -> CostModel:
        return lab.PartialXGBModel(["allocation", "intensity"], num_warmup_samples=32, num_tuning_cores=1)


class TestEvolutionarySearch(contracts.StrategyContract):
    def make(self) -> EvolutionarySearch:
        return EvolutionarySearch(population_size=64)


class TestReplayTrace(contracts.StrategyContract):
    def make(self) -> ReplayTrace:
        return ReplayTrace()


class TestReplayFunc(contracts.StrategyContract):
    def make(self) -> ReplayFunc:
        return ReplayFunc()


class TestPostOrderApply(contracts.SpaceContract):
    def make(self) -> PostOrderApply:
        return PostOrderApply()


class TestScheduleFn(contracts.SpaceContract):
    def make(self) -> ScheduleFn:
        return ScheduleFn(contracts._tiled)


class TestUnion(contracts.SpaceContract):
    def make(self) -> SpaceGeneratorUnion:
        return SpaceGeneratorUnion([PostOrderApply(), ScheduleFn(contracts._tiled)])


class TestRecordedGenerator(contracts.SpaceContract):
    def mod(self) -> Any:
        return lab.load_space("gemm").mod

    def make(self) -> lab.RecordedGenerator:
        return lab.RecordedGenerator(lab.load_space("gemm"))


class TestAddToDatabase(contracts.CallbackContract):
    def make(self) -> AddToDatabase:
        return AddToDatabase()


class TestUpdateCostModel(contracts.CallbackContract):
    def make(self) -> UpdateCostModel:
        return UpdateCostModel()


class TestRemoveBuildArtifact(contracts.CallbackContract):
    def make(self) -> RemoveBuildArtifact:
        return RemoveBuildArtifact()


_SEEDS = itertools.count(1)


class _Broken:
    """Parts that break their contracts, one each; the contracts must say so."""

    class DropsABadInput(LocalBuilder):
        def build(self, build_inputs: Any) -> list[BuilderResult]:
            return [r for r in super().build(build_inputs) if r.error_msg is None]

    class Forgets(RandomModel):
        def load(self, path: str) -> None:
            pass

        def __init__(self) -> None:
            super().__init__(seed=next(_SEEDS))

    class Greedy(ReplayTrace):
        def generate_measure_candidates(self) -> Any:
            self._batch = 100
            return super().generate_measure_candidates()


def test_contracts_find_what_is_broken(tmp_path: Any) -> None:
    class Builders(contracts.BuilderContract):
        def make(self) -> Builder:
            return _Broken.DropsABadInput(max_workers=1)

    with pytest.raises(AssertionError):
        Builders().test_a_broken_program_costs_itself_only()

    class Models(contracts.CostModelContract):
        def make(self) -> CostModel:
            return _Broken.Forgets()

    with pytest.raises(AssertionError):
        Models().test_a_saved_model_says_the_same(tmp_path)
    with pytest.raises(AssertionError):
        Models().test_it_learns()

    class Strategies(contracts.StrategyContract):
        def make(self) -> ReplayTrace:
            return _Broken.Greedy()

    with pytest.raises(AssertionError):
        Strategies().test_no_more_than_was_asked_for()


def test_a_program_of_no_recorded_space_is_a_failure_of_its_own() -> None:
    space = lab.load_space("gemm")
    (built,) = lab.ReplayBuilder(space).build([BuilderInput(contracts.product(), space.target)])
    assert built.artifact_path is None and "no recorded space" in str(built.error_msg)
    (future,) = lab.ReplayRunner(space).run([RunnerInput(b"gemm:99999999", "llvm", [])])
    assert future.result().run_secs is None
