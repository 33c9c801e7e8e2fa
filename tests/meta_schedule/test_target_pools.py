"""The measuring pools of targets: whose runner measures what."""

from __future__ import annotations

import pickle
import sys
import tarfile
from typing import Any

import pytest

from relaxish.backend.llvm.compile import compile_primfuncs
from relaxish.driver import lower_kernels
from relaxish.ir import IRModule
from relaxish.meta_schedule.runner import LocalRunner, RayRunner, RPCRunner, Runner, RunnerInput
from relaxish.meta_schedule.runner.pools import EmulatorRunner, PooledRunner
from relaxish.meta_schedule.runner.rpc_runner import _as_library
from relaxish.meta_schedule.testing.local_rpc import LocalRPC
from relaxish.meta_schedule.tir_integration import tune_tir
from relaxish.script import tir as T
from relaxish.support.errors import MissingExtraError, RelaxishError
from relaxish.target import Target, attrs_with_limits


@pytest.fixture(scope="module")
def board() -> Any:
    with LocalRPC() as rpc:
        yield {"kind": "rpc", "tracker": f"{rpc.tracker_host}:{rpc.tracker_port}", "key": rpc.tracker_key}


@T.prim_func
def add(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.block("B"):
            v = T.axis.spatial(64, i)
            B[v] = A[v] + T.float32(1)


def test_the_runner_of_a_pool(board: Any) -> None:
    assert type(Runner.for_target("llvm")) is LocalRunner
    rpc = Runner.for_target({"kind": "cuda", "arch": "sm_53", "pool": {**board, "timeout": 30}})
    assert isinstance(rpc, RPCRunner)
    host, _, port = board["tracker"].rpartition(":")
    assert rpc.rpc_config[:5] == (host, int(port), board["key"], 1, 30)
    assert isinstance(Runner.for_target({"kind": "cuda", "arch": "sm_80", "pool": "emulator"}), EmulatorRunner)
    with pytest.raises(RelaxishError, match="is host:port"):
        Runner.for_target({"kind": "llvm", "pool": {**board, "tracker": "somewhere"}})


def test_a_pool_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pool of kind ray.*pip install 'relaxish\[ray\]'"):
        Runner.for_target({"kind": "llvm", "pool": "ray"})


def test_the_fields_of_a_cluster_pool_reach_its_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("relaxish.meta_schedule.distributed.ray_runner.connect", asked.append)
    pool = {"kind": "ray", "address": "ray://somewhere:10001", "device_kind": "a100", "weight": 2.0, "timeout": 12}
    runner = Runner.for_target(Target({"kind": "cuda", "arch": "sm_80", "pool": pool}))
    assert isinstance(runner, RayRunner) and asked == ["ray://somewhere:10001"]
    assert (runner.settings.device_kind, runner.settings.gpu, runner.settings.timeout_sec) == ("a100", True, 12.0)
    assert runner.weight == 2.0
    on_cpu = Runner.for_target(Target({"kind": "llvm", "pool": {"kind": "ray", "cores": 4}}))
    assert isinstance(on_cpu, RayRunner) and on_cpu.settings.cores == 4 and not on_cpu.settings.gpu
    (refused,) = on_cpu.run([RunnerInput(b"x", "cuda", [])])
    assert refused.result().run_secs is None and "gpu=True" in str(refused.result().error_msg)
    with pytest.raises(RelaxishError, match="weight"):
        RayRunner(weight=0)


class _Noting(Runner):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def run(self, runner_inputs: Any) -> list[Any]:
        self.seen += [str(x.artifact_path) for x in runner_inputs]
        return [x.artifact_path for x in runner_inputs]


def test_candidates_find_the_pool_of_their_device(board: Any) -> None:
    composed = Runner.for_target(
        {"devices": {"gpu": {"kind": "cuda", "arch": "sm_53", "pool": board}, "cpu": "llvm"}, "pool": "local"}
    )
    assert isinstance(composed, PooledRunner)
    assert isinstance(composed.runners["cuda"], RPCRunner)
    assert type(composed.runners["llvm"]) is LocalRunner
    gpu, cpu = _Noting(), _Noting()
    runner = PooledRunner({"cuda": gpu, "llvm": cpu})
    kinds = ["cuda", "llvm", "llvm", "cuda"]
    assert runner.run([RunnerInput(str(i), kind, []) for i, kind in enumerate(kinds)]) == ["0", "1", "2", "3"]
    assert (gpu.seen, cpu.seen) == (["0", "3"], ["1", "2"])
    with pytest.raises(RelaxishError, match="no measuring pool is for metal"):
        runner.run([RunnerInput("x", "metal", [])])


def test_tuning_measures_on_the_servers_of_the_pool(board: Any, tmp_path: Any) -> None:
    target = Target({"kind": "llvm", "num-cores": 1, "pool": board})
    database = tune_tir(add, target, str(tmp_path), 2, num_trials_per_iter=2, cost_model="random", validate=False)
    records = database.get_all_tuning_records()
    assert records
    assert all(float(r.run_secs[0]) < 1 for r in records)
    assert all("pool" not in r.target.attrs for r in records), "where it was measured is no part of the device"


@pytest.mark.parametrize("kind", ["metal", "vulkan", "rocm", "webgpu", "cuda -arch=sm_80"])
def test_without_a_device_a_search_says_so_at_once(kind: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(LocalRunner, "count_devices", lambda self, provider: 0)
    with pytest.raises(RelaxishError, match=f"there is no {kind.split()[0]} device here to measure candidates on"):
        tune_tir(add, Target(kind), str(tmp_path), 2, num_trials_per_iter=2, cost_model="random")
    assert not [p for p in tmp_path.glob("database_tuning_record.json") if p.read_text()], "and records nothing"


@pytest.mark.parametrize("kind", ["cuda", "nvptx", "rocm", "opencl", "metal", "vulkan", "webgpu"])
def test_every_gpu_has_the_limits_that_a_search_needs(kind: str) -> None:
    limits = attrs_with_limits(Target(kind))
    assert {"max_threads_per_block", "max_shared_memory_per_block", "thread_warp_size"} <= set(limits)
    assert Target(kind).max_shared_memory_per_block >= 16384
    assert attrs_with_limits(Target({"kind": kind, "max_num_threads": 64}))["max_num_threads"] == 64


def test_candidates_for_another_architecture_travel_as_objects(tmp_path: Any) -> None:
    compiled = compile_primfuncs(
        lower_kernels(IRModule({"add": add}), Target("llvm -mtriple=aarch64-linux-gnu")),
        Target("llvm -mtriple=aarch64-linux-gnu"),
    )
    path = _as_library(pickle.dumps(compiled), tmp_path)
    assert path.name == "candidate.tar"
    with tarfile.open(path) as archive:
        objects = [archive.extractfile(n).read() for n in archive.getnames() if n.endswith(".o")]
    assert {int.from_bytes(data[18:20], "little") for data in objects} == {183}
    here = compile_primfuncs(lower_kernels(IRModule({"add": add}), Target("llvm")), Target("llvm"))
    assert _as_library(pickle.dumps(here), tmp_path).name == "candidate.so"
