"""What every CUDA driver behind the interface must do. Real ones are tested where a device is."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from cuda_backends import make_backend

from relaxish.runtime.nvidia.driver import ATTRIBUTES, TensorMapSpec
from relaxish.runtime.nvidia.errors import CODES, CUDAError, DeviceMemoryError

NAMES = ["fake", "fake-immediate", "emulator"]
REAL = [pytest.param(name, marks=pytest.mark.gpu) for name in ("pycuda", "cuda-bindings")]


@pytest.fixture(params=[*NAMES, *REAL])
def backend(request):
    return make_backend(request.param)


def code_of(call, *args, **kwargs):
    """The name of the error that a call fails with."""
    with pytest.raises(CUDAError) as caught:
        call(*args, **kwargs)
    return next(name for name, code in CODES.items() if code == caught.value.code)


def ones(n=8):
    return np.ones(n, np.float32)


# ---- devices


def test_devices_and_attributes(backend):
    driver = backend.driver
    assert driver.device_count() >= 1 and driver.image_format and driver.name
    for name in ATTRIBUTES:
        assert isinstance(driver.attribute(0, name), int | None), name
    assert driver.attribute(0, "warp_size") == 32
    assert driver.attribute(0, "max_threads_per_block") >= 1024
    assert driver.attribute(0, "max_shared_memory_per_block_optin") >= 49152
    assert isinstance(driver.attribute(0, "device_name"), str) and driver.attribute(0, "driver_version") > 0
    assert driver.attribute(0, "nothing of the kind") is None
    free, total = driver.memory_info(0)
    assert 0 < free <= total


def test_unknown_device(backend):
    driver = backend.driver
    assert code_of(driver.allocate, driver.device_count(), 16) == "INVALID_DEVICE"


# ---- memory


def test_copies(backend):
    driver, data = backend.driver, np.arange(1000, dtype=np.int32)
    a, b = backend.upload(data), driver.allocate(0, data.nbytes)
    assert a % 256 == 0 and b % 256 == 0
    driver.copy_on_device(0, b, a, data.nbytes)
    assert (backend.download(b, data) == data).all()
    driver.copy_on_device(0, b + 400, a, 400)
    assert (backend.download(b, data)[100:200] == np.arange(100)).all()
    driver.fill(0, b, 0xFF, 8)
    assert backend.download(b, data)[:3].tolist() == [-1, -1, 2]
    for address in (a, b):
        driver.free(0, address)


def test_copies_on_streams(backend):
    driver, data = backend.driver, np.arange(64, dtype=np.float64)
    stream = driver.create_stream(0)
    a, b, out = driver.allocate(0, data.nbytes), driver.allocate(0, data.nbytes), np.empty_like(data)
    driver.copy_to_device(0, a, data.ctypes.data, data.nbytes, stream)
    driver.copy_on_device(0, b, a, data.nbytes, stream)
    driver.fill(0, b, 0, 8 * 32, stream)
    driver.copy_to_host(0, out.ctypes.data, b, data.nbytes, stream)
    driver.synchronize_stream(0, stream)
    assert (out[:32] == 0).all() and (out[32:] == data[32:]).all()
    driver.destroy_stream(0, stream)


def test_copies_between_devices(backend):
    driver, data = backend.driver, np.arange(16, dtype=np.float32)
    if driver.device_count() < 2:
        pytest.skip("one device")
    a, b = backend.upload(data, 0), driver.allocate(1, data.nbytes)
    driver.copy_on_device(1, b, a, data.nbytes, None, 0)
    assert (backend.download(b, data, 1) == data).all()
    driver.free(0, a)
    driver.free(1, b)


def test_too_much_memory(backend):
    driver = backend.driver
    with pytest.raises(DeviceMemoryError, match="OUT_OF_MEMORY"):
        driver.allocate(0, driver.memory_info(0)[1] + 1)
    assert driver.allocate(0, 16)  # the device goes on


def test_freeing_what_is_not_there(backend):
    assert code_of(backend.driver.free, 0, 0x1230) == "INVALID_VALUE"


# ---- kernels


def test_launch(backend):
    driver, data = backend.driver, ones()
    kernel, address = backend.function("add_scalar"), backend.upload(data)
    driver.launch(kernel, (1, 1, 1), (32, 1, 1), 0, 0, [("pointer", address), ("int32", 5), ("float32", 2.5)])
    driver.synchronize(0)
    assert backend.download(address, data).tolist() == [3.5] * 5 + [1.0] * 3


def test_prepared_launches(backend):
    driver, data = backend.driver, ones()
    address = backend.upload(data)
    launcher = driver.prepare(backend.function("add_scalar"), ["pointer", "int32", "float32"])
    for step in range(4):
        launcher((1, 1, 1), (64, 1, 1), 0, 0, (address, 8 - step, 1.0))
    assert backend.download(address, data).tolist() == [5.0] * 5 + [4.0, 3.0, 2.0]


def test_every_argument_at_its_place(backend):
    driver, out = backend.driver, np.zeros(5)
    address = backend.upload(out)
    values = [
        ("int8", -7),
        ("pointer", address),
        ("float64", 0.1),
        ("int16", 300),
        ("int64", -(1 << 40)),
        ("bool", True),
    ]
    driver.launch(backend.function("mixed"), (1, 1, 1), (1, 1, 1), 0, 0, values)
    assert backend.download(address, out).tolist() == [-7.0, 0.1, 300.0, float(-(1 << 40)), 1.0]


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1)])
def test_launch_sizes(backend, cluster):
    driver, out = backend.driver, np.zeros(10, np.int32)
    if cluster != (1, 1, 1) and driver.attribute(0, "compute_capability_major") < 9:
        pytest.skip("no clusters")
    address, kernel = backend.upload(out), backend.function("launch_shape")
    driver.launch(kernel, (4, 3, 2), (8, 4, 2), 1024, 0, [("pointer", address)], cluster)
    assert backend.download(address, out).tolist() == [4, 3, 2, 8, 4, 2, *cluster, 1024]


def test_much_shared_memory(backend):
    driver, out = backend.driver, np.zeros(10, np.int32)
    address, kernel = backend.upload(out), backend.function("launch_shape")
    args = [("pointer", address)]
    code_of(driver.launch, kernel, (1, 1, 1), (1, 1, 1), 60000, 0, args)
    driver.set_max_dynamic_shared(kernel, 60000)
    driver.launch(kernel, (1, 1, 1), (1, 1, 1), 60000, 0, args)
    assert backend.download(address, out)[9] == 60000
    assert code_of(driver.set_max_dynamic_shared, kernel, 1 << 24) == "INVALID_VALUE"


@pytest.mark.parametrize("grid, block", [((0, 1, 1), (1, 1, 1)), ((1, 1, 1), (1025, 1, 1)), ((1, 1, 1), (64, 64, 1))])
def test_refused_sizes(backend, grid, block):
    driver = backend.driver
    address = driver.allocate(0, 64)
    refused = code_of(driver.launch, backend.function("launch_shape"), grid, block, 0, 0, [("pointer", address)])
    assert refused == "INVALID_VALUE"


def test_modules(backend):
    driver = backend.driver
    broken = b"this is no machine code\0" if isinstance(backend.image, bytes) else object()
    assert code_of(driver.load_module, 0, broken) in ("INVALID_IMAGE", "NO_BINARY_FOR_GPU", "INVALID_PTX")
    module = driver.load_module(0, backend.image)
    assert code_of(driver.get_function, module, "absent") == "NOT_FOUND"
    driver.unload_module(module)


def test_two_devices_at_once(backend):
    driver, data = backend.driver, ones()
    if driver.device_count() < 2:
        pytest.skip("one device")
    kernels = [backend.function("add_scalar", d) for d in (0, 1)]
    places = [backend.upload(data, d) for d in (0, 1)]
    for step in range(3):
        for kernel, place in zip(kernels, places):
            driver.launch(kernel, (1, 1, 1), (32, 1, 1), 0, 0, [("pointer", place), ("int32", 8), ("float32", step)])
    for device, place in enumerate(places):
        assert backend.download(place, data, device).tolist() == [4.0] * 8


def test_other_threads(backend):
    driver, data, failures = backend.driver, ones(), []
    kernel, address = backend.function("add_scalar"), backend.upload(data)
    args = [("pointer", address), ("int32", 8), ("float32", 1.0)]

    def work():
        try:
            mine = driver.allocate(0, 64)
            driver.launch(kernel, (1, 1, 1), (32, 1, 1), 0, 0, args)
            driver.synchronize(0)
            driver.free(0, mine)
        except CUDAError as error:
            failures.append(error)

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert not failures
    assert backend.download(address, data).tolist() == [4.0] * 8


# ---- streams and events


def test_launches_on_streams(backend):
    driver, data = backend.driver, ones()
    kernel, address = backend.function("add_scalar"), backend.upload(data)
    one, two = driver.create_stream(0), driver.create_stream(0)
    assert one and two and one != two
    args = [("pointer", address), ("int32", 8), ("float32", 1.0)]
    driver.launch(kernel, (1, 1, 1), (32, 1, 1), 0, one, args)
    event = driver.create_event(0, timing=False)
    driver.record_event(event, one)
    driver.wait_event(event, two)
    driver.launch(kernel, (1, 1, 1), (32, 1, 1), 0, two, args)
    driver.synchronize_stream(0, two)
    assert backend.download(address, data).tolist() == [3.0] * 8
    driver.destroy_event(event)
    for stream in (one, two):
        driver.destroy_stream(0, stream)


def test_the_default_stream_waits_for_others(backend):
    driver, data = backend.driver, ones()
    kernel, address = backend.function("add_scalar"), backend.upload(data)
    stream = driver.create_stream(0)
    args = [("pointer", address), ("int32", 8), ("float32", 1.0)]
    driver.launch(kernel, (1, 1, 1), (32, 1, 1), 0, stream, args)
    assert backend.download(address, data).tolist() == [2.0] * 8
    driver.destroy_stream(0, stream)


def test_events_measure(backend):
    driver, data = backend.driver, ones()
    kernel, address = backend.function("add_scalar"), backend.upload(data)
    start, end = driver.create_event(0), driver.create_event(0)
    driver.record_event(start, 0)
    for _ in range(3):
        driver.launch(kernel, (1, 1, 1), (32, 1, 1), 0, 0, [("pointer", address), ("int32", 8), ("float32", 1.0)])
    driver.record_event(end, 0)
    driver.synchronize_event(end)
    assert driver.elapsed_ms(start, end) > 0
    silent = driver.create_event(0, timing=False)
    driver.record_event(silent, 0)
    driver.synchronize_event(silent)
    assert code_of(driver.elapsed_ms, start, silent) == "INVALID_HANDLE"
    assert code_of(driver.elapsed_ms, start, driver.create_event(0)) == "INVALID_HANDLE"


# ---- graphs


def captured(backend, address, stream, count=2):
    driver, kernel = backend.driver, backend.function("add_scalar")
    driver.begin_capture(0, stream)
    for _ in range(count):
        args = [("pointer", address), ("int32", 8), ("float32", 1.0)]
        driver.launch(kernel, (1, 1, 1), (32, 1, 1), 0, stream, args)
    return driver.end_capture(0, stream)


def test_graphs(backend):
    driver, data = backend.driver, ones()
    address, stream = backend.upload(data), driver.create_stream(0)
    graph = captured(backend, address, stream)
    assert backend.download(address, data).tolist() == [1.0] * 8  # written down, not done
    driver.launch_graph(graph, stream)
    driver.launch_graph(graph, 0)
    driver.synchronize(0)
    assert backend.download(address, data).tolist() == [5.0] * 8
    driver.destroy_graph(graph)
    driver.destroy_stream(0, stream)


def test_what_a_capture_forbids(backend):
    driver = backend.driver
    assert code_of(driver.begin_capture, 0, 0) == "STREAM_CAPTURE_UNSUPPORTED"
    stream = driver.create_stream(0)
    driver.begin_capture(0, stream)
    code_of(driver.synchronize_stream, 0, stream)
    try:
        driver.destroy_graph(driver.end_capture(0, stream))
    except CUDAError as error:
        assert error.code == CODES["STREAM_CAPTURE_INVALIDATED"]
    driver.destroy_stream(0, stream)


# ---- tensor maps


def test_tensor_maps(backend):
    driver, out = backend.driver, np.zeros(128, np.uint8)
    if driver.attribute(0, "compute_capability_major") < 9:
        pytest.skip("no tensor maps")
    data = driver.allocate(0, 64 * 64 * 2)
    made = driver.encode_tensor_map(TensorMapSpec(data, "float16", (64, 64), (128,), (64, 8), swizzle=128))
    other = driver.encode_tensor_map(TensorMapSpec(data, "float16", (64, 64), (128,), (32, 8), swizzle=64))
    assert len(made) == len(other) == 128 and made != other
    address = backend.upload(out)
    driver.launch(
        backend.function("copy_map"), (1, 1, 1), (1, 1, 1), 0, 0, [("tensor_map", made), ("pointer", address)]
    )
    assert backend.download(address, out).tobytes() == made
    for wrong in (
        TensorMapSpec(data + 8, "float16", (64, 64), (128,), (64, 8)),
        TensorMapSpec(data, "float16", (64, 64), (100,), (64, 8)),
        TensorMapSpec(data, "float16", (64, 64), (128,), (64, 512)),
        TensorMapSpec(data, "float16", (64, 64), (128,), (64, 8), swizzle=32),
        TensorMapSpec(data, "complex64", (64, 64), (128,), (64, 8)),
        TensorMapSpec(data, "float16", (64, 64), (128,), (16, 8), swizzle=32, interleave=32),
    ):
        assert code_of(driver.encode_tensor_map, wrong) == "INVALID_VALUE"


# ---- faults


def test_a_crash_loses_the_context(backend):
    if not backend.disposable:
        pytest.skip("a crash would lose the context for the tests after this one")
    driver, kernel = backend.driver, backend.function("crash")
    with pytest.raises(CUDAError, match="emulator") as caught:  # at the launch, or when it is waited for
        driver.launch(kernel, (1, 1, 1), (1, 1, 1), 0, 0, [])
        driver.synchronize(0)
    assert caught.value.sticky and caught.value.code == CODES["ILLEGAL_ADDRESS"]
    for again in (lambda: driver.allocate(0, 16), lambda: driver.synchronize(0), lambda: driver.create_stream(0)):
        assert code_of(again) == "ILLEGAL_ADDRESS"
