"""Tests that need a GPU. ``RELAXISH_CUDA_PROVIDER=emulator-fast`` runs those that a simulated one can do."""

from __future__ import annotations

import faulthandler
import os
import sys
from importlib.util import find_spec

import pytest

import relaxish
from relaxish.runtime.nvidia import providers
from relaxish.runtime.nvidia.errors import CUDAError

# Where a worker of pytest-xdist ends, another one takes its place.
REPLACEABLE = "PYTEST_XDIST_WORKER" in os.environ
LIMIT_SECONDS = float(os.environ.get("RELAXISH_GPU_TEST_SECONDS", "30"))


def lost() -> CUDAError | None:
    """Why nothing can run on the device any more, if so."""
    try:
        relaxish.cuda().sync()
    except CUDAError as error:
        return error
    return None


@pytest.fixture
def gpu():
    """The device. A test that hangs, or that loses the device, ends the worker that runs it, and no other test.

    Where there are no workers, the tests behind one that has lost the device say so.
    """
    if not relaxish.cuda().exist:
        pytest.skip("there is no GPU")
    if error := lost():
        pytest.skip(f"an earlier test lost the device: {error}")
    # A thread of its own ends the process: one that is in a call of the driver takes no signal.
    limited = REPLACEABLE and find_spec("pytest_timeout") is None and not providers.current().driver.simulated
    if limited:
        faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True)
    yield relaxish.cuda()
    if limited:
        faulthandler.cancel_dump_traceback_later()
    if REPLACEABLE and (error := lost()) is not None and error.sticky:
        print(f"the device is lost: {error}", file=sys.__stderr__, flush=True)
        os._exit(70)


@pytest.fixture
def real_gpu(gpu):
    """A device that is no simulation."""
    if providers.current().driver.simulated:
        pytest.skip("this needs a real GPU")
    return gpu
