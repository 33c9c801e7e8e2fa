"""Requirements of tests on the machine, as marks that skip them elsewhere: ``@requires_cuda``,
``@requires_package("onnx")``."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from typing import Any

from ..runtime import device, enabled
from ..target import Target
from ..target.codegen import llvm_get_system_cpu, target_has_features
from ..tir.function import PrimFunc

__all__ = [
    "Feature", "requires_aarch64_sve", "requires_adreno_opencl", "requires_arm_dot", "requires_cublas", "requires_cuda",
    "requires_cuda_compute_version", "requires_cudagraph", "requires_cudnn", "requires_cutlass", "requires_gpu", "requires_hexagon",
    "requires_hipblas",
    "requires_llvm", "requires_matrixcore", "requires_metal", "requires_nvcc_version", "requires_nvptx",
    "requires_opencl", "requires_package", "requires_rocm", "requires_rpc", "requires_tensorcore", "requires_vulkan",
    "requires_webgpu", "requires_x86", "requires_x86_amx", "requires_x86_avx512", "requires_x86_vnni", "slow",
    "uses_gpu",
]  # fmt: skip


class Feature:
    """A requirement: used as a decorator it skips a test where the requirement does not hold.

    >>> from relaxish.testing import requires_package
    >>> @requires_package("no_such_package")
    ... def test_that_needs_it(): ...
    >>> test_that_needs_it.pytestmark[0].name
    'skipif'
    """

    all_features: dict[str, Feature] = {}

    def __init__(
        self,
        name: str,
        long_name: str | None = None,
        present: Callable[[], bool] = lambda: True,
        parents: tuple[Feature, ...] = (),
    ) -> None:
        self.name = name
        self.long_name = long_name or name
        self.present = present
        self.parents = parents
        Feature.all_features[name] = self

    def available(self) -> bool:
        """Whether this machine has it and all it builds on."""
        return all(parent.available() for parent in self.parents) and self.present()

    def marks(self, support_required: str | None = None) -> list[Any]:
        """The pytest marks, for ``pytest.param(..., marks=...)``; compiling alone needs no device."""
        import pytest

        absent = support_required not in ("optional", "compile-only") and not self.available()
        return [pytest.mark.skipif(absent, reason=f"needs {self.long_name}")]

    def __call__(
        self, func: Callable[..., Any] | None = None, *, support_required: str | None = None
    ) -> Callable[..., Any]:
        """Decorate a test; without one, the decorator."""
        marks = self.marks(support_required)

        def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
            for mark in marks:
                test = mark(test)
            return test

        return decorate if func is None else decorate(func)

    @staticmethod
    def require(name: str, support_required: str = "compile-and-run") -> Callable[..., Any]:
        """A decorator by feature name. Raises KeyError for one that is unknown."""
        return Feature.all_features[name](support_required=support_required)


def _has_device(kind: str) -> Callable[[], bool]:
    return lambda: bool(enabled(kind) and device(kind).exist)


def _cpu_has(*names: str) -> Callable[[], bool]:
    return lambda: target_has_features(list(names), Target({"kind": "llvm", "mcpu": llvm_get_system_cpu()}))


def _installed(package: str) -> Callable[[], bool]:
    return lambda: importlib.util.find_spec(package) is not None


requires_llvm = Feature("llvm", "LLVM", _installed("llvmlite"))
requires_gpu = Feature(
    "gpu", "a GPU", lambda: any(device(k).exist for k in ("cuda", "rocm", "metal", "vulkan", "opencl"))
)
requires_cuda = Feature("cuda", "an NVIDIA GPU", _has_device("cuda"))
requires_tensorcore = Feature(
    "tensorcore", "NVIDIA tensor cores", lambda: cuda_compute_version() >= (7, 0), (requires_cuda,)
)
requires_cudnn = Feature("cudnn", "cuDNN", lambda: False, (requires_cuda,))
requires_cublas = Feature("cublas", "cuBLAS", lambda: False, (requires_cuda,))
requires_cutlass = Feature("cutlass", "CUTLASS", lambda: False, (requires_cuda,))
requires_cudagraph = Feature("cudagraph", "CUDA graphs", parents=(requires_cuda,))
requires_nvptx = Feature("nvptx", "NVPTX", lambda: False, (requires_cuda, requires_llvm))
requires_rocm = Feature("rocm", "an AMD GPU", _has_device("rocm"))
requires_matrixcore = Feature("matrixcore", "AMD matrix cores", lambda: False, (requires_rocm,))
requires_hipblas = Feature("hipblas", "hipBLAS", lambda: False, (requires_rocm,))
requires_metal = Feature("metal", "Metal", _has_device("metal"))
requires_vulkan = Feature("vulkan", "Vulkan", _has_device("vulkan"))
requires_opencl = Feature("opencl", "OpenCL", _has_device("opencl"))
requires_adreno_opencl = Feature("adreno_opencl", "OpenCL on Adreno", lambda: False, (requires_opencl,))
requires_webgpu = Feature("webgpu", "WebGPU", lambda: False)
requires_hexagon = Feature("hexagon", "a Hexagon device", lambda: False)
requires_rpc = Feature("rpc", "remote execution", lambda: False)
requires_x86 = Feature("x86", "an x86 processor", _cpu_has("sse2"))
requires_x86_avx512 = Feature("x86_avx512", "AVX-512", _cpu_has("avx512bw", "avx512f"))
requires_x86_vnni = Feature("x86_vnni", "AVX-512 VNNI", _cpu_has("avx512vnni"))
requires_x86_amx = Feature("x86_amx", "AMX", _cpu_has("amx-int8", "amx-tile"))
requires_arm_dot = Feature("arm_dot", "Arm dot products", _cpu_has("dotprod"))
requires_aarch64_sve = Feature("aarch64_sve", "SVE", _cpu_has("sve"))


def cuda_compute_version() -> tuple[int, int]:
    """Compute capability of the first NVIDIA device; (0, 0) without one."""
    version = device("cuda").compute_version if device("cuda").exist else None
    major, _, minor = (version or "0.0").partition(".")
    return int(major), int(minor or 0)


def requires_cuda_compute_version(major_version: int, minor_version: int = 0, exact: bool = False) -> Feature:
    """Skip unless the NVIDIA device has at least (or ``exact``-ly) this compute capability."""
    wanted = (major_version, minor_version)

    def present() -> bool:
        have = cuda_compute_version()
        return have == wanted if exact else have >= wanted

    return Feature(f"cuda_compute_{major_version}_{minor_version}", f"compute {wanted}", present, (requires_cuda,))


def requires_nvcc_version(major_version: int, minor_version: int = 0, release_version: int = 0) -> Feature:
    """Skip unless the CUDA compiler driver is installed; kernels are compiled by NVRTC, whatever its version."""
    return Feature(f"nvcc_{major_version}_{minor_version}", "nvcc", lambda: shutil.which("nvcc") is not None)


def requires_package(*packages: str) -> Feature:
    """Skip unless every package can be imported."""
    missing = [p for p in packages if importlib.util.find_spec(p) is None]
    return Feature(
        f"package_{'_'.join(packages)}", f"the packages {', '.join(missing) or packages}", lambda: not missing
    )


def uses_gpu(func: PrimFunc) -> Any:
    """Mark a test that uses a GPU where there is one."""
    import pytest

    return pytest.mark.gpu(func)


def slow(func: PrimFunc) -> Any:
    """Mark a test that runs only where slow ones are asked for."""
    import pytest

    return pytest.mark.slow(func)
