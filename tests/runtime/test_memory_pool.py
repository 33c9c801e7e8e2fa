"""The pool: it reuses blocks, and what it holds is bounded by what was in use."""

from __future__ import annotations

import gc
import random
import threading

import numpy as np
import pytest

from relaxish.runtime import NDArray, cpu, nd
from relaxish.runtime.arrays.memory import Allocator, size_class


def held(allocator, live):
    return allocator.used_bytes() + sum(s.nbytes for s in live)


@pytest.mark.parametrize("keep", [0, 1, 7, 40])
def test_a_thousand_random_sizes_hold_twice_the_working_set(keep):
    rng = random.Random(keep)
    allocator, live, peak = Allocator(cpu()), [], 0
    for _ in range(1000):
        live.append(allocator.allocate(rng.randrange(1, 1 << rng.randrange(6, 21))))
        peak = max(peak, sum(s.nbytes for s in live))
        if len(live) > keep:
            live.pop(rng.randrange(len(live)))
        assert held(allocator, live) <= 2 * peak
    live.clear()
    assert allocator.used_bytes() <= 2 * peak


def test_a_working_set_that_shrinks_gives_back():
    allocator = Allocator(cpu())
    big = [allocator.allocate(1 << 20) for _ in range(64)]
    big.clear()
    rng = random.Random(1)
    for _ in range(3000):
        allocator.allocate(rng.randrange(1, 1 << 20))
    assert allocator.used_bytes() < 4 << 20


def test_steady_work_makes_no_new_blocks():
    allocator = Allocator(cpu())
    sizes = [100, 5000, 70_000, 1 << 20]
    addresses = set()
    for _ in range(50):
        live = [allocator.allocate(s) for s in sizes]
        addresses |= {s.ptr for s in live}
        del live
    assert len(addresses) == len(sizes)


def test_blocks_under_views_leave_the_account():
    allocator = Allocator(cpu())
    views = []
    for _ in range(20):
        storage = allocator.allocate(1 << 16)
        views.append(NDArray(storage.ptr, (4,), "float32", cpu(), storage)._host())
        del storage
    assert allocator._held == 0 and len({v.__array_interface__["data"][0] for v in views}) == 20
    views.clear()
    storage = allocator.allocate(1 << 16)
    del storage
    assert allocator._held == allocator.used_bytes() == size_class(1 << 16)


def test_clear_gives_everything_back():
    allocator = Allocator(cpu())
    kept = allocator.allocate(1 << 12)
    for size in (1, 100, 1 << 16):
        allocator.allocate(size)
    assert allocator.used_bytes() > 0
    allocator.clear()
    assert allocator.used_bytes() == 0 and allocator._held == kept.nbytes


def test_many_sizes_leave_no_lists_behind():
    allocator = Allocator(cpu())
    for size in range(1, 4000):
        allocator.allocate(size * 4096)
    assert len(allocator._free) < 3000
    gc.collect()
    assert allocator._held == allocator.used_bytes()


def test_threads_share_a_pool():
    allocator, errors = Allocator(cpu()), []

    def work(seed):
        rng = random.Random(seed)
        try:
            for _ in range(400):
                storage = allocator.allocate(rng.choice((1000, 5000, 20_000)))
                array = NDArray(storage.ptr, (storage.nbytes // 4,), "int32", cpu(), storage)
                array._host()[...] = seed
                assert (array._host() == seed).all()
                del array, storage
        except BaseException as error:  # whatever happens in a thread is for the test to see
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and allocator._held == allocator.used_bytes()


def test_arrays_of_random_sizes():
    rng = np.random.default_rng(0)
    for n in rng.integers(1, 10_000, 300):
        made = nd.array(np.full(n, n, "int64"))
        assert (made.numpy() == n).all()
