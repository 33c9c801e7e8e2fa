"""Tasks of Relax modules: found, tuned, applied to a build, and gone on with after an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import relaxish
from relaxish import autotvm, meta_schedule as ms, rpc
from relaxish.autotvm.task import extract_from_multiple_program, extract_from_program, register_kernel_template
from relaxish.autotvm.task.kernel import _TEMPLATES
from relaxish.relax.frontend import nn
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.target import Target

TARGET = Target("llvm -num-cores=1")


def network(channels=8, size=12):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2D(3, channels, 3, padding=1)
            self.second = nn.Conv2D(channels, 2 * channels, 3, padding=1, stride=2)

        def main(self, x: nn.Tensor):
            return nn.op.relu(self.second(nn.op.relu(self.first(x))))

    mod, params = Net().export_tvm({"main": {"x": nn.spec.Tensor((1, 3, size, size), "float32")}})
    rng = np.random.default_rng(0)
    return mod, {n: rng.uniform(-0.3, 0.3, [int(d) for d in p.shape]).astype("float32") for n, p in params}


def quick():
    return autotvm.measure_option(
        autotvm.LocalBuilder(timeout=60, n_parallel=2),
        autotvm.LocalRunner(timeout=20, number=1, repeat=1, cooldown_interval=0),
    )


def run(mod, params, x, context=None):
    bound = relaxish.relax.transform.BindParams("main", params)(mod)
    if context is None:
        built = relaxish.build(bound, TARGET)
    else:
        with context:
            built = relaxish.build(bound, TARGET)
    return relaxish.VirtualMachine(built, relaxish.cpu())["main"](relaxish.nd.array(x)).numpy()


@pytest.fixture
def applied(monkeypatch):
    """Which kernels of a build got a record."""
    import relaxish.meta_schedule.passes as passes

    seen, original = {}, passes.apply_record

    def spy(database, func, target, name, *rest):
        made = original(database, func, target, name, *rest)
        seen[name] = made is not None
        return made

    monkeypatch.setattr(passes, "apply_record", spy)
    return seen


def convolutions(tasks):
    return [t for t in tasks if "conv2d" in t.name]


def test_tasks_are_the_distinct_kernels():
    mod, params = network()
    tasks = extract_from_program(mod, target=TARGET, params=params)
    assert len(convolutions(tasks)) == 2 and len({t.workload for t in tasks}) == len(tasks)
    assert all(t.flop > 0 and len(t.config_space) >= 1 for t in tasks)
    twice = extract_from_multiple_program([mod, mod], [params, params], TARGET)
    assert [t.workload for t in twice] == [t.workload for t in tasks]
    only = extract_from_program(mod, params, TARGET, ops=[relaxish.relax.op.nn.conv2d])
    assert [t.workload for t in only] == [t.workload for t in convolutions(tasks)]
    with_host = extract_from_program(mod, target="llvm", target_host="llvm -num-cores=2", params=params)
    assert str(with_host[0].target_host.attrs["num-cores"]) == "2"


@pytest.mark.slow
def test_configurations_of_kernels_compute_the_same():
    from relaxish.interp import run_prim_func as interpret

    mod, params = network(4, 6)
    task = convolutions(extract_from_program(mod, target=TARGET, params=params))[1]
    func = task.mod["main"]
    rng = np.random.default_rng(1)
    buffers = [func.buffer_map[p] for p in func.params]
    given = [rng.uniform(-1, 1, [int(n) for n in b.shape]).astype("float32") for b in buffers[:-1]]
    want = np.zeros([int(n) for n in buffers[-1].shape], "float32")
    interpret(func, [*given, want])
    admitted = [i for i in map(int, task.config_space.sample_ints(24)) if task.admits(i)]
    assert len(admitted) >= 8
    for index in admitted[:6]:
        built = relaxish.build(task.program(task.config_space.get(index)), TARGET)
        out = relaxish.nd.array(np.full(want.shape, np.nan, "float32"))
        built(*[relaxish.nd.array(g) for g in given], out)
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_tuned_kernels_are_used_by_builds(tmp_path, applied):
    mod, params = network()
    log, best, work = tmp_path / "log", tmp_path / "best", tmp_path / "work"
    work.mkdir()
    with ms.database.JSONDatabase(work_dir=str(work)) as database:
        for task in convolutions(extract_from_program(mod, target=TARGET, params=params)):
            tuner = autotvm.tuner.XGBTuner(task, loss_type="reg")
            tuner.tune(4, quick(), callbacks=[autotvm.callback.log_to_file(str(log))])
            assert tuner.best_flops > 0
    assert len(database) == 8 and len(database.workloads()) == 2, [
        r.error_msg for r in database.get_all_tuning_records()
    ]
    autotvm.record.pick_best(str(log), str(best))
    assert len(best.read_text().splitlines()) == 2
    x = np.random.default_rng(2).uniform(-1, 1, (1, 3, 12, 12)).astype("float32")
    want = run(mod, params, x)
    applied.clear()
    for context in (
        autotvm.apply_history_best(str(best)),
        autotvm.apply_graph_best(str(best)),
        ms.database.JSONDatabase(work_dir=str(work)),
    ):
        applied.clear()
        np.testing.assert_allclose(run(mod, params, x, context), want, rtol=1e-4, atol=1e-5)
        found = [name for name, used in applied.items() if used]
        assert len(found) == 2 and all("conv2d" in name for name in found), applied
    applied.clear()
    np.testing.assert_array_equal(run(mod, params, x), want)
    assert not any(applied.values())


@pytest.mark.slow
def test_kernels_with_a_template_of_their_own(tmp_path, applied):
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((16, 24), "float32"), w: R.Tensor((24, 32), "float32")):
            with R.dataflow():
                y = R.nn.relu(R.matmul(x, w))
                R.output(y)
            return y

    @register_kernel_template("matmul", "cpu")
    def schedule(cfg, sch):
        block = sch.get_block("matmul")
        i, j, k = sch.get_loops(block)
        cfg.define_split("j", cfg.axis(32), num_outputs=2)
        cfg.define_knob("swap", [0, 1])
        outer, inner = cfg["j"].apply(sch, block, j)
        sch.reorder(*([i, outer, k, inner] if cfg["swap"].val else [outer, i, k, inner]))
        sch.vectorize(inner)

    try:
        with pytest.raises(ValueError, match="registered already"):
            register_kernel_template("matmul", "cpu", schedule)
        (task,) = [t for t in extract_from_program(Model, None, TARGET) if "matmul" in t.name]
        assert list(task.config_space.space_map) == ["j", "swap"] and len(task.config_space) == 12
        log = tmp_path / "log"
        tuner = autotvm.tuner.GridSearchTuner(task)
        tuner.tune(12, quick(), callbacks=[autotvm.callback.log_to_file(str(log))])
        rng = np.random.default_rng(3)
        x, w = (rng.uniform(-1, 1, s).astype("float32") for s in ((16, 24), (24, 32)))
        with autotvm.apply_history_best(str(log)):
            built = relaxish.build(Model, TARGET)
        got = relaxish.VirtualMachine(built, relaxish.cpu())["main"](relaxish.nd.array(x), relaxish.nd.array(w)).numpy()
        np.testing.assert_allclose(got, np.maximum(x @ w, 0), rtol=1e-4, atol=1e-5)
        assert any(applied.values())
    finally:
        _TEMPLATES.pop(("matmul", "cpu"))


def test_a_record_that_does_not_fit_gives_the_default_schedule(caplog):
    mod, params = network()
    task = convolutions(extract_from_program(mod, target=TARGET, params=params))[0]
    config = task.config_space.get(0)
    config._entity_map.pop("tile_x")
    fine = autotvm.MeasureResult((0.1,), 0, 1.0, 1.0)
    x = np.random.default_rng(4).uniform(-1, 1, (1, 3, 12, 12)).astype("float32")
    context = autotvm.apply_history_best([(autotvm.MeasureInput(TARGET, task, config), fine)])
    np.testing.assert_allclose(run(mod, params, x, context), run(mod, params, x), rtol=1e-4, atol=1e-5)
    assert "the default schedule is used" in caplog.text and "no parameter 'tile_x'" in caplog.text


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[4])
import relaxish as tvm
from relaxish import autotvm
from relaxish.contrib import cc
from test_relax_tasks import network

mod, params = network()
rpc_tracker_host, rpc_tracker_port, key = "127.0.0.1", sys.argv[1], "loop"
tune_log, n_trial, early_stopping = sys.argv[2], int(sys.argv[3]), None
target = tvm.target.Target("llvm -num-cores=1")
test_target = target

tasks = autotvm.task.extract_from_program(
    mod, target=test_target, target_host=target, params=params
)
tasks = [t for t in tasks if "conv2d" in t.name]
tmp_log_file = tune_log + ".tmp"
measure_option = autotvm.measure_option(
    builder=autotvm.LocalBuilder(build_func=cc.create_shared, timeout=15),
    runner=autotvm.RPCRunner(
        key, host=rpc_tracker_host, port=int(rpc_tracker_port), number=3, timeout=600,
    ),
)
from relaxish.autotvm.tuner import XGBTuner

for i, tsk in enumerate(reversed(tasks[:3])):
    print("Task:", tsk)
    prefix = "[Task %2d/%2d] " % (i + 1, len(tasks))
    tuner = "xgb"
    tuner_obj = XGBTuner(tsk, loss_type="reg")
    tsk_trial = min(n_trial, len(tsk.config_space))
    tuner_obj.tune(
        n_trial=tsk_trial,
        early_stopping=early_stopping,
        measure_option=measure_option,
        callbacks=[
            autotvm.callback.progress_bar(tsk_trial, prefix=prefix),
            autotvm.callback.log_to_file(tmp_log_file),
        ],
    )
autotvm.record.pick_best(tmp_log_file, tune_log)
"""


@pytest.mark.slow
def test_the_usual_script_is_killed_and_goes_on(tmp_path):
    """Tracker and server on this machine; the script is killed in the middle and started again."""
    script, log = tmp_path / "script.py", tmp_path / "tune.log"
    script.write_text(SCRIPT)
    part = Path(f"{log}.tmp")
    tracker = rpc.Tracker(port=0, silent=True)
    server = rpc.Server(port=0, key="loop", tracker_addr=("127.0.0.1", tracker.port), silent=True)
    command = [sys.executable, str(script), str(tracker.port), str(log), "10", str(Path(__file__).parent)]
    try:
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=dict(os.environ))
        until = time.time() + 240
        while time.time() < until and not (part.exists() and len(part.read_text().splitlines()) >= 4):
            assert first.poll() is None, "the script ended early"
            time.sleep(0.2)
        first.send_signal(signal.SIGKILL)
        first.wait()
        before = part.read_text().splitlines()
        assert 4 <= len(before) < 20
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(os.environ))
        assert done.returncode == 0, done.stderr
    finally:
        server.terminate()
        tracker.terminate()
    lines = part.read_text().splitlines()
    assert len(lines) == 20 and lines[: len(before)] == before
    records = list(autotvm.record.load_from_file(part))
    assert all(r.error_no == 0 for _, r in records), [r for _, r in records]
    assert len({(i.task.workload, i.config.index) for i, _ in records}) == 20
    assert len(list(autotvm.record.load_from_file(log))) == 2
    assert "[Task  1/ 2]  Current/Best:" in done.stdout and "Done." in done.stdout
