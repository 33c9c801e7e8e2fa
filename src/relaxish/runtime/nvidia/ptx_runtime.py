"""Host programs of PTX modules on CUDA devices: the driver compiles the PTX when it is loaded."""

from __future__ import annotations

from ...support.errors import RelaxishError
from ..device import Device
from ..devices.module import DeviceModule
from . import providers
from .loaded_images import LoadedImages
from .program import CUDARuntime

__all__ = ["ptx_runtime"]


def ptx_runtime(device: Device, module: DeviceModule) -> CUDARuntime:
    """Device runtime for the module's programs, under the driver in use."""
    state = providers.current()
    state.check_usable()
    form = state.driver.image_format
    if form == "emulated":
        raise RelaxishError("the emulator runs modules built for cuda, not PTX: build for Target('cuda')")
    image = module.get_source("ptx").encode() + b"\0" if form == "cubin" else module.kernel_names
    loaded = LoadedImages(state, device.device_id, image)
    return CUDARuntime(state, device.device_id, module.programs, module.infos, loaded.holding)
