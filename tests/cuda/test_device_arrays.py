"""Arrays on CUDA devices: memory pools, copies, streams, DLPack, and what a user is told when something is missing."""

from __future__ import annotations

import gc
import os
import pickle
import threading

import numpy as np
import pytest

import relaxish
from relaxish.runtime.device import _APIS, Device, DeviceAPI
from relaxish.runtime.arrays.memory import Allocator, clear_memory_pools
from relaxish.runtime.ndarray import NDArray
from relaxish.runtime.nvidia import providers
from relaxish.runtime.nvidia.errors import DeviceMemoryError, NoCUDAError
from relaxish.runtime.nvidia.state import pool_size
from relaxish.support import config
from relaxish.testing import FakeCUDA, use_cuda_provider


@pytest.fixture
def fake():
    with use_cuda_provider(FakeCUDA(devices=2, total_memory=1 << 20)) as driver:
        yield driver


def used(driver, device=0):
    free, total = driver.memory_info(device)
    return total - free


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "bool", "float64"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 4)])
def test_there_and_back(fake, dtype, shape):
    source = relaxish.nd.array(np.arange(int(np.prod(shape))).reshape(shape) % 2).copyto(relaxish.cpu())
    host = relaxish.nd.empty(shape, dtype)
    host.copyfrom(source.numpy())
    there = host.copyto(relaxish.cuda(1))
    assert there.device is relaxish.cuda(1) and there.dtype == dtype and there.shape == shape
    assert (there.numpy() == host.numpy()).all()
    assert (there.copyto(relaxish.cuda(0)).numpy() == host.numpy()).all()
    assert (pickle.loads(pickle.dumps(there)).numpy() == host.numpy()).all()


def test_assignment(fake):
    there = relaxish.nd.empty((2, 3), "float32", relaxish.cuda())
    there[:] = 4
    assert (there.numpy() == 4).all()
    there[:] = np.arange(6, dtype="float32").reshape(2, 3)
    assert there.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert there.reshape((3, 2)).numpy().tolist() == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(relaxish.TVMError, match=r"cuda\(0\) cannot be viewed by NumPy"):
        there[0]


def test_devices_are_unique(fake):
    assert relaxish.cuda(1) is relaxish.device("cuda", 1) is Device(2, 1)
    assert pickle.loads(pickle.dumps(relaxish.cuda(1))) is relaxish.cuda(1)
    assert relaxish.cuda(1).exist and not relaxish.cuda(2).exist


def test_attributes(fake):
    device = relaxish.cuda()
    assert device.compute_version == "9.0" and device.warp_size == 32
    assert device.max_thread_dimensions == "[1024, 1024, 64]"
    assert device.total_global_memory == 1 << 20 and device.available_global_memory == 1 << 20
    assert relaxish.cuda(7).warp_size is None


# ---- pools


def test_memory_is_used_again(fake):
    first = relaxish.nd.empty((100,), "float32", relaxish.cuda())
    address = first.ptr
    del first
    held = used(fake)
    second = relaxish.nd.empty((99,), "float32", relaxish.cuda())
    assert second.ptr == address and used(fake) == held
    other = relaxish.nd.empty((99,), "float32", relaxish.cuda(1))
    assert used(fake, 1) and other.ptr != address


def test_views_keep_memory(fake):
    array = relaxish.nd.empty((128,), "float32", relaxish.cuda())
    view, address = array.reshape((2, 64)), array.ptr
    del array
    assert relaxish.nd.empty((128,), "float32", relaxish.cuda()).ptr != address
    del view
    assert relaxish.nd.empty((128,), "float32", relaxish.cuda()).ptr is not None


def test_pools_are_given_back(fake):
    relaxish.nd.empty((1000,), "float32", relaxish.cuda())
    assert used(fake) > 0
    clear_memory_pools()
    assert used(fake) == 0


def test_pools_of_a_device_that_is_gone(monkeypatch):
    """A provider that was there for a while leaves an allocator whose device has no interface any more."""

    class Host(DeviceAPI):
        def exists(self, index):
            return True

        def allocate(self, index, nbytes, alignment, mem_scope):
            owner = np.empty(nbytes, "uint8")
            return owner.ctypes.data, owner

        def allocate_pooled(self, index, nbytes):
            return None

    with monkeypatch.context() as patch:
        patch.setitem(_APIS, relaxish.device("ext_dev").device_type, Host())
        relaxish.nd.empty((10,), "float32", relaxish.device("ext_dev"))
    assert not relaxish.device("ext_dev").exist
    clear_memory_pools()


def test_memory_in_cycles(fake):
    """A collector finalises arrays and the memory they keep alive alike; what it found must not be handed out twice."""

    class Node:
        pass

    for _ in range(3):
        node = Node()
        node.self = node
        node.arrays = [relaxish.nd.array(np.full(50, i, "float32"), relaxish.cuda()) for i in range(4)]
        del node
        gc.collect()
        arrays = [relaxish.nd.array(np.full(50, i, "float32"), relaxish.cuda()) for i in range(8)]
        assert len({a.ptr for a in arrays}) == 8
        assert all((a.numpy() == i).all() for i, a in enumerate(arrays))
    del arrays
    clear_memory_pools()
    assert used(fake) == 0


def test_naive_allocators_keep_nothing(fake):
    storage = Allocator(relaxish.cuda(), "naive").allocate(1000)
    assert used(fake) == 1000
    del storage
    assert used(fake) == 0


def test_each_stream_has_its_pool(fake):
    device = relaxish.cuda()
    array = relaxish.nd.empty((64,), "float32", device)
    address = array.ptr
    del array
    stream = device.create_raw_stream()
    device.set_raw_stream(stream)
    # The default stream may still be working in the first block.
    other = relaxish.nd.empty((64,), "float32", device)
    assert other.ptr != address
    device.set_raw_stream(0)
    assert relaxish.nd.empty((64,), "float32", device).ptr == address
    device.free_raw_stream(stream)


@pytest.mark.parametrize("nbytes", [1, 512, 513, 1 << 20, (1 << 20) + 1, 3_000_000, (1 << 31) + 7])
def test_size_classes(nbytes):
    size = pool_size(nbytes)
    assert nbytes <= size <= max(512, int(nbytes * 1.13) + 512) and pool_size(size) == size and size % 512 == 0


def test_a_full_device_gives_pooled_memory_back_first(fake):
    for kib in (100, 200, 300):
        relaxish.nd.empty((kib << 10,), "uint8", relaxish.cuda())
    assert used(fake) > 590 << 10
    assert relaxish.nd.empty((900 << 10,), "uint8", relaxish.cuda()) is not None
    assert used(fake) < 1 << 20


def test_out_of_memory(fake):
    kept = relaxish.nd.empty((500 << 10,), "uint8", relaxish.cuda())
    with pytest.raises(MemoryError, match=r"allocating [\d,]+ bytes on cuda\(0\).*smaller batch") as caught:
        relaxish.nd.empty((600 << 10,), "uint8", relaxish.cuda())
    assert isinstance(caught.value, DeviceMemoryError) and isinstance(caught.value, relaxish.TVMError)
    assert "of 1,048,576 bytes are free" in str(caught.value)
    assert kept.numpy().shape == (500 << 10,)


def test_a_driver_that_lacks_memory_for_a_moment(fake):
    fake.fail("allocate", "OUT_OF_MEMORY")
    assert relaxish.nd.empty((8,), "float32", relaxish.cuda()).shape == (8,)
    fake.fail("allocate", "OUT_OF_MEMORY", "OUT_OF_MEMORY")
    with pytest.raises(DeviceMemoryError):
        relaxish.nd.empty((5000,), "float32", relaxish.cuda())


def test_scopes(fake):
    with pytest.raises(relaxish.TVMError, match="scope 'texture'"):
        relaxish.nd.empty((8,), "float32", relaxish.cuda(), "texture")


# ---- streams


def test_streams_belong_to_threads(fake):
    device, seen = relaxish.cuda(), []
    stream = device.create_raw_stream()
    device.set_raw_stream(stream)
    assert device.api.current_stream(0) == stream and device.api.current_stream(1) == 0
    thread = threading.Thread(target=lambda: seen.append(device.api.current_stream(0)))
    thread.start()
    thread.join()
    assert seen == [0]
    device.free_raw_stream(stream)
    assert device.api.current_stream(0) == 0
    with pytest.raises(relaxish.TVMError, match="there is no stream"):
        device.sync(stream)


def test_copies_follow_the_stream(fake):
    device = relaxish.cuda()
    stream = device.create_raw_stream()
    device.set_raw_stream(stream)
    array = relaxish.nd.array(np.arange(8), device)
    assert (array.copyto(device).numpy() == np.arange(8)).all()
    device.set_raw_stream(0)
    device.free_raw_stream(stream)


# ---- DLPack


class Producer:
    """A tensor of another library on a device."""

    def __init__(self, array):
        self.array = array
        self.asked = []

    def __dlpack_device__(self):
        return 2, self.array.device.device_id

    def __dlpack__(self, stream=None):
        self.asked.append(stream)
        return self.array.__dlpack__(stream=stream)


def test_dlpack_shares(fake):
    theirs = Producer(relaxish.nd.array(np.arange(6, dtype="float32").reshape(2, 3), relaxish.cuda(1)))
    ours = relaxish.nd.from_dlpack(theirs)
    assert ours.ptr == theirs.array.ptr and ours.device is relaxish.cuda(1) and ours.shape == (2, 3)
    assert theirs.asked == [1]
    ours[:] = 7
    assert (theirs.array.numpy() == 7).all()


def test_dlpack_orders_streams(fake):
    device = relaxish.cuda()
    array = relaxish.nd.array(np.arange(6), device)
    waits = []
    fake.wait_event = lambda event, stream: waits.append(stream)
    array.__dlpack__(stream=1)
    array.__dlpack__(stream=-1)
    assert waits == []
    consumer = device.create_raw_stream()
    array.__dlpack__(stream=consumer)
    assert waits == [consumer]
    device.set_raw_stream(consumer)
    producer = Producer(array)
    relaxish.nd.from_dlpack(producer)
    assert producer.asked == [consumer]
    device.set_raw_stream(0)


def test_dlpack_keeps_memory(fake):
    array = relaxish.nd.array(np.arange(64, dtype="float32"), relaxish.cuda())
    shared = relaxish.nd.from_dlpack(Producer(array))
    address = array.ptr
    del array
    assert relaxish.nd.empty((64,), "float32", relaxish.cuda()).ptr != address
    assert (shared.numpy() == np.arange(64)).all()


def test_torch_tensors(fake):
    """A torch CUDA tensor is shared without DLPack, in the order of torch's stream."""
    torch = pytest.importorskip("torch")
    storage = relaxish.nd.array(np.arange(6, dtype="float32").reshape(2, 3), relaxish.cuda())
    theirs = fake.create_stream(0)
    waits = []
    fake.wait_event = lambda event, stream: waits.append(stream)

    class Stream:
        cuda_stream = theirs

    class Tensor:
        __module__ = "torch"
        device, shape, dtype = torch.device("cuda", 0), (2, 3), torch.float32
        is_contiguous = staticmethod(lambda: True)
        data_ptr = staticmethod(lambda: storage.ptr)

    from unittest import mock

    from relaxish.runtime.ndarray import as_ndarray

    with mock.patch.object(torch.cuda, "current_stream", lambda device: Stream):
        made = as_ndarray(Tensor())
    assert isinstance(made, NDArray) and made.ptr == storage.ptr and made.device is relaxish.cuda()
    assert made.dtype == "float32" and waits == [0]


# ---- providers


def test_no_provider():
    with config.CUDA_PROVIDER.override("auto"):
        if relaxish.cuda().exist:
            pytest.skip("there is a device")
        with pytest.raises(NoCUDAError, match="(?s)CUDA is not available.*RELAXISH_CUDA_PROVIDER=emulator"):
            relaxish.nd.empty((1,), device=relaxish.cuda())


def test_unknown_provider():
    with config.CUDA_PROVIDER.override("abacus"):
        assert not relaxish.cuda().exist
        with pytest.raises(NoCUDAError, match="no CUDA provider 'abacus'.*null"):
            relaxish.nd.empty((1,), device=relaxish.cuda())


def test_the_knob_chooses():
    with config.CUDA_PROVIDER.override("null"):
        assert relaxish.cuda().exist and relaxish.cuda().device_name == "null device"
        assert relaxish.nd.empty((4,), "float32", relaxish.cuda()).shape == (4,)
    assert {"emulator", "null", "pycuda", "cuda-bindings"} <= set(providers.provider_names())


def test_providers_nest():
    outer, inner = FakeCUDA(), FakeCUDA(devices=3)
    with use_cuda_provider(outer):
        array = relaxish.nd.empty((4,), "float32", relaxish.cuda())
        with use_cuda_provider(inner):
            assert relaxish.cuda(2).exist
        assert not relaxish.cuda(2).exist
        assert array.shape == (4,)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("simulated", [True, False])
def test_after_fork(simulated):
    fake = FakeCUDA(deferred=False)
    with use_cuda_provider(fake):
        array = relaxish.nd.array(np.arange(4), relaxish.cuda())
        fake.simulated = simulated
        child = os.fork()
        if child == 0:
            try:
                made = relaxish.nd.empty((4,), "float32", relaxish.cuda())
                good = simulated and made.shape == (4,)
            except NoCUDAError as error:
                good = not simulated and "forked" in str(error) and "spawn" in str(error)
            del array
            os._exit(0 if good else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert array.numpy().tolist() == [0, 1, 2, 3]


def test_threads_that_begin_at_once_share_a_driver(monkeypatch):
    opened = []

    def slow():
        opened.append(FakeCUDA(devices=1, total_memory=1 << 16))
        threading.Event().wait(0.05)
        return opened[-1]

    monkeypatch.setitem(providers._FACTORIES, "slow", slow)
    monkeypatch.setattr(providers, "_OPENED", {})
    monkeypatch.setattr(providers, "_FROM_ENVIRONMENT", [])
    found = []
    with config.CUDA_PROVIDER.override("slow"):
        threads = [threading.Thread(target=lambda: found.append(providers.current())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(opened) == 1
    assert len(found) == 4
    assert all(state is found[0] for state in found)


def test_pools_hold_twice_what_was_in_use(fake):
    rng = np.random.default_rng(2)
    state, live, peak = providers.current(), [], 0
    for _ in range(1000):
        live.append(state.allocate_pooled(0, int(rng.integers(1, 1 << 16))))
        in_use = sum(b.nbytes for b in live)
        peak = max(peak, in_use)
        assert state.pooled_bytes(0) + in_use <= 2 * peak
        if len(live) > 5:
            live.pop(int(rng.integers(len(live))))
    addresses = {state.allocate_pooled(0, 1 << 16).address for _ in range(20)}
    assert len(addresses) == 1  # steady work makes no new blocks
    live.clear()
    assert state._in_use[0] == 0
