"""Everything one tuning task needs: its module, target, space, strategy, random state and log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import Logger
from typing import TYPE_CHECKING, Any

from ..ir import IRModule
from ..target import Target
from ..tir import PrimFunc, Schedule
from .cost_model.cost_model import CostModel, RandomModel
from .database.database import Database
from .database.memory_database import MemoryDatabase
from .logging import get_logger
from .analysis.schedules import only_function_as_main
from .search_strategy.candidate import MeasureCandidate
from .search_strategy.search_strategy import SearchStrategy
from .search_strategy.search_task import SearchTask
from .space_generator.space_generator import SpaceGenerator
from .utils import cpu_count, rand_seed

if TYPE_CHECKING:
    from .runner.runner import RunnerResult

__all__ = ["TuneContext"]


class TuneContext(SearchTask):
    """One task. ``space_generator`` and ``search_strategy`` may be objects or names; both know the task once it is made.

    A function becomes the ``main`` of a module, marked ``tir.noalias``; the function of a module given is called so, and
    is left as it is otherwise.
    """

    def __init__(
        self,
        mod: IRModule | PrimFunc | None = None,
        *,
        target: Target | str | None = None,
        space_generator: SpaceGenerator | Callable[..., Any] | str | None = None,
        search_strategy: SearchStrategy | str | None = None,
        task_name: str = "main",
        rand_state: int = -1,
        num_threads: int | str = "physical",
        logger: Logger | None = None,
    ) -> None:
        if target is not None and not isinstance(target, Target):
            target = Target(target)
        if space_generator is not None and not isinstance(space_generator, SpaceGenerator):
            space_generator = SpaceGenerator.create(space_generator)
        if search_strategy is not None and not isinstance(search_strategy, SearchStrategy):
            search_strategy = SearchStrategy.create(search_strategy)
        if num_threads not in ("physical", "logical") and not isinstance(num_threads, int):
            raise ValueError(f"num_threads is 'physical', 'logical' or a number, not {num_threads!r}")
        super().__init__(
            mod=None if mod is None else only_function_as_main(mod),
            target=target,
            task_name=task_name,
            rand_state=rand_seed(rand_state),
            num_threads=num_threads if isinstance(num_threads, int) else cpu_count(num_threads == "logical"),
            logger=logger or get_logger("tune_context"),
            space_generator=space_generator,
        )
        self.search_strategy = search_strategy
        self.initialize()

    def initialize(self) -> None:
        """Tell space and strategy about this context; for those that took the place of the ones it was made with."""
        if self.space_generator is not None:
            self.space_generator.initialize_with_tune_context(self)
        if self.search_strategy is not None:
            self.search_strategy.initialize_with_tune_context(self)

    def _space(self) -> SpaceGenerator:
        if self.space_generator is None:
            raise ValueError("the tune context has no space_generator")
        return self.space_generator

    def _strategy(self) -> SearchStrategy:
        if self.search_strategy is None:
            raise ValueError("the tune context has no search_strategy")
        return self.search_strategy

    def generate_design_space(self) -> list[Schedule]:
        """The sketches of the module."""
        if self.mod is None:
            raise ValueError("the tune context has no module")
        return self._space().generate_design_space(self.mod)

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int = 64,
        design_spaces: Sequence[Schedule] | None = None,
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        """Start a search; missing parts are made: sketches, a memory database, a random cost model."""
        if design_spaces is None:
            design_spaces = self.generate_design_space()
        if database is None:
            database = MemoryDatabase()
        if cost_model is None:
            cost_model = RandomModel()
        self._strategy().pre_tuning(max_trials, num_trials_per_iter, list(design_spaces), database, cost_model)

    def post_tuning(self) -> None:
        """End the search."""
        self._strategy().post_tuning()

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """The next batch, None when the search is over."""
        return self._strategy().generate_measure_candidates()

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Tell the strategy what the candidates took."""
        self._strategy().notify_runner_results(measure_candidates, results)

    def clone(self) -> TuneContext:
        """An independent copy."""
        return TuneContext(
            self.mod,
            target=self.target,
            space_generator=None if self.space_generator is None else self.space_generator.clone(),
            search_strategy=None if self.search_strategy is None else self.search_strategy.clone(),
            task_name=self.task_name,
            rand_state=self.rand_state,
            num_threads=self.num_threads,
            logger=self.logger,
        )
