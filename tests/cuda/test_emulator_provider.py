"""The emulator as a CUDA driver: images, launches, faults."""

from __future__ import annotations

import numpy as np
import pytest
from test_emulator_faults import reversal

from relaxish.backend.emulator import EmulationError, OutOfBoundsError
from relaxish.ir import IRModule
from relaxish.ir.serial import save_json
from relaxish.runtime.nvidia.errors import CUDAError
from relaxish.runtime.nvidia.providers import open_driver
from relaxish.script import tir as T


@T.prim_func(check_well_formed=False)
def scale(A: T.handle("float32", "global"), factor: T.float32, n: T.int32):
    a = T.decl_buffer((1 << 20,), data=A)
    bx = T.launch_thread("blockIdx.x", 4)
    tx = T.launch_thread("threadIdx.x", 32)
    if bx * 32 + tx < n:
        a[bx * 32 + tx] = a[bx * 32 + tx] * factor


def put(driver, array):
    address = driver.allocate(0, array.nbytes)
    driver.copy_to_device(0, address, array.ctypes.data, array.nbytes)
    return address


def get(driver, address, like):
    out = np.empty_like(like)
    driver.copy_to_host(0, out.ctypes.data, address, out.nbytes)
    return out


@pytest.mark.parametrize("name", ["emulator", "emulator-fast"])
def test_kernels_run(name):
    driver = open_driver(name)
    module = driver.load_module(0, save_json(IRModule({"scale": scale, "kernel": reversal(True)})))
    x = np.arange(64, dtype="float32")
    address, other = put(driver, x), put(driver, np.zeros_like(x))
    function = driver.get_function(module, "scale")
    assert driver.image_format == "emulated" and function.kinds == ("pointer", "float32", "int32")
    driver.launch(function, (4, 1, 1), (32, 1, 1), 0, 0, [("pointer", address), ("float32", 1.5), ("int32", 64)])
    driver.launch(
        driver.get_function(module, "kernel"), (1, 1, 1), (64, 1, 1), 0, 0, [("pointer", address), ("pointer", other)]
    )
    driver.synchronize(0)
    np.testing.assert_array_equal(get(driver, other, x), 1.5 * x[::-1])


def test_faults_name_the_kernel():
    driver = open_driver("emulator")
    module = driver.load_module(0, IRModule({"scale": scale, "kernel": reversal(False)}))
    address = put(driver, np.zeros(64, "float32"))
    with pytest.raises(OutOfBoundsError, match=r"kernel scale: a\[64\]"):
        driver.launch(driver.get_function(module, "scale"), (4, 1, 1), (32, 1, 1), 0, 0,
                      [("pointer", address), ("float32", 1.5), ("int32", 65)])  # fmt: skip
    with pytest.raises(EmulationError, match="kernel kernel"):
        driver.launch(driver.get_function(module, "kernel"), (1, 1, 1), (64, 1, 1), 0, 0, [("pointer", address)] * 2)
    with pytest.raises(CUDAError):
        driver.get_function(module, "nothing")
