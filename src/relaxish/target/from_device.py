"""Targets of devices that are here: what the device says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ir.errors import CheckValueError
from ..runtime.device import Device
from ..runtime.device import device as device_of

if TYPE_CHECKING:
    from .target import Target

__all__ = ["target_of_device"]

_KINDS = {1: "llvm", 2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 15: "webgpu"}


def target_of_device(device: str | Device) -> Target:
    """The target of a device or of its name. Raises ValueError for one that is not here.

    >>> from relaxish.target.from_device import target_of_device
    >>> target_of_device("cpu").kind.name
    'llvm'
    """
    from .target import Target

    there = device_of(device) if isinstance(device, str) else device
    kind = _KINDS.get(int(getattr(there, "device_type", 0)))
    if kind is None:
        raise CheckValueError(f"Cannot make a target from device {device!r}")
    if kind == "llvm":
        return _processor()
    if there.exist:
        return Target({"kind": kind, **_limits(there), **_architecture(kind, there)})
    if kind == "cuda":
        return _first_cuda(device)
    raise CheckValueError(
        f"Cannot detect device `{device}`. Please make sure the device and its driver is installed properly."
    )


def _processor() -> Target:
    from ..support.threads import available_cores
    from .detect import host_triple
    from .target import Target

    return Target({"kind": "llvm", "mtriple": host_triple(), "num-cores": available_cores()})


def _limits(device: Device) -> dict[str, int]:
    threads = int(device.max_threads_per_block)
    return {
        "max_shared_memory_per_block": int(device.max_shared_memory_per_block),
        "max_threads_per_block": threads,
        "max_num_threads": threads,
        "thread_warp_size": int(device.warp_size or 1),
    }


def _architecture(kind: str, device: Device) -> dict[str, Any]:
    if kind == "rocm":
        return {"mtriple": "amdgcn-amd-amdhsa-hcc"}
    if kind != "cuda":
        return {}
    version = str(device.compute_version).replace(".", "")
    return {
        "arch": f"sm_{version}{'a' if version.startswith('9') else ''}", "registers_per_block": 65536,
        "multi_processor_count": int(device.multi_processor_count), "model": "-".join(str(device.device_name).split()),
    }  # fmt: skip


def _first_cuda(device: str | Device) -> Target:
    """The driver may know a GPU that this process has no runtime for."""
    from .detect import host_cuda_arch
    from .target import Target

    arch = host_cuda_arch()
    if arch is None:
        raise CheckValueError(f"Cannot make a target from device {device}: no NVIDIA driver or GPU was found")
    limits = {"max_shared_memory_per_block": 49152, "max_threads_per_block": 1024, "registers_per_block": 65536}
    return Target({"kind": "cuda", "arch": arch, **limits})
