"""The ``relaxish.nd`` name space: arrays and device constructors."""

from .device import Device, cpu, cuda, device, ext_dev, hexagon, metal, opencl, rocm, vpi, vulkan, webgpu
from .arrays.ndarray import NDArray, array, empty, from_dlpack, numpyasarray

gpu = cuda

__all__ = [
    "Device",
    "NDArray",
    "array",
    "cpu",
    "cuda",
    "device",
    "empty",
    "ext_dev",
    "from_dlpack",
    "gpu",
    "hexagon",
    "metal",
    "numpyasarray",
    "opencl",
    "rocm",
    "vpi",
    "vulkan",
    "webgpu",
]
