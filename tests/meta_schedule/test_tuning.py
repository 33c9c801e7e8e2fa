"""Tuning from end to end with fake builders and runners, and what databases promise."""

import pytest

from relaxish import meta_schedule as ms
from relaxish import te
from relaxish.meta_schedule.database import JSONDatabase, MemoryDatabase, TuningRecord
from relaxish.meta_schedule.search_strategy.trace_key import trace_key
from relaxish.meta_schedule.testing import te_workload
from relaxish.meta_schedule.testing.dummy_object import DummyBuilder, DummyRunner
from relaxish.target import Target

TARGET = Target("llvm -num-cores=2")


def matmul(n=64):
    return te.create_prim_func(te_workload.matmul(n, n, n))


def tune(work_dir, trials, strategy="evolutionary", seed=7, **options):
    return ms.tune_tir(
        matmul(),
        TARGET,
        str(work_dir),
        trials,
        num_trials_per_iter=8,
        builder=DummyBuilder(),
        runner=DummyRunner(lambda x: 1.0),
        cost_model=ms.cost_model.RandomModel(seed=1),
        strategy=strategy,
        seed=seed,
        **options,
    )


@pytest.mark.parametrize("strategy", ["evolutionary", "replay-trace", "replay-func"])
def test_strategies_fill_the_database(tmp_path, strategy):
    database = tune(tmp_path, 16, strategy)
    assert len(database) == 16
    assert (tmp_path / "logs" / "task_scheduler.log").exists()


def test_same_seed_same_search(tmp_path):
    keys = [[trace_key(r.trace) for r in tune(tmp_path / str(i), 16).get_all_tuning_records()] for i in (0, 1)]
    assert keys[0] == keys[1]


def test_a_second_run_measures_nothing_twice(tmp_path):
    tune(tmp_path, 16)
    database = tune(tmp_path, 16)
    keys = [trace_key(r.trace) for r in database.get_all_tuning_records()]
    assert len(keys) == 32 and len(set(keys)) == 32


def record(database, seconds, error=None):
    workload = database.commit_workload(ms.TuneContext(matmul()).mod)
    context = ms.TuneContext(matmul(), target=TARGET, space_generator="post-order-apply")
    trace = context.generate_design_space()[0].trace
    return TuningRecord(trace, workload, seconds, TARGET, [], error_msg=error)


def test_json_database_survives_a_torn_line(tmp_path):
    database = JSONDatabase(work_dir=str(tmp_path))
    database.commit_tuning_record(record(database, [2.0]))
    database.commit_tuning_record(record(database, [1.0]))
    database.commit_tuning_record(record(database, [1e10], "crash"))
    with open(database.path_tuning_record, "a") as file:
        file.write('{"workload": "dead')
    again = JSONDatabase(work_dir=str(tmp_path))
    assert len(again) == 3
    workload = again.commit_workload(ms.TuneContext(matmul()).mod)
    assert [r.run_secs for r in again.get_top_k(workload, 5)] == [[1.0], [2.0]]
    again.commit_tuning_record(record(again, [0.5]))
    assert database.refresh() == 1
    best = database.query_tuning_record(workload.mod, TARGET)
    assert best is not None and best.run_secs == [0.5]


def test_union_databases():
    first, second = MemoryDatabase(), MemoryDatabase()
    first.commit_tuning_record(record(first, [2.0]))
    second.commit_tuning_record(record(second, [1.0]))
    mod = ms.TuneContext(matmul()).mod
    assert ms.database.UnionDatabase(first, second).query_tuning_record(mod, TARGET).run_secs == [1.0]
    assert ms.database.OrderedUnionDatabase(first, second).query_tuning_record(mod, TARGET).run_secs == [2.0]


def test_wrong_winners_are_discarded():
    database = MemoryDatabase()
    wrong = record(database, [0.1])
    wrong.numerically_valid = False
    database.commit_tuning_record(wrong)
    database.commit_tuning_record(record(database, [1.0]))
    assert database.query_tuning_record(ms.TuneContext(matmul()).mod, TARGET).run_secs == [1.0]


def test_apply_database(tmp_path):
    from relaxish.ir import IRModule
    from relaxish.meta_schedule.passes import MetaScheduleApplyDatabase

    with TARGET, tune(tmp_path, 8):
        mod = MetaScheduleApplyDatabase()(IRModule({"matmul": matmul()}))
    assert mod["matmul"].attrs["tir.is_scheduled"]


def test_a_verdict_holds_after_a_reload(tmp_path):
    database = JSONDatabase(work_dir=str(tmp_path))
    fast = record(database, [0.1])
    database.commit_tuning_record(fast)
    database.commit_tuning_record(TuningRecord(fast.trace, fast.workload, [0.1], TARGET, [], valid=False))
    again = JSONDatabase(work_dir=str(tmp_path))
    assert again.get_top_k(again.commit_workload(ms.TuneContext(matmul()).mod), 3) == []
