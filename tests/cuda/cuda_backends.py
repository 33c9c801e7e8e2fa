"""Drivers that the contract is tested with, each with an image that holds the same kernels."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from relaxish.runtime.nvidia import providers
from relaxish.runtime.nvidia.errors import CODES, NoCUDAError, failure
from relaxish.testing import FakeCUDA, FakeImage

# add_scalar(float* data, int n, float value); mixed(int8, double* out, double, int16, int64, bool);
# launch_shape(int* out): grid, block, cluster, shared; crash(); copy_map(tensor map, uint8* out)
CUDA_SOURCE = r"""
extern "C" __global__ void add_scalar(float* data, int n, float value) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) data[i] += value;
}
extern "C" __global__ void mixed(signed char a, double* out, double b, short c, long long d, bool e) {
  out[0] = a; out[1] = b; out[2] = c; out[3] = (double)d; out[4] = e;
}
extern "C" __global__ void launch_shape(int* out) {
  unsigned x = 1, y = 1, z = 1, shared;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(x));
  asm("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(y));
  asm("mov.u32 %0, %%cluster_nctaid.z;" : "=r"(z));
#endif
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(shared));
  int values[10] = {(int)gridDim.x, (int)gridDim.y, (int)gridDim.z, (int)blockDim.x, (int)blockDim.y, (int)blockDim.z,
                    (int)x, (int)y, (int)z, (int)shared};
  for (int i = 0; i < 10; ++i) out[i] = values[i];
}
struct __align__(64) Map { unsigned char bytes[128]; };
extern "C" __global__ void copy_map(const __grid_constant__ Map map, unsigned char* out) {
  for (int i = 0; i < 128; ++i) out[i] = map.bytes[i];
}
extern "C" __global__ void crash() { *(volatile int*)8 = 1; }
"""


def _value(launch, index):
    return launch.args[index][1]


def _add_scalar(launch):
    n = _value(launch, 1)
    data = np.ctypeslib.as_array((ctypes.c_float * n).from_address(_value(launch, 0)))
    data += np.float32(_value(launch, 2))


def _mixed(launch):
    values = [_value(launch, i) for i in (0, 2, 3, 4, 5)]
    ctypes.memmove(_value(launch, 1), struct.pack("5d", *map(float, values)), 40)


def _launch_shape(launch):
    values = [*launch.grid, *launch.block, *launch.cluster, launch.shared]
    ctypes.memmove(_value(launch, 0), struct.pack("10i", *values), 40)


def _copy_map(launch):
    ctypes.memmove(_value(launch, 1), _value(launch, 0), 128)


def _crash(launch):
    raise failure(CODES["ILLEGAL_ADDRESS"], "running crash")


FAKE_IMAGE = FakeImage(
    add_scalar=_add_scalar, mixed=_mixed, launch_shape=_launch_shape, copy_map=_copy_map, crash=_crash
)


@dataclass
class Backend:
    """A driver and what it loads; ``disposable`` ones may be crashed."""

    driver: Any
    image: Any
    disposable: bool

    def function(self, name, device=0):
        if self.driver.image_format == "emulated" and name != "add_scalar":
            pytest.skip(f"{name} is no tensor program")
        return self.driver.get_function(self.driver.load_module(device, self.image), name)

    def upload(self, array, device=0):
        address = self.driver.allocate(device, array.nbytes)
        self.driver.copy_to_device(device, address, array.ctypes.data, array.nbytes)
        return address

    def download(self, address, like, device=0):
        out = np.empty_like(like)
        self.driver.copy_to_host(device, out.ctypes.data, address, out.nbytes)
        return out


def on_fake_library() -> bool:
    """Whether real providers run on the library of tests/cuda/library (test_real_providers.py starts such a process)."""
    return os.environ.get("RELAXISH_TEST_FAKE_LIBCUDA") == "1"


def make_backend(name: str) -> Backend:
    """A driver by name, or skip."""
    if name.startswith("fake"):
        return Backend(FakeCUDA(devices=2, deferred=name == "fake"), FAKE_IMAGE, True)
    if name == "emulator":
        return emulator_backend()
    if on_fake_library():
        # PyCUDA names functions that the library lacks and nobody calls, and may have been linked without it.
        sys.setdlopenflags(os.RTLD_LAZY)
        ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
    try:
        driver = providers.open_driver(name)
    except NoCUDAError as error:
        pytest.skip(f"{name} cannot be used here: {str(error).splitlines()[0]}")
    if on_fake_library():
        return Backend(driver, b"FAKE\0", True)
    from relaxish.backend.cuda.compile import nvrtc

    if not nvrtc.available():
        pytest.skip("no CUDA compiler")
    major, minor = (driver.attribute(0, f"compute_capability_{part}") for part in ("major", "minor"))
    return Backend(driver, nvrtc.compile_cubin(CUDA_SOURCE, f"sm_{major}{minor}"), False)


def emulator_backend() -> Backend:
    """The emulator with those of the kernels that can be written as tensor programs."""
    from relaxish.backend.common.device_split import split_host_device
    from relaxish.script import tir as T
    from relaxish.target import Target

    @T.prim_func
    def add_scalar(data: T.handle, n: T.int32, value: T.float32):
        A = T.match_buffer(data, (n,))
        for i in T.thread_binding(8, thread="threadIdx.x"):
            with T.block("add"):
                T.where(i < n)
                v = T.axis.spatial(8, i)
                A[v] = A[v] + value

    target = Target("nvidia/nvidia-h100", host="llvm")
    from relaxish.ir import IRModule

    named = add_scalar.with_attr({"global_symbol": "add", "tir.noalias": True})
    _, device = split_host_device(IRModule({"add": named}), target)
    (func,) = device.functions.values()
    image = IRModule({"add_scalar": func.with_attr("global_symbol", "add_scalar")})
    return Backend(providers.open_driver("emulator"), image, True)
