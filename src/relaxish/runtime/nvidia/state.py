"""A driver in use: its memory pools and the streams that threads issue work to."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable

from .driver import Driver, Handle
from .errors import CODES, CUDAError, DeviceMemoryError, NoCUDAError

__all__ = ["CUDAState", "DeviceBlock", "Pool", "TakenPools", "pool_size"]

_SMALL = 1 << 20
_PEAK_DECAY = 64
_FORKED = (
    "CUDA was used by the process that this one was forked from, and cannot be used in both: start workers by 'spawn', "
    "or fork before the first use of CUDA"
)


class Pool(list[int]):
    """Addresses of free blocks of one size; a closed pool takes no more blocks."""

    is_open = True


class DeviceBlock:
    """Memory of a device; returned to its pool, or to the driver, when nothing refers to it any more.

    The pool holds addresses, not blocks: the garbage collector may run the finalisers of a block and of its owner in any
    order, so that a block kept in a pool could be handed out after it was finalised.
    """

    __slots__ = ("address", "device", "nbytes", "pool", "state", "__weakref__")

    def __init__(self, state: CUDAState, device: int, address: int, nbytes: int, pool: Pool | None = None) -> None:
        self.state = state
        self.device = device
        self.address = address
        self.nbytes = nbytes
        self.pool = pool

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        if self.pool is not None:
            self.state.count(self.device, -self.nbytes)
        if self.pool is not None and self.pool.is_open:
            self.pool.append(self.address)
        else:
            self.state.release(self.device, self.address)


class TakenPools:
    """Free memory that belongs to something that uses it again and again, such as a graph; freed with its owner."""

    def __init__(self, state: CUDAState, device: int, pools: list[Pool]) -> None:
        self._state = state
        self._device = device
        self._pools = pools

    def __del__(self) -> None:
        if not sys.is_finalizing():
            for pool in self._pools:
                self._state.drain(self._device, pool, close=True)


class CUDAState:
    """Pools, streams and captures over one driver; arrays keep it alive."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.pools: dict[int, dict[tuple[int, int], Pool]] = {}  # by device; by stream and size
        # Bytes of pooled blocks in use, and the most there were at one time, by device. The lock is one that a garbage
        # collection inside of it may take again.
        self._in_use: dict[int, int] = {}
        self._peak: dict[int, int] = {}
        self._lock = threading.RLock()
        self._local = threading.local()
        self._capturing: dict[int, int] = {}  # device: number of captures under way
        self._put_off: list[Callable[[], None]] = []  # what cannot be done during a capture
        self._scratch: dict[int, DeviceBlock] = {}
        self._lost: str = ""

    # ---- life

    def check_usable(self) -> None:
        """Raise NoCUDAError in a process forked after the driver was opened."""
        if self._lost:
            raise NoCUDAError(self._lost)

    def usable(self) -> bool:
        """Whether the driver can be called in this process."""
        return not self._lost

    def forked(self) -> None:
        """Called in a forked process: a real driver cannot be used there, simulated ones can."""
        if not self.driver.simulated:
            self._lost = _FORKED
            self.pools.clear()

    def close(self) -> None:
        """Free the pooled memory; memory that arrays still hold is freed with them."""
        self.trim()
        for pools in self.pools.values():
            for pool in pools.values():
                pool.is_open = False

    # ---- memory

    def allocate(self, device: int, nbytes: int) -> DeviceBlock:
        """New memory from the driver. Raises DeviceMemoryError when there is not enough."""
        nbytes = max(1, nbytes)
        return DeviceBlock(self, device, self._allocate(device, nbytes), nbytes)

    def allocate_pooled(self, device: int, nbytes: int) -> DeviceBlock:
        """Memory that was used on the current stream and is free, else new memory.

        Work on one stream runs in order, so a block may be handed out again before its last kernel has run.
        """
        size = pool_size(nbytes)
        pools = self.pools.get(device)
        if pools is None:
            pools = self.pools[device] = {}
        key = self.stream(device), size
        pool = pools.get(key)
        if pool is None:
            pool = pools[key] = Pool()
        try:
            address = pool.pop()
        except IndexError:
            self._make_room(device, size)
            address = self._allocate(device, size)
        self.count(device, size)
        return DeviceBlock(self, device, address, size, pool)

    def count(self, device: int, nbytes: int) -> None:
        """So many bytes more of pooled blocks are in use."""
        with self._lock:
            self._in_use[device] = self._in_use.get(device, 0) + nbytes

    def _make_room(self, device: int, size: int) -> None:
        """Before a new block is made: give waiting ones back until all together are twice what was in use at one time."""
        if self._capturing:
            return
        with self._lock:
            in_use = self._in_use.get(device, 0) + size
            peak = self._peak.get(device, 0)
            # What was in use once counts less with every new block: a working set may shrink, too.
            peak = self._peak[device] = max(in_use, peak - peak // _PEAK_DECAY)
        excess = self.pooled_bytes(device) + in_use - 2 * peak
        for (_, block_bytes), pool in list(self.pools.get(device, {}).items()):
            while pool and excess > 0:
                try:
                    self.release(device, pool.pop(0))
                except IndexError:  # another thread has taken it
                    break
                excess -= block_bytes

    def _allocate(self, device: int, nbytes: int) -> int:
        """The address of new memory. When the device is full, pooled blocks are given back first."""
        self.check_usable()
        try:
            return self.driver.allocate(device, nbytes)
        except DeviceMemoryError:
            gc.collect()
            pooled = self.pooled_bytes(device)
            self.trim(device)
        try:
            return self.driver.allocate(device, nbytes)
        except DeviceMemoryError as error:
            free, total = self.driver.memory_info(device)
            raise DeviceMemoryError(
                error.code,
                f"allocating {nbytes:,} bytes on cuda({device})",
                f"{free:,} of {total:,} bytes are free after giving back {pooled:,} pooled ones",
            ) from None

    def scratch(self, device: int, nbytes: int) -> int:
        """The address of scratch memory: its contents are undefined, and the next request gets the same memory."""
        found = self._scratch.get(device)
        if found is None or found.nbytes < nbytes:
            found = self._scratch[device] = self.allocate(device, nbytes)
        return found.address

    def release(self, device: int, address: int) -> None:
        """Give memory back to the driver; after the capture, where one is under way."""
        self._give_back(lambda: self.driver.free(device, address))

    def unload(self, module: Handle) -> None:
        """Unload a module of the driver; after the capture, where one is under way."""
        self._give_back(lambda: self.driver.unload_module(module))

    def _give_back(self, action: Callable[[], None]) -> None:
        if self._lost:
            return
        if self._capturing:
            self._put_off.append(action)
            return
        try:
            action()
        except CUDAError as error:
            if not error.sticky and error.code != CODES["DEINITIALIZED"]:  # with the context all of it is gone
                raise

    def pooled_bytes(self, device: int) -> int:
        """Bytes waiting in the pools of a device."""
        return sum(size * len(pool) for (_, size), pool in list(self.pools.get(device, {}).items()))

    def trim(self, device: int | None = None) -> None:
        """Give the pooled blocks of a device (all, if None) back to the driver."""
        self._scratch.clear()
        for index in list(self.pools) if device is None else [device]:
            for pool in self.pools.get(index, {}).values():
                self.drain(index, pool)

    def drain(self, device: int, pool: Pool, *, close: bool = False) -> None:
        """Give the blocks of a pool back to the driver."""
        pool.is_open = pool.is_open and not close
        while pool:
            self.release(device, pool.pop())

    def take_pools(self, device: int, stream: int) -> TakenPools:
        """Take the pools of a stream out of use, for an owner that keeps working in their memory (a captured graph)."""
        pools = self.pools.get(device, {})
        return TakenPools(self, device, [pools.pop(key) for key in [k for k in pools if k[0] == stream]])

    # ---- streams

    def stream(self, device: int) -> int:
        """The stream that this thread issues work to; 0 unless set."""
        streams: dict[int, int] | None = getattr(self._local, "streams", None)
        return streams.get(device, 0) if streams else 0

    def set_stream(self, device: int, stream: int) -> None:
        """Issue this thread's further work to a stream."""
        if not hasattr(self._local, "streams"):
            self._local.streams = {}
        self._local.streams[device] = stream

    def order(self, device: int, before: int, after: int) -> None:
        """Let stream ``after`` wait for what is on stream ``before`` now."""
        if before == after:
            return
        driver = self.driver
        event = driver.create_event(device, timing=False)
        try:
            driver.record_event(event, before)
            driver.wait_event(event, after)
        finally:
            driver.destroy_event(event)

    # ---- captures

    def begin_capture(self, device: int, stream: int) -> None:
        """Capture a stream; memory and modules are given back only after :meth:`end_capture`."""
        self._capturing[device] = self._capturing.get(device, 0) + 1
        try:
            self.driver.begin_capture(device, stream)
        except CUDAError:
            self._captured(device)
            raise

    def end_capture(self, device: int, stream: int) -> Handle:
        """The captured graph."""
        try:
            return self.driver.end_capture(device, stream)
        finally:
            self._captured(device)

    def _captured(self, device: int) -> None:
        self._capturing[device] -= 1
        if not self._capturing[device]:
            del self._capturing[device]
        while self._put_off and not self._capturing:
            self._give_back(self._put_off.pop())


def pool_size(nbytes: int) -> int:
    """The size class of a request: steps of 512 bytes, above 1 MiB of an eighth of the power of two below."""
    step = 512 if nbytes <= _SMALL else 1 << (nbytes.bit_length() - 4)
    return max(step, (nbytes + step - 1) // step * step)
