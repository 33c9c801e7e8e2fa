"""The table of a device: fitted from times made with known constants, written and read back; wild times, lost lines."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from relaxish.carver import HopperCosts, hopper
from relaxish.target import Target
from relaxish.testing import use_cuda_provider

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TARGET = Target("nvidia/nvidia-h100", host="llvm")


@pytest.fixture
def gpu(monkeypatch):
    """The section's modules."""
    for name in [n for n in sys.modules if n == "gpu" or n.startswith("gpu.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from gpu import calibration, fit

    yield argparse.Namespace(calibration=calibration, fit=fit)
    for name in [n for n in sys.modules if n == "gpu" or n.startswith("gpu.")]:
        del sys.modules[name]


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.setattr(hopper, "CALIBRATION", tmp_path / "tables")
    hopper._table.cache_clear()
    yield tmp_path / "tables"
    hopper._table.cache_clear()


def known(gpu, seed):
    """Constants up to 1.8 times off the published ones."""
    rng = np.random.default_rng(seed)
    moved = {name: getattr(HopperCosts(), name) * float(np.exp(rng.uniform(-0.6, 0.6))) for name in gpu.fit.FITTED}
    return rng, replace(HopperCosts(), **moved)


def timed(gpu, entries, costs, rng, wild=0.03):
    """Times by known constants with 2 percent of noise, and some that something else made longer."""
    works = [gpu.calibration.work_of(e) for e in entries]
    seconds = costs.seconds(gpu.fit.columns(works)) * np.exp(rng.normal(0, 0.02, len(works)))
    seconds = np.where(rng.random(len(works)) < wild, seconds * rng.uniform(1.5, 3, len(works)), seconds)
    return works, seconds


@pytest.mark.parametrize("seed", [0, 1, 2, 6])
def test_known_constants_are_found_again(gpu, seed):
    entries = gpu.calibration.entries(HopperCosts(), False)
    rng, costs = known(gpu, seed)
    works, seconds = timed(gpu, entries, costs, rng)
    made = gpu.fit.fit([gpu.fit.Measurement(w, s) for w, s in zip(works, seconds, strict=True)], HopperCosts())
    assert made.better and made.error < 0.03 < 0.1 < made.error_before
    assert made.correlation > made.correlation_before
    # What many of the measured times depend on is found.
    column = gpu.fit.columns(works)
    plain = costs.seconds(column)
    telling = [
        name for name in gpu.fit.FITTED
        if np.mean(replace(costs, **{name: 1.2 * getattr(costs, name)}).seconds(column) / plain - 1 > 0.02) > 0.25
        or np.mean(1 - replace(costs, **{name: 1.2 * getattr(costs, name)}).seconds(column) / plain > 0.02) > 0.25
    ]  # fmt: skip
    assert len(telling) >= 2
    for name in telling:
        assert getattr(made.costs, name) == pytest.approx(getattr(costs, name), rel=0.15), name
    # Products that were not measured are estimated as well as those that were.
    fresh = [
        gpu.calibration.Entry(3072, 1536, k, e.config) for k in (768, 2304) for e in entries[:60] if e.config.split == 1
    ]
    column = gpu.fit.columns([gpu.calibration.work_of(e) for e in fresh])
    assert np.median(np.abs(made.costs.seconds(column) / costs.seconds(column) - 1)) < 0.05


def test_constants_without_measurements_stay(gpu):
    """Nothing splits a depth: what that costs is not known from these times."""
    entries = [
        e for e in gpu.calibration.entries(HopperCosts(), False) if e.config.split == 1 and e.config.epilogue == 0
    ]
    rng, costs = known(gpu, 5)
    works, seconds = timed(gpu, entries, costs, rng, wild=0.0)
    made = gpu.fit.fit([gpu.fit.Measurement(w, s) for w, s in zip(works, seconds, strict=True)], HopperCosts())
    for name in ("cluster_bytes", "cluster_barrier", "bytes_out_direct"):
        assert getattr(made.costs, name) == pytest.approx(getattr(HopperCosts(), name), rel=1e-6)


def test_too_few_measurements_make_no_constants(gpu):
    entry = gpu.calibration.entries(HopperCosts(), False)[0]
    measured = [gpu.fit.Measurement(gpu.calibration.work_of(entry), 1e-4 + i * 1e-6) for i in range(20)]
    assert gpu.fit.fit(measured, HopperCosts()) is None
    measured += [gpu.fit.Measurement(measured[0].work, bad) for bad in (0.0, float("nan"), float("inf"))] * 20
    assert gpu.fit.fit(measured, HopperCosts()) is None


def test_times_that_follow_no_estimate_are_not_kept(gpu):
    """A hundred times too long, and without an order: nearer than before is not near."""
    entries = gpu.calibration.entries(HopperCosts(), False)
    rng = np.random.default_rng(8)
    works, seconds = timed(gpu, entries, HopperCosts(), rng)
    seconds = 100 * seconds * np.exp(rng.normal(0, 2, len(works)))
    made = gpu.fit.fit([gpu.fit.Measurement(w, s) for w, s in zip(works, seconds, strict=True)], HopperCosts())
    assert made.error < made.error_before and not made.better


def test_entries(gpu):
    every = gpu.calibration.entries(HopperCosts(), False)
    names = [e.name for e in every]
    assert names[0] == names[-1] and len(set(names)) == len(names) - 1
    assert {e.m for e in every} == {512, 1024, 2048, 4096, 8192}
    assert {e.k for e in every if (e.m, e.n) == (4096, 4096)} == {512, 4096, 16384}
    assert {e.config.split for e in every} == {1, 2, 4, 8}
    assert {(e.config.cluster, e.config.cluster_columns) for e in every} >= {(1, 1), (2, 1), (1, 2)}
    first = every[:6]
    assert {e.config.group for e in first} == {1, 4, 8, 16} and {e.config.epilogue for e in first} == {0, 1}
    assert {e.config.persistent for e in first} >= {0}
    # The first round has all products and all ways of sharing in it.
    early = every[: 6 + 7 * 16]
    assert len({(e.m, e.n, e.k) for e in early}) == 7 == len({(e.m, e.n, e.k) for e in every})
    assert {e.config.split for e in early} == {1, 2, 4, 8}
    batches = gpu.calibration.in_batches(every, 12)
    assert [e for batch in batches for e in batch] == every
    assert all(len(batch) <= 12 and len({(e.m, e.n, e.k) for e in batch}) == 1 for batch in batches)
    assert sum(a[0].k != b[0].k for a, b in itertools.pairwise(batches)) < 60  # arguments are drawn anew


def written(gpu, tables, tmp_path, driver, lines):
    from gpu.journal import Journal

    path = tmp_path / "calibration.jsonl"
    path.write_text("".join(lines))
    journal = Journal(tmp_path / "journal.json")
    options = argparse.Namespace(out=tmp_path, target=TARGET, until=time.time() + 60, small=False)
    with use_cuda_provider(driver):
        gpu.calibration.run("fit", options, journal)
    return journal


@pytest.fixture
def lines(gpu):
    entries = gpu.calibration.entries(HopperCosts(), False)
    rng, costs = known(gpu, 3)
    works, seconds = timed(gpu, entries, costs, rng)
    made = [
        json.dumps({"name": e.name, "m": e.m, "n": e.n, "k": e.k, "config": asdict(e.config), "seconds": s}) + "\n"
        for e, s in zip(entries, seconds.tolist(), strict=True)
    ]
    return [
        *made,
        json.dumps({"name": "a", "m": 1, "n": 1, "k": 1, "config": {}, "failed": "hangs"}) + "\n",
        '{"name": "torn',
    ]


def test_the_table_is_written_and_read(gpu, tables, tmp_path, lines):
    from relaxish.runtime.nvidia.null_driver import NullDriver

    driver = NullDriver(attributes={"device_name": "NVIDIA H100 80GB HBM3"})
    journal = written(gpu, tables, tmp_path, driver, lines)
    row = journal.rows["fit"]
    assert row["right"] and row["kept"] and row["error"] < 0.03 and row["failures"] == {"hangs": 1}
    assert 0 <= row["spread of the same"] < 0.3
    table = json.loads((tmp_path / "calibration" / "nvidia-h100.json").read_text())
    assert (
        len(table["measured"]) == len(lines) - 2 and not tables.exists()
    )  # this is no device: the package stays as it is
    best = journal.rows["4096x4096x4096"]
    assert best["choice after / fastest"] <= best["choice before / fastest"] and best["choice after / fastest"] < 1.1

    # The same from a real device.
    driver.simulated = False
    written(gpu, tables, tmp_path, driver, lines)
    hopper._table.cache_clear()
    costs = hopper.costs_of(TARGET)
    assert costs.bytes_into_processor == table["costs"]["bytes_into_processor"] != HopperCosts().bytes_into_processor
    assert costs.processors == 132


def test_few_measurements_leave_the_table_alone(gpu, tables, tmp_path, lines):
    from relaxish.runtime.nvidia.null_driver import NullDriver

    driver = NullDriver(attributes={"device_name": "NVIDIA H100 80GB HBM3"})
    driver.simulated = False
    journal = written(gpu, tables, tmp_path, driver, lines[:30])
    assert journal.rows["fit"]["skipped"] == "30 measurements are too few" and not tables.exists()
    assert json.loads((tmp_path / "calibration" / "nvidia-h100.json").read_text())["costs"] == {}


@pytest.mark.slow
def test_measuring_without_a_device(gpu, tables, tmp_path, monkeypatch):
    """Entries are really built and run by the null device; times are simulated."""
    from gpu.journal import Journal

    monkeypatch.setenv("RELAXISH_CUDA_PROVIDER", "null")
    journal = Journal(tmp_path / "journal.json")
    options = argparse.Namespace(out=tmp_path, target=TARGET, until=time.time() + 120, small=True)
    gpu.calibration.run("measure", options, journal)
    row = journal.rows["measure"]
    assert row["right"] and row["measured"] == row["of"] and row["failed entries"] == 0
    found = gpu.calibration.read(tmp_path / "calibration.jsonl")
    assert len(found) == row["of"] and all(0 < line["seconds"] < 1 for line in found)
