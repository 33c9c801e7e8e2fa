"""The vectorised search: its features are those of the program, and it is deterministic."""

import time

import numpy as np
import pytest
from search_workloads import WORKLOADS

from relaxish import meta_schedule as ms
from relaxish import te
from relaxish.meta_schedule.testing import te_workload
from relaxish.meta_schedule.search_strategy.population import VectorPool, VectorSketch
from relaxish.target import Target

TILES, PARALLEL = ms.mutator.MutateTileSize(), ms.mutator.MutateParallel(16)


def context_of(tensors, seed=1):
    func = te.create_prim_func(tensors)
    return ms.TuneContext(
        func,
        target=Target("llvm -num-cores=4"),
        space_generator="post-order-apply",
        search_strategy="evolutionary",
        rand_state=seed,
    )


def compare(sketch, variant, rng, count):
    """Features of random candidates by formulas and by their programs; how many there were."""
    rows = variant.sample(rng, count)
    TILES.on_columns(sketch.table, rng, rows)
    PARALLEL.on_columns(sketch.table, rng, rows)
    rows = rows[variant.valid(rows)]
    if not len(rows):
        return 0
    compared = 0
    fast = variant.features(rows)
    for k, row in enumerate(rows):
        mine = np.stack([block[k] for block in fast])
        slow = sketch.replayed_features(row, variant.locations)
        np.testing.assert_allclose(mine, slow, rtol=1e-4, atol=1e-3, err_msg=str((variant.locations, row)))
        compared += 1
    return compared


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_features_equal_those_of_the_program(name):
    context = context_of(WORKLOADS[name]())
    rng = np.random.default_rng(3)
    spaces = context.generate_design_space()
    compared = 0
    for space in spaces[:3] + spaces[-2:]:
        sketch = VectorSketch(context, space.trace.simplified(True))
        for locations in sketch.all_locations()[:2]:
            variant = sketch.variant(locations)
            if variant is not None:
                compared += compare(sketch, variant, rng, 6)
    assert compared


def test_a_location_that_is_no_loop_belongs_to_another_variant():
    context = context_of(WORKLOADS["conv2d"]())
    rng = np.random.default_rng(3)
    sketch = VectorSketch(context, context.generate_design_space()[0].trace.simplified(True))
    locations = next(x for x in sketch.all_locations() if x[0] > 1)
    variant = sketch.variant(locations)
    rows = sketch.table.sample(rng, 24)
    for row, valid in zip(rows, variant.valid(rows)):
        reading, _ = sketch.read(row, locations)
        assert (reading is not None) == valid


def test_mutations_keep_products_and_limits():
    context = context_of(WORKLOADS["matmul"]())
    rng = np.random.default_rng(0)
    spaces = context.generate_design_space()
    assert spaces
    for space in spaces:
        table = VectorSketch(context, space.trace.simplified(True)).table
        rows = table.sample(rng, 500)
        before = rows.copy()
        for _ in range(5):
            TILES.on_columns(table, rng, rows)
        assert (rows != before).any(axis=1).mean() > 0.5
        for _, at, n, extent, limit in table.tiles:
            assert (rows[:, at : at + n].prod(axis=1) == extent).all()
            assert limit <= 0 or (rows[:, at + n - 1] <= limit).all()


def test_rows_and_traces_are_inverse():
    context = context_of(WORKLOADS["matmul"]())
    rng = np.random.default_rng(0)
    pool = VectorPool(context, [s.trace.simplified(True) for s in context.generate_design_space()])
    assert pool.usable(), pool.reason
    pool.learn()
    assert pool.variants(8), pool.reason
    for sketch in pool.sketches:
        for row in sketch.table.sample(rng, 4):
            PARALLEL.on_columns(sketch.table, rng, row[None])
            back, locations = sketch.table.from_trace(sketch.table.to_trace(row, ()))
            assert locations == () and (back == row).all()


class Trained(ms.cost_model.RandomModel):
    """Random scores that count as learnt."""

    trained = True


def test_search_rate(capsys):
    context = context_of(WORKLOADS["matmul"]())
    spaces = [s.trace.simplified(True) for s in context.generate_design_space()]
    pool = VectorPool(context, spaces)
    strategy = ms.search_strategy.EvolutionarySearch()
    strategy._cost_model, strategy._measured = Trained(seed=1), set()
    pool.search(strategy, [], 64)
    begin, before = time.perf_counter(), pool.examined
    pool.search(strategy, [], 64)
    rate = (pool.examined - before) / (time.perf_counter() - begin)
    with capsys.disabled():
        print(f"\n{rate:.0f} candidates per second")
    assert rate > 5000


@pytest.mark.parametrize(
    "tensors",
    [
        lambda: te_workload.conv2d_nhwc(1, 8, 8, 32, 32, 3, 1, 1, 1, 4),
        lambda: te_workload.conv2d_transpose_nhwc(1, 6, 6, 16, 32, 4, 2, 1),
    ],
    ids=["grouped", "transposed"],
)
def test_what_a_tile_reads_of_groups_or_of_a_spread_input_is_a_table(tensors):
    """A tile of outputs reads one group of input channels, or several; a spread input is read by every other one."""
    context = context_of(tensors())
    rng = np.random.default_rng(5)
    sketch = VectorSketch(context, context.generate_design_space()[-1].trace.simplified(True))
    known = [v for x in sketch.all_locations()[:4] if (v := sketch.variant(x)) is not None]
    assert len(known) >= 3, sketch.refused
    assert any(v.compiled.tables for v in known)
    assert sum(compare(sketch, variant, rng, 8) for variant in known) >= 10
