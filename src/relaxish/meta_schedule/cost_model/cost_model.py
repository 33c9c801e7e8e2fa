"""Cost models: scores for candidates, the higher the faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...support.entry_points import available, load
from ..utils import MethodNotDefinedError

if TYPE_CHECKING:
    from ..database import TuningRecord
    from ..feature_extractor.repeated import Repeated
    from ..runner import RunnerResult
    from ..search_strategy import MeasureCandidate
    from ..task import Task

__all__ = ["CostModel", "PyCostModel", "RandomModel"]


class CostModel:
    """Subclass and define ``load``, ``save``, ``update`` and ``predict``.

    A model that can score feature matrices directly also defines :meth:`predict_features`; the vectorised search
    then needs no program per candidate.
    """

    @property
    def trained(self) -> bool:
        """Whether scores mean something yet; a search looks for better advice while they do not."""
        return True

    @property
    def takes_features(self) -> bool:
        """Whether :meth:`predict_features` answers, so that candidates need no programs."""
        return type(self).predict_features is not CostModel.predict_features

    def load(self, path: str) -> None:
        """Read the model's state."""
        raise MethodNotDefinedError(self, "load")

    def save(self, path: str) -> None:
        """Write the model's state."""
        raise MethodNotDefinedError(self, "save")

    def update(self, context: Task, candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]) -> None:
        """Learn from measured candidates."""
        raise MethodNotDefinedError(self, "update")

    def learn_records(self, context: Task, records: Sequence[TuningRecord]) -> None:
        """Learn what was recorded for a task and is not known yet; ``records`` are all of the task, oldest first."""

    def predict(self, context: Task, candidates: Sequence[MeasureCandidate]) -> np.ndarray[Any, Any]:
        """One score per candidate."""
        raise MethodNotDefinedError(self, "predict")

    def predict_features(self, blocks: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
        """Scores from feature matrices, one per stored buffer, each ``[candidates, features]``; None if unable."""
        return None

    def predict_repeated(self, blocks: Sequence[Repeated]) -> np.ndarray[Any, Any] | None:
        """As :meth:`predict_features`, of matrices with equal rows, which a model may score once."""
        return self.predict_features([block.expanded() for block in blocks])

    @staticmethod
    def create(kind: str, *args: Any, **kwargs: Any) -> CostModel | None:
        """``xgb`` | ``mlp`` | ``random`` | ``none``; ``xgb`` takes ``num_tuning_cores``."""
        if kind == "none":
            return None
        hook = f"cost_model.{kind}"
        if not available(hook):
            raise ValueError(f"unknown cost model {kind!r}; expected one of xgb, mlp, random, none")
        if kind != "xgb":
            kwargs.pop("num_tuning_cores", None)
        model: CostModel = load(hook)(*args, **kwargs)
        return model


PyCostModel = CostModel


class RandomModel(CostModel):
    """Uniform random scores in ``[0, max_range)``."""

    @property
    def trained(self) -> bool:
        return False

    def __init__(self, *, seed: int | None = None, path: str | None = None, max_range: int = 100) -> None:
        self.random_state = np.random.RandomState(seed)
        self.max_range = max_range
        if path is not None:
            self.load(path)

    def load(self, path: str) -> None:
        state = np.load(path, allow_pickle=False)
        self.random_state.set_state(
            ("MT19937", state["keys"], int(state["pos"]), int(state["has"]), float(state["gauss"]))
        )

    def save(self, path: str) -> None:
        _, keys, pos, has, gauss = self.random_state.get_state()
        with open(path, "wb") as file:
            np.savez(file, keys=keys, pos=pos, has=has, gauss=gauss)

    def update(self, context: Task, candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]) -> None:
        """Nothing to learn."""

    def predict(self, context: Task, candidates: Sequence[MeasureCandidate]) -> np.ndarray[Any, Any]:
        return self.random_state.rand(len(candidates)) * self.max_range

    def predict_features(self, blocks: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        return self.random_state.rand(blocks[0].shape[0] if blocks else 0) * self.max_range
