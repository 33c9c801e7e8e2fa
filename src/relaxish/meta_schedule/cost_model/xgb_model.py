"""Boosted trees on per-store features; a program's score is the sum over its stores (pack sum)."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from types import ModuleType

from ...support.errors import MissingExtraError
from ...support.log import get_logger
from ..feature_extractor import FeatureExtractor
from ..feature_extractor.repeated import Repeated
from ..utils import cpu_count
from .cost_model import CostModel
from .metric import average_peak_score, p_rmse

if TYPE_CHECKING:
    from ..database import TuningRecord
    from ..runner import RunnerResult
    from ..search_strategy import MeasureCandidate
    from ..task import Task

__all__ = ["XGBConfig", "XGBModel"]

_log = get_logger("meta_schedule")
Array = np.ndarray[Any, Any]


class XGBConfig(NamedTuple):
    """Booster settings."""

    max_depth: int = 10
    gamma: float = 0.001
    min_child_weight: float = 0
    eta: float = 0.2
    seed: int = 43
    nthread: int | None = None
    tree_method: str = "auto"

    def to_dict(self) -> dict[str, Any]:
        """As the booster takes them."""
        return self._asdict()


@dataclass
class FeatureGroup:
    """All samples of one workload; labels are normalised within it."""

    group_hash: str
    features: list[Array]
    costs: Array

    def append(self, features: Sequence[Array], costs: Array) -> None:
        """Add measured samples."""
        self.features += list(features)
        self.costs = np.append(self.costs, costs)

    @property
    def min_cost(self) -> float:
        """The lowest cost measured; 1 where nothing could be."""
        valid = self.costs[self.costs < 1e9]
        return float(np.min(valid)) if valid.size else 1.0

    def labels(self) -> Array:
        """Best cost over cost: 1 for the fastest."""
        return self.min_cost / self.costs


def _xgboost() -> ModuleType:
    try:
        import xgboost
    except ImportError as err:
        raise MissingExtraError("dev", "xgboost", "the 'xgb' cost model") from err
    return xgboost


class XGBModel(CostModel):
    """Scores are random until ``num_warmup_samples`` measurements are there; retrains as data grows.

    Raises MissingExtraError where xgboost is not installed.
    """

    def __init__(
        self,
        *,
        extractor: FeatureExtractor | str = "per-store-feature",
        config: XGBConfig = XGBConfig(),
        num_warmup_samples: int = 100,
        early_stopping_rounds: int = 50,
        verbose_eval: int = 25,
        average_peak_n: int = 32,
        adaptive_training: bool = True,
        num_tuning_cores: int | None = None,
        tree_method: str | None = None,
    ) -> None:
        _xgboost()  # that it is missing is said here, not after the measurements that a first training needs
        self.extractor = FeatureExtractor.create(extractor) if isinstance(extractor, str) else extractor
        if config.nthread is None:
            config = config._replace(nthread=num_tuning_cores or cpu_count(logical=False))
        if tree_method is not None:
            config = config._replace(tree_method=tree_method)
        self.config = config
        self.num_warmup_samples = num_warmup_samples
        self.early_stopping_rounds = early_stopping_rounds
        self.verbose_eval = verbose_eval
        self.average_peak_n = average_peak_n
        self.adaptive_training = adaptive_training
        self.data: dict[str, FeatureGroup] = {}
        self.data_size = 0
        self.last_train_size = 0
        self.booster: Any = None
        self.random_state = np.random.RandomState(config.seed)
        self.history: list[dict[str, float]] = []

    @property
    def trained(self) -> bool:
        return self.booster is not None and self.data_size >= self.num_warmup_samples

    @property
    def takes_features(self) -> bool:
        return getattr(self.extractor, "kind", "") == "per-store-feature"

    # ---- persistence

    def save(self, path: str) -> None:
        """A tar of ``model.bin`` (when trained) and ``data.npz``."""
        _, state, position, *_ = self.random_state.get_state()
        arrays: dict[str, Array] = {
            "trained_on": np.array(self.last_train_size),
            "random_state": np.asarray(state),
            "random_position": np.array(position),
        }
        for index, (key, group) in enumerate(self.data.items()):
            arrays[f"key{index}"] = np.frombuffer(key.encode(), dtype=np.uint8)
            arrays[f"costs{index}"] = group.costs
            arrays[f"rows{index}"] = np.array([len(f) for f in group.features], dtype=np.int64)
            arrays[f"features{index}"] = np.concatenate(group.features) if group.features else np.zeros((0, 0))
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with tarfile.open(path + ".tmp", "w") as tar:
            members = [("data.npz", buffer.getvalue())]
            if self.booster is not None:
                members.append(("model.bin", bytes(self.booster.save_raw("ubj"))))
            for name, data in members:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        os.replace(path + ".tmp", path)

    def load(self, path: str) -> None:
        """Read what :meth:`save` wrote; without a stored booster the model is trained anew."""
        with tarfile.open(path) as tar:
            blobs = {m.name: f.read() for m in tar.getmembers() if (f := tar.extractfile(m)) is not None}
        arrays = np.load(io.BytesIO(blobs["data.npz"]), allow_pickle=False)
        self.data = {}
        for index in range(sum(1 for name in arrays.files if name.startswith("key"))):
            key = arrays[f"key{index}"].tobytes().decode()
            cuts = np.cumsum(arrays[f"rows{index}"])[:-1]
            features = np.split(arrays[f"features{index}"], cuts) if arrays[f"rows{index}"].size else []
            self.data[key] = FeatureGroup(key, list(features), arrays[f"costs{index}"])
        self.data_size = sum(len(g.costs) for g in self.data.values())
        self.last_train_size = int(arrays["trained_on"])
        if "model.bin" in blobs:
            self.booster = _xgboost().Booster()
            self.booster.load_model(bytearray(blobs["model.bin"]))
        elif self.data_size >= self.num_warmup_samples:
            self._train()
        if "random_state" in arrays.files:
            self.random_state.set_state(("MT19937", arrays["random_state"], int(arrays["random_position"]), 0, 0.0))

    # ---- learning

    def update(self, context: Task, candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]) -> None:
        if not candidates:
            return
        features = [np.asarray(f, dtype="float32") for f in self.extractor.extract_from(context, candidates)]
        costs = np.array([float(np.median([float(s) for s in r.run_secs])) if r.run_secs else 1e10 for r in results])
        keep = [i for i, f in enumerate(features) if len(f)]
        if not keep:
            return
        self.add_samples(_group_key(context), [features[i] for i in keep], costs[keep])

    def add_samples(self, key: str, features: Sequence[Array], costs: Array) -> None:
        """Learn from feature matrices and their costs in seconds."""
        if self.booster is not None:
            self._validate(features, costs, key)
        group = self.data.get(key)
        if group is None:
            self.data[key] = FeatureGroup(key, list(features), np.asarray(costs, dtype="float64"))
        else:
            group.append(features, np.asarray(costs, dtype="float64"))
        self.data_size += len(features)
        grown = self.data_size >= self.last_train_size * 1.2 if self.adaptive_training else True
        if self.data_size >= self.num_warmup_samples and grown:
            self._train()

    def learn_records(self, context: Task, records: Sequence[TuningRecord]) -> None:
        known = self.data.get(_group_key(context))
        missing = records[0 if known is None else len(known.costs) :]
        if missing:
            costs = np.array([float(np.median(r.run_secs)) if r.run_secs else 1e10 for r in missing])
            features = self.extractor.extract_from(context, [r.as_measure_candidate() for r in missing])
            self.add_samples(_group_key(context), [np.asarray(f, dtype="float32") for f in features], costs)

    def _validate(self, features: Sequence[Array], costs: Array, key: str) -> None:
        known = self.data[key].costs if key in self.data else np.zeros(0)
        all_costs = np.append(known, costs)
        labels = np.min(all_costs) / np.asarray(costs)
        predictions = self._predict(features)
        self.history.append(
            {
                "p-rmse": p_rmse(predictions, labels),
                "samples": float(len(labels)),
                "a-peak": average_peak_score(predictions, labels, self.average_peak_n),
            }
        )
        _log.debug("XGB validation: %s", self.history[-1])

    def _train(self) -> None:
        xgb = _xgboost()
        self.last_train_size = self.data_size
        features = [f for g in self.data.values() for f in g.features]
        labels = np.concatenate([g.labels() for g in self.data.values()]).astype("float32")
        rows = np.array([len(f) for f in features])
        owner = np.repeat(np.arange(len(features)), rows)
        matrix = xgb.DMatrix(np.concatenate(features))

        def objective(predictions: Array, _: object) -> tuple[Array, Array]:
            # Squared error of summed predictions, weighted by the label: fast programs matter most.
            total = np.bincount(owner, predictions, minlength=len(features))
            gradient = ((total - labels) * labels)[owner]
            return gradient.astype("float32"), labels[owner].astype("float32")

        best, since, round_of_best = np.inf, 0, 0
        booster = xgb.Booster(
            {**self.config.to_dict(), "verbosity": 0, "disable_default_eval_metric": True, "base_score": 0.0}, [matrix]
        )
        for round_index in range(10000):
            booster.update(matrix, round_index, fobj=objective)
            if round_index % 5 != 4:
                continue
            total = np.bincount(owner, booster.predict(matrix, output_margin=True), minlength=len(features))
            error = p_rmse(total, labels)
            if error < best * 0.99:
                best, since, round_of_best = error, 0, round_index
            else:
                since += 5
            if since >= self.early_stopping_rounds or error < 1e-3 or round_index >= 300:
                break
        booster.set_param({"nthread": self.config.nthread})
        self.booster = booster
        _log.debug("XGB trained on %d samples: %d rounds, p-rmse %.6f", self.data_size, round_of_best + 1, best)

    # ---- prediction

    def predict(self, context: Task, candidates: Sequence[MeasureCandidate]) -> Array:
        if not self.trained:
            return self.random_state.uniform(low=0, high=1, size=(len(candidates),))
        features = [np.asarray(f, dtype="float32") for f in self.extractor.extract_from(context, candidates)]
        return self._predict(features)

    def _predict(self, features: Sequence[Array]) -> Array:
        rows = np.array([len(f) for f in features])
        if not rows.sum():
            return np.zeros(len(features))
        scores = self.booster.inplace_predict(np.concatenate(features), predict_type="margin")
        return np.bincount(np.repeat(np.arange(len(features)), rows), scores, minlength=len(features))

    def predict_features(self, blocks: Sequence[Array]) -> Array | None:
        return self.predict_repeated([Repeated(block) for block in blocks])

    def predict_repeated(self, blocks: Sequence[Repeated]) -> Array | None:
        count = len(blocks[0]) if blocks else 0
        if not self.trained:
            return self.random_state.uniform(low=0, high=1, size=(count,))
        if not count:
            return np.zeros(0, dtype="float32")
        # One call for all: each costs as much as 200 rows.
        joined = self.booster.inplace_predict(np.concatenate([block.rows for block in blocks]), predict_type="margin")
        total = np.zeros(count, dtype="float32")
        ends = np.cumsum([len(block.rows) for block in blocks])
        for block, scores in zip(blocks, np.split(joined, ends[:-1]), strict=True):
            total += scores if block.index is None else scores[block.index]
        return total


def _group_key(context: Task) -> str:
    from ..utils import shash2hex

    if context.mod is None:
        return ""  # candidates of no task in particular
    key = getattr(context, "_group_key", None)
    if key is None:
        key = shash2hex(context.mod)
        context._group_key = key  # type: ignore[attr-defined]
    return str(key)
