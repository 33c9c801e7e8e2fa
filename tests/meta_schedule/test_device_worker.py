"""The process that owns a device measures thousands of candidates: what each of them leaves behind."""

import contextlib
import gc

import numpy as np
import pytest
from gpu_workloads import scaled

from relaxish import meta_schedule as ms
from relaxish.meta_schedule.builder.device_artifact import build_for_device
from relaxish.meta_schedule.builder.local_builder import build_whole
from relaxish.meta_schedule.runner import EvaluatorConfig, device_worker
from relaxish.target import Target
from relaxish.testing import FakeCUDA, use_cuda_provider

A100 = Target("nvidia/nvidia-a100")
ARGS = [ms.arg_info.TensorInfo("float32", (256,))] * 2


class Watched(FakeCUDA):
    """Keeps what was made on it."""

    def __init__(self, **options):
        super().__init__(deferred=False, **options)
        self.modules, self.graphs, self.streams = [], [], set()

    def load_module(self, device, image):
        self.modules.append(super().load_module(device, image))
        return self.modules[-1]

    def end_capture(self, device, stream):
        self.graphs.append(super().end_capture(device, stream))
        return self.graphs[-1]

    def create_stream(self, device):
        made = super().create_stream(device)
        self.streams.add(made)
        return made

    def destroy_stream(self, device, stream):
        self.streams.remove(stream)
        super().destroy_stream(device, stream)

    def used(self):
        free, total = self.memory_info(0)
        return total - free


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(device_worker, "_OPEN", {"fake": contextlib.ExitStack()})
    monkeypatch.setattr(device_worker, "_LAST_ARGUMENTS", [])
    monkeypatch.setattr(device_worker, "_COPIES", {})
    monkeypatch.setattr(device_worker, "_REFERENCES", {})
    with use_cuda_provider(Watched()) as driver:
        yield driver


def measure(artifact, **options):
    config = tuple(EvaluatorConfig(**{"number": 3, "repeat": 2, "min_repeat_ms": 0, **options}))
    return device_worker.measure_on_device(artifact, "cuda", 0, ARGS, config, 1, 0.0, (None, None, None), "fake")


def test_a_candidate_leaves_nothing_behind(device):
    artifact = build_for_device(scaled("good"), A100, "null")
    assert measure(artifact) == [pytest.approx(1e-3)] * 2
    gc.collect()
    first = device.used()
    for _ in range(3):
        measure(artifact)
    gc.collect()
    assert device.used() == first
    assert len(device.modules) == 4 and not any(m.alive for m in device.modules)
    assert len(device.graphs) == 4 and not any(g.alive for g in device.graphs)
    assert not device.streams


def test_what_cannot_be_captured_is_timed_without_a_graph(device):
    launch = device.launch

    def allocating(function, grid, block, shared, stream, *rest):
        if stream:
            device.allocate(0, 16)  # what a capture does not allow; afterwards it does no harm
        launch(function, grid, block, shared, stream, *rest)

    device.launch = allocating
    assert measure(build_for_device(scaled("good"), A100, "null")) == [pytest.approx(1e-3)] * 2
    assert not device.streams and not any(m.alive for m in device.modules)


def addresses(launches):
    return [tuple(value for _, value in launch.args) for launch in launches]


@pytest.mark.parametrize(
    "cache, options, sets",
    [
        (16384, {"min_repeat_ms": 1000}, 16),  # 2 KB of arguments: 16 sets take twice what the cache holds
        (2 << 20, {"min_repeat_ms": 1000}, 64),  # not more than that
        (16384, {"min_repeat_ms": 5}, 5),  # the clock says a millisecond a run
        (16384, {"number": 3}, 3),
        (2048, {"min_repeat_ms": 1000}, 1),  # they do not fit into the cache
        (16384, {"min_repeat_ms": 1000, "enable_cpu_cache_flush": True}, 1),
    ],
)
def test_small_arguments_are_taken_in_turns(monkeypatch, cache, options, sets):
    """Each run of a repeat finds its arguments out of the second-level cache."""
    monkeypatch.setattr(device_worker, "_OPEN", {"fake": contextlib.ExitStack()})
    monkeypatch.setattr(device_worker, "_LAST_ARGUMENTS", [])
    monkeypatch.setattr(device_worker, "_COPIES", {})
    with use_cuda_provider(Watched(attributes={"l2_cache_size_bytes": cache})) as driver:
        contents = []

        def note(launch):
            x, _ = (np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 256).from_address(v)) for _, v in launch.args)
            contents.append(x.copy())

        driver.kernels["good_kernel"] = note
        artifact = build_for_device(scaled("good"), A100, "null")
        assert measure(artifact, **options) == [pytest.approx(1e-3)] * 2
        used = addresses(driver.launches)
        assert len(set(used)) == sets and all((c == contents[0]).all() for c in contents) and contents[0].any()
        if sets > 1:
            last = used[-sets:]
            assert len(set(last)) == sets and used[-2 * sets : -sets] == last  # a graph is one turn of all
            held = driver.used()
            measure(artifact, **options)
            assert set(addresses(driver.launches)) == set(used)  # the next candidate takes the same copies
            gc.collect()
            assert driver.used() == held


def test_arguments_are_drawn_once_for_a_task(device, monkeypatch):
    drawn = []
    alloc = device_worker.alloc_arguments
    monkeypatch.setattr(device_worker, "alloc_arguments", lambda info, seed: drawn.append(seed) or alloc(info, seed))
    artifact = build_for_device(scaled("good"), A100, "null")
    measure(artifact)
    measure(artifact)
    assert drawn == [0]
    device_worker._arguments([ms.arg_info.TensorInfo("float32", (512,))], 0, 2)
    assert drawn == [0, 0, 1] and len(device_worker._LAST_ARGUMENTS) == 1


def test_a_reference_is_computed_once_for_its_finalists(device, monkeypatch):
    def double(launch):
        x, y = (np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 256).from_address(v)) for _, v in launch.args)
        y[:] = x * 2

    device.kernels["good_kernel"] = double
    runs = []
    run_once = device_worker._run_once
    monkeypatch.setattr(device_worker, "_run_once", lambda s, a, v, i: runs.append(a) or run_once(s, a, v, i))
    reference = build_whole(scaled("good", threads=False), Target("llvm"))
    good, other = (build_for_device(scaled(name), A100, "null") for name in ("good", "other"))
    assert device_worker.compare_on_device(good, reference, ARGS, 1e-4, 0, "fake") == (True, "")
    right, reason = device_worker.compare_on_device(other, reference, ARGS, 1e-4, 0, "fake")
    assert right is False and "relative error" in reason
    assert runs.count(reference) == 2  # with and without negative numbers
