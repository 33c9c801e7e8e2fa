"""Cost models for experiments: made from a description, with groups of features left out, and judged over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..meta_schedule import TuneContext
from ..meta_schedule.cost_model import CostModel, RandomModel
from ..meta_schedule.cost_model.xgb_model import XGBConfig, XGBModel
from ..meta_schedule.feature_extractor import PerStoreFeature
from ..meta_schedule.runner import RunnerResult
from ..meta_schedule.search_strategy import MeasureCandidate
from ..meta_schedule.search_strategy.replay import apply_trace
from ..meta_schedule.search_strategy.search_task import SearchTask
from ..meta_schedule.search_strategy.sketch import REFUSALS, VectorSketch, VectorVariant
from ..support.errors import RelaxishError
from .metrics import ModelMetrics, model_metrics
from .replay import RecordedGenerator
from .space import RecordedSpace

__all__ = ["FEATURE_GROUPS", "ModelSpec", "PartialXGBModel", "evaluate_cost_model", "make_cost_model"]

Array = np.ndarray[Any, Any]
#: Columns of the features of a store: counts of operations and kinds of loops, accesses of five buffers, arithmetic
#: intensity over the loops, allocation, and what is outside of the store.
FEATURE_GROUPS = {
    "loops": slice(0, 57),
    "buffers": slice(57, 147),
    "intensity": slice(147, 157),
    "allocation": slice(157, 161),
    "outer": slice(161, 164),
}
ModelSpec = str | Mapping[str, Any] | Callable[[int], CostModel]


class PartialXGBModel(XGBModel):
    """Boosted trees that never see some groups of features: these are constant where the trees are grown, so that no
    tree asks for them."""

    def __init__(self, without: Iterable[str], **options: Any) -> None:
        super().__init__(**options)
        self.without = list(without)
        unknown = [name for name in self.without if name not in FEATURE_GROUPS]
        if unknown:
            raise RelaxishError(f"there is no group of features {unknown[0]!r}; known are {', '.join(FEATURE_GROUPS)}")

    def add_samples(self, key: str, features: Sequence[Array], costs: Array) -> None:
        masked = [np.array(f, dtype="float32") for f in features]
        for matrix in masked:
            for name in self.without:
                matrix[:, FEATURE_GROUPS[name]] = 0.0
        super().add_samples(key, masked, costs)


class RecordedFeatures(PerStoreFeature):
    """The features of the programs of a recorded space, by formulas in their decisions: thousands in a second. Where
    there are no formulas (the log says why) they are read off the programs."""

    def __init__(self, space: RecordedSpace) -> None:
        super().__init__()
        self.space = space
        self._known: tuple[SearchTask, VectorVariant | None] | None = None

    def _variant(self, context: SearchTask) -> VectorVariant | None:
        if self._known is not None and self._known[0] is context:
            return self._known[1]
        variant = None
        try:
            variant = VectorSketch(context, self.space.trace).variant(())
        except REFUSALS as err:
            context.logger.info("features of %s are read off programs: %s", self.space.name, err)
        self._known = context, variant
        return variant

    def extract_from(self, context: Any, candidates: Sequence[MeasureCandidate]) -> list[Any]:
        variant = self._variant(context)
        points = [None if c.sch.trace is None else self.space.point_of(c.sch.trace) for c in candidates]
        if variant is None or any(p is None for p in points):
            return list(super().extract_from(context, candidates))
        table = variant.sketch.table
        rows = np.repeat(table.sample(np.random.default_rng(0), 1), len(points), axis=0)
        decisions = np.array([self.space.digits(int(p)) for p in points if p is not None], dtype=np.int64)
        tiles, categories = iter(table.tiles), iter(table.categories)
        for column, dim in enumerate(self.space.dims):
            if dim.kind == "tile":
                tile = next(tiles)
                rows[:, tile.at : tile.at + tile[2]] = np.array(dim.values)[decisions[:, column]]
            else:
                rows[:, next(categories).at] = decisions[:, column]
        return list(np.stack(variant.features(rows), axis=1))


def make_cost_model(spec: ModelSpec, seed: int) -> CostModel:
    """A cost model on one thread, so that it answers alike everywhere.

    ``spec`` is a name (``xgb``, ``mlp``, ``random``), a function of the seed, or a mapping: ``kind``, for ``xgb`` also
    ``without`` (groups of :data:`FEATURE_GROUPS`), ``num_warmup_samples`` and the fields of ``XGBConfig``.
    Raises RelaxishError for what is none of these.
    """
    if callable(spec):
        return spec(seed)
    options: dict[str, Any] = {"kind": spec} if isinstance(spec, str) else dict(spec)
    kind = options.pop("kind", "xgb")
    if kind == "random" and not options:
        return RandomModel(seed=seed)
    if kind == "xgb":
        without = options.pop("without", [])
        warmup = int(options.pop("num_warmup_samples", 100))
        unknown = sorted(set(options) - set(XGBConfig._fields))
        if unknown:
            raise RelaxishError(f"the cost model xgb has no option {unknown[0]!r}")
        config = XGBConfig(**{"seed": seed, "nthread": 1, **options})
        if without:
            return PartialXGBModel(without, config=config, num_warmup_samples=warmup)
        return XGBModel(config=config, num_warmup_samples=warmup)
    made = CostModel.create(kind, **options)
    if made is None:
        raise RelaxishError("a search needs a cost model: use 'random' for one that knows nothing")
    return made


def use_recorded_features(model: CostModel, space: RecordedSpace) -> CostModel:
    """Let a model that learns from per-store features have those of a space by formulas; the model."""
    if (
        isinstance(model, XGBModel)
        and type(model.extractor) is PerStoreFeature
        and not model.extractor.extract_workload
    ):
        model.extractor = RecordedFeatures(space)
    return model


def evaluate_cost_model(
    space: RecordedSpace, model: ModelSpec, *, batch: int = 64, batches: int = 8, judged: int = 256, seed: int = 0
) -> list[ModelMetrics]:
    """Learning curve of a cost model: metrics on ``judged`` programs after each batch of random programs it is trained
    on.

    These are the same every time and never learned from. Before it has learned enough to say anything a model's scores
    are random ones.
    """
    rng = np.random.default_rng(seed)
    usable = np.array([int(p) for p, t in zip(space.points, space.times, strict=True) if np.isfinite(t)])
    if len(usable) < judged + batch:
        raise RelaxishError(f"{space.name} has {len(usable)} programs that ran; {judged} + {batch} are needed")
    chosen = rng.choice(usable, min(len(usable), judged + batch * batches), replace=False)
    context = TuneContext(
        space.mod,
        target=space.target,
        space_generator=RecordedGenerator(space, lazy=True),
        rand_state=seed + 1,
        num_threads=1,
    )
    learner = use_recorded_features(make_cost_model(model, seed), space)
    held, rest = chosen[:judged], chosen[judged:]
    judges = [_candidate(context, space, int(p)) for p in held]
    truth = np.array([space.time(int(p)) for p in held])
    found: list[ModelMetrics] = []
    for start in range(0, len(rest), batch):
        points = [int(p) for p in rest[start : start + batch]]
        candidates = [_candidate(context, space, p) for p in points]
        learner.update(context, candidates, [RunnerResult([space.time(p)]) for p in points])
        scores = np.asarray(learner.predict(context, judges), dtype=np.float64)
        metrics = model_metrics(start + len(points), scores, truth, float(truth.min()))
        found += [metrics] if metrics is not None else []
    return found


def _candidate(context: TuneContext, space: RecordedSpace, point: int) -> MeasureCandidate:
    sch = apply_trace(context, space.trace_of(point), 1)
    if sch is None:
        raise RelaxishError(f"program {point} of {space.name} cannot be made by this version; record the space again")
    return MeasureCandidate(sch, None)
