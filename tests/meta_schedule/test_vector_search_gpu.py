"""The vectorised search on GPU targets: features and verdicts of formulas are those of the lowered programs."""

import numpy as np
import pytest
from gpu_workloads import CONTEXTS, context, conv16, matmul16

from relaxish import meta_schedule as ms
from relaxish.meta_schedule.postproc import VerifyGPUCode
from relaxish.meta_schedule.schedule_util import schedule_for_tuning
from relaxish.meta_schedule.search_strategy.population import VectorPool, VectorSketch


# Their programs take longest to replay.
LONG = ("batch_matmul", "conv2d_bias_relu", "conv2d_nchw", "conv2d_wmma", "matmul_odd")
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in sorted(CONTEXTS)]


def sketches_of(tuning, most=9):
    for space in tuning.generate_design_space()[:most]:
        sketch = VectorSketch(tuning, space.trace.simplified(True))
        variant = sketch.variant(())
        assert variant is not None, sketch.refused
        yield sketch, variant


def accepted(tuning, sketch, row):
    """What the postprocs say of a row."""
    sch = schedule_for_tuning(tuning.mod, 1)
    sketch.table.to_trace(row, ()).apply_to_schedule(sch, remove_postproc=True)
    sch.enter_postproc()
    return all(postproc.apply(sch) for postproc in tuning.space_generator.postprocs)


@pytest.mark.parametrize("name", NAMES)
def test_features_equal_those_of_the_program(name):
    rng = np.random.default_rng(7)
    for sketch, variant in sketches_of(CONTEXTS[name](), 9 if name == "softmax" else 1):
        rows = sketch.table.sample(rng, 5)
        for mutate in (sketch.table.mutate_tiles, sketch.table.mutate_threads, sketch.table.mutate_unroll):
            mutate(rng, rows)
        fast = variant.features(rows)
        for k, row in enumerate(rows):
            mine = np.stack([block[k] for block in fast])
            slow = sketch.replayed_features(row, ())
            np.testing.assert_allclose(mine, slow, rtol=1e-4, atol=1e-3, err_msg=str(row))


@pytest.mark.parametrize("name", NAMES)
def test_masks_equal_the_verdict_on_the_lowered_program(name):
    rng = np.random.default_rng(11)
    tuning = CONTEXTS[name]()
    for sketch, variant in sketches_of(tuning, 1):
        rows = sketch.table.sample(rng, 4000)
        valid = variant.valid(rows)
        some = np.concatenate([rows[valid][:3], rows[~valid][:3]])
        for row, mine in zip(some, variant.valid(some), strict=True):
            assert accepted(tuning, sketch, row) == mine, row


def test_near_the_limit_of_shared_memory():
    """Rows that just fit and rows that just do not."""
    rng = np.random.default_rng(3)
    tuning = CONTEXTS["matmul"]()
    for sketch, variant in sketches_of(tuning):
        rows = sketch.table.sample(rng, 20000)
        limits = variant.compiled.limits
        env = variant.compiled.environment(rows)
        used = limits.shared_bytes(env, limits.heads[0])
        fits = limits._threads_fit(env, limits.heads[0])
        near = np.argsort(np.where(fits, np.abs(used - limits.max_shared), 1e9))[:6]
        assert used[near].min() <= limits.max_shared
        for row, mine in zip(rows[near], variant.valid(rows[near]), strict=True):
            assert accepted(tuning, sketch, row) == mine, row


def test_a_search_proposes_valid_candidates_from_the_first_round():
    tuning = CONTEXTS["matmul"]()
    strategy = tuning.search_strategy
    tuning.pre_tuning(max_trials=8, num_trials_per_iter=8)
    assert strategy._pool.usable(), strategy._pool.reason
    candidates = tuning.generate_measure_candidates()
    assert len(candidates) == 8
    assert not strategy._failures
    assert any(isinstance(p, VerifyGPUCode) for p in tuning.space_generator.postprocs)
    tuning.post_tuning()


def test_mutations_change_vector_lengths_and_threads():
    rng = np.random.default_rng(0)
    tuning = CONTEXTS["softmax"]()
    changed = 0
    for sketch, _ in sketches_of(tuning):
        rows = sketch.table.sample(rng, 50)
        before = rows.copy()
        sketch.table.mutate_threads(rng, rows)
        moved = (rows != before).any(axis=1)
        assert moved.all() or not sketch.table.threads
        changed += int(moved.sum())
    assert changed
    ((sketch, _),) = sketches_of(CONTEXTS["matmul"]())
    assert len(sketch.table.fetches) == 2
    rows = sketch.table.sample(rng, 400)
    before = rows.copy()
    sketch.table.mutate_tiles(rng, rows)
    lanes = [sketch.table.categories[i][1] for i in sketch.table.fetches]
    assert (rows[:, lanes] != before[:, lanes]).any()


def test_rows_and_traces_are_inverse():
    rng = np.random.default_rng(0)
    for name in ("matmul", "matmul_mma", "softmax"):
        for sketch, variant in sketches_of(CONTEXTS[name](), 1):
            for row in variant.sample(rng, 3):
                back, locations = sketch.table.from_trace(sketch.table.to_trace(row, ()))
                assert locations == () and (back == row).all()


def test_a_sketch_without_formulas_is_replayed():
    """A category that is no unroll depth, vector length or thread extent, and changes the number of loops."""

    def odd(sch):
        block = sch.get_block("C")
        i, j, k = sch.get_loops(block)
        choice = sch.sample_categorical([1, 2], [0.5, 0.5])
        sch.annotate(block, "length", choice)
        sch.bind(sch.fuse(i, j), "blockIdx.x")
        loop = sch.sample_compute_location(block)
        assert loop is not None

    tuning = context(CONTEXTS["matmul"]().mod, space=ms.space_generator.ScheduleFn(odd))
    traces = [s.trace.simplified(True) for s in tuning.generate_design_space()]
    pool = VectorPool(tuning, traces)
    assert not pool.usable() and pool.left_out and pool.reason


@pytest.mark.parametrize("kernel", [1, 3])
def test_products_of_any_shape_have_a_sketch(kernel):
    """Rows that fill no fragment are padded, windows of one element are no dimension."""
    tuning = context(conv16(7, 24, 40, kernel, kernel // 2))
    (space, _) = tuning.generate_design_space()
    assert any(
        inst.attrs[0] == "meta_schedule.auto_tensorize" for inst in space.trace.insts if inst.kind.name == "Annotate"
    )


def test_a_product_that_does_not_fit_falls_back():
    tuning = context(matmul16(1, 64, 64, "float32"))
    (space,) = tuning.generate_design_space()
    assert space.trace is not None
