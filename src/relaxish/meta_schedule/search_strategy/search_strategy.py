"""The base of search strategies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...tir import Schedule
from ...support.entry_points import available, load
from ..utils import MethodNotDefinedError, Part

if TYPE_CHECKING:
    from ..cost_model import CostModel
    from ..database import Database
    from ..runner import RunnerResult
    from .candidate import MeasureCandidate
    from .search_task import SearchTask  # noqa: F401 (the base names it in a string)

__all__ = ["PySearchStrategy", "SearchStrategy"]

# So many rounds in turn may bring nothing new; a strategy that goes on so has come to its end.
_EMPTY_ROUNDS = 8


class SearchStrategy(Part["SearchTask"]):
    """Subclass and define the five methods below; batches of candidates go out, results come back.

    ``batch_limit`` is how many candidates the next batch will be used of, where a scheduler's budget says so.
    """

    batch_limit: int | None = None

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: list[Schedule],
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        """Start a search over the given sketches."""
        raise MethodNotDefinedError(self, "pre_tuning")

    def post_tuning(self) -> None:
        """End the search."""
        raise MethodNotDefinedError(self, "post_tuning")

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """The next batch, None when the search is over; an empty one if this round found nothing new."""
        raise MethodNotDefinedError(self, "generate_measure_candidates")

    def next_candidates(self) -> list[MeasureCandidate]:
        """The next batch; rounds that found nothing new are passed over. Empty when the search is over."""
        for _ in range(_EMPTY_ROUNDS):
            made = self.generate_measure_candidates()
            if made is None or made:
                return made or []
        return []

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Learn what the candidates took."""
        raise MethodNotDefinedError(self, "notify_runner_results")

    def save_state(self) -> dict[str, Any]:
        """State of a search besides the records, for another process, as plain data."""
        return {}

    def resume(self, rounds: int, trials: int, state: dict[str, Any]) -> None:
        """Go on after ``rounds`` rounds and ``trials`` measurements of a run that was stopped, which had saved
        ``state`` after its last complete round."""

    def note_candidates(self, measure_candidates: Sequence[MeasureCandidate]) -> None:
        """Learn that these candidates of a stopped run are being measured, as if this search had made them."""

    @staticmethod
    def create(kind: str = "evolutionary", *args: Any, **kwargs: Any) -> SearchStrategy:
        """``evolutionary`` | ``replay-trace`` | ``replay-func``."""
        hook = f"search_strategy.{str(kind).replace('_', '-')}"
        if not available(hook):
            raise ValueError(f"unknown search strategy {kind!r}; expected evolutionary, replay-trace or replay-func")
        strategy: SearchStrategy = load(hook)(*args, **kwargs)
        return strategy


PySearchStrategy = SearchStrategy
