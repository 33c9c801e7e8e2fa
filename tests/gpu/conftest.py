"""Tests that need a GPU. ``RELAXISH_CUDA_PROVIDER=emulator-fast`` runs those that a simulated one can do."""

from __future__ import annotations

import pytest

import relaxish
from relaxish.runtime.nvidia import providers
from relaxish.runtime.nvidia.errors import CUDAError


@pytest.fixture
def gpu():
    """The device. After a crash nothing else can run in the process, and the tests that remain say so."""
    if not relaxish.cuda().exist:
        pytest.skip("there is no GPU")
    try:
        relaxish.cuda().sync()
    except CUDAError as error:
        pytest.skip(f"an earlier test lost the device: {error}")
    return relaxish.cuda()


@pytest.fixture
def real_gpu(gpu):
    """A device that is no simulation."""
    if providers.current().driver.simulated:
        pytest.skip("this needs a real GPU")
    return gpu
