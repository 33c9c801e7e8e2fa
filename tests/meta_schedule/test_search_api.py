"""Strategies, databases, models and callbacks used the way the public API is documented."""

import json
import sys

import numpy as np
import pytest

from relaxish import IRModule, tir
from relaxish import meta_schedule as ms
from relaxish.ir import assert_structural_equal
from relaxish.meta_schedule.testing.dummy_object import DummyBuilder, DummyMutator, DummyRunner
from relaxish.meta_schedule.utils import derived_object
from relaxish.script import tir as T
from relaxish.target import Target


@T.prim_func
def matmul(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (32, 32), "float32")
    B = T.match_buffer(b, (32, 32), "float32")
    C = T.match_buffer(c, (32, 32), "float32")
    for i, j, k in T.grid(32, 32, 32):
        with T.block("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


MATMUL = IRModule({"main": matmul.with_attr("global_symbol", "main")})


def schedule_matmul(sch):
    block = sch.get_block("matmul")
    i, j, k = sch.get_loops(block=block)
    i_tiles = sch.sample_perfect_tile(i, n=4)
    j_tiles = sch.sample_perfect_tile(j, n=4)
    k_tiles = sch.sample_perfect_tile(k, n=2)
    i_0, i_1, i_2, i_3 = sch.split(loop=i, factors=i_tiles)
    j_0, j_1, j_2, j_3 = sch.split(loop=j, factors=j_tiles)
    k_0, k_1 = sch.split(loop=k, factors=k_tiles)
    sch.reorder(i_0, j_0, i_1, j_1, k_0, i_2, j_2, k_1, i_3, j_3)


def context_with(strategy, **options):
    context = ms.TuneContext(
        mod=MATMUL,
        search_strategy=strategy,
        target=Target("llvm"),
        space_generator=ms.space_generator.ScheduleFn(
            sch_fn=schedule_matmul,
            sch_rules=[],
            postprocs=options.pop("postprocs", []),
            mutator_probs=options.pop("mutator_probs", {}),
        ),
        **options,
    )
    context.initialize()
    return context


def rounds(context):
    counts = []
    candidates = context.generate_measure_candidates()
    while candidates is not None:
        counts.append(len(candidates))
        context.notify_runner_results(candidates, [ms.runner.RunnerResult([0.1, 0.2], None) for _ in candidates])
        candidates = context.generate_measure_candidates()
    context.post_tuning()
    return counts


@pytest.mark.parametrize(
    "strategy", [ms.search_strategy.ReplayTrace(), ms.search_strategy.ReplayFunc(), "replay-trace", "replay-func"]
)
def test_replays_count_trials(strategy):
    context = context_with(strategy)
    context.pre_tuning(
        max_trials=20, num_trials_per_iter=7, design_spaces=context.space_generator.generate_design_space(context.mod)
    )
    assert rounds(context) == [7, 7, 6]


@pytest.mark.parametrize("vectorize", [True, False])
def test_evolution_counts_trials(vectorize):
    strategy = ms.search_strategy.EvolutionarySearch(
        population_size=5,
        init_measured_ratio=0.1,
        init_min_unmeasured=50,
        genetic_num_iters=3,
        genetic_mutate_prob=0.5,
        genetic_max_fail_count=10,
        eps_greedy=0.9,
        vectorize=vectorize,
    )
    context = context_with(strategy, mutator_probs={DummyMutator(): 1.0}, num_threads=1)
    context.pre_tuning(
        max_trials=100,
        num_trials_per_iter=10,
        database=ms.database.MemoryDatabase(),
        cost_model=ms.cost_model.RandomModel(),
        design_spaces=context.space_generator.generate_design_space(context.mod),
    )
    counts = rounds(context)
    assert sum(counts) == 100 and counts == [10] * 10


def test_evolution_stops_when_nothing_is_left():
    def unscheduled(sch):
        return sch

    strategy = ms.search_strategy.EvolutionarySearch(population_size=5, init_min_unmeasured=50)
    context = ms.TuneContext(
        mod=MATMUL,
        target=Target("llvm"),
        search_strategy=strategy,
        space_generator=ms.space_generator.ScheduleFn(
            sch_fn=unscheduled, sch_rules=[], postprocs=[], mutator_probs={DummyMutator(): 1.0}
        ),
    )
    context.initialize()
    context.pre_tuning(
        max_trials=100,
        num_trials_per_iter=10,
        database=ms.database.MemoryDatabase(),
        cost_model=ms.cost_model.RandomModel(),
        design_spaces=context.space_generator.generate_design_space(context.mod),
    )
    assert rounds(context) == [1, 0, 0, 0, 0]


def test_a_space_no_postproc_accepts_gives_no_candidates():
    @derived_object
    class AlwaysFail(ms.postproc.PyPostproc):
        def _initialize_with_tune_context(self, context):
            pass

        def apply(self, sch):
            return False

        def clone(self):
            return AlwaysFail()

    context = context_with(ms.search_strategy.EvolutionarySearch(), postprocs=[AlwaysFail()], mutator_probs={})
    context.pre_tuning(
        max_trials=10,
        num_trials_per_iter=5,
        database=ms.database.MemoryDatabase(),
        cost_model=ms.cost_model.RandomModel(),
        design_spaces=context.space_generator.generate_design_space(context.mod),
    )
    assert context.generate_measure_candidates() is None


def test_strategy_life_cycle_errors():
    strategy = ms.search_strategy.create("evolutionary")
    defaults = dict(
        population_size=512,
        init_measured_ratio=0.2,
        init_min_unmeasured=50,
        max_fail_count=5,
        genetic_num_iters=4,
        genetic_mutate_prob=0.85,
        genetic_max_fail_count=10,
        eps_greedy=0.05,
    )
    assert {k: getattr(strategy, k) for k in defaults} == defaults
    assert type(strategy.clone()) is type(strategy)
    with pytest.raises(ValueError):
        ms.search_strategy.create("nonsense")
    with pytest.raises(ValueError):
        ms.search_strategy.EvolutionarySearch(eps_greedy=2.0)


def test_python_strategy():
    @derived_object
    class Once(ms.search_strategy.PySearchStrategy):
        def _initialize_with_tune_context(self, context):
            self.context = context

        def pre_tuning(self, max_trials, num_trials_per_iter, design_spaces, database, cost_model):
            self.spaces = list(design_spaces)

        def post_tuning(self):
            self.spaces = None

        def generate_measure_candidates(self):
            spaces, self.spaces = self.spaces, None
            return (
                None
                if not spaces
                else [ms.MeasureCandidate(s, ms.arg_info.ArgInfo.from_entry_func(s.mod)) for s in spaces]
            )

        def notify_runner_results(self, measure_candidates, results):
            self.seen = results

        def clone(self):
            return Once()

    context = context_with(Once())
    context.pre_tuning(max_trials=3, num_trials_per_iter=1)
    assert rounds(context) == [1]


# ---- records


def record_of(database, seconds, mod=MATMUL):
    sch = tir.Schedule(mod)
    schedule_matmul(sch)
    workload = database.commit_workload(mod)
    return ms.database.TuningRecord(
        sch.trace, workload, seconds, Target("llvm"), ms.arg_info.ArgInfo.from_prim_func(mod["main"])
    )


def test_record_and_workload_json(tmp_path):
    database = ms.database.MemoryDatabase()
    record = record_of(database, [1.5, 2.5, 1.8])
    workload = ms.database.Workload.from_json(json.loads(json.dumps(record.workload.as_json())))
    assert_structural_equal(workload.mod, MATMUL)
    assert workload.shash == record.workload.shash
    again = ms.database.TuningRecord.from_json(json.loads(json.dumps(record.as_json())), workload)
    assert str(again.trace) == str(record.trace)
    assert again.run_secs == record.run_secs and str(again.target) == str(record.target)
    assert [str(a) for a in again.args_info] == [str(a) for a in record.args_info]
    assert_structural_equal(again.as_measure_candidate().sch.mod, record.as_measure_candidate().sch.mod)


def test_database_files_and_queries(tmp_path):
    paths = str(tmp_path / "workloads.json"), str(tmp_path / "records.json")
    database = ms.database.JSONDatabase(*paths)
    for seconds in ([2.0], [1.0, 1.2], [1e10], [4.0]):
        database.commit_tuning_record(record_of(database, seconds))
    again = ms.database.JSONDatabase(*paths, allow_missing=False)
    workload = again.commit_workload(MATMUL)
    assert [r.run_secs for r in again.get_top_k(workload, 2)] == [[1.0, 1.2], [2.0]]
    assert again.get_top_k(workload, 0) == []
    assert len(again.get_all_tuning_records()) == len(again) == 4
    target = Target("llvm")
    record = again.query(MATMUL, target, kind="record")
    assert record.run_secs == [1.0, 1.2]
    assert_structural_equal(again.query(MATMUL, target, kind="ir_module"), again.query_schedule(MATMUL, target).mod)
    with pytest.raises(ValueError):
        again.query(MATMUL, target, kind="nonsense")
    pruned = ms.database.MemoryDatabase()
    again.dump_pruned(pruned)
    assert [r.run_secs for r in pruned.get_all_tuning_records()] == [[1.0, 1.2]]
    with pytest.raises(ValueError):
        ms.database.JSONDatabase(str(tmp_path / "no.json"), str(tmp_path / "none.json"), allow_missing=False)
    with again:
        assert ms.Database.current() is again
    assert ms.Database.current() is None


def test_python_database_and_scheduler(tmp_path):
    @derived_object
    class Listed(ms.database.PyDatabase):
        def __init__(self):
            super().__init__()
            self.workloads, self.records = [], []

        def has_workload(self, mod):
            return any(self.module_equality.equal(w.mod, mod) for w in self.workloads)

        def commit_workload(self, mod):
            for workload in self.workloads:
                if self.module_equality.equal(workload.mod, mod):
                    return workload
            self.workloads.append(ms.database.Workload(mod))
            return self.workloads[-1]

        def commit_tuning_record(self, record):
            self.records.append(record)

        def get_all_tuning_records(self):
            return self.records

        def get_top_k(self, workload, top_k):
            return sorted((r for r in self.records if r.is_valid()), key=lambda r: sum(r.run_secs))[:top_k]

        def __len__(self):
            return len(self.records)

    @derived_object
    class Forward(ms.task_scheduler.PyTaskScheduler):
        def next_task_id(self):
            for task_id, task in enumerate(self.tasks_):
                if not task.is_terminated:
                    if task.runner_futures is not None:
                        self.join_running_task(task_id)
                    return task_id
            return -1

    seen = []

    @derived_object
    class Watch(ms.measure_callback.PyMeasureCallback):
        def apply(self, task_scheduler, task_id, measure_candidates, builder_results, runner_results):
            assert len(measure_candidates) == len(builder_results) == len(runner_results)
            seen.append(task_id)

    @derived_object
    class Fancy(ms.cost_model.PyCostModel):
        def load(self, path):
            pass

        def save(self, path):
            pass

        def update(self, context, candidates, results):
            pass

        def predict(self, context, candidates):
            return np.random.rand(len(candidates))

    database = Listed()
    ms.tune_tir(
        MATMUL,
        Target("llvm -num-cores=1"),
        str(tmp_path),
        8,
        num_trials_per_iter=4,
        builder=DummyBuilder(),
        runner=DummyRunner(),
        database=database,
        cost_model=Fancy(),
        task_scheduler=Forward(),
        measure_callbacks=[ms.measure_callback.AddToDatabase(), Watch()],
        space=schedule_matmul,
    )
    assert len(database) == 8 and seen == [0, 0]


def test_xgb_model_saves_and_loads(tmp_path):
    extractor = ms.feature_extractor.RandomFeatureExtractor()
    model = ms.cost_model.XGBModel(extractor=extractor, num_warmup_samples=2)
    candidates = [ms.MeasureCandidate(tir.Schedule(MATMUL), []) for _ in range(10)]
    results = [ms.runner.RunnerResult([x + 0.5], None) for x in np.random.rand(10)]
    context = ms.TuneContext(MATMUL)
    model.update(context, candidates, results)
    path = str(tmp_path / "model.tar")
    model.save(path)
    loaded = ms.cost_model.XGBModel(extractor=extractor, num_warmup_samples=2)
    loaded.load(path)
    extractor.random_state = np.random.RandomState(3)
    first = model.predict(context, candidates)
    extractor.random_state = np.random.RandomState(3)
    assert (first == loaded.predict(context, candidates)).all()
    assert loaded.data_size == model.data_size and loaded.last_train_size == model.last_train_size
    for (k1, g1), (k2, g2) in zip(model.data.items(), loaded.data.items(), strict=True):
        assert k1 == k2 and g1.group_hash == g2.group_hash and (g1.costs == g2.costs).all()
        assert all((a == b).all() for a, b in zip(g1.features, g2.features, strict=True))


def test_feature_extractor_in_python():
    @derived_object
    class Fancy(ms.feature_extractor.PyFeatureExtractor):
        def extract_from(self, context, candidates):
            return [np.random.rand(4, 5)]

    (matrix,) = Fancy().extract_from(ms.TuneContext(), [])
    assert matrix.shape == (4, 5)


def test_the_models_package_is_asked_for_before_anything_is_measured(monkeypatch, tmp_path):
    from relaxish.support.errors import MissingExtraError

    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(MissingExtraError, match="xgboost"):
        ms.cost_model.CostModel.create("xgb")

    class Runner(ms.runner.PyRunner):
        def run(self, runner_inputs):
            raise AssertionError("something is measured")

    with pytest.raises(MissingExtraError, match="xgboost"):
        ms.tune_tir(MATMUL, "llvm -num-cores 1", str(tmp_path), max_trials_global=2, runner=Runner())


def test_parallel_loops_are_mutated_to_other_plans():
    """Limits are the products of the outer loops' extents; that which fuses as many loops as now is no change."""

    def tiled(sch, limit):
        sch.annotate(sch.get_block("root"), "meta_schedule.parallel", limit)
        i, j, k = sch.get_loops("matmul")
        i0, i1 = sch.split(i, [4, 8])
        j0, j1 = sch.split(j, [2, 16])
        sch.reorder(i0, j0, i1, k, j1)

    mutator = ms.mutator.MutateParallel(max_jobs_per_core=32)
    space = ms.space_generator.PostOrderApply(sch_rules=[], postprocs=[], mutator_probs={mutator: 1.0})
    ms.TuneContext(mod=MATMUL, target=Target("llvm --num-cores=2"), space_generator=space)
    for limit, others in ((4, {8, 64}), (5, {4, 64}), (64, {4, 8}), (1, {8, 64})):
        sch = tir.Schedule(MATMUL)
        tiled(sch, limit)
        found = set()
        for _ in range(40):
            trace = mutator.apply(sch.trace)
            found |= {int(i.inputs[1]) for i in trace.insts if i.kind.name == "Annotate"}
        assert found == others, limit
