"""The vectorised search on GPU targets: features and verdicts of formulas are those of the lowered programs."""

import functools

import numpy as np
import pytest
from gpu_workloads import CONTEXTS, context, conv16, matmul16, pipelined_wmma, scaled_rows

from relaxish import meta_schedule as ms
from relaxish.meta_schedule.feature_extractor.repeated import Repeated
from relaxish.meta_schedule.mutator import MutateThreadBinding, MutateTileSize, MutateUnroll
from relaxish.meta_schedule.postproc import VerifyGPUCode
from relaxish.meta_schedule.analysis.schedules import schedule_for_tuning
from relaxish.meta_schedule.search_strategy.population import VectorPool, VectorSketch


# Their programs take longest to replay.
LONG = (
    "batch_matmul",
    "conv2d_bias_relu",
    "conv2d_mma",
    "conv2d_mma_pipeline",
    "conv2d_nchw",
    "conv2d_wmma",
    "conv2d_wmma_pipeline",
    "matmul_odd",
    "winograd_2",
)
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in sorted(CONTEXTS)]


def sketches_of(tuning, most=9):
    for space in tuning.generate_design_space()[:most]:
        sketch = VectorSketch(tuning, space.trace.simplified(True))
        variant = sketch.variant(())
        assert variant is not None, sketch.refused
        yield sketch, variant


@functools.cache
def learnt(name):
    """A context with its first sketch (softmax: all) and their variants; learning takes most of the time."""
    tuning = CONTEXTS[name]()
    return tuning, list(sketches_of(tuning, 9 if name == "softmax" else 1))


def accepted(tuning, sketch, row):
    """What the postprocs say of a row."""
    sch = schedule_for_tuning(tuning.mod, 1)
    sketch.table.to_trace(row, ()).apply_to_schedule(sch, remove_postproc=True)
    sch.enter_postproc()
    return all(postproc.apply(sch) for postproc in tuning.space_generator.postprocs)


def regular(variant, rows):
    """The rows that the formulas are known for: others are left to those who replay, or to nobody."""
    return rows[variant.compiled.regular(variant.compiled.environment(rows))]


@pytest.mark.parametrize("name", NAMES)
def test_features_equal_those_of_the_program(name):
    rng = np.random.default_rng(7)
    for sketch, variant in learnt(name)[1]:
        rows = sketch.table.sample(rng, 5 if not variant.compiled.tables else 60)
        for mutator in (MutateTileSize(), MutateThreadBinding(), MutateUnroll()):
            mutator.on_columns(sketch.table, rng, rows)
        rows = regular(variant, rows)[:5]
        assert len(rows) == 5
        fast = variant.features(rows)
        for k, row in enumerate(rows):
            mine = np.stack([block[k] for block in fast])
            slow = sketch.replayed_features(row, ())
            np.testing.assert_allclose(mine, slow, rtol=1e-4, atol=1e-3, err_msg=str(row))


@pytest.mark.parametrize("name", NAMES)
def test_masks_equal_the_verdict_on_the_lowered_program(name):
    rng = np.random.default_rng(11)
    tuning, found = learnt(name)
    for sketch, variant in found[:1]:
        rows = regular(variant, sketch.table.sample(rng, 4000))
        valid = variant.valid(rows)
        some = np.concatenate([rows[valid][:3], rows[~valid][:3]])
        for row, mine in zip(some, variant.valid(some), strict=True):
            assert accepted(tuning, sketch, row) == mine, row


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["matmul_wmma_pipeline", "conv2d_mma", "conv2d_mma_pipeline", "conv2d_wmma_pipeline", "winograd"]
)
def test_masks_of_hundreds_of_rows(name):
    """Admitted rows, refused ones, and those that all but just fit into shared memory."""
    tuning, found = learnt(name)
    for sketch, variant in found:
        rows = sketch.table.sample(np.random.default_rng(13), 20000)
        limits, env = variant.compiled.limits, variant.compiled.environment(rows)
        used = sum(np.broadcast_to(limits.shared_bytes(env, head), (len(rows),)) for head in limits.heads)
        fits = np.logical_and.reduce(
            [np.broadcast_to(limits._threads_fit(env, head), used.shape) for head in limits.heads]
        )
        near = np.argsort(np.where(fits, np.abs(used - limits.max_shared), 1e9), kind="stable")
        valid = variant.valid(rows)
        some = np.concatenate([rows[valid][:75], rows[~valid][:50], rows[near[:75]]])
        for row, mine in zip(some, variant.valid(some), strict=True):
            assert accepted(tuning, sketch, row) == mine, row


@pytest.mark.parametrize("whole", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_vectors_of_values_wider_than_what_is_stored(whole):
    """Eight float16 fit into one store, eight float32 that they are computed of do not."""
    tuning = context(scaled_rows(whole=whole))
    sketch, variant = next(sketches_of(tuning, 1))
    rows = sketch.table.sample(np.random.default_rng(17), 2000)
    limits, env = variant.compiled.limits, variant.compiled.environment(rows)
    (fetch,) = (
        f for f in limits.fetches if f.element_bytes == ((4, 4) if whole else (2, 4)) and f.block.startswith("scaled")
    )
    wide = limits.variant.shares(env, fetch, 0).lanes == 8
    valid = variant.valid(rows)
    assert (wide & ~valid).any() and (wide & valid).any() != whole
    for row in np.concatenate([rows[wide & valid][:6], rows[wide & ~valid][:6], rows[~wide & valid][:4]]):
        assert accepted(tuning, sketch, row) == variant.valid(row[None])[0], row


@pytest.mark.parametrize("name", ["matmul_wmma_pipeline", pytest.param("conv2d_mma_pipeline", marks=pytest.mark.slow)])
def test_pipelines_keep_several_versions_of_tiles(name):
    """A copy that goes through registers has those under the name of its tile, which are no versions of it."""
    for _, variant in learnt(name)[1]:
        versions = variant.compiled.limits.versions
        wanted = 2 if "wmma" in name else 3
        assert [times for tile, times in versions.items() if not tile.startswith("C_")] == [wanted, wanted]


@pytest.mark.slow
def test_a_window_of_one_element_is_not_pipelined():
    """Its axes are no part of the product: their loops would stand between the pipelines, which nobody can lower."""
    tuning = pipelined_wmma(conv16(14, 32, 64, 1, 0))
    for sketch, variant in sketches_of(tuning, 1):
        assert not variant.compiled.limits.versions
        rows = variant.sample(np.random.default_rng(0), 2)
        assert len(rows) and all(accepted(tuning, sketch, row) for row in rows)


def test_candidates_share_the_features_of_equal_kernels():
    """Of many candidates a kernel is looked at once for each of its forms; the features are those of each by itself."""
    rng = np.random.default_rng(5)
    shared = 0
    for _, variant in learnt("softmax")[1]:
        rows = variant.sample(rng, 300)
        blocks = variant.feature_rows(rows)
        shared += sum(block.index is not None for block in blocks)
        assert all(len(block) == len(rows) for block in blocks)
        whole = variant.features(rows)
        for k in range(0, len(rows), 17):
            alone = variant.features(rows[k : k + 1])
            np.testing.assert_array_equal([block[k] for block in whole], [block[0] for block in alone])
    assert shared


def test_models_score_equal_rows_once():
    rng = np.random.default_rng(0)
    model = ms.cost_model.XGBModel(num_tuning_cores=1)
    model.add_samples("x", [rng.random((2, 164), dtype=np.float32) for _ in range(120)], rng.random(120))
    rows, index = rng.random((3, 164), dtype=np.float32), np.array([2, 0, 0, 1, 2])
    blocks = [Repeated(rows, index), Repeated(rng.random((5, 164), dtype=np.float32))]
    expected = model.predict_features([block.expanded() for block in blocks])
    np.testing.assert_allclose(model.predict_repeated(blocks), expected, rtol=1e-6)
    plain = ms.cost_model.CostModel.predict_repeated(model, blocks)
    np.testing.assert_allclose(plain, expected, rtol=1e-6)


def test_random_rows_are_valid_and_of_all_choices():
    """Only the decisions that limits depend on are drawn before rows are refused; the others take all values."""
    ((sketch, variant),) = learnt("matmul")[1]
    rows = variant.sample(np.random.default_rng(0), 500)
    assert len(rows) == 500 and variant.valid(rows).all()
    unroll = sketch.table.categories[sketch.table.unroll]
    assert unroll[1] not in variant.compiled.deciding
    assert set(rows[:, unroll[1]]) == set(range(len(unroll[2])))
    for _, at, n, extent, _ in sketch.table.tiles:
        assert (rows[:, at : at + n].prod(axis=1) == extent).all()


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
        MutateThreadBinding().on_columns(sketch.table, rng, rows)
        moved = (rows != before).any(axis=1)
        assert moved.all() or not sketch.table.threads
        changed += int(moved.sum())
    assert changed
    ((sketch, _),) = sketches_of(CONTEXTS["matmul"]())
    assert len(sketch.table.fetches) == 2
    rows = sketch.table.sample(rng, 400)
    before = rows.copy()
    MutateTileSize().on_columns(sketch.table, rng, rows)
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
    notes = [inst.attrs[0] for inst in space.trace.insts if inst.kind.name == "Annotate"]
    assert "meta_schedule.tiling_structure" in notes and "meta_schedule.auto_tensorize" not in notes
