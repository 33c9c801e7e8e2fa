"""Driver operations on a device's primary context, shared by the packages that reach libcuda."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .arguments import ArgumentLayout, Frame, PreparedLaunches
from .driver import Dim3, Handle, Launcher
from .errors import CODES, NoCUDAError, failure

__all__ = ["ContextDriver", "OwnedHandle", "launch_text"]

Start = Callable[[Dim3, Dim3, int, int, int], int]
"""Starts a kernel: grid, block, bytes of shared memory, stream, address of the argument table; gives the status."""


@dataclass(eq=False)
class OwnedHandle:
    """An event or a graph of the driver, and the device it belongs to."""

    handle: Any
    device: int


class ContextDriver(PreparedLaunches):
    """Devices by number, each with its primary context, which is made current before every call."""

    image_format = "cubin"
    simulated = False
    _count: int

    def _enter(self, device: int) -> object:
        """Make the primary context of a device current on this thread; its handle."""
        raise NotImplementedError

    def _set_count(self, count: int) -> None:
        """Remember how many devices there are. Raises NoCUDAError if there is none."""
        self._count = count
        if count == 0:
            raise NoCUDAError(str(failure(CODES["NO_DEVICE"], "counting the devices")))

    def _check_number(self, device: int) -> None:
        """Raises CUDAError for a device that does not exist."""
        if not 0 <= device < self._count:
            raise failure(CODES["INVALID_DEVICE"], "choosing a device", f"there are {self._count}, asked for {device}")

    def device_count(self) -> int:
        """Number of devices the driver reports."""
        return self._count

    def make_current(self, device: int) -> None:
        """Make the primary context current on this thread."""
        self._enter(device)

    def _launcher(self, function: Handle, layout: ArgumentLayout, cluster: Dim3, start: Start) -> Launcher:
        """A launcher that reuses its argument buffers; ``start`` makes the driver's call."""
        frames: list[Frame] = []
        enter, device, what = self._enter, function.device, f"launching {function.name}"

        def launcher(grid: Dim3, block: Dim3, shared: int, stream: int, values: Sequence[Any]) -> None:
            frame = frames.pop() if frames else Frame(layout)
            layout.pack_into(frame.buffer, frame.place, values)
            enter(device)
            status = start(grid, block, shared, stream, frame.table_address)
            frames.append(frame)
            if status:
                raise failure(status, what, launch_text(grid, block, shared, cluster))

        return launcher


def launch_text(grid: Dim3, block: Dim3, shared: int, cluster: Dim3 = (1, 1, 1)) -> str:
    """Grid, block, cluster and shared memory of a launch in words, for an error.

    >>> launch_text((8, 1, 1), (128, 1, 1), 1024)
    'grid (8, 1, 1), block (128, 1, 1), 1024 bytes of shared memory'
    """
    clusters = "" if cluster == (1, 1, 1) else f"cluster {cluster}, "
    return f"grid {grid}, block {block}, {clusters}{shared} bytes of shared memory"
