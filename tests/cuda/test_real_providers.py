"""The real providers against a driver library of our own: every call they make, without a GPU.

The library (library/libcuda.c) is compiled against the toolkit's ``cuda.h`` and loaded in place of the driver's by a
process of its own, which runs the contract of test_driver_contract.py.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import relaxish
from relaxish.backend.cuda.compile.headers import include_folders
from relaxish.runtime.nvidia import libcuda as ours
from relaxish.runtime.nvidia.driver import ATTRIBUTES
from relaxish.runtime.nvidia.errors import NoCUDAError
from relaxish.support import config

HERE = Path(__file__).parent
PACKAGES = {"pycuda": "pycuda.driver", "cuda-bindings": "cuda.bindings.driver"}


def installed(provider: str) -> bool:
    """Whether a provider's package is there; its parents may be namespaces that other folders share."""
    try:
        return importlib.util.find_spec(PACKAGES[provider]) is not None
    except ModuleNotFoundError:
        return False


def header_folder() -> Path | None:
    """Where cuda.h is: in NVIDIA's wheels, or in a toolkit."""
    return next((p for p in include_folders() if (p / "cuda.h").exists()), None)


def has_version_13(folder: Path) -> bool:
    return "#define CUDA_VERSION 13" in (folder / "cuda.h").read_text(errors="replace")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    headers = header_folder()
    if headers is None or not has_version_13(headers) or shutil.which("gcc") is None:
        pytest.skip("no cuda.h of CUDA 13, or no C compiler")
    folder = tmp_path_factory.mktemp("libcuda")
    target = folder / "libcuda.so.1"
    command = ["gcc", "-shared", "-fPIC", "-O1", f"-I{headers}", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, "-o", str(target), str(HERE / "library" / "libcuda.c"), "-ldl"], check=True)
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    paths = [p for p in sys.path if p]
    return {
        **os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": os.pathsep.join(paths),
        "RELAXISH_TEST_FAKE_LIBCUDA": "1", **more,
    }  # fmt: skip


@pytest.mark.parametrize("provider", PACKAGES)
def test_contract(provider, library):
    if not installed(provider):
        pytest.skip(f"{provider} is not installed")
    command = [
        sys.executable, "-m", "pytest", "-rs", "-n0", "-p", "no:cacheprovider",
        str(HERE / "test_driver_contract.py"), "-k", f"{provider} and not fake",
    ]  # fmt: skip
    done = subprocess.run(command, env=environment(library), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "SKIPPED" not in done.stdout and "100%" in done.stdout, done.stdout[-4000:]


@pytest.mark.parametrize("provider", PACKAGES)
def test_no_device(provider, library):
    if not installed(provider):
        pytest.skip(f"{provider} is not installed")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from cuda_backends import make_backend\n"
        "import relaxish\n"
        "assert not relaxish.cuda().exist\n"
        "try:\n    relaxish.nd.empty((1,), device=relaxish.cuda())\n"
        "except relaxish.TVMError as error:\n    assert 'nvidia-smi' in str(error), error\n"
        "else:\n    raise AssertionError\n"
    )
    where = environment(library, FAKE_CUDA_NO_DEVICE="1", RELAXISH_CUDA_PROVIDER=provider)
    prelude = (
        "import sys, os, ctypes; sys.setdlopenflags(os.RTLD_LAZY); ctypes.CDLL('libcuda.so.1', ctypes.RTLD_GLOBAL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", prelude + code, str(HERE)], env=where, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


STRUCTURES = r"""
#include <cuda.h>
#include <stdio.h>
#include <stddef.h>
int main(void) {
  printf("%zu %zu %zu %zu %zu %zu %zu %d %d %d %d\n", sizeof(CUlaunchConfig), offsetof(CUlaunchConfig, sharedMemBytes),
         offsetof(CUlaunchConfig, hStream), offsetof(CUlaunchConfig, attrs), offsetof(CUlaunchConfig, numAttrs),
         sizeof(CUlaunchAttribute), offsetof(CUlaunchAttribute, value), CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
         CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_EVENT_DISABLE_TIMING);
  return 0;
}
"""


@pytest.mark.parametrize("provider", PACKAGES)
def test_no_library(provider, tmp_path):
    """Without a driver the device does not exist, and the error says what to install."""
    if not installed(provider):
        pytest.skip(f"{provider} is not installed")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("there is a driver")
    with config.CUDA_PROVIDER.override(provider):
        assert not relaxish.cuda().exist
        with pytest.raises(NoCUDAError, match="(?i)driver|docs/cuda.md"):
            relaxish.nd.empty((1,), device=relaxish.cuda())


def test_attributes_of_the_header(tmp_path):
    """The driver's numbers of attributes are those of cuda.h."""
    headers = header_folder()
    if headers is None or shutil.which("gcc") is None:
        pytest.skip("no cuda.h, or no C compiler")
    renamed = {
        "max_clock_rate": "CLOCK_RATE", "memory_bus_width": "GLOBAL_MEMORY_BUS_WIDTH", "multi_processor_count": "MULTIPROCESSOR_COUNT",
        "l2_cache_size_bytes": "L2_CACHE_SIZE",
    }  # fmt: skip
    names = [renamed.get(n, n.upper().replace("MULTI_PROCESSOR", "MULTIPROCESSOR")) for n in ATTRIBUTES]
    lines = "".join(f'  printf("%d\\n", CU_DEVICE_ATTRIBUTE_{name});\n' for name in names)
    (tmp_path / "print.c").write_text(
        f"#include <cuda.h>\n#include <stdio.h>\nint main(void) {{\n{lines}  return 0;\n}}\n"
    )
    program = str(tmp_path / "print")
    subprocess.run(["gcc", f"-I{headers}", "-o", program, str(tmp_path / "print.c")], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    assert [int(n) for n in printed] == list(ATTRIBUTES.values())


def test_structures_of_the_header(tmp_path):
    """What libcuda.py says about structures and constants is what cuda.h says."""
    headers = header_folder()
    if headers is None or shutil.which("gcc") is None:
        pytest.skip("no cuda.h, or no C compiler")
    (tmp_path / "print.c").write_text(STRUCTURES)
    program = str(tmp_path / "print")
    subprocess.run(["gcc", f"-I{headers}", "-o", program, str(tmp_path / "print.c")], check=True)
    printed = [int(n) for n in subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()]
    config, attribute = ours._LaunchConfig, ours._LaunchAttribute
    assert printed == [
        ctypes.sizeof(config), config.shared.offset, config.stream.offset, config.attributes.offset,
        config.attribute_count.offset, ctypes.sizeof(attribute), attribute.dims.offset, ours._CLUSTER_DIMENSION,
        ours._MAX_DYNAMIC_SHARED, ours._THREAD_LOCAL_CAPTURE, ours.DISABLE_TIMING,
    ]  # fmt: skip
