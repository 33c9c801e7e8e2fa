"""A small neural network on per-store features, in NumPy: no deep-learning framework is loaded for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..feature_extractor import FeatureExtractor
from .cost_model import CostModel
from .xgb_model import FeatureGroup, _group_key

if TYPE_CHECKING:
    from ..runner import RunnerResult
    from ..search_strategy import MeasureCandidate
    from ..task import Task

__all__ = ["MLPModel", "MLPModelConfig", "MLPModelTrainer"]

Array = np.ndarray[Any, Any]


@dataclass
class MLPModelConfig:
    """Network and training settings."""

    hidden_dim: int = 256
    batch_size: int = 128
    learning_rate: float = 7e-4
    weight_decay: float = 1e-6
    num_epoch_full: int = 50
    num_epoch_incremental: int = 5
    grad_clip_norm: float = 0.5
    train_verbose: int = 0
    seed: int = 0


class MLPModelTrainer:
    """Two hidden layers per store, summed over the stores of a program; squared error weighted by the label; Adam."""

    def __init__(self, config: MLPModelConfig | None = None) -> None:
        self.config = config or MLPModelConfig()
        self.random = np.random.RandomState(self.config.seed)
        self.weights: list[Array] = []
        self._moments: list[tuple[Array, Array]] = []
        self._step = 0

    def _prepare(self, width: int) -> None:
        if self.weights:
            return
        h = self.config.hidden_dim
        for n, m in ((width, h), (h, h), (h, 1)):
            self.weights.append((self.random.randn(n, m) * np.sqrt(2.0 / n)).astype("float32"))
            self.weights.append(np.zeros(m, dtype="float32"))
        self._moments = [(np.zeros_like(w), np.zeros_like(w)) for w in self.weights]

    def forward(self, rows: Array) -> tuple[Array, list[Array]]:
        """Scores of stores and the activations backward needs."""
        w = self.weights
        a = np.maximum(rows @ w[0] + w[1], 0)
        b = np.maximum(a @ w[2] + w[3], 0)
        return (b @ w[4] + w[5])[:, 0], [rows, a, b]

    def _backward(self, kept: list[Array], grad: Array) -> list[Array]:
        w, (rows, a, b) = self.weights, kept
        g3 = grad[:, None]
        g2 = (g3 @ w[4].T) * (b > 0)
        g1 = (g2 @ w[2].T) * (a > 0)
        return [rows.T @ g1, g1.sum(0), a.T @ g2, g2.sum(0), b.T @ g3, g3.sum(0)]

    def _apply(self, grads: list[Array]) -> None:
        config = self.config
        norm = float(np.sqrt(sum(float(np.sum(g * g)) for g in grads)))
        scale = min(1.0, config.grad_clip_norm / (norm + 1e-12))
        self._step += 1
        for weight, grad, (m, v) in zip(self.weights, grads, self._moments, strict=True):
            grad = grad * scale + config.weight_decay * weight
            m *= 0.9
            m += 0.1 * grad
            v *= 0.999
            v += 0.001 * grad * grad
            step = m / (1 - 0.9**self._step) / (np.sqrt(v / (1 - 0.999**self._step)) + 1e-8)
            weight -= config.learning_rate * step.astype("float32")

    def train(self, features: Sequence[Array], labels: Array, epochs: int) -> float:
        """Fit; returns the last epoch's mean loss."""
        if not features:
            return 0.0
        self._prepare(features[0].shape[1])
        loss = 0.0
        for _ in range(epochs):
            losses = []
            order = self.random.permutation(len(features))
            for start in range(0, len(order), self.config.batch_size):
                batch = order[start : start + self.config.batch_size]
                owner = np.repeat(np.arange(len(batch)), [len(features[i]) for i in batch])
                scores, kept = self.forward(np.concatenate([features[i] for i in batch]))
                error = np.bincount(owner, scores, minlength=len(batch)) - labels[batch]
                losses.append(float(np.mean(error**2 * labels[batch])))
                grad = (2 * error * labels[batch] / len(batch))[owner].astype("float32")
                self._apply(self._backward(kept, grad))
            loss = float(np.mean(losses))
        return loss


class MLPModel(CostModel):
    """Learns from every batch: fully while data is scarce, incrementally afterwards."""

    def __init__(self, *, trainer: MLPModelTrainer | None = None) -> None:
        self.trainer = trainer or MLPModelTrainer()
        self.extractor = FeatureExtractor.create("per-store-feature")
        self.data: dict[str, FeatureGroup] = {}
        self._random = np.random.RandomState(self.trainer.config.seed)
        self._last_full = 0

    def load(self, path: str) -> None:
        stored = np.load(path, allow_pickle=False)
        self.trainer.weights = [stored[f"w{i}"] for i in range(len(stored.files))]
        self.trainer._moments = [(np.zeros_like(w), np.zeros_like(w)) for w in self.trainer.weights]

    def save(self, path: str) -> None:
        with open(path, "wb") as file:
            np.savez(file, **{f"w{i}": w for i, w in enumerate(self.trainer.weights)})  # type: ignore[arg-type]

    def update(self, context: Task, candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]) -> None:
        features = [np.asarray(f, dtype="float32") for f in self.extractor.extract_from(context, candidates)]
        costs = np.array([float(np.median(r.run_secs)) if r.run_secs else 1e10 for r in results])
        keep = [i for i, f in enumerate(features) if len(f)]
        key = _group_key(context)
        group = self.data.setdefault(key, FeatureGroup(key, [], np.zeros(0)))
        group.append([features[i] for i in keep], costs[keep])
        total = sum(len(g.costs) for g in self.data.values())
        config = self.trainer.config
        full = total >= 1.2 * self._last_full
        if full:
            self._last_full = total
        self.trainer.train(
            [f for g in self.data.values() for f in g.features],
            np.concatenate([g.labels() for g in self.data.values()]).astype("float32"),
            config.num_epoch_full if full else config.num_epoch_incremental,
        )

    @property
    def trained(self) -> bool:
        return bool(self.trainer.weights)

    def predict(self, context: Task, candidates: Sequence[MeasureCandidate]) -> Array:
        if not self.trained:
            return self._random.uniform(size=len(candidates))
        features = self.extractor.extract_from(context, candidates)
        return np.array([float(self.trainer.forward(np.asarray(f, dtype="float32"))[0].sum()) for f in features])

    def predict_features(self, blocks: Sequence[Array]) -> Array | None:
        if not self.trained:
            return self._random.uniform(size=blocks[0].shape[0] if blocks else 0)
        return np.sum([self.trainer.forward(block)[0] for block in blocks], axis=0)
