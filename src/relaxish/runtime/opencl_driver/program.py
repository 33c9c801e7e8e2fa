"""OpenCL C built for a device, and its kernels launched."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

import numpy as np

from ...support.errors import RelaxishError
from .state import OpenCLDevice, OpenCLState, state

if TYPE_CHECKING:
    import pyopencl

__all__ = ["OpenCLProgram"]

_BUILD_OPTIONS = ("-cl-std=CL1.2",)
_NUMBERS: dict[str, Any] = {
    "bool": np.uint8,
    "float16": np.float32,  # kernels take halves as floats: the device may have no others
}


class OpenCLProgram:
    """One source file on one device; built when its first kernel runs."""

    def __init__(self, source: str, index: int) -> None:
        self.source = source
        self.index = index
        self._lock = threading.Lock()
        self._built: Any = None
        self._kernels: dict[tuple[str, int], Any] = {}

    def binary(self) -> bytes:
        """Binary the device's driver compiled from the source."""
        return bytes(self._program().binaries[0])

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: Sequence[tuple[str, Any]],
    ) -> None:
        """Queue a kernel: ``args`` are ("pointer", address) or (dtype, number).

        Raises RelaxishError when the source does not compile, or the device refuses the launch.
        """
        if 0 in grid:
            return
        here = state()
        device = here.device(self.index)
        made = self._kernel(kernel)
        moved: list[tuple[Any, Any, int]] = []
        for position, (kind, value) in enumerate(args):
            made.set_arg(position, _pointer(here, device, value, moved) if kind == "pointer" else _scalar(kind, value))
        size = tuple(g * b for g, b in zip(grid, block, strict=True))
        try:
            here.cl.enqueue_nd_range_kernel(device.queue, made, size, block)
        except here.cl.Error as err:
            raise RelaxishError(f"the device refuses kernel {kernel} (grid {grid}, block {block}): {err}") from None
        for temporary, buffer, offset in moved:
            here.cl.enqueue_copy(device.queue, buffer, temporary, byte_count=temporary.size, dst_offset=offset)

    def _program(self) -> pyopencl.Program:
        with self._lock:
            if self._built is None:
                here = state()
                program = here.cl.Program(here.device(self.index).context, self.source)
                try:
                    self._built = program.build(list(_BUILD_OPTIONS), cache_dir=False)
                except here.cl.Error as err:
                    raise RelaxishError(f"the OpenCL source does not compile:\n{err}") from None
            return self._built

    def _kernel(self, name: str) -> pyopencl.Kernel:
        # Arguments are set on the kernel object, so threads must not share one.
        key = name, threading.get_ident()
        found = self._kernels.get(key)
        if found is None:
            found = self._kernels[key] = state().cl.Kernel(self._program(), name)
        return found


def _scalar(dtype: str, value: float) -> np.generic:
    return (_NUMBERS.get(dtype) or np.dtype(dtype).type)(value)


def _pointer(here: OpenCLState, device: OpenCLDevice, address: int, moved: list[tuple[Any, Any, int]]) -> Any:
    """The buffer, or the part of it, that begins at an address."""
    if address == 0:
        return None
    buffer, offset, nbytes = here.book.find(address)
    if offset == 0:
        return buffer
    if offset % device.alignment == 0 and offset < nbytes:
        return buffer.get_sub_region(offset, nbytes - offset)
    # The device allows no part to begin here: work on a copy, which goes back after the kernel.
    temporary = here.cl.Buffer(device.context, here.cl.mem_flags.READ_WRITE, max(1, nbytes - offset))
    if nbytes > offset:
        here.cl.enqueue_copy(device.queue, temporary, buffer, byte_count=nbytes - offset, src_offset=offset)
        moved.append((temporary, buffer, offset))
    return temporary
