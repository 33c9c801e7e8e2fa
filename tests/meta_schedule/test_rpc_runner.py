"""Measuring on servers of this machine."""

from __future__ import annotations

import pytest

from relaxish import IRModule, rpc
from relaxish import meta_schedule as ms
from relaxish.meta_schedule.arg_info import TensorInfo
from relaxish.meta_schedule.runner import EvaluatorConfig, RunnerInput
from relaxish.meta_schedule.runner.rpc_runner import RPCConfig, RPCRunner
from relaxish.script import tir as T
from relaxish.target import Target

pytest.importorskip("llvmlite")


@T.prim_func
def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
    T.func_attr({"global_symbol": "main"})
    for i in range(16):
        with T.block("b"):
            vi = T.axis.spatial(16, i)
            b[vi] = a[vi] * T.float32(2)


@pytest.fixture
def config():
    tracker = rpc.Tracker(port=0, silent=True)
    server = rpc.Server(port=0, key="here", tracker_addr=("127.0.0.1", tracker.port), silent=True)
    yield RPCConfig("127.0.0.1", tracker.port, "here", 1, 60)
    server.terminate()
    tracker.terminate()


def test_candidates_are_timed_elsewhere(config):
    (built,) = ms.builder.LocalBuilder().build(
        [ms.builder.BuilderInput(IRModule({"main": main}), Target("llvm -num-cores=1"))]
    )
    assert built.error_msg is None
    infos = [TensorInfo("float32", [16])] * 2
    runner = ms.runner.Runner.create(
        "rpc", config, EvaluatorConfig(number=2, repeat=3, min_repeat_ms=0), alloc_repeat=2
    )
    good, bad = runner.run(
        [RunnerInput(built.artifact_path, "llvm", infos), RunnerInput("/nowhere.tar", "llvm", infos)]
    )
    result = good.result()
    assert result.error_msg is None and len(result.run_secs) == 6 and min(result.run_secs) > 0
    assert "An exception occurred" in bad.result().error_msg


def test_hooks_take_the_place_of_steps(config):
    seen = []
    runner = RPCRunner(
        config, f_upload_module=lambda session, local, remote: seen.append(remote) or "module",
        f_run_evaluator=lambda session, module, device, cfg, sets: [0.25, len(sets[0])] if module == "module" else [],
        f_cleanup=lambda session, path: seen.append("clean"),
    )  # fmt: skip
    (future,) = runner.run([RunnerInput("some.tar", "llvm", [TensorInfo("float32", [4])])])
    assert future.result().run_secs == [0.25, 1.0] and seen[-1] == "clean"


def test_configurations_are_checked(config):
    with pytest.raises(ValueError, match="tracker_host, tracker_port, tracker_key"):
        RPCRunner()
    assert config.count_num_servers() == 1
    with pytest.raises(RuntimeError, match="no server with the key 'there'"):
        RPCRunner(config._replace(tracker_key="there"))
