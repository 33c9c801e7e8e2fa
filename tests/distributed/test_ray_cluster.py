"""Builds and measurements on a real Ray cluster of this machine: several raylets, labels, nodes and drivers that die."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relaxish.meta_schedule import tune_tir
from relaxish.meta_schedule.builder import Builder, BuilderInput
from relaxish.meta_schedule.runner import EvaluatorConfig, Runner, RunnerInput, RunnerResult
from relaxish.meta_schedule.measure.status import MeasureStatus
from relaxish.support.errors import RelaxishError
from relaxish.target import Target
from relaxish.testing.contracts.parts import BuilderContract, product

ray = pytest.importorskip("ray")
QUICK = EvaluatorConfig(1, 2, 0)
KIND = "relaxish.device-kind"


@contextlib.contextmanager
def cluster(*labels: str, cpus: int = 1) -> Iterator[Any]:
    """A head that measures nothing, and a node with one device for each label."""
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")
    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20, "labels": {KIND: "head"}}
    made = Cluster()
    try:
        try:
            made.add_node(**head)
            made.measuring = [
                made.add_node(num_cpus=cpus, object_store_memory=80 << 20, labels={KIND: label}) for label in labels
            ]
        except Exception as err:  # no network, no room, or too busy: it says nothing about what is tested
            pytest.skip(f"Ray cannot start a cluster here: {err}")
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def built(builder: Builder, count: int) -> tuple[list[RunnerInput], Any]:
    """Programs ready to be run."""
    candidates = BuilderContract().candidates(count)
    results = builder.build([BuilderInput(c.sch.mod, Target("llvm -num-cores=1")) for c in candidates])
    assert all(r.artifact_path for r in results), [r.error_msg for r in results]
    return [RunnerInput(r.artifact_path or b"", "llvm", c.args_info) for r, c in zip(results, candidates, strict=True)]


def varied(item: RunnerInput, count: int) -> list[RunnerInput]:
    """The same program under other names: bytes after the end of a pickle say nothing."""
    assert isinstance(item.artifact_path, bytes)
    return [RunnerInput(bytes(item.artifact_path) + b"%d" % i, "llvm", item.args_info) for i in range(count)]


def environment() -> dict[str, str]:
    """For a process that imports this file."""
    here = [str(Path(__file__).parent), *filter(None, sys.path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(here)}


def until(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)


def whole_way(folder: Path) -> None:
    """One node is enough to see that every part is in its place."""
    with cluster("box") as made:
        builder = Builder.create("ray", made.address, timeout_sec=300)
        runner = Runner.create(
            "ray", made.address, QUICK, 300, device_kind="box", noise_limit=1e9, max_workers=None, name="one"
        )
        inputs = built(builder, 3)
        bad = RunnerInput(b"nonsense", "llvm", inputs[0].args_info)
        results = [f.result() for f in runner.run([inputs[0], bad, inputs[1]])]
        assert [bool(r.run_secs) for r in results] == [True, False, True] and not results[1].status.ok
        status = runner.status()
        assert len(status["devices"]) == 1 and status["devices"][0]["measured"] == 3
        assert len(status["devices"][0]["cores"]) == 1  # pinned
        broken = BuilderInput(BuilderContract().broken(), Target("llvm"))
        assert builder.build([broken])[0].status in (MeasureStatus.COMPILE, MeasureStatus.CRASH)
        absent = Runner.create("ray", made.address, QUICK, device_kind="a100", wait_sec=0)
        with pytest.raises(RelaxishError, match="device-kind=a100.*box, head"):
            absent.run([inputs[0]])
        # The search itself, by a target's pool.
        pool = {"kind": "ray", "address": made.address, "device_kind": "box", "timeout": 300}
        target = Target({"kind": "llvm", "num-cores": 1, "pool": pool})
        database = tune_tir(
            product(16), target, str(folder), 2, num_trials_per_iter=2, cost_model="random", builder=builder,
            validate=False, seed=1,
        )  # fmt: skip
        assert [r.error_msg for r in database.get_all_tuning_records()] == [None, None]
        runner.shutdown()
        with pytest.raises(ValueError):
            until(lambda: ray.get_actor(runner.settings.name, namespace="relaxish") is None, 30)


def test_builds_and_measurements_go_to_the_cluster(tmp_path: Path) -> None:
    """In a process of its own, so that Ray leaves nothing in this one."""
    code = "import sys; from pathlib import Path; import test_ray_cluster as t; t.whole_way(Path(sys.argv[1]))"
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=900)
    if "Ray cannot start a cluster here" in done.stderr:
        pytest.skip("Ray cannot start a cluster here")
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.slow
def test_only_nodes_with_the_label_measure_and_a_dead_one_is_replaced() -> None:
    with cluster("box", "box", "other") as made:
        runner: Any = Runner.create("ray", made.address, EvaluatorConfig(1, 1, 50), device_kind="box", noise_limit=1e9)
        (item,) = built(Builder.create("ray", made.address), 1)
        runner.run([item])[0].result()
        until(lambda: len(runner.status()["devices"]) == 2)
        nodes = {d["node"] for d in runner.status()["devices"]}
        other = next(n["NodeID"] for n in ray.nodes() if n["Labels"].get(KIND) == "other")
        assert other not in nodes
        futures = runner.run(varied(item, 60))
        until(lambda: runner.status()["counts"].get("finished", 0) >= 15)
        made.remove_node(made.measuring[0], allow_graceful=False)
        late = made.add_node(num_cpus=1, object_store_memory=80 << 20, labels={KIND: "box"})
        results = [f.result() for f in futures]
        assert all(r.run_secs for r in results), [r.error_msg for r in results if not r.run_secs][:1]
        until(lambda: late.node_id in {d["node"] for d in runner.status()["devices"]})
        counts = runner.status()["counts"]
        assert counts["finished"] == 61 and counts["lost"] <= 1
        runner.shutdown()


@pytest.mark.slow
def test_a_candidate_that_kills_what_measures_it_is_recorded_so() -> None:
    with cluster("box", "box") as made:
        runner: Any = Runner.create("ray", made.address, QUICK, device_kind="box", noise_limit=1e9)
        (item,) = built(Builder.create("ray", made.address), 1)
        runner.run([item])[0].result()
        until(lambda: len(runner.status()["devices"]) == 2)
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # nodes do not have this file
        deadly = RunnerInput(item.artifact_path, "llvm", [_Deadly()])  # type: ignore[list-item]
        result = runner.run([deadly])[0].result()
        assert result.status is MeasureStatus.CRASH and "2 measuring nodes" in str(result.error_msg)
        until(lambda: len(runner.status()["devices"]) == 2)  # both came back
        again: RunnerResult = runner.run(varied(item, 1))[0].result()
        assert again.run_secs
        runner.shutdown()


def _end_a_measuring_process() -> _Deadly:
    """Runs where a :class:`_Deadly` is unpacked: in the pool it does nothing."""
    with contextlib.suppress(Exception):
        if "MeasuringProcess" in str(ray.get_runtime_context().get_task_name()):
            os.kill(os.getpid(), signal.SIGKILL)
    return _Deadly()


class _Deadly:
    """An argument that kills the measuring process that it gets to, and not only the child that runs the program."""

    def as_json(self) -> list[Any]:
        return ["TENSOR", "float32", [1]]

    def __reduce__(self) -> Any:
        return _end_a_measuring_process, ()


_DRIVER = """
import json, sys
from relaxish.meta_schedule.builder import Builder
from relaxish.meta_schedule.runner import EvaluatorConfig, Runner
from test_ray_cluster import built, varied
address, out = sys.argv[1:]
runner = Runner.create("ray", address, EvaluatorConfig(1, 1, 200), device_kind="box", noise_limit=1e9, name="mine")
(item,) = built(Builder.create("ray", address), 1)
futures = runner.run(varied(item, 20))
with open(out, "a") as file:
    for number, future in enumerate(futures):
        result = future.result()
        assert result.run_secs, result.error_msg
        file.write(json.dumps([number, result.run_secs]) + "\\n")
        file.flush()
print(json.dumps(runner.status()["counts"]))
"""


@pytest.mark.slow
def test_a_driver_that_was_killed_finds_what_was_measured_meanwhile(tmp_path: Path) -> None:
    with cluster("box") as made:
        out = tmp_path / "results"
        command = [sys.executable, "-W", "ignore", "-c", _DRIVER, made.address, str(out)]
        first = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: out.exists() and len(out.read_text().splitlines()) >= 3)
        first.kill()
        first.wait()
        time.sleep(2)  # the pool goes on meanwhile
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr[-2000:]
        counts = json.loads(done.stdout.splitlines()[-1])
        written = [json.loads(line) for line in out.read_text().splitlines()]
        assert {number for number, _ in written} == set(range(20))
        # What the first had claimed is measured once more at most; what it had not is not.
        assert counts["finished"] <= 20 + len(written) - 20 and counts["found"] >= 1


@pytest.mark.slow
def test_two_models_share_by_their_weights() -> None:
    with cluster("box") as made:
        config = EvaluatorConfig(1, 1, 30)
        big: Any = Runner.create(
            "ray", made.address, config, device_kind="box", weight=3.0, name="big", noise_limit=1e9
        )
        small: Any = Runner.create(
            "ray", made.address, config, device_kind="box", weight=1.0, name="small", noise_limit=1e9
        )
        (item,) = built(Builder.create("ray", made.address), 1)
        big.run([item])[0].result()
        small.run([item])[0].result()
        many, few = big.run(varied(item, 120)), small.run(varied(item, 120))
        until(lambda: sum(f.done() for f in many) >= 90)
        assert 15 <= sum(f.done() for f in few) <= 50
        big.shutdown()
        small.shutdown()


@pytest.mark.slow
def test_nothing_is_lost_or_measured_twice_in_twenty_deaths_of_nodes() -> None:
    """A raylet with its measuring process is killed while it measures, and another node comes, twenty times."""
    with cluster("box", "box") as made:
        runner: Any = Runner.create("ray", made.address, EvaluatorConfig(1, 1, 100), device_kind="box", noise_limit=1e9)
        (item,) = built(Builder.create("ray", made.address), 1)
        assert runner.run([item])[0].result().run_secs
        futures: list[Any] = []

        def alive() -> set[str]:
            return {d["node"] for d in runner.status()["devices"]} & {n.node_id for n in made.measuring}

        for death in range(20):
            until(lambda: len(alive()) == 2)
            # Work for both, of which some is under way.
            futures += runner.run(
                [RunnerInput(x.artifact_path + b"|%d" % death, "llvm", x.args_info) for x in varied(item, 8)]
            )
            until(lambda: runner.status()["running"] >= 1 or all(f.done() for f in futures))
            made.remove_node(made.measuring.pop(0), allow_graceful=False)
            made.measuring.append(made.add_node(num_cpus=1, object_store_memory=80 << 20, labels={KIND: "box"}))
        until(lambda: all(f.done() for f in futures))
        results = [f.result() for f in futures]
        assert all(r.run_secs for r in results), [r.error_msg for r in results if not r.run_secs][:1]
        counts = runner.status()["counts"]
        # One result each; what was measured again is what a node took with it.
        assert counts["finished"] == 161 and 1 <= counts["lost"] == counts["retried"] <= 20
        runner.shutdown()


@contextlib.contextmanager
def separate_network() -> Iterator[tuple[str, str, str, str]]:
    """A network namespace and a wire to it: its name, the wire's name here, the addresses at both ends."""
    name, wire = f"relaxish{os.getpid()}", f"rlx{os.getpid()}"
    here, there = "10.213.77.1", "10.213.77.2"
    steps = [
        f"netns add {name}", f"link add {wire} type veth peer name {wire}p", f"link set {wire}p netns {name}",
        f"addr add {here}/30 dev {wire}", f"link set {wire} up", f"-n {name} addr add {there}/30 dev {wire}p",
        f"-n {name} link set {wire}p up", f"-n {name} link set lo up",
    ]  # fmt: skip
    if not shutil.which("ip"):
        pytest.skip("there is no command ip to make network namespaces with")
    try:
        for step in steps:
            done = subprocess.run(["ip", *step.split()], capture_output=True, text=True, timeout=60)
            if done.returncode:
                pytest.skip(f"network namespaces are not permitted here: ip {step}: {done.stderr.strip()}")
        yield name, wire, here, there
    finally:
        pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, timeout=60).stdout.split()
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        for command in (f"netns del {name}", f"link del {wire}"):
            subprocess.run(["ip", *command.split()], capture_output=True, timeout=60)


@pytest.mark.slow
def test_what_a_node_behind_a_cut_wire_had_is_measured_elsewhere(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    with separate_network() as (name, wire, here, there):
        made = Cluster()
        try:
            common = {"object_store_memory": 80 << 20, "node_ip_address": here}
            try:
                made.add_node(num_cpus=1, include_dashboard=False, labels={KIND: "head"}, **common)
                made.add_node(num_cpus=1, labels={KIND: "box"}, **common)
                join = ["ray", "start", f"--address={made.address}", f"--node-ip-address={there}", "--num-cpus=1",
                        f"--object-store-memory={80 << 20}", f"--labels={KIND}=box", "--disable-usage-stats"]  # fmt: skip
                tools = {**environment(), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
                joined = subprocess.run(
                    ["ip", "netns", "exec", name, *join], env=tools, capture_output=True, text=True, timeout=300
                )
                assert joined.returncode == 0, joined.stderr[-2000:] + joined.stdout[-2000:]
            except Exception as err:  # no room, or too busy: it says nothing about what is tested
                pytest.skip(f"Ray cannot start a cluster here: {err}")
            runner: Any = Runner.create(
                "ray", made.address, EvaluatorConfig(1, 1, 200), 5.0, device_kind="box", noise_limit=1e9
            )
            (item,) = built(Builder.create("ray", made.address, timeout_sec=300), 1)
            assert runner.run([item])[0].result().run_secs
            until(lambda: len(runner.status()["devices"]) == 2)
            futures = runner.run(varied(item, 60))
            until(lambda: runner.status()["counts"].get("finished", 0) >= 10)
            subprocess.run(["ip", "link", "set", wire, "down"], check=True, timeout=60)
            until(lambda: all(f.done() for f in futures))
            results = [f.result() for f in futures]
            assert all(r.run_secs for r in results), [r.error_msg for r in results if not r.run_secs][:1]
            counts = runner.status()["counts"]
            assert counts["finished"] == 61 and counts["lost"] == counts["retried"] <= 2
            until(lambda: len(runner.status()["devices"]) == 1)
            # What comes back with the wire is no second answer to anything.
            subprocess.run(["ip", "link", "set", wire, "up"], check=True, timeout=60)
            assert runner.run([RunnerInput(item.artifact_path + b"later", "llvm", item.args_info)])[0].result().run_secs  # type: ignore[operator]
            assert runner.status()["counts"]["finished"] == 62
            runner.shutdown()
        finally:
            ray.shutdown()
            made.shutdown()


@pytest.mark.slow
def test_a_measurement_takes_little_more_than_the_candidate() -> None:
    """What the cluster adds, with some room for a busy machine; benchmarks have the figure."""
    with cluster("box") as made:
        runner: Any = Runner.create("ray", made.address, QUICK, device_kind="box", noise_limit=1e9)
        (item,) = built(Builder.create("ray", made.address), 1)
        runner.run([item])[0].result()
        rounds = []
        for number in range(5):
            batch = [RunnerInput(x.artifact_path + b"|%d" % number, "llvm", x.args_info) for x in varied(item, 40)]
            begin = time.perf_counter()
            assert all(f.result().run_secs for f in runner.run(batch))
            rounds.append((time.perf_counter() - begin) / len(batch))
        print("seconds for each measurement:", statistics.median(rounds), min(rounds))
        assert min(rounds) < 0.1
        runner.shutdown()


@pytest.mark.slow
def test_nothing_is_lost_or_measured_twice_while_processes_are_killed() -> None:
    with cluster("box", "box") as made:
        runner: Any = Runner.create("ray", made.address, EvaluatorConfig(1, 1, 100), device_kind="box", noise_limit=1e9)
        (item,) = built(Builder.create("ray", made.address), 1)
        assert runner.run([item])[0].result().run_secs
        until(lambda: len(runner.status()["devices"]) == 2)
        futures = runner.run(varied(item, 200))
        killed: set[int] = set()
        while len(killed) < 3 and not all(f.done() for f in futures):
            devices = runner.status()["devices"]
            if len(devices) == 2:  # one goes on while the other comes back
                os.kill(devices[len(killed) % 2]["pid"], signal.SIGKILL)
                killed.add(devices[len(killed) % 2]["pid"])
            time.sleep(0.2)
        results = [f.result() for f in futures]
        assert all(r.run_secs for r in results), [r.error_msg for r in results if not r.run_secs][:1]
        counts = runner.status()["counts"]
        assert counts["finished"] == 201 and counts["lost"] == counts["retried"] <= len(killed)
        assert killed
        runner.shutdown()
