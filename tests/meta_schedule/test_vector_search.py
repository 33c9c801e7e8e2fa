"""The vectorised search: its features are those of the program, and it is deterministic."""

import time

import numpy as np
import pytest

from relaxish import meta_schedule as ms
from relaxish import te
from relaxish.meta_schedule.search_strategy.population import VectorPool, VectorSketch
from relaxish.meta_schedule.testing import te_workload
from relaxish.target import Target
from relaxish.tir.schedule import ScheduleError

WORKLOADS = {
    "matmul": lambda: te_workload.matmul(64, 96, 128),
    "matmul_relu": lambda: te_workload.matmul_relu(128, 128, 64),
    "conv2d": lambda: te_workload.conv2d_nhwc(1, 28, 28, 32, 64, 3, 1, 1),
}


def context_of(tensors, seed=1):
    func = te.create_prim_func(tensors)
    return ms.TuneContext(func, target=Target("llvm -num-cores=4"), space_generator="post-order-apply",
                          search_strategy="evolutionary", rand_state=seed)


@pytest.mark.parametrize("name", ["matmul", "matmul_relu", "conv2d"])
def test_features_equal_those_of_the_program(name):
    context = context_of(WORKLOADS[name]())
    rng = np.random.default_rng(3)
    compiled = 0
    for space in context.generate_design_space():
        sketch = VectorSketch(context, space.trace.simplified(True), rng)
        for locations in sketch.all_locations()[:2]:
            variant = sketch.variant(locations)
            if variant is None:
                # A place under which the outer loops cannot run in parallel is refused by the schedule itself.
                assert "ScheduleError" in sketch.refused[locations], sketch.refused
                continue
            compiled += 1
            rows = sketch.table.sample(rng, 8)
            sketch.table.mutate_tiles(rng, rows)
            sketch.table.mutate_parallel(rng, rows)
            fast = variant.features(rows)
            for k, row in enumerate(rows):
                try:
                    slow = sketch.replayed_features(row, locations)
                except ScheduleError:
                    continue  # a halo that makes the outer loops recompute each other's values
                mine = np.stack([block[k] for block in fast])
                np.testing.assert_allclose(mine, slow, rtol=1e-4, atol=1e-3, err_msg=str((locations, row)))
    assert compiled


def test_mutations_keep_products_and_limits():
    context = context_of(WORKLOADS["matmul"]())
    rng = np.random.default_rng(0)
    for space in context.generate_design_space():
        table = VectorSketch(context, space.trace.simplified(True), rng).table
        rows = table.sample(rng, 500)
        for _ in range(5):
            table.mutate_tiles(rng, rows)
        for _, at, n, extent, limit in table.tiles:
            assert (rows[:, at:at + n].prod(axis=1) == extent).all()
            assert limit <= 0 or (rows[:, at + n - 1] <= limit).all()


def test_rows_and_traces_are_inverse():
    context = context_of(WORKLOADS["matmul"]())
    rng = np.random.default_rng(0)
    pool = VectorPool(context, [s.trace.simplified(True) for s in context.generate_design_space()], rng)
    assert pool.usable(), pool.reason
    for sketch in pool.sketches:
        for row in sketch.table.sample(rng, 4):
            sketch.table.mutate_parallel(rng, row[None])
            back, locations = sketch.table.from_trace(sketch.table.to_trace(row, ()))
            assert locations == () and (back == row).all()


def test_search_rate(capsys):
    context = context_of(WORKLOADS["matmul"]())
    spaces = [s.trace.simplified(True) for s in context.generate_design_space()]
    pool = VectorPool(context, spaces, np.random.default_rng(0))
    model = ms.cost_model.RandomModel(seed=1)
    strategy = ms.search_strategy.EvolutionarySearch()
    strategy._cost_model, strategy._measured = model, set()
    pool.search(strategy, [], 64)
    begin, before = time.perf_counter(), pool.examined
    pool.search(strategy, [], 64)
    rate = (pool.examined - before) / (time.perf_counter() - begin)
    with capsys.disabled():
        print(f"\n{rate:.0f} candidates per second")
    assert rate > 5000
