"""A driver in use: its memory pools and the streams that threads issue work to."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

from .driver import Driver
from .errors import CUDAError, DeviceMemoryError, NoCUDAError

__all__ = ["CUDAState", "DeviceBlock"]

_SMALL = 1 << 20
_FORKED = (
    "CUDA was used by the process that this one was forked from, and cannot be used in both: start workers by 'spawn', "
    "or fork before the first use of CUDA"
)


class DeviceBlock:
    """Memory of a device; goes back to the driver when nobody refers to it."""

    __slots__ = ("address", "device", "nbytes", "state", "__weakref__")

    def __init__(self, state: CUDAState, device: int, address: int, nbytes: int) -> None:
        self.state = state
        self.device = device
        self.address = address
        self.nbytes = nbytes

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.state.release(self.device, self.address)


class CUDAState:
    """Pools, streams and captures over one driver; arrays keep it alive."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.pools: dict[int, dict[tuple[int, int], list[Any]]] = {}
        self._local = threading.local()
        self._capturing: dict[int, int] = {}  # device: number of captures under way
        self._to_free: list[tuple[int, int]] = []
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
        """This process is a fork: a real driver cannot be used, simulated ones go on."""
        if not self.driver.simulated:
            self._lost = _FORKED
            self.pools.clear()

    def close(self) -> None:
        """Give pooled memory back; what arrays still hold follows with them."""
        self.trim()

    # ---- memory

    def free_blocks(self, device: int, nbytes: int) -> tuple[int, list[Any]]:
        """The size to ask for, and the blocks of that size that were used on the current stream and are free.

        Work on one stream runs in order, so a block may be handed out again before its last kernel has run.
        """
        size = pool_size(nbytes)
        pool = self.pools.get(device)
        if pool is None:
            pool = self.pools[device] = {}
        return size, pool.setdefault((self.stream(device), size), [])

    def allocate(self, device: int, nbytes: int) -> DeviceBlock:
        """New memory. When the device is full, pooled blocks are given back first.

        Raises DeviceMemoryError when there still is not enough.
        """
        self.check_usable()
        nbytes = max(1, nbytes)
        try:
            return DeviceBlock(self, device, self.driver.allocate(device, nbytes), nbytes)
        except DeviceMemoryError:
            pooled = self.pooled_bytes(device)
            gc.collect()
            self.trim(device)
        try:
            return DeviceBlock(self, device, self.driver.allocate(device, nbytes), nbytes)
        except DeviceMemoryError as error:
            free, total = self.driver.memory_info(device)
            raise DeviceMemoryError(
                error.code,
                f"allocating {nbytes:,} bytes on cuda({device})",
                f"{free:,} of {total:,} bytes are free after giving back {pooled:,} pooled ones",
            ) from None

    def release(self, device: int, address: int) -> None:
        """Give memory back to the driver; after the capture, where one is under way."""
        if self._lost:
            return
        if self._capturing:
            self._to_free.append((device, address))
            return
        try:
            self.driver.free(device, address)
        except CUDAError as error:
            if not error.sticky:  # with the context its memory is gone
                raise

    def pooled_bytes(self, device: int) -> int:
        """Bytes waiting in the pool of a device."""
        return sum(size * len(blocks) for (_, size), blocks in self.pools.get(device, {}).items())

    def trim(self, device: int | None = None) -> None:
        """Give the pooled blocks of a device (all, if None) back to the driver."""
        for index in list(self.pools) if device is None else [device]:
            for blocks in self.pools.get(index, {}).values():
                blocks.clear()

    def take_pool(self, device: int, stream: int) -> list[list[Any]]:
        """The pooled blocks of a stream, to be kept for what works in them; they are no longer handed out."""
        pool = self.pools.get(device, {})
        return [pool.pop(key) for key in [k for k in pool if k[0] == stream]]

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
        """Capture a stream; memory is given back only after :meth:`end_capture`."""
        self._capturing[device] = self._capturing.get(device, 0) + 1
        try:
            self.driver.begin_capture(device, stream)
        except CUDAError:
            self._captured(device)
            raise

    def end_capture(self, device: int, stream: int) -> Any:
        """The captured graph."""
        try:
            return self.driver.end_capture(device, stream)
        finally:
            self._captured(device)

    def _captured(self, device: int) -> None:
        self._capturing[device] -= 1
        if not self._capturing[device]:
            del self._capturing[device]
        while self._to_free and not self._capturing:
            self.release(*self._to_free.pop())


def pool_size(nbytes: int) -> int:
    """The size class of a request: steps of 512 bytes, above 1 MiB of an eighth of the power of two below."""
    step = 512 if nbytes <= _SMALL else 1 << (nbytes.bit_length() - 4)
    return max(step, (nbytes + step - 1) // step * step)
