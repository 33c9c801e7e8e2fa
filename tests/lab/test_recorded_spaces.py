"""Recorded spaces, searches replayed on them, and what is made of the results."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxish import lab
from relaxish.ir import assert_structural_equal
from relaxish.lab.models import RecordedFeatures
from relaxish.tools import statistics
from relaxish.lab.registry import _TABLE
from relaxish.lab.space import _DATA
from relaxish.lab.table import read_rows
from relaxish.lab.workloads import WORKLOADS
from relaxish.meta_schedule import TuneContext, tune_tir
from relaxish.meta_schedule.feature_extractor import PerStoreFeature
from relaxish.meta_schedule.measure.status import MeasureStatus
from relaxish.meta_schedule.search_strategy import MeasureCandidate
from relaxish.meta_schedule.search_strategy.replay import apply_trace
from relaxish.support.errors import AlreadyRegisteredError, MalformedDataError, RelaxishError
from relaxish.tir import Schedule

FAST = ["random", "grid", "ga", "droplet"]


@pytest.fixture(scope="module")
def gemm() -> lab.RecordedSpace:
    return lab.load_space("gemm")


@pytest.mark.parametrize("name", ["gemm", "conv2d", "softmax"])
def test_a_bundled_space_is_complete_and_what_its_workload_says(name: str) -> None:
    space = lab.load_space(name)
    assert name in lab.bundled_spaces() and space.complete and space.best > 0
    rng = np.random.default_rng(0)
    for point in rng.choice(space.points, 20):
        assert space.point_of(space.trace_of(int(point))) == point
        assert space.point(space.digits(int(point))) == point
    # Programs with the same numbers of the sketch of this version.
    program, sketch = WORKLOADS[name]
    sch = Schedule(TuneContext(program()).mod)
    sketch(sch)
    assert sch.trace is not None and space.point_of(sch.trace) is not None


def test_the_spaces_are_small() -> None:
    folder = _DATA
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3e6


def test_a_file_gives_back_what_was_saved(gemm: lab.RecordedSpace, tmp_path: Path) -> None:
    part = lab.RecordedSpace(
        "part", gemm.mod, gemm.trace, gemm.target, gemm.points[7::50],
        np.where(np.arange(len(gemm.points[7::50]))[:, None] % 9 == 0, np.nan, gemm.seconds[7::50]),
        [MeasureStatus.RUNTIME if i % 9 == 0 else MeasureStatus.OK for i in range(len(gemm.points[7::50]))], {"by": "test"},
    )  # fmt: skip
    part.save(tmp_path / "part.npz")
    again = lab.load_space(tmp_path / "part.npz")
    assert again.about == {"by": "test"} and again.statuses == part.statuses and not again.complete
    np.testing.assert_array_equal(again.points, part.points)
    np.testing.assert_array_equal(again.seconds, part.seconds)
    assert math.isinf(again.time(int(part.points[0]))) and again.time(int(part.points[1])) < 1
    for damaged in (b"nonsense", (tmp_path / "part.npz").read_bytes()[:-100]):
        (tmp_path / "bad.npz").write_bytes(damaged)
        with pytest.raises(MalformedDataError):
            lab.load_space(tmp_path / "bad.npz")
    with pytest.raises(RelaxishError, match="no recorded space 'nothing'.*gemm"):
        lab.load_space("nothing")


@pytest.mark.parametrize("name", [*FAST, "xgb-sa", "tpe", "evolutionary", "replay-trace"])
def test_the_same_seed_gives_the_same_run(name: str, gemm: lab.RecordedSpace) -> None:
    if name == "tpe":
        pytest.importorskip("optuna")
    trials = 160 if name == "evolutionary" else 80
    runs = []
    for seed in (5, 5, 6):
        np.random.seed(0 if not runs else 99)  # what others draw makes no difference
        runs.append(lab.run_search(gemm, lab.create_strategy(name), trials, seed=seed, batch=32, noise="recorded"))
    assert runs[0] == runs[1] and 0 < len(runs[0].points) <= trials
    if name != "grid":
        assert runs[0].points != runs[2].points or name == "droplet"  # which draws nothing
    assert len(set(runs[0].points)) == len(runs[0].points) or name == "replay-trace"
    state = np.random.get_state()[1]
    lab.run_search(gemm, lab.create_strategy("random"), 8)
    np.testing.assert_array_equal(np.random.get_state()[1], state)


@pytest.mark.parametrize("name", ["gemm", "conv2d", "softmax"])
def test_programs_are_made_when_they_are_looked_at(name: str) -> None:
    """Their numbers, programs and features are those of candidates that are made at once."""
    space = lab.load_space(name)
    eager, lazy = (
        TuneContext(space.mod, target=space.target, space_generator=lab.RecordedGenerator(space, lazy=x), rand_state=1)
        for x in (False, True)
    )
    points = [int(p) for p in np.random.default_rng(3).choice(space.points, 6) if space.statuses[space.row(int(p))].ok]
    made = [[apply_trace(c, space.trace_of(p), 1) for p in points] for c in (eager, lazy)]
    known = [MeasureCandidate(sch, None) for sch in made[1] if sch is not None]
    fast = RecordedFeatures(space).extract_from(lazy, known)
    assert all("_state" not in sch.__dict__ for sch in made[1])
    slow = PerStoreFeature().extract_from(eager, [MeasureCandidate(sch, None) for sch in made[0] if sch is not None])
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a, np.asarray(b), rtol=1e-4, atol=1e-3)
    for now, later, point in zip(*made, points, strict=True):
        assert now is not None and later is not None and space.point_of(later.trace) == point  # type: ignore[arg-type]
        assert_structural_equal(now.mod, later.mod)
        assert str(now.trace) == str(later.trace)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        made[1][0].colour  # type: ignore[union-attr]


def test_a_search_makes_no_programs(gemm: lab.RecordedSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise AssertionError("a program was made")

    monkeypatch.setattr(lab.RecordedGenerator, "_program", refuse)
    for name in ("evolutionary", "replay-trace"):
        run = lab.run_search(gemm, lab.create_strategy(name), 160, seed=3, batch=32)
        assert len(run.points) == 160
        assert bool(run.metrics) == (name == "evolutionary")  # its cost model has learnt
    # Samples are as likely as the sketch says.
    option = gemm.dims[-1]
    drawn = [gemm.digits(p)[-1] for p in run.points]
    assert option.kind == "category" and 40 < drawn.count(0) < 120


@pytest.mark.slow
@pytest.mark.parametrize("name", lab.strategy_names())
def test_two_thousand_trials_take_seconds(name: str) -> None:
    """Seconds of this process: what else the machine does makes no difference."""
    if name == "tpe":
        pytest.importorskip("optuna")
    for task in lab.bundled_spaces():
        space = lab.load_space(task)
        begin = time.process_time()
        lab.run_search(space, lab.create_strategy(name), 2000, seed=1)
        assert time.process_time() - begin < 20


def test_only_recorded_programs_of_a_sample_are_tried(gemm: lab.RecordedSpace) -> None:
    keep = np.sort(np.random.default_rng(1).choice(len(gemm), 300, replace=False))
    sample = lab.RecordedSpace(
        "sample", gemm.mod, gemm.trace, gemm.target, gemm.points[keep], gemm.seconds[keep],
        [gemm.statuses[i] for i in keep],
    )  # fmt: skip
    for name in (*FAST, "xgb-sa", "replay-trace"):
        run = lab.run_search(sample, lab.create_strategy(name), 40, batch=8, seed=2)
        assert run.points and all(p in sample for p in run.points), name
    everything = lab.run_search(sample, lab.create_strategy("grid"), 1000)
    assert sorted(everything.points) == sample.points.tolist() and everything.best[-1] == sample.best


def test_noise_is_that_of_the_recording_or_as_large_as_asked(gemm: lab.RecordedSpace) -> None:
    point = int(gemm.points[100])
    true, row = gemm.time(point), gemm.seconds[100]
    recorded = lab.Noise("recorded", seed=1)
    drawn = [recorded.seconds(gemm, point) for _ in range(60)]
    assert set(np.float32(drawn)) <= set(row) and len(set(drawn)) > 1
    wide = lab.Noise(0.1, seed=1)
    ratios = np.log([wide.seconds(gemm, point) / true for _ in range(2000)])
    assert abs(ratios.mean()) < 0.02 and 0.09 < ratios.std() < 0.11
    assert lab.Noise("none").seconds(gemm, point) == true
    for bad in ("loud", -0.1, 20):
        with pytest.raises(RelaxishError):
            lab.Noise(bad)


def test_the_tuner_itself_replays(gemm: lab.RecordedSpace, tmp_path: Path) -> None:
    database = tune_tir(
        gemm.mod, gemm.target, str(tmp_path), 48, num_trials_per_iter=16, space=lab.RecordedGenerator(gemm),
        builder=lab.ReplayBuilder(gemm), runner=lab.ReplayRunner(gemm), validate=False, seed=4, num_tuning_cores=1,
    )  # fmt: skip
    records = database.get_all_tuning_records()
    assert len(records) == 48
    for record in records:
        point = gemm.point_of(record.trace)
        assert point is not None and record.run_secs == [gemm.time(point)]


class _Pick(lab.Strategy):
    """Proposes given numbers."""

    def __init__(self, points: Sequence[int]) -> None:
        self.points, self.told = list(points), []  # type: ignore[var-annotated]

    def start(self, space: Any, seed: int, trials: int, batch: int) -> None: ...

    def propose(self, count: int) -> list[int]:
        now, self.points = self.points[:count], self.points[count:]
        return now

    def observe(self, points: Sequence[int], seconds: Sequence[float]) -> None:
        self.told += list(zip(points, seconds, strict=True))


def test_curves_and_areas_are_what_they_say(gemm: lab.RecordedSpace) -> None:
    order = np.argsort(gemm.times)
    points = [int(gemm.points[order[i]]) for i in (1000, 2000, 100, 0)]
    pick = _Pick(points)
    run = lab.run_search(gemm, pick, 6, batch=2)
    times = [gemm.time(p) for p in points]
    assert pick.told == list(zip(points, times, strict=True))
    assert run.best == [times[0], times[0], times[2], times[3]]
    np.testing.assert_array_equal(run.curve(6), [*run.best, times[3], times[3]])
    assert run.score(6) == pytest.approx(np.mean(gemm.best / run.curve(6)))
    assert run.trials_to(1.0) == 4 and run.trials_to(1.1) is None
    with pytest.raises(RelaxishError, match="not recorded"):
        lab.run_search(gemm, _Pick([gemm.size]), 4)


def test_strategies_of_others(gemm: lab.RecordedSpace) -> None:
    lab.register_strategy("test-pick", lambda points=(3, 1, 2): _Pick(points))
    try:
        assert "test-pick" in lab.strategy_names()
        assert lab.run_search(gemm, lab.create_strategy("test-pick", {"points": [5]}), 4).points == [5]
        with pytest.raises(AlreadyRegisteredError):
            lab.register_strategy("test-pick", _Pick)
        with pytest.raises(RelaxishError, match="does not take"):
            lab.create_strategy("test-pick", {"pints": 1})
    finally:
        _TABLE.pop("test-pick")
    with pytest.raises(RelaxishError, match="no strategy 'test-pick'"):
        lab.create_strategy("test-pick")


def test_a_comparison_tells_better_from_worse(gemm: lab.RecordedSpace, tmp_path: Path) -> None:
    order = [int(gemm.points[i]) for i in np.argsort(gemm.times)]
    result = lab.compare(
        {"good": lambda: _Pick(order[:10]), "bad": lambda: _Pick(order[-10:]), "random": "random"}, [gemm], 7, trials=10
    )
    ranks = result.mean_ranks()
    assert ranks["good"] < ranks["random"] < ranks["bad"]
    statistic, chance = result.friedman()
    assert statistic > 5 and chance < 0.01
    first = result.pair_tests()[0]
    assert (first.first, first.second, first.wins, first.losses) == ("good", "bad", 7, 0) and first.probability < 0.05
    band = result.band("random", "gemm")
    assert (band.low <= band.median).all() and (band.median <= band.high).all() and (np.diff(band.median) >= 0).all()
    assert "good" in result.table() and result.svg("gemm").count("<polygon") == 3
    result.save(tmp_path / "all.csv")
    rows = read_rows(tmp_path / "all.csv")
    assert len(rows) == 3 * 7 * 10 and float(rows[0]["best"]) == gemm.best
    pytest.importorskip("pyarrow")
    result.save(tmp_path / "all.parquet")
    assert read_rows(tmp_path / "all.parquet") == result.curve_rows()
    with pytest.raises(RelaxishError, match="csv or .parquet"):
        result.save(tmp_path / "all.xls")
    with pytest.raises(RelaxishError, match="at least one"):
        lab.compare([], [gemm])


def test_statistics_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(3)
    for size in (5, 12, 24, 40):
        a, b = rng.normal(size=size), rng.normal(0.4, size=size)
        assert statistics.spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
        assert statistics.wilcoxon(a, b) == pytest.approx(stats.wilcoxon(a, b, method="exact" if size < 26 else "approx",
                                                                         correction=size >= 26).pvalue)  # fmt: skip
        table = rng.integers(0, 4, (size, 4)).astype(float)
        found = stats.friedmanchisquare(*table.T)
        assert statistics.friedman(table) == pytest.approx((found.statistic, found.pvalue))
        np.testing.assert_array_equal(statistics.ranks(table[:, 0]), stats.rankdata(table[:, 0]))
    assert statistics.wilcoxon([1.0, 2.0], [1.0, 2.0]) == 1.0 and statistics.friedman([[1.0, 1.0]]) == (0.0, 1.0)
    assert statistics.top_k_recall([3, 2, 1, 0], [0, 3, 2, 1], 2) == 0.5


def test_an_ablation_from_a_file(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    what = {
        "tasks": ["gemm"], "trials": 40, "seeds": 2, "batch": 20, "output": "out.csv",
        "base": {"strategy": "ga", "pop_size": 20}, "variants": {"no mutation": {"mutation_prob": 0.0}},
    }  # fmt: skip
    path = tmp_path / "ablation.yaml"
    path.write_text(yaml.safe_dump(what))
    result = lab.ablate(path)
    assert result.strategies == ["base", "no mutation"] and len(read_rows(tmp_path / "out.csv")) == 160
    for change, message in (
        ({"variant": {}}, "unknown key 'variant'"),
        ({"base": {}}, "strategy"),
        ({"variants": []}, "maps"),
    ):
        path.write_text(yaml.safe_dump({**what, **change}))
        with pytest.raises(RelaxishError, match=message):
            lab.ablate(path)
    path.write_text("a: [")
    with pytest.raises(RelaxishError, match="not YAML"):
        lab.ablate(path)


def test_cost_models_learn_and_parts_of_the_features_can_be_left_out(gemm: lab.RecordedSpace) -> None:
    model = {"kind": "xgb", "num_warmup_samples": 48}
    found = lab.evaluate_cost_model(gemm, model, batch=48, batches=2, judged=64)
    assert [m.trials for m in found] == [48, 96] and found[-1].rank_correlation > 0.5 and found[-1].rmse < 0.3
    blind = lab.make_cost_model({"without": list(lab.FEATURE_GROUPS), "num_warmup_samples": 8}, 0)
    rng = np.random.default_rng(0)
    rows = [rng.random((2, 164), dtype=np.float32) for _ in range(16)]
    blind.add_samples("x", rows, rng.random(16) + 0.1)  # type: ignore[attr-defined]
    assert np.ptp(blind._predict(rows)) < 1e-6  # type: ignore[attr-defined]
    with pytest.raises(RelaxishError, match="no group of features 'colour'"):
        lab.make_cost_model({"without": ["colour"]}, 0)
    with pytest.raises(RelaxishError, match="no option 'depth'"):
        lab.make_cost_model({"depth": 3}, 0)


def test_a_small_space_is_recorded_here(tmp_path: Path) -> None:
    from relaxish.meta_schedule.builder import LocalBuilder
    from relaxish.testing.contracts import parts as contracts

    seen: list[tuple[int, int]] = []
    space = lab.record(
        contracts.product(16), contracts._tiled, "llvm -num-cores=1", name="tiny", sample=6, rounds=1,
        builder=LocalBuilder(max_workers=1), watch=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert space.size == 25 and len(space) == 6 and seen == [(6, 6)] and not space.complete
    assert all(s.ok for s in space.statuses) and np.isfinite(space.seconds).all() and space.seconds.shape == (6, 4)
    assert {"hardware", "load_mean", "cores"} <= set(space.about)
    with pytest.raises(RelaxishError, match="no number 3"):
        lab.record(contracts.product(16), contracts._tiled, "llvm", sketch=3)
    with pytest.raises(RelaxishError, match="no workload"):
        lab.record_workload("nothing")


def test_a_sketch_that_samples_something_else_is_refused() -> None:
    from relaxish.testing.contracts import parts as contracts

    def moved(sch: Schedule) -> None:
        block = sch.get_block("C")
        write = sch.cache_write(block, 0, "global")
        sch.reverse_compute_at(write, sch.sample_compute_location(write))

    with pytest.raises(lab.UnsupportedSpaceError, match="SampleComputeLocation"):
        lab.record(contracts.product(16), moved, "llvm")
