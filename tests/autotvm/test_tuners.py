"""Tuners on spaces whose fastest configuration is known, without a compiler: what they try, learn and report."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from scipy import stats

from relaxish import autotvm
from relaxish.autotvm.measure import Builder, Runner
from relaxish.autotvm.record import load_from_file
from relaxish.autotvm.task import ConfigSpace, Task
from relaxish.autotvm.tuner import (
    DropletTuner,
    GATuner,
    GridSearchTuner,
    RandomTuner,
    SimulatedAnnealingOptimizer,
    XGBTuner,
)
from relaxish.autotvm.tuner import tuner as tuner_module
from relaxish.autotvm.tuner.callback import Monitor, format_si_prefix
from relaxish.autotvm.tuner.metric import (
    average_recall,
    cover_curve,
    get_rank,
    max_curve,
    mean_curve,
    recall_curve,
)
from relaxish.autotvm.tuner.model_based_tuner import submodular_pick
from relaxish.meta_schedule.post_optimization.droplet_search import DropletSearch, t_test
from relaxish.target import Target


def cost_of(config):
    """Fastest at tile_x = 16, tile_y = 4, unroll 64; smooth around it."""
    x, y = np.log2(config["tile_x"].size[-1]), np.log2(config["tile_y"].size[-1])
    return 1e-3 * (1.0 + (x - 4) ** 2 + 0.5 * (y - 2) ** 2 + abs([0, 16, 64, 512].index(config["unroll"].val) - 2))


def space():
    cfg = ConfigSpace()
    cfg.define_split("tile_x", cfg.axis(256), num_outputs=2)
    cfg.define_split("tile_y", cfg.axis(64), num_outputs=2)
    cfg.define_knob("unroll", [0, 16, 64, 512])
    return cfg


def task(name="tests/no_template"):
    made = Task(name, (256, 64))
    made.config_space, made.flop, made.target = space(), 1e9, Target("llvm")
    return made


class Built(Builder):
    def __init__(self):
        super().__init__(n_parallel=4)

    def build(self, inputs):
        return list(inputs)


class Ran(Runner):
    """Times by a formula; configurations with ``fails`` fail."""

    def __init__(self, fails=lambda config: False):
        super().__init__()
        self.fails, self.seen = fails, []

    def run(self, inputs, built):
        out = []
        for inp in inputs:
            self.seen.append(inp.config.index)
            if self.fails(inp.config):
                out.append(autotvm.MeasureResult(("no", RuntimeError("no")), 4, 0.1, 1.0))
            else:
                cost = cost_of(inp.config)
                out.append(autotvm.MeasureResult((cost, cost * 1.001), 0, 0.1, 1.0))
        return out


def tune(made, trials, runner=None, **options):
    runner = runner or Ran()
    made.tune(trials, autotvm.measure_option(Built(), runner), **options)
    return runner


BEST = 4 + 2 * 9 + 2 * 9 * 7  # tile_x 16, tile_y 4, unroll 64


@pytest.fixture(autouse=True)
def seeded():
    random.seed(0)
    np.random.seed(0)


def test_grid():
    made = GridSearchTuner(task(), range_idx=(10, 19))
    runner = tune(made, 100)
    assert runner.seen == list(range(10, 20)) and not made.has_next()
    assert made.best_flops == pytest.approx(1e9 / (made.best_measure_pair[1].costs[0] * 1.0005), rel=1e-3)
    everything = GridSearchTuner(task())
    tune(everything, 1000)
    assert everything.best_config.index == BEST and everything.best_iter == BEST + 1


def test_random_tries_none_twice():
    made = RandomTuner(task())
    runner = tune(made, 1000)
    assert sorted(runner.seen) == list(range(252))
    assert RandomTuner(task(), range_idx=(5, 5)).next_batch(3)[0].index == 5


def test_genetic_search_gets_better():
    made = GATuner(task(), pop_size=16)
    runner = tune(made, 120)
    assert len(set(runner.seen)) == len(runner.seen) == 120
    first = min(cost_of(made.task.config_space.get(i)) for i in runner.seen[:16])
    best = cost_of(made.best_config)
    assert best <= first and best < 2.6e-3
    with pytest.raises(ValueError, match="elites"):
        GATuner(task(), pop_size=2, elite_num=3)
    all_of_it = GATuner(task(), pop_size=50)
    assert sorted(tune(all_of_it, 1000).seen) == list(range(252))


def test_droplet_goes_downhill():
    made = DropletTuner(task())
    runner = tune(made, 200)
    assert made.best_config.index == BEST and len(runner.seen) < 120
    assert made.best_choice[0] == BEST and made.best_choice[1] == [4, 2, 2]
    near = DropletTuner(task(), start_position=[5, 2, 2])
    assert len(tune(near, 200).seen) < len(runner.seen) + 5 and near.best_config.index == BEST


@pytest.mark.parametrize("loss", ["reg", "rank", "rank-binary"])
def test_trees_find_it_sooner_than_chance(loss):
    found = []
    for seed in range(3):
        random.seed(seed)
        np.random.seed(seed)
        made = XGBTuner(task(), plan_size=16, feature_type="knob", loss_type=loss)
        runner = tune(made, 64)
        assert len(set(runner.seen)) == 64
        found.append(cost_of(made.best_config))
    assert np.mean(found) <= 1.6e-3, found


def test_what_trees_can_be_made_of():
    with pytest.raises(RuntimeError, match="Invalid loss type"):
        XGBTuner(task(), loss_type="huber")
    with pytest.raises(RuntimeError, match="Invalid feature type"):
        XGBTuner(task(), feature_type="pixels")
    with pytest.raises(ValueError, match="unknown optimizer"):
        XGBTuner(task(), optimizer="adam")
    with pytest.raises(ValueError, match="Diversity"):
        XGBTuner(task(), diversity_filter_ratio=0.5)
    diverse = XGBTuner(task(), plan_size=8, feature_type="knob", diversity_filter_ratio=3, optimizer="sa")
    assert len(set(tune(diverse, 40).seen)) == 40


def test_annealing_finds_the_maxima_of_a_model():
    made = task()

    class Model:
        def predict(self, points):
            return -1e3 * np.array([cost_of(made.config_space.get(int(p))) for p in points])

    order = sorted(range(252), key=lambda i: cost_of(made.config_space.get(i)))
    found = SimulatedAnnealingOptimizer(made, n_iter=200, parallel_size=32).find_maximums(
        Model(), 8, exclusive=order[:2]
    )
    worst = cost_of(made.config_space.get(order[12]))
    assert len(found) == 8 and not set(found) & set(order[:2])
    assert all(cost_of(made.config_space.get(i)) <= worst for i in found)


def test_early_stopping_and_errors(caplog):
    made = GridSearchTuner(task())
    runner = tune(made, 252, early_stopping=20)
    assert len(runner.seen) < 252 and len(runner.seen) >= made.best_iter + 20
    broken = GridSearchTuner(task())
    broken.set_error_threshold(10)
    tune(broken, 30, runner=Ran(fails=lambda c: True))
    text = caplog.text
    assert "Too many errors happen" in text and "Could not find any valid schedule" in text
    assert broken.best_config is None and broken.best_flops == 0


class Elsewhere:
    """Measures like ``MeasureBatch`` with a device elsewhere: results come when they are waited for."""

    n_parallel, overlaps = 4, True

    def __init__(self):
        self.runner, self.events = Ran(), []

    def begin(self, inputs):
        self.events.append(("given", len(inputs)))

        def wait():
            self.events.append(("told", len(inputs)))
            return self.runner.run(inputs, inputs)

        return wait


MAKERS = {
    "grid": GridSearchTuner,
    "random": RandomTuner,
    "genetic": lambda t: GATuner(t, pop_size=8),
    "trees": lambda t: XGBTuner(t, plan_size=8),
    "droplet": DropletTuner,
}


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_the_next_batch_is_built_while_one_is_timed(name, monkeypatch):
    batch = Elsewhere()
    monkeypatch.setattr(tuner_module, "create_measure_batch", lambda *_: batch)
    made = MAKERS[name](task())
    seen = []
    made.tune(22, None, callbacks=[lambda tuner, inputs, results: seen.extend(i.config.index for i in inputs)])
    assert seen == batch.runner.seen and len(set(seen)) == len(seen)
    if name != "droplet":
        assert len(seen) == 22
    waiting = most = told = 0
    for what, count in batch.events:
        waiting += count if what == "given" else -count
        told += count if what == "told" else 0
        most = max(most, waiting)
        # A new plan and a new generation need all that was measured of the last one.
        if what == "given" and name in ("genetic", "trees") and told < 8:
            assert told + waiting <= 8
    assert waiting == 0 and most == (4 if name == "droplet" else 8)


@pytest.mark.parametrize("name", ["grid", "trees"])
def test_looking_ahead_measures_no_more_than_early_stopping_allows(name, monkeypatch):
    counts = []
    for overlaps in (False, True):
        random.seed(0), np.random.seed(0)
        batch = Elsewhere()
        batch.overlaps = overlaps
        monkeypatch.setattr(tuner_module, "create_measure_batch", lambda *_, b=batch: b)
        MAKERS[name](task()).tune(252, None, early_stopping=10)
        counts.append(batch.runner.seen)
    assert counts[0] == counts[1] and 10 < len(counts[0]) < 252


def test_transfer():
    old = task("tests/same")
    old.args = (1, 2)
    records = []
    for i in range(0, 252, 2):
        config = old.config_space.get(i)
        records.append(
            (autotvm.MeasureInput(old.target, old, config), autotvm.MeasureResult((cost_of(config),), 0, 1, 1))
        )
    made = XGBTuner(task("tests/same"), plan_size=16, feature_type="knob")
    made.load_history(records, min_seed_records=100)
    runner = tune(made, 16)
    first = [cost_of(made.task.config_space.get(i)) for i in runner.seen[:8]]
    everything = [cost_of(old.config_space.get(i)) for i in range(252)]
    assert np.mean(first) < np.quantile(everything, 0.1)
    few = XGBTuner(task("tests/same"), feature_type="knob")
    few.load_history(records[:20])
    assert not few.trials
    other = XGBTuner(task("tests/other"), feature_type="knob")
    other.load_history(records, min_seed_records=100)
    assert not other.trials
    with pytest.raises(NotImplementedError, match="XGBTuner does"):
        GridSearchTuner(task()).load_history(records)


def test_logs_and_progress(tmp_path, capsys):
    log, monitor = tmp_path / "sub" / "log", Monitor()
    made = GridSearchTuner(task())
    callbacks = [autotvm.callback.log_to_file(str(log)), autotvm.callback.progress_bar(12, prefix="[T]"), monitor]
    tune(made, 12, runner=Ran(fails=lambda c: c.index == 3), callbacks=callbacks)
    rows = list(load_from_file(log))
    assert [i.config.index for i, _ in rows] == list(range(12)) and [r.error_no for _, r in rows].count(4) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("\r[T] Current/Best:    0.00/   0.00 GFLOPS | Progress: (0/12) | ")
    assert "Progress: (12/12)" in shown and shown.endswith(" Done.\n")
    assert monitor.trial_scores()[3] == 0 and len(monitor.trial_timestamps()) == 12
    assert monitor.trial_scores().max() == pytest.approx(made.best_flops)
    with open(tmp_path / "other", "w") as out:
        tune(GridSearchTuner(task()), 4, callbacks=[autotvm.callback.log_to_file(out, protocol="pickle")])
    assert len(list(load_from_file(tmp_path / "other"))) == 4
    assert format_si_prefix(2.5e6, "M") == 2.5
    with pytest.raises(ValueError, match="SI prefix"):
        autotvm.callback.progress_bar(3, si_prefix="Q")


@pytest.mark.parametrize("make", [GridSearchTuner, RandomTuner, GATuner, DropletTuner,
                                  lambda t: XGBTuner(t, plan_size=8, feature_type="knob")])  # fmt: skip
def test_a_new_process_goes_on_with_the_log(make, tmp_path, monkeypatch):
    log = tmp_path / "log"
    first = tune(make(task()), 20, callbacks=[autotvm.callback.log_to_file(log)])
    with log.open("a") as out:
        out.write('{"input": ["llvm -keys=cpu", "tests/no_')  # killed while it wrote
    # The same process would measure anew, as it asked for a log of its own.
    monkeypatch.setattr(tuner_module, "_OWN_LOGS", set())
    again = make(task())
    second = tune(again, 32, callbacks=[autotvm.callback.log_to_file(log)])
    indices = [i.config.index for i, _ in load_from_file(log)]
    assert len(indices) == len(first.seen) + len(second.seen) == 32
    assert len(set(indices)) == 32
    assert again.best_flops == pytest.approx(1e9 / (1.0005 * min(cost_of(space().get(i)) for i in indices)), rel=1e-3)
    monkeypatch.setattr(tuner_module, "_OWN_LOGS", set())
    assert tune(make(task()), 32, callbacks=[autotvm.callback.log_to_file(log)]).seen == []


def test_logs_of_other_tasks_and_spaces_are_not_gone_on_with(tmp_path, monkeypatch):
    log = tmp_path / "log"
    tune(GridSearchTuner(task("tests/one")), 10, callbacks=[autotvm.callback.log_to_file(log)])
    monkeypatch.setattr(tuner_module, "_OWN_LOGS", set())
    assert len(tune(GridSearchTuner(task("tests/two")), 10, callbacks=[autotvm.callback.log_to_file(log)]).seen) == 10
    changed = task("tests/one")
    changed.config_space.define_knob("more", [1, 2])
    monkeypatch.setattr(tuner_module, "_OWN_LOGS", set())
    assert len(tune(GridSearchTuner(changed), 10, callbacks=[autotvm.callback.log_to_file(log)]).seen) == 10


def test_metrics():
    ranks = np.array([3, 1, 4, 2, 5])
    np.testing.assert_allclose(max_curve([1, 3, 2]), [1, 3, 3])
    np.testing.assert_allclose(mean_curve([1, 3, 2]), [1, 2, 2])
    np.testing.assert_array_equal(get_rank([0.1, 0.9, 0.5]), [3, 1, 2])
    want = [len([r for r in ranks[:n] if r <= n]) / n for n in range(1, 6)]
    np.testing.assert_allclose(recall_curve(ranks), want)
    np.testing.assert_allclose(cover_curve(ranks), [0, 1 / 2, 1 / 3, 4 / 4, 5 / 5])
    assert average_recall([5, 4, 3], [0.9, 0.8, 0.7], 3) == 1.0


def test_diverse_plans_cover_values():
    knobs = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 2]])
    assert sorted(submodular_pick(np.zeros(5), knobs, 3)) == [0, 3, 4]
    assert submodular_pick(np.array([0, 0, 0, 0, 9.0]), knobs, 1) == [4]


@pytest.mark.parametrize("seed", range(6))
def test_the_t_test_is_welchs(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(1, 0.2, rng.integers(2, 9)), rng.normal(1.1, 0.4, rng.integers(2, 9))
    assert t_test(a, b) == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, rel=1e-6)


def test_droplet_search_only_offers_points_that_exist():
    dims = (5, 4, 3)
    valid = {p for p in itertools.product(*map(range, dims)) if p[0] * p[1] != 6 and p[2] != 1}
    search, seen = DropletSearch(dims, (0, 0, 0), valid=lambda p: p in valid, batch=3), []
    while search.has_next():
        points = search.propose(2)
        seen += points
        search.update(points, [[1.0 + abs(p[0] - 3) + abs(p[1] - 1) + p[2]] * 2 for p in points])
    assert set(seen) <= valid and len(set(seen)) == len(seen)
    assert search.best_point == (3, 1, 0)
    with pytest.raises(ValueError, match="no point of a grid"):
        DropletSearch(dims, (5, 0, 0))
