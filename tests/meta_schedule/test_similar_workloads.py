"""A search begins with the best schedules of similar workloads, for the sizes of its own."""

import math

import numpy as np
import pytest
from test_resume import NamingBuilder, SimulatedRunner, Stop, StopAfter, keys

import relaxish
from relaxish import IRModule, te
from relaxish import meta_schedule as ms
from relaxish.meta_schedule.analysis.shapes import shape_of
from relaxish.meta_schedule.cost_model.pretrain import shipped_prior
from relaxish.meta_schedule.database import JSONDatabase, MemoryDatabase, TuningRecord
from relaxish.meta_schedule.search_strategy.similar import similar_seeds, trace_of_seed
from relaxish.meta_schedule.search_strategy.population import VectorPool
from relaxish.meta_schedule.search_strategy.replay import apply_trace
from relaxish.meta_schedule.search_strategy.trace_key import trace_key
from relaxish.meta_schedule.testing import te_workload
from relaxish.target import Target
from relaxish.tir.schedule import Trace

TARGET = Target("llvm -num-cores=2")


def matmul(m, n, k, relu=False):
    a, b, c = te_workload.matmul(m, n, k)
    out = te.compute((m, n), lambda i, j: te.max(c[i, j], 0.0), name="R") if relu else c
    return te.create_prim_func([a, b, out])


def task(func):
    return ms.TuneContext(
        func, target=TARGET, space_generator="post-order-apply", search_strategy="evolutionary", rand_state=1
    )


def spaces_of(context):
    return [s.trace.simplified(remove_postproc=True) for s in context.generate_design_space()]


def remember(database, func, tiles, seconds, unroll=1):
    """A record with tiles of one's own (its innermost levels, the outermost one takes the rest)."""
    context = task(func)
    trace = spaces_of(context)[0]
    decisions = dict(trace.decisions)
    sampled = [i for i in trace.insts if i.kind.name == "SamplePerfectTile"]
    for inst, inner in zip(sampled, tiles, strict=True):
        extent = math.prod(int(x) for x in decisions[inst])
        decisions[inst] = [extent // math.prod(inner), *inner]
    for inst in trace.insts:
        if inst.kind.name == "SampleCategorical":
            decisions[inst] = unroll
    workload = database.commit_workload(context.mod)
    database.commit_tuning_record(TuningRecord(Trace(trace.insts, decisions), workload, [seconds], TARGET, []))
    return workload


BEST = [(2, 1, 8), (2, 1, 16), (4,)]


def tuned_before():
    """Two products of other sizes, the nearer one with a good and a bad record."""
    database = MemoryDatabase()
    remember(database, matmul(128, 128, 128), BEST, 1e-5)
    remember(database, matmul(128, 128, 128), [(1, 1, 1), (1, 1, 1), (1,)], 1e-2, 0)
    remember(database, matmul(512, 32, 512), [(4, 2, 4), (1, 2, 8), (16,)], 1e-4, 2)
    return database


# ---- which programs are similar


def test_sizes_and_what_is_around_the_heaviest_block_do_not_matter():
    shape = shape_of(IRModule({"main": matmul(64, 32, 16)}))
    assert shape == shape_of(IRModule({"f": matmul(64, 32, 16, relu=True)}))
    assert shape.structure == shape_of(IRModule({"main": matmul(7, 5, 3)})).structure and shape.sizes == (64, 32, 16)
    # The same loops over a transposed matrix, another type, or other windows are something else.
    x, y = te.placeholder((64, 16), name="X"), te.placeholder((32, 16), name="Y")
    k = te.reduce_axis((0, 16), name="k")
    other = te.create_prim_func([x, y, te.compute((64, 32), lambda i, j: te.sum(x[i, k] * y[j, k], axis=k), name="C")])
    half = te.create_prim_func(te_workload.matmul(64, 32, 16, "float16", "float16"))
    assert len({shape_of(IRModule({"main": f})).structure for f in (matmul(64, 32, 16), other, half)}) == 3
    assert shape.distance((64, 32, 16)) == 0 < shape.distance((64, 32, 32)) < shape.distance((64, 64, 64))


def test_every_database_finds_the_nearest_first(tmp_path):
    stores = [MemoryDatabase(), JSONDatabase(work_dir=str(tmp_path))]
    if pytest.importorskip("sqlalchemy"):
        stores.append(ms.database.SQLDatabase(tmp_path / "d.sqlite"))
    sizes = [(64, 64, 64), (256, 64, 64), (64, 64, 96)]
    for database in stores:
        made = {s: remember(database, matmul(*s), [(1, 1, 4), (1, 1, 8), (4,)], 1.0) for s in sizes}
        database.commit_workload(IRModule({"main": matmul(65, 64, 64)}))  # without records
        wanted = IRModule({"main": matmul(64, 64, 128, relu=True)})
        assert [w.key for w in database.similar(wanted)] == [made[s].key for s in (sizes[2], sizes[0], sizes[1])]
        assert [w.key for w in database.similar(made[sizes[0]].mod)] == [made[sizes[2]].key, made[sizes[1]].key]
        assert database.similar(IRModule({"main": te.create_prim_func(te_workload.softmax_mn(8, 8))})) == []


# ---- candidates for other sizes


def test_tiles_are_kept_near_what_they_were():
    context = task(matmul(192, 80, 96))
    spaces = spaces_of(context)
    seeds = similar_seeds(context, spaces, tuned_before(), np.random.default_rng(0))
    # 80 has no factor 32: vectors stay as wide as they were, and the outermost factors take up the new sizes.
    assert seeds[0].decisions == [[12, 2, 1, 8], [5, 1, 1, 16], [24, 4], 1]
    for seed in seeds:
        assert [math.prod(t) for t in seed.decisions[:3]] == [192, 80, 96]
        assert seed.decisions[3] != 0, "of the slow record"
    assert len({repr(s) for s in seeds}) == len(seeds) >= 8
    assert seeds[1].decisions[3] == 2, "of the next workload"
    made = [apply_trace(context, trace_of_seed(spaces[s.sketch], s), 1) for s in seeds]
    assert all(made)


@pytest.mark.parametrize("sizes", [(7, 13, 5), (1, 64, 3), (96, 36, 60)])
def test_what_they_compute_is_right(sizes):
    m, n, k = sizes
    context = task(matmul(m, n, k))
    spaces = spaces_of(context)
    seed = similar_seeds(context, spaces, tuned_before(), np.random.default_rng(1))[0]
    sch = apply_trace(context, trace_of_seed(spaces[seed.sketch], seed), 1)
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(m, k)).astype("float32"), rng.normal(size=(k, n)).astype("float32")
    out = relaxish.nd.array(np.zeros((m, n), "float32"))
    relaxish.tir.build(sch.mod, target=TARGET)["main"](relaxish.nd.array(a), relaxish.nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-4)


def first_round(database, **options):
    context = task(matmul(192, 80, 96))
    strategy = ms.search_strategy.EvolutionarySearch(**options)
    strategy.initialize_with_tune_context(context)
    spaces = context.generate_design_space()
    strategy.pre_tuning(64, 8, spaces, database, ms.cost_model.RandomModel(seed=1))
    return strategy, [trace_key(c.sch.trace) for c in strategy.generate_measure_candidates()]


def test_half_of_the_first_round_are_such(tmp_path):
    database = tuned_before()
    strategy, keyed = first_round(database)
    seeds = [trace_key(trace_of_seed(strategy._spaces[s.sketch], s)) for s in strategy._seeds]
    assert len(keyed) == 8 and [k in seeds for k in keyed[:4]] == [True] * 4
    strategy, other = first_round(database, similar_ratio=0.0)
    assert strategy._seeds == [] and not set(other) & set(keyed[:4])
    assert first_round(database)[1] == keyed
    with pytest.raises(ValueError, match="similar_ratio"):
        ms.search_strategy.EvolutionarySearch(similar_ratio=1.5)


class OnlyQueries(ms.database.UnionDatabase):
    """Answers no question about other workloads."""

    def commit_workload(self, mod):
        return ms.database.Workload(mod)

    def records_of(self, workload):
        return []

    def get_top_k(self, workload, top_k):
        return []


def test_a_database_that_cannot_say_is_no_error():
    strategy, keyed = first_round(OnlyQueries())
    assert strategy._seeds == [] and len(keyed) == 8


def tune(folder, stop=None):
    callbacks = [ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel()]
    return ms.tune_tir(
        IRModule({"a": matmul(64, 96, 32), "b": matmul(48, 80, 64)}), TARGET, str(folder), 8, num_trials_per_iter=4,
        builder=NamingBuilder(), runner=SimulatedRunner(), seed=5, measure_callbacks=callbacks + ([stop] if stop else []),
        validate=False,
    )  # fmt: skip


def test_a_run_that_was_stopped_begins_with_the_same(tmp_path):
    """The records that it leaves itself are similar, too, and would change where its other task begins."""
    for name in ("whole", "broken"):
        database = JSONDatabase(work_dir=str(tmp_path / name))
        remember(database, matmul(128, 128, 128), BEST, 1e-5)
    whole = keys(tune(tmp_path / "whole"))
    with pytest.raises(Stop):
        tune(tmp_path / "broken", StopAfter(1))
    assert keys(tune(tmp_path / "broken")) == whole


# ---- cost models that come with the package


def test_the_shipped_model_tells_fast_programs_from_slow_ones():
    """Programs of a product that it has not learnt, against the times of a recorded space."""
    pytest.importorskip("xgboost")
    from relaxish import lab
    from relaxish.lab.models import RecordedFeatures
    from relaxish.meta_schedule.search_strategy import MeasureCandidate
    from relaxish.tools.statistics import spearman

    model = shipped_prior(TARGET)
    space = lab.load_space("gemm")
    assert model.trained and len(model.data) == 13
    points = [int(p) for p in np.random.default_rng(5).choice(space.points, 200, replace=False)]
    points = [p for p in points if math.isfinite(space.time(p))]
    context = ms.TuneContext(
        space.mod, target=space.target, space_generator=lab.RecordedGenerator(space, lazy=True), rand_state=1
    )
    made = [MeasureCandidate(apply_trace(context, space.trace_of(p), 1), None) for p in points]
    scores = model._predict(RecordedFeatures(space).extract_from(context, made))
    assert spearman(scores, -np.array([space.time(p) for p in points])) > 0.4


def test_targets_without_a_shipped_model_are_told_of_those_with_one():
    pytest.importorskip("xgboost")
    assert shipped_prior(Target("nvidia/nvidia-a100")).trained
    with pytest.raises(
        relaxish.support.errors.RelaxishError, match="no cost model is shipped for opencl: .*cuda, llvm"
    ):
        shipped_prior(Target("opencl"))


class Misled(ms.cost_model.XGBModel):
    """Has learnt elsewhere that long inner loops are bad: trained, and wrong here."""

    trained = True

    def predict_repeated(self, blocks):
        return -np.ones(len(blocks[0]) if blocks else 0)


def tiles_of(trace):
    simple = trace.simplified(remove_postproc=True)
    return str([list(map(int, simple.decisions[i])) for i in simple.insts if i.kind.name == "SamplePerfectTile"])


def test_a_model_that_knows_nothing_of_a_kernel_chooses_half_of_its_first_round(monkeypatch):
    pytest.importorskip("xgboost")
    advised = []

    def spied(pool, strategy, wanted, real=VectorPool._advised):
        found = real(pool, strategy, wanted)
        advised.extend(tiles_of(v.sketch.table.to_trace(row, v.locations)) for _, v, row in found)
        return found

    monkeypatch.setattr(VectorPool, "_advised", spied)
    context = task(matmul(192, 80, 96))
    strategy = ms.search_strategy.EvolutionarySearch(eps_greedy=0.0)
    strategy.initialize_with_tune_context(context)
    strategy.pre_tuning(64, 8, context.generate_design_space(), MemoryDatabase(), Misled())
    made = [tiles_of(c.sch.trace) for c in strategy.generate_measure_candidates()]
    assert len(made) == 8 and 3 <= sum(tiles in advised for tiles in made) <= 6
