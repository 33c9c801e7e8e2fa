"""PoCL keeps what it compiled in a folder; tests use one of their own, so that a killed run leaves nothing broken behind."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import pytest

from relaxish.testing.targets import device_enabled

if "POCL_CACHE_DIR" not in os.environ:
    os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp(prefix="relaxish-pocl-")
    atexit.register(shutil.rmtree, os.environ["POCL_CACHE_DIR"], ignore_errors=True)


@pytest.fixture
def opencl():
    """The first OpenCL device."""
    import relaxish

    device = relaxish.opencl(0)
    if not device.exist:
        pytest.skip("there is no OpenCL device (pip install pyopencl pocl-binary-distribution)")
    if not device_enabled("opencl"):
        pytest.skip("the OpenCL driver has no code generation for this processor")
    return device
