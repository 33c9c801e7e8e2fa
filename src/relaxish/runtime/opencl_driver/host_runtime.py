"""Host programs on OpenCL devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...support.errors import RelaxishError
from ..device import Device
from ..devices.module import DeviceModule
from ..devices.host_program import HostRuntime
from .program import OpenCLProgram

__all__ = ["OpenCLRuntime"]


class OpenCLRuntime(HostRuntime):
    """Launches kernels of a module on one device; the source is built at the first launch."""

    def __init__(self, device: Device, module: DeviceModule) -> None:
        if not device.exist:
            raise RelaxishError(
                f"device {device} is not available: it needs pyopencl (the extra 'opencl') and an OpenCL driver"
            )
        super().__init__(device, module.programs)
        self._kinds = {name: info.kinds for name, info in module.infos.items()}
        self._program = OpenCLProgram(module.get_source("cl"), device.device_id)

    def launch(
        self,
        name: str,
        values: tuple[Any, ...],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        cluster: Sequence[int] = (1, 1, 1),
    ) -> None:
        """Queue a kernel; shared arrays are declared in the source, so ``shared`` says nothing new."""
        self._program.launch(name, grid, block, list(zip(self._kinds[name], values, strict=True)))
