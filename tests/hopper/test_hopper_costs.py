"""The table of costs that default schedules and the search estimate products by warpgroups with."""

from __future__ import annotations

import json

import numpy as np
import pytest

from relaxish.carver import HopperCosts, TileWork, costs_of, device_key, hopper
from relaxish.support.errors import MalformedDataError
from relaxish.target import Target
from relaxish.testing import use_cuda_provider

TARGET = Target("nvidia/nvidia-h100")


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A folder of tables of its own."""
    monkeypatch.setattr(hopper, "CALIBRATION", tmp_path)

    def write(key, text):
        (tmp_path / f"{key}.json").write_text(text if isinstance(text, str) else json.dumps(text))
        hopper._table.cache_clear()

    yield write
    hopper._table.cache_clear()


def test_measured_costs_take_the_place_of_published_ones(tables):
    tables("nvidia-h100", {"costs": {"bytes_from_l2": 5000, "processors": 114}, "measured": [1, 2]})
    assert costs_of(TARGET) == HopperCosts(bytes_from_l2=5000.0, processors=114)
    assert costs_of(Target("nvidia/nvidia-h200")) == HopperCosts()
    named = Target({"kind": "cuda", "arch": "sm_90a", "model": "NVIDIA-H100-80GB-HBM3", "multi_processor_count": 132})
    assert costs_of(named) == HopperCosts(bytes_from_l2=5000.0)


@pytest.mark.parametrize(
    "text", ['{"costs": {"bytes_from_l3": 1}}', '{"costs": {"step": 0}}', '{"costs": {"step": true}}', '{"costs": [1]}', "{"]
)  # fmt: skip
def test_bad_tables_are_refused(tables, text):
    tables("nvidia-h100", text)
    with pytest.raises(MalformedDataError):
        costs_of(TARGET)


def test_processors_come_from_the_target():
    few = costs_of(Target({"kind": "cuda", "arch": "sm_90a", "multi_processor_count": 78}))
    assert few.processors == few.concurrent(2) == 78 and few.concurrent(4) == 72
    with use_cuda_provider("null"):
        here = Target.from_device("cuda")
    assert int(here.attrs["multi_processor_count"]) == costs_of(here).processors == 132
    assert Target(str(here)) == here


def test_names_of_devices():
    names = {"NVIDIA H100 PCIe": "nvidia-h100", "NVIDIA GeForce RTX 4090": "nvidia-geforce-rtx-4090", "": "", "x": "x"}
    assert {name: device_key(name) for name in names} == names


def test_columns_are_estimated_as_numbers_are():
    rng, costs = np.random.default_rng(0), HopperCosts()
    count = 50
    columns = TileWork(
        rows=64 * rng.integers(1, 5, count), columns=32 * rng.integers(1, 9, count), width=64 * rng.integers(1, 4, count),
        tiles=rng.integers(1, 400, count), steps=rng.integers(1, 80, count), stages=rng.integers(2, 9, count),
        sharing_columns=rng.integers(1, 5, count), sharing_rows=rng.integers(1, 3, count), split=2 ** rng.integers(0, 4, count),
        persistent=rng.choice([0, 128, 132], count), direct=rng.random(count) < 0.5,
    )  # fmt: skip
    every = costs.cycles(columns)
    for i in range(count):
        one = TileWork(**{name: getattr(values, "item", lambda: values)() if np.ndim(values) == 0 else values[i].item()
                          for name, values in vars(columns).items()})  # fmt: skip
        assert costs.cycles(one) == pytest.approx(every[i])
    assert (costs.seconds(columns) > costs.launch).all()


def test_clusters_that_cannot_run_at_once_wait():
    """33 clusters of 4 on a chip where 32 have a place: the last begins when others are done."""
    costs = HopperCosts()
    work = {"rows": 64, "columns": 128, "width": 128, "tiles": 264, "steps": 64, "sharing_rows": 4}
    here, all_processors = (costs.cycles(TileWork(**work, persistent=n)) for n in (128, 132))
    assert here == pytest.approx(costs.cycles(TileWork(**work, persistent=0)))
    assert all_processors > 1.3 * here
