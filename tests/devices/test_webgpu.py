"""WGSL really runs where wgpu and a Vulkan driver are installed: all kernels of the default schedules, against LLVM's."""

from __future__ import annotations

import numpy as np
import pytest
from devices.wgpu_device import WGPURuntime, open_device
from programs.gpu import CASES

import relaxish
from relaxish.target import Target

TARGET = Target("webgpu", host="llvm")


@pytest.fixture(scope="module")
def gpu():
    device = open_device()
    if device is None:
        pytest.skip("wgpu or a Vulkan driver is not installed")
    return device


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_kernels(gpu, name):
    rule, func, shapes = CASES[name]
    func = func.with_attr("global_symbol", "main")
    built = relaxish.build(rule.apply(func, TARGET, False).mod, target=TARGET).imported_modules[0]
    rng = np.random.default_rng(len(name))
    arrays = [rng.standard_normal(s).astype("float32") for s in shapes[:-1]] + [np.zeros(shapes[-1], "float32")]
    given = [relaxish.nd.array(a) for a in arrays]
    built.programs["main"].function(WGPURuntime(built, gpu, given), *given)
    relaxish.build(func, target="llvm")["main"](*arrays)
    np.testing.assert_allclose(given[-1].numpy(), arrays[-1], rtol=1e-3, atol=1e-4)
