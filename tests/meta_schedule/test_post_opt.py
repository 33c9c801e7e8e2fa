"""Going on from the best records by coordinate descent."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import meta_schedule as ms
from relaxish import te
from relaxish.ir import IRModule
from relaxish.meta_schedule.arg_info import ArgInfo
from relaxish.meta_schedule.database import TuningRecord
from relaxish.meta_schedule.post_optimization import Droplet, PostOpt, Space
from relaxish.target import Target
from relaxish.tir import Schedule

TARGET = Target("llvm -num-cores=1")


def product():
    A, B = (te.placeholder((32, 32), name=n) for n in "AB")
    k = te.reduce_axis((0, 32), name="k")
    C = te.compute((32, 32), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return IRModule({"main": te.create_prim_func([A, B, C])})


def some_record(database, seconds=1.0):
    """A record with the first decisions of a sketch, slow by its own account."""
    mod = product()
    context = ms.TuneContext(mod, target=TARGET, space_generator="post-order-apply", rand_state=3, num_threads=1)
    context.initialize()
    sch = max(context.generate_design_space(), key=lambda s: len(s.trace.decisions))
    workload = database.commit_workload(mod)
    args_info = ArgInfo.from_entry_func(mod, remove_preproc=True)
    record = TuningRecord(sch.trace, workload, [seconds] * 3, TARGET, args_info)
    database.commit_tuning_record(record)
    return record


def test_the_grid_holds_the_record_and_its_neighbours(tmp_path):
    record = some_record(ms.database.JSONDatabase(work_dir=str(tmp_path)))
    space = Space(record, TARGET)
    assert space.valid(space.start) and len(space.dims) == len(space.start)
    made = space.schedule(space.start)
    again = Schedule(record.workload.mod)
    record.trace.simplified(remove_postproc=True).apply_to_schedule(again, remove_postproc=True)
    assert made.trace.simplified(True).decisions.values().__len__() == len(again.trace.simplified(True).decisions)
    tile = space.tiles[0]
    for axis in range(tile.first, tile.first + tile.parts - 1):
        assert space.choices[axis] == [d for d in range(1, tile.extent + 1) if tile.extent % d == 0]
    too_much = list(space.start)
    too_much[tile.first] = too_much[tile.first + 1] = len(space.choices[tile.first]) - 1
    assert not space.valid(too_much)


@pytest.mark.slow
def test_records_get_faster_and_stay_right(tmp_path, capsys):
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    some_record(database)
    builder = ms.builder.LocalBuilder(max_workers=2)
    runner = ms.runner.LocalRunner(evaluator_config=ms.runner.EvaluatorConfig(2, 2, 0))
    try:
        ((before, after),) = PostOpt(str(tmp_path), TARGET, trials=6).run(builder, runner)
    finally:
        builder.shutdown()
        runner.shutdown()
    assert before == 1.0 and after < 0.01
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "id | time MS (s) | time DPMS (s) | speedup" and shown[1].startswith(" 0 | 1.0000000000 | 0.0")
    again = ms.database.JSONDatabase(work_dir=str(tmp_path))
    assert len(again) == 7
    sch = again.query_schedule(product(), TARGET, "main")
    built = relaxish.build(sch.mod, TARGET)
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, (32, 32)).astype("float32") for _ in range(2))
    out = relaxish.nd.array(np.full((32, 32), np.nan, "float32"))
    built(relaxish.nd.array(a), relaxish.nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_tune_tir_ends_with_it(tmp_path, capsys):
    database = ms.tune_tir(
        product(), TARGET, str(tmp_path), 4, num_trials_per_iter=4, post_optimization=True, seed=1, validate=False
    )
    assert len(database) >= 4 and "DPMS" in capsys.readouterr().out


def test_it_stops_where_no_neighbour_is_faster(tmp_path):
    record = some_record(ms.database.JSONDatabase(work_dir=str(tmp_path)), seconds=1e-9)

    class Never(ms.Runner):
        def run(self, inputs):
            slow = ms.runner.RunnerResult([1.0, 1.0])
            return [ms.runner.RunnerFuture(lambda: True, lambda: slow) for _ in inputs]

    class Nothing(ms.Builder):
        def build(self, inputs):
            return [ms.builder.BuilderResult("artifact") for _ in inputs]

    droplet = Droplet(record, TARGET)
    assert droplet.tune(12, Nothing(), Never()) == [1e-9] * 3
    assert droplet.measured == 12
