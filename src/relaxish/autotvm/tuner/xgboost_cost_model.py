"""Boosted trees that learn how fast configurations are from features of their programs or parameters.

Source: Chen et al., "Learning to optimize tensor programs" (NeurIPS 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

import numpy as np

from ...support.log import get_logger
from ..feature import Program, assemble, read_program
from ..measure.measure import MeasureInput, MeasureResult
from ..quantities import QuantityColumns
from .metric import average_recall
from .tuner import speed_of

if TYPE_CHECKING:
    from ..task.task import Task

__all__ = ["FeatureRows", "XGBoostCostModel"]

_log = get_logger("autotvm")
Array = np.ndarray[Any, Any]
_ROUNDS, _PATIENCE, _LOOK = 8000, 20, 4
_BASE_ROUNDS, _BASE_PATIENCE = 400, 100
_OBJECTIVES = {"reg": "reg:squarederror", "rank": "rank:pairwise", "rank-binary": "rank:pairwise"}
_FEATURES = ("itervar", "knob", "curve")


class FeatureRows:
    """Rows of features of a task's configurations, of one kind; programs are made only where there is no other way."""

    def __init__(self, task: Task, kind: str) -> None:
        if kind not in _FEATURES:
            raise RuntimeError(f"Invalid feature type: {kind}; use one of {', '.join(_FEATURES)}")
        self.task, self.kind = task, kind
        self.space = task.config_space
        self.quantities = QuantityColumns(self.space, self._read)

    def _read(self, index: int) -> Program:
        with self.task.target:
            return read_program(self.task.program(self.space.get(index)))

    def rows(self, points: Sequence[int] | Array) -> Array:
        """``[len(points), features]``: parameters, what the machine's model expects, and the program's features.

        These stand last: programs of a kind that was not met before may have more of them.
        """
        parts = [self.space.columns.features(points)]
        expected = self.task.cycles(points) if hasattr(self.task, "cycles") else None
        if expected is not None:
            parts.append(np.log2(np.asarray(expected)[:, None]).astype(np.float32))
        found = self.quantities.rows(points, self.kind) if self.kind != "knob" else None
        if found is not None:
            parts.append(found)
        return np.concatenate(parts, axis=1)

    def of_record(self, inp: MeasureInput) -> Array:
        """The row of a measurement of another task of this template, zeros where its program cannot be made."""
        own = inp.config.get_flatten_feature()
        if self.kind == "knob":
            return own
        try:
            with inp.target:
                program = read_program(inp.task.program(inp.config))
            return np.concatenate([own, assemble(program.structure, program.quantities[None, :], self.kind)[0]])
        except Exception as error:  # of a template that is not registered here, say
            _log.debug("the program of a record cannot be made: %s", error)
            return np.zeros(1, dtype=np.float32)


def _padded(rows: Array, width: int) -> Array:
    if rows.shape[1] >= width:
        return rows[:, :width]
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])))


class XGBoostCostModel:
    """``feature_type`` "itervar", "knob" or "curve"; ``loss_type`` "reg", "rank" or "rank-binary"."""

    def __init__(
        self, task: Task, feature_type: str, loss_type: str = "reg", num_threads: int | None = None,
        log_interval: int = 25, upper_model: XGBoostCostModel | None = None,
    ) -> None:  # fmt: skip
        if loss_type not in _OBJECTIVES:
            raise RuntimeError(f"Invalid loss type: {loss_type}; use one of {', '.join(_OBJECTIVES)}")
        self.task, self.fea_type, self.loss_type = task, feature_type, loss_type
        self.num_threads, self.log_interval = num_threads, log_interval
        self.features: FeatureRows = (
            upper_model.features if upper_model is not None else FeatureRows(task, feature_type)
        )
        self.xgb_params: dict[str, Any] = {
            "max_depth": 3, "gamma": 0.0001, "min_child_weight": 1, "subsample": 1.0, "eta": 0.3, "lambda": 1.0,
            "alpha": 0, "objective": _OBJECTIVES[loss_type], "verbosity": 0, "seed": 0,
        }  # fmt: skip
        # For so few rows threads cost more than they save, all the more on a machine that measures.
        self.xgb_params["nthread"] = num_threads or 1
        self.bst: Any = None
        self.base_model: XGBoostCostModel | None = None
        self.width: int | None = None
        self._sample_size = 0

    # ---- learning

    def fit(self, xs: Sequence[int], ys: Sequence[float], plan_size: int) -> None:
        """Learn from configurations and their speeds; the best ``plan_size`` should be ranked well."""
        rows = self.features.rows(xs)
        speeds = np.asarray(ys, dtype=np.float64)
        top = speeds.max() if len(speeds) else 0.0
        labels = speeds / top if top > 0 else speeds
        self._sample_size = len(rows)
        self.width = rows.shape[1]
        margin = None
        if self.base_model is not None:
            if self._discount() < 0.05:
                self.base_model = None
            else:
                margin = self._discount() * self.base_model.margin_of(rows)
        self._train(rows, labels, plan_size, margin, _ROUNDS, _PATIENCE)

    def fit_log(
        self, records: Sequence[tuple[MeasureInput, MeasureResult]], plan_size: int, min_seed_records: int = 500
    ) -> bool:
        """Learn from measurements of other tasks of the template; whether there were enough."""
        groups: dict[Any, list[tuple[Any, Any]]] = {}
        for inp, res in records:
            if inp.task.name == self.task.name:
                groups.setdefault(repr(inp.task.workload), []).append((inp, res))
        total = sum(len(g) for g in groups.values())
        if total < min_seed_records:
            _log.debug("%d records of %s are too few to begin with", total, self.task.name)
            return False
        found, labels = [], []
        for group in groups.values():
            speeds = np.array([speed_of(inp, res) or _inverse(res) for inp, res in group])
            labels.append(speeds / (speeds.max() or 1.0))
            found += [self.features.of_record(inp) for inp, _ in group]
        kept = [i for i, row in enumerate(found) if len(row) > 1 or self.fea_type == "knob"]
        if not kept:
            return False
        # Without what only this task's own model of the machine knows.
        own = self.features.rows([int(self.task.config_space.get_rand_index())]).shape[1]
        rows = np.zeros((len(kept), own), dtype=np.float32)
        for i, place in enumerate(kept):
            row = found[place][:own]
            rows[i, : len(row)] = row
        self.width = own
        joined = np.concatenate(labels)[kept]
        self._train(rows, joined, plan_size, None, _BASE_ROUNDS, _BASE_PATIENCE)
        return True

    def _train(
        self, rows: Array, labels: Array, plan_size: int, margin: Array | None, rounds: int, patience: int
    ) -> None:
        import xgboost as xgb

        target = labels
        if self.loss_type == "rank-binary":
            line = np.sort(labels)[::-1][min(len(labels) - 1, max(1, plan_size) - 1)] if len(labels) else 0.0
            target = (labels >= max(line, np.median(labels))).astype(np.float64)
        matrix = xgb.DMatrix(rows, target, nthread=self.xgb_params["nthread"])
        if margin is not None:
            matrix.set_base_margin(margin)
        if self.loss_type != "reg":
            matrix.set_group([len(rows)])
        params = {**self.xgb_params, "base_score": 0.5 if self.loss_type != "reg" else float(np.mean(target))}
        booster = xgb.Booster(params, [matrix])
        best, best_round, state = -np.inf, 0, None
        for number in range(rounds):
            booster.update(matrix, number)
            if number % _LOOK:
                continue
            guess = booster.predict(matrix, output_margin=True)
            score = average_recall(guess, labels, min(plan_size, len(labels)))
            if score > best:
                best, best_round, state = score, number, booster.num_boosted_rounds()
            elif number - best_round >= patience:
                break
        self.bst = booster[: state or 1]
        _log.debug("XGB train: %d samples, %d rounds, recall@%d %.3f", len(rows), best_round + 1, plan_size, best)

    # ---- prediction

    def predict(self, xs: Sequence[int] | Array, output_margin: bool = False) -> Array:
        """Expected speeds of configurations, in units of the best known."""
        rows = self.features.rows(xs)
        return self._predict(rows)

    def _predict(self, rows: Array) -> Array:
        if self.bst is None:
            return np.zeros(len(rows))
        margin = None
        if self.base_model is not None:
            margin = self._discount() * self.base_model.margin_of(rows)
        found: Array = self.bst.inplace_predict(
            _padded(rows, self.width or rows.shape[1]), predict_type="margin", base_margin=margin
        )
        return found

    def margin_of(self, rows: Array) -> Array:
        """Scores of the model for rows of features."""
        return self._predict(rows)

    def load_basemodel(self, base_model: XGBoostCostModel) -> None:
        """Begin with what another model learned, the less the more is measured."""
        self.base_model = base_model

    def spawn_base_model(self) -> XGBoostCostModel:
        """A model with this one's features, to learn from other tasks."""
        return XGBoostCostModel(
            self.task, self.fea_type, self.loss_type, self.num_threads, self.log_interval, upper_model=self
        )

    def _discount(self) -> float:
        return float(2.0 ** (-self._sample_size / 64.0))


def _inverse(res: MeasureResult) -> float:
    """A speed for a record whose operations are not known."""
    if int(res.error_no) != 0:
        return 0.0
    cost = float(np.mean(res.costs))
    return 1.0 / cost if cost > 0 else 0.0
