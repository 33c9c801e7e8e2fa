"""Measuring configurations: AutoTVM's classes on the measuring engine, here and on servers of a tracker."""

import contextlib
import os
import time

import numpy as np
import pytest

from relaxish import nd, rpc, te, tir
from relaxish.autotvm.measure import (
    Builder, BuildResult, LocalBuilder, LocalRunner, MeasureErrorNo, MeasureInput, MeasureResult, RPCRunner, Runner,
    check_remote, create_measure_batch, measure_option, request_remote,
)  # fmt: skip
from relaxish.contrib import cc
from relaxish.script import tir as T
from relaxish.target import Target
from relaxish.testing.targets import device_enabled

TARGET = Target("llvm -num-cores=1")
N = 64


def matmul():
    A, B = (te.placeholder((N, N), name=n) for n in "AB")
    k = te.reduce_axis((0, N), name="k")
    return te.create_prim_func([A, B, te.compute((N, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])


class Task:
    """A task as the measuring part sees it: configurations are tile sizes, or words for what goes wrong."""

    name = "matmul"
    target = TARGET

    def instantiate(self, config):
        if config == "refused":
            raise ValueError("no such configuration")
        if config in PROGRAMS:
            return tir.Schedule(PROGRAMS[config]), []
        sch = tir.Schedule(matmul())
        i, j, k = sch.get_loops(sch.get_block("C"))
        j0, j1 = sch.split(j, [None, config])
        sch.reorder(i, j0, k, j1)
        sch.vectorize(j1)
        return sch, []


@T.prim_func
def hang(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    while A[0] >= T.float32(-1):
        B[0] = A[0]


@T.prim_func
def crash(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        B[T.int64(1099511627776) * T.Cast("int64", i + 1)] = A[i]


@T.prim_func
def unknown(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        B[i] = T.call_extern("float32", "no_such_function_anywhere", A[i])


PROGRAMS = {"hang": hang, "crash": crash, "unknown": unknown}


def inputs(*configs, target=TARGET):
    return [MeasureInput(target, Task(), c) for c in configs]


def measure(option, *configs):
    return create_measure_batch(Task(), option)(inputs(*configs))


@contextlib.contextmanager
def servers(key="here", count=1):
    tracker = rpc.Tracker(port=0, silent=True)
    made = [rpc.Server(port=0, key=key, tracker_addr=("127.0.0.1", tracker.port), silent=True) for _ in range(count)]
    try:
        yield tracker.port
    finally:
        for server in made:
            server.terminate()
        tracker.terminate()


@pytest.fixture(scope="module")
def tracker():
    with servers() as port:
        yield port


QUICK = {"number": 2, "repeat": 3, "cooldown_interval": 0.0}


@pytest.fixture(scope="module")
def builder():
    return LocalBuilder(n_parallel=2, timeout=60)


def test_costs_and_errors_on_this_machine(builder):
    option = measure_option(builder, LocalRunner(timeout=3, **QUICK))
    batch = create_measure_batch(Task(), option)
    assert batch.n_parallel == 2
    results = batch(inputs(8, "refused", "hang", 16, "crash", "unknown"))
    numbers = [r.error_no for r in results]
    assert [numbers[0], numbers[3]] == [0, 0]
    assert numbers[1] == MeasureErrorNo.INSTANTIATION_ERROR and numbers[2] == MeasureErrorNo.RUN_TIMEOUT
    assert numbers[4] == MeasureErrorNo.RUNTIME_DEVICE
    assert numbers[5] in (MeasureErrorNo.COMPILE_HOST, MeasureErrorNo.RUNTIME_DEVICE)
    # Of three costs the extremes are left out.
    assert len(results[0].costs) == 1 and 0 < results[0].costs[0] < 1
    text, error = results[1].costs
    assert "no such configuration" in text and isinstance(error, ValueError)
    assert all(r.all_cost > 0 and abs(r.timestamp - time.time()) < 600 for r in results if r.error_no == 0)


@pytest.mark.parametrize(("repeat", "kept"), [(1, 1), (2, 2), (5, 3)])
def test_extremes_are_left_out_of_more_than_two_costs(builder, repeat, kept):
    (result,) = measure(measure_option(builder, LocalRunner(number=1, repeat=repeat, cooldown_interval=0)), 8)
    assert len(result.costs) == kept


def test_measured_on_a_server(builder, tracker):
    option = measure_option(builder, RPCRunner("here", "127.0.0.1", tracker, timeout=4, **QUICK))
    results = measure(option, 8, "hang", 16, "crash", 32)
    assert [r.error_no for r in results][::2] == [0, 0, 0]
    assert results[1].error_no == MeasureErrorNo.RUN_TIMEOUT
    assert results[3].error_no == MeasureErrorNo.RUNTIME_DEVICE
    assert len(results[0].costs) == 1


def test_several_servers_work_at_a_time(builder):
    with servers(count=2) as port:
        option = measure_option(builder, RPCRunner("here", "127.0.0.1", port, timeout=30, n_parallel=2, **QUICK))
        assert [r.error_no for r in measure(option, 4, 8, 16, 32)] == [0] * 4


def test_without_a_server_there_is_one_line_that_says_so(tracker):
    assert check_remote(TARGET, "here", "127.0.0.1", tracker)
    assert not check_remote(TARGET, "nowhere", "127.0.0.1", tracker, timeout=0.3)
    session = request_remote("here", "127.0.0.1", tracker)
    session.close()
    runner = RPCRunner("here", "127.0.0.1", 1)
    with pytest.raises(RuntimeError, match="Cannot get remote devices from the tracker at 127.0.0.1:1"):
        runner.set_task(Task())


class Linked:
    """A build function that notes what it linked."""

    output_format = "so"

    def __init__(self, log):
        self.log = str(log)

    def __call__(self, output, objects):
        with open(self.log, "a") as file:
            file.write(f"{output} {len(objects)}\n")
        cc.create_shared(output, objects, ["-pthread"])


@pytest.mark.parametrize("where", ["here", "server"])
def test_a_build_function_links_the_objects(tmp_path, tracker, where):
    builder = LocalBuilder(timeout=60, n_parallel=1, build_func=Linked(tmp_path / "log"))
    runner = LocalRunner(**QUICK) if where == "here" else RPCRunner("here", "127.0.0.1", tracker, **QUICK)
    results = measure(measure_option(builder, runner), 8, 16)
    assert [r.error_no for r in results] == [0, 0], results
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 2 and all(line.endswith(".so 2") for line in lines)  # code and threads
    assert not os.path.exists(lines[0].split()[0])  # it has run


def test_a_build_function_that_fails_is_a_compile_error():
    def link(output, objects):
        raise RuntimeError("ld says no")

    with pytest.raises(ValueError, match="output_format = 'so'"):
        LocalBuilder(build_func=link)
    link.output_format = "so"
    (result,) = measure(measure_option(LocalBuilder(build_func=link, timeout=60), LocalRunner(**QUICK)), 8)
    assert result.error_no == MeasureErrorNo.COMPILE_HOST and "ld says no" in result.costs[0]


def test_ndk_needs_a_compiler(monkeypatch):
    monkeypatch.delenv("TVM_NDK_CC", raising=False)
    builder = LocalBuilder(build_func="ndk", timeout=60, n_parallel=1)
    (result,) = measure(measure_option(builder, LocalRunner(**QUICK)), 8)
    assert result.error_no == MeasureErrorNo.COMPILE_HOST and "TVM_NDK_CC" in result.costs[0]


def test_ndk_links_with_the_compiler_that_is_named(monkeypatch):
    monkeypatch.setenv("TVM_NDK_CC", cc.get_cc())
    builder = LocalBuilder(build_func="ndk", timeout=60, n_parallel=1)
    (result,) = measure(measure_option(builder, LocalRunner(**QUICK)), 8)
    assert result.error_no == 0


def test_stackvm_needs_no_compiler():
    builder = LocalBuilder(build_func="stackvm", timeout=60, n_parallel=1)

    class Small(Task):
        def instantiate(self, config):
            A = te.placeholder((4,), name="A")
            return tir.Schedule(te.create_prim_func([A, te.compute((4,), lambda i: A[i] + config, name="B")])), []

    batch = create_measure_batch(Small(), measure_option(builder, LocalRunner(**QUICK)))
    (result,) = batch([MeasureInput(TARGET, Small(), 1.0)])
    assert result.error_no == 0 and result.costs[0] > 0


def test_words_that_mean_nothing():
    with pytest.raises(ValueError, match="Invalid builder"):
        measure_option("remote", "local")
    with pytest.raises(ValueError, match="Invalid runner"):
        measure_option("local", "remote")
    with pytest.raises(ValueError, match="'default', 'ndk' or 'stackvm'"):
        LocalBuilder(build_func="gcc")
    option = measure_option("local", "local")
    assert isinstance(option["builder"], LocalBuilder) and isinstance(option["runner"], LocalRunner)


@T.prim_func
def needs_zero(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    # Never ends unless the first input is 7.
    while A[0] < T.float32(6.5):
        B[0] = A[0]
    for i in range(16):
        B[i] = A[i]


@pytest.mark.parametrize("where", ["here", "server"])
def test_reference_inputs_are_used(builder, tracker, where):
    PROGRAMS["seven"] = needs_zero
    runner = (
        LocalRunner(timeout=3, **QUICK)
        if where == "here"
        else RPCRunner("here", "127.0.0.1", tracker, timeout=3, **QUICK)
    )
    assert runner.ref_input is None
    with pytest.warns(RuntimeWarning, match="fixed input"):
        runner.ref_input = [np.full(16, 7, "float32"), nd.array(np.zeros(16, "float32"))]
    (result,) = measure(measure_option(builder, runner), "seven")
    assert result.error_no == 0
    runner.ref_input = None
    (result,) = measure(measure_option(builder, runner), "seven")
    assert result.error_no == MeasureErrorNo.RUN_TIMEOUT


def test_a_module_loader_of_the_users(builder, tracker):
    seen = []

    @contextlib.contextmanager
    def loader(remote_kwargs, build_result):
        seen.append(remote_kwargs["device_key"])
        remote = request_remote(remote_kwargs["device_key"], remote_kwargs["host"], remote_kwargs["port"])
        remote.upload(build_result.filename)
        yield remote, remote.load_module(os.path.basename(build_result.filename))
        remote.close()

    runner = RPCRunner("here", "127.0.0.1", tracker, module_loader=loader, **QUICK)
    (result,) = measure(measure_option(builder, runner), 8)
    assert result.error_no == 0 and seen == ["here"]


class Foreign(Runner):
    """A runner as users write them for tests and simulators."""

    def __init__(self):
        super().__init__(timeout=1, n_parallel=1)

    def get_build_kwargs(self):
        return {"check_gpu": {}}

    def run(self, measure_inputs, build_results):
        return [
            r if isinstance(r, MeasureResult) else MeasureResult((len(r.arg_info) * 1.0,), 0, r.time_cost, time.time())
            for r in build_results
        ]


class ForeignBuilder(Builder):
    def build(self, measure_inputs):
        return [BuildResult(None, [((1,), "float32")], None, 0.5) for _ in measure_inputs]


def test_runners_and_builders_of_others(builder):
    results = measure(measure_option(builder, Foreign()), 8, "refused")
    assert results[0].costs == (3.0,) and results[1].error_no == MeasureErrorNo.INSTANTIATION_ERROR
    (result,) = measure(measure_option(ForeignBuilder(1, 1), Foreign()), 8)
    assert result.costs == (1.0,) and result.all_cost == 0.5


def test_what_another_builder_built_is_run_here(builder):
    built = builder.build(inputs(8, "refused"))
    assert isinstance(built[0], BuildResult) and built[0].arg_info == [((N, N), "float32")] * 3
    results = LocalRunner(**QUICK).run(inputs(8, "refused"), built)
    assert [r.error_no for r in results] == [0, 1] and results[0].all_cost >= built[0].time_cost


@pytest.mark.parametrize(("threads", "number"), [(64, None), (2048, MeasureErrorNo.INSTANTIATION_ERROR)])
def test_kernels_a_gpu_cannot_launch_are_not_built(threads, number):
    target = Target("nvidia/geforce-rtx-3090")

    class GPU(Task):
        def instantiate(self, config):
            A = te.placeholder((4096,), name="A")
            sch = tir.Schedule(te.create_prim_func([A, te.compute((4096,), lambda i: A[i] + 1.0, name="B")]))
            i, j = sch.split(sch.get_loops(sch.get_block("B"))[0], [None, config])
            sch.bind(i, "blockIdx.x")
            sch.bind(j, "threadIdx.x")
            return sch, []

    task = GPU()
    task.target = target
    builder = LocalBuilder(n_parallel=1, timeout=60, build_func=Linked(os.devnull))
    batch = create_measure_batch(task, measure_option(builder, LocalRunner(**QUICK)))
    (result,) = batch([MeasureInput(target, task, threads)])
    if number is None:
        assert "invalid gpu kernel" not in str(result.costs)
    else:
        assert result.error_no == number and result.costs[0] == "Skipped because of invalid gpu kernel"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cuda", "opencl"])
@pytest.mark.parametrize("where", ["here", "server"])
def test_a_device_here_and_on_a_server(monkeypatch, kind, where):
    """OpenCL where there is a device; NVIDIA's in the emulator."""
    if kind == "cuda":
        monkeypatch.setenv("RELAXISH_CUDA_PROVIDER", "emulator")
        target = Target("nvidia/geforce-rtx-3090", host="llvm")
    else:
        if not device_enabled("opencl"):
            pytest.skip("there is no OpenCL device that compiles")
        target = Target("opencl", host="llvm")

    class GPU(Task):
        def instantiate(self, config):
            A = te.placeholder((4096,), name="A")
            sch = tir.Schedule(te.create_prim_func([A, te.compute((4096,), lambda i: A[i] + 1.0, name="B")]))
            i, j = sch.split(sch.get_loops(sch.get_block("B"))[0], [None, config])
            sch.bind(i, "blockIdx.x")
            sch.bind(j, "threadIdx.x")
            return sch, []

    task = GPU()
    task.target = target
    with servers() as port:
        options = {"timeout": 60, **QUICK}
        runner = LocalRunner(**options) if where == "here" else RPCRunner("here", "127.0.0.1", port, **options)
        batch = create_measure_batch(task, measure_option(LocalBuilder(n_parallel=1, timeout=60), runner))
        good, bad = batch([MeasureInput(target, task, 64), MeasureInput(target, task, 4096)])
    assert good.error_no == 0 and good.costs[0] > 0, good
    assert bad.error_no == MeasureErrorNo.INSTANTIATION_ERROR


def test_what_is_interpreted_stays_here(tracker):
    builder = LocalBuilder(build_func="stackvm", timeout=60, n_parallel=1)
    (result,) = measure(measure_option(builder, RPCRunner("here", "127.0.0.1", tracker, **QUICK)), 8)
    assert result.error_no == MeasureErrorNo.RUNTIME_DEVICE and "interpreted" in result.costs[0]


def test_results_print_their_number():
    text = "MeasureResult(costs=(0.1,), error_no=MeasureErrorNo.BUILD_TIMEOUT, all_cost=1.0, timestamp=2.0)"
    assert repr(MeasureResult((0.1,), 6, 1.0, 2.0)) == text
    assert "error_no=11" in repr(MeasureResult((0.1,), 11, 1.0, 2.0))


@T.prim_func
def in_parallel(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in T.parallel(64):
        with T.block("B"):
            vi = T.axis.spatial(64, i)
            B[vi] = A[vi] + T.float32(1)


def test_linked_libraries_have_their_threads(tracker):
    class Parallel(Task):
        target = Target("llvm -num-cores=2")

        def instantiate(self, config):
            return tir.Schedule(in_parallel), []

    task = Parallel()
    option = measure_option(
        LocalBuilder(build_func=cc.create_shared, n_parallel=1),
        RPCRunner("here", "127.0.0.1", tracker, timeout=20, **QUICK),
    )
    (result,) = create_measure_batch(task, option)([MeasureInput(task.target, task, "any")])
    assert result.error_no == MeasureErrorNo.NO_ERROR, result.costs
