"""A record that computes something else is never applied, whichever way it is asked for."""

import logging

import numpy as np
import pytest
from faults import tuning_candidates as hostile

from relaxish import IRModule, relax, te, tir
from relaxish import meta_schedule as ms
from relaxish.meta_schedule import trust
from relaxish.meta_schedule.arg_info import ArgInfo
from relaxish.meta_schedule.builder import LocalBuilder
from relaxish.meta_schedule.database import JSONDatabase, MemoryDatabase, TuningRecord
from relaxish.meta_schedule.application.few_shot import few_shot_tune
from relaxish.meta_schedule.verdicts.judge import Judge, Verdict, shared_judge, tolerance
from relaxish.meta_schedule.runner import LocalRunner
from relaxish.meta_schedule.testing import te_workload
from relaxish.meta_schedule.utils import derived_object
from relaxish.meta_schedule.verdicts.validate import trusted_winners
from relaxish.script import tir as T
from relaxish.support import config
from relaxish.target import Target

TARGET = hostile.TARGET
# These take seconds each: memory and time run out.
SLOW = ("hostile_hangs", "hostile_hungry")


@pytest.fixture(scope="module")
def names():
    return hostile.register()


def mod():
    return ms.TuneContext(hostile.program()).mod


def scheduled(name):
    sch = tir.Schedule(mod())
    block = sch.get_block("C")
    loop = sch.get_loops(block)[0]
    if name != "right":
        sch.decompose_reduction(block, loop)
        sch.tensorize(loop, name)
    else:
        sch.parallel(loop)
    return sch


def record(database, name, seconds):
    workload = database.commit_workload(mod())
    args = ArgInfo.from_entry_func(workload.mod)
    return TuningRecord(scheduled(name).trace, workload, [seconds], TARGET, args)


def filled(database, names):
    """Wrong records, each faster than the last, and a slow one that is right."""
    database.commit_tuning_record(record(database, "right", 1.0))
    for number, name in enumerate(names):
        if name not in ("right", *SLOW):
            database.commit_tuning_record(record(database, name, 1e-6 * (1 + number)))
    return database


def test_every_hostile_candidate_is_found_out(names):
    assert len(names) > 40
    before = mod()
    verdicts = {n: shared_judge().compare(before, scheduled(n).mod, TARGET) for n in names if n not in SLOW}
    assert verdicts.pop("right") == Verdict(True)
    assert {name: v for name, v in verdicts.items() if v.valid is not False} == {}


@pytest.mark.slow
def test_candidates_that_never_end_or_eat_memory_are_wrong(names):
    for name in SLOW:
        assert shared_judge().compare(mod(), scheduled(name).mod, TARGET).valid is False


@pytest.mark.parametrize("kind", ["memory", "json"])
def test_forty_wrong_records_before_the_right_one(tmp_path, names, kind):
    database = filled(MemoryDatabase() if kind == "memory" else JSONDatabase(work_dir=str(tmp_path)), names)
    assert len(database) > 40
    found = hostile.routes(database, str(tmp_path))
    right = scheduled("right").mod
    rng = np.random.default_rng(1)
    for way, made in found.items():
        assert made is not None and hostile.is_right(made, rng), way
    for way in ("compile_tir", "query_ir_module", "query_tuning_record", "pruned"):
        assert tir.Schedule(found[way]).mod.script() == right.script(), way
    if kind == "json":
        again = JSONDatabase(work_dir=str(tmp_path))
        assert len(again) == len(database)
        verdicts = [r.numerically_valid for r in again.get_all_tuning_records()]
        assert verdicts.count(True) == 1 and verdicts.count(False) == len(verdicts) - 1


def test_verdicts_are_found_out_once(tmp_path, names, monkeypatch):
    database = JSONDatabase(work_dir=str(tmp_path))
    database.commit_tuning_record(record(database, "hostile_zeros", 1e-6))
    database.commit_tuning_record(record(database, "right", 1.0))
    assert database.query_tuning_record(mod(), TARGET).run_secs == [1.0]
    trust._VERDICTS.clear()
    monkeypatch.setattr(trust, "shared_judge", lambda: pytest.fail("it was checked before"))
    assert JSONDatabase(work_dir=str(tmp_path)).query_tuning_record(mod(), TARGET).run_secs == [1.0]


def test_the_end_of_a_tuning_run_checks_as_far_as_it_must(tmp_path, names):
    database = filled(JSONDatabase(work_dir=str(tmp_path)), names)
    runner, builder = LocalRunner(timeout_sec=5, evaluator_config=hostile.QUICK), LocalBuilder(max_workers=1)
    try:
        best = trusted_winners(ms.TuneContext(hostile.program(), target=TARGET), database, builder, runner)
    finally:
        runner.shutdown()
        builder.shutdown()
    assert best is not None and best.numerically_valid is True
    assert hostile.is_right(best.as_measure_candidate().sch.mod, np.random.default_rng(2))
    # Timed again, not taken at its word.
    assert best.run_secs != [1.0]


def test_a_run_without_validation_applies_nothing_wrong(names, capsys):
    figures = hostile.one_round(3, validate=False, limit=12)
    assert figures["wrong"] == 0 and figures["applied"] >= 4 and figures["tried"] == 39
    assert not capsys.readouterr().out


# ---- databases of users


@derived_object
class Listed(ms.database.PyDatabase):
    def __init__(self):
        super().__init__()
        self.workloads_, self.records = [], []

    def has_workload(self, mod):
        return any(self.module_equality.equal(w.mod, mod) for w in self.workloads_)

    def commit_workload(self, mod):
        for workload in self.workloads_:
            if self.module_equality.equal(workload.mod, mod):
                return workload
        self.workloads_.append(ms.database.Workload(mod))
        return self.workloads_[-1]

    def commit_tuning_record(self, record):
        self.records.append(record)

    def get_all_tuning_records(self):
        return self.records

    def get_top_k(self, workload, top_k):
        return sorted((r for r in self.records if r.is_valid()), key=lambda r: sum(r.run_secs))[:top_k]

    def __len__(self):
        return len(self.records)


@derived_object
class Own(Listed):
    """Answers queries itself, without a look at anything."""

    def query_tuning_record(self, mod, target, workload_name=None):
        return self.records[0]


@pytest.mark.parametrize("kind", [MemoryDatabase, Listed])
def test_hand_made_records_keep_working(kind, names):
    database = kind()
    given = record(database, "right", 0.25)
    database.commit_tuning_record(given)
    assert database.query_tuning_record(mod(), TARGET) is given
    assert len(database) == 1 and database.get_all_tuning_records() == [given]
    assert database.query_schedule(mod(), TARGET).mod.script() == scheduled("right").mod.script()


def test_a_database_with_its_own_query_applies_nothing_wrong(names):
    database = Own()
    database.commit_tuning_record(record(database, "hostile_zeros", 1e-6))
    database.commit_tuning_record(record(database, "right", 1.0))
    assert ms.tir_integration.compile_tir(database, hostile.program(), TARGET) is None
    with TARGET, database:
        applied = relax.transform.MetaScheduleApplyDatabase()(IRModule({"main": hostile.program()}))
    assert not (applied["main"].attrs or {}).get("tir.is_scheduled")
    unseen = Own()
    unseen.commit_tuning_record(record(unseen, "hostile_zeros", 1e-6))
    with config.UNCHECKED_RECORDS.override("trust"):
        assert ms.tir_integration.compile_tir(unseen, hostile.program(), TARGET) is not None


def test_traces_that_cannot_be_applied_are_passed_over(names):
    database = MemoryDatabase()
    broken = scheduled("right").trace
    for inst in broken.insts:
        if inst.kind.name == "GetBlock":
            object.__setattr__(inst, "attrs", ["no such block", "main"])
    workload = database.commit_workload(mod())
    database.commit_tuning_record(TuningRecord(broken, workload, [1e-6], TARGET, []))
    database.commit_tuning_record(record(database, "right", 1.0))
    assert database.query_tuning_record(mod(), TARGET).run_secs == [1.0]


# ---- what cannot be checked


def test_the_policy_decides_what_becomes_of_records_that_cannot_be_checked(monkeypatch, caplog, names):
    monkeypatch.setattr(trust, "check_record", lambda record, target, judge=None: Verdict(None, "no such device"))
    outcome = {}
    for policy in ("refuse", "warn", "trust"):
        database = MemoryDatabase()
        database.commit_tuning_record(record(database, "right", 0.5))
        trust._VERDICTS.clear()
        caplog.clear()
        with config.UNCHECKED_RECORDS.override(policy), caplog.at_level(logging.WARNING):
            found = database.query_tuning_record(mod(), TARGET)
        outcome[policy] = found is not None, "no such device" in caplog.text
    trust._VERDICTS.clear()
    assert outcome == {"refuse": (False, True), "warn": (True, True), "trust": (True, False)}


@pytest.mark.parametrize("target", ["nvidia/nvidia-a100", "opencl", "llvm -mtriple=aarch64-linux-gnu -mattr=+neon"])
def test_small_programs_for_other_machines_are_checked_here(target):
    x = te.placeholder((8, 4), "float32", name="X")
    y = te.compute((8, 4), lambda i, j: x[i, j] * 2.0 + 1.0, name="Y")
    before = ms.TuneContext(te.create_prim_func([x, y])).mod

    def bound(func):
        sch = tir.Schedule(func)
        i, j = sch.get_loops("Y")
        if "llvm" not in target:
            sch.bind(i, "blockIdx.x")
            sch.bind(j, "threadIdx.x")
        return sch.mod

    z = te.compute((8, 4), lambda i, j: x[i, j] * 2.0 + 1.5, name="Y")
    other = ms.TuneContext(te.create_prim_func([x, z])).mod
    judge = Judge()
    try:
        assert judge.compare(before, bound(before), Target(target)).valid is True
        assert judge.compare(before, bound(other), Target(target)).valid is False
    finally:
        judge.shutdown()


def test_schedules_that_are_half_done_are_judged_by_their_results():
    """A schedule for a GPU without threads cannot be built; what it computes can be seen all the same."""
    x = te.placeholder((8, 4), "float32", name="X")
    before = ms.TuneContext(te.create_prim_func([x, te.compute((8, 4), lambda i, j: x[i, j] * 2.0, name="Y")])).mod
    sch = tir.Schedule(before)
    sch.reorder(*reversed(sch.get_loops("Y")))
    assert shared_judge().compare(before, sch.mod, Target("nvidia/nvidia-a100")).valid is True


# ---- arguments


@T.prim_func
def embedding(table: T.Buffer((5, 8), "float32"), rows: T.Buffer((64,), "int32"), out: T.Buffer((64, 8), "float32")):
    for i, j in T.grid(64, 8):
        with T.block("out"):
            vi, vj = T.axis.remap("SS", [i, j])
            out[vi, vj] = table[rows[vi], vj]


@T.prim_func
def segments(offsets: T.Buffer((9,), "int32"), data: T.Buffer((40,), "float32"), out: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("out"):
            vi = T.axis.spatial(8, i)
            out[vi] = T.float32(0)
            for j in range(offsets[vi + 1] - offsets[vi]):
                out[vi] = out[vi] + data[offsets[vi] + j]


@T.prim_func
def quotient(a: T.Buffer((64,), "int32"), b: T.Buffer((64,), "int32"), out: T.Buffer((64,), "int32")):
    for i in range(64):
        with T.block("out"):
            vi = T.axis.spatial(64, i)
            out[vi] = T.floordiv(a[vi], b[vi]) + T.floormod(a[vi], b[vi])


@T.prim_func
def two_steps(t: T.Buffer((7, 3), "float32"), index: T.Buffer((32, 2), "int64"), out: T.Buffer((32,), "float32")):
    with T.block("root"):
        narrow = T.alloc_buffer((32, 2), "int32")
        for i, j in T.grid(32, 2):
            with T.block("narrow"):
                vi, vj = T.axis.remap("SS", [i, j])
                narrow[vi, vj] = T.Cast("int32", index[vi, vj])
        for i in range(32):
            with T.block("out"):
                vi = T.axis.spatial(32, i)
                out[vi] = t[narrow[vi, 0], narrow[vi, 1]]


@T.prim_func
def scattered(data: T.Buffer((16,), "float32"), where: T.Buffer((16,), "uint8"), out: T.Buffer((6,), "float32")):
    for i in range(16):
        with T.block("out"):
            vi = T.axis.reduce(16, i)
            out[T.Cast("int32", where[vi])] = data[vi]


@pytest.mark.parametrize(
    "func", [embedding, segments, quotient, two_steps, scattered], ids=lambda f: f.attrs["global_symbol"]
)
@pytest.mark.parametrize("signed", [False, True])
def test_arguments_for_measuring_are_legal(func, signed):
    """The interpreter raises where an index is outside of its buffer, or a divisor zero."""
    from relaxish.interp import run_prim_func
    from relaxish.meta_schedule.runner.arguments import alloc_arguments

    for seed in range(4):
        arrays = alloc_arguments(ArgInfo.from_prim_func(func), seed, signed)
        for array in arrays:
            assert array.size == 1 or (array != 0).any()
            if array.dtype.kind == "f":
                assert (np.abs(array) >= 1 / 64).all()
        before = [a.copy() for a in arrays]
        with np.errstate(all="raise"):
            run_prim_func(func, arrays)
        index = next((a for a in before if a.dtype.kind in "iu"), None)
        if func is segments:
            assert (np.diff(index) >= 0).all() and index[0] == 0 and index[-1] <= 40 and index[-1] > 8
        if func is embedding:
            assert set(index) == set(range(5))


def test_a_kernel_of_indices_is_tuned_and_checked(tmp_path):
    from relaxish.tools.records import load_log

    runner, builder = LocalRunner(timeout_sec=10, evaluator_config=hostile.QUICK), LocalBuilder(max_workers=1)
    scheduler = ms.task_scheduler.GradientBased()
    try:
        database = ms.tune_tir(
            embedding, TARGET, str(tmp_path), 4, num_trials_per_iter=4, cost_model="random", builder=builder,
            runner=runner, baselines=True, task_scheduler=scheduler,
        )  # fmt: skip
    finally:
        runner.shutdown()
        builder.shutdown()
    records = database.get_all_tuning_records()
    assert any(r.numerically_valid for r in records) and not any(r.error_msg for r in records)
    # The default schedule ran with the batch, and in turns with the winners at the end.
    assert scheduler.tasks_[0].gain is not None and scheduler.tasks_[0].gain > 0
    (task,) = load_log(str(tmp_path)).tasks
    assert len(task.records) == len(records) >= 1
    assert task.gain == pytest.approx(task.default / task.tuned) and task.tuned == pytest.approx(task.best_seconds)


@pytest.mark.parametrize("dtype, length, low, high", [
    ("float64", 1, 1e-10, 1e-8), ("float32", 1, 1e-6, 1e-4), ("float32", 4096, 1e-4, 1e-3), ("float16", 1, 1e-3, 1e-2),
    ("float16", 1024, 1e-2, 6e-2), ("bfloat16", 64, 1e-2, 1e-1), ("int32", 64, 0.0, 0.0),
])  # fmt: skip
def test_tolerances_follow_type_and_length_of_reductions(dtype, length, low, high):
    a = te.placeholder((4, length), dtype, name="A")
    k = te.reduce_axis((0, length), name="k")
    func = te.create_prim_func([a, te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="S")])
    assert low <= tolerance(func) <= high


def test_few_shots_are_checked(monkeypatch, caplog):
    import importlib

    module = importlib.import_module("relaxish.meta_schedule.application.few_shot")

    class Strict:
        def compare(self, before, after, target):
            return Verdict(False, "wrong")

    monkeypatch.setattr(module, "shared_judge", Strict)
    assert few_shot_tune(te.create_prim_func(te_workload.matmul(16, 16, 16)), TARGET, 1, False) is None
    assert "computes something else" in caplog.text
