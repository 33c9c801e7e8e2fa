"""Modules for AMD devices: HIP C++, and code objects through LLVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...ir.module import IRModule
from ...runtime.devices.module import DeviceModule
from ...target import Target
from ..common.device_build import build_with
from ..common.llvmsource import assembly, device_text, object_code
from .dialect import AMDGPU
from .printer import hip_source

__all__ = ["build_device"]


def build_device(kernels: IRModule, target: Target) -> DeviceModule:
    """Scheduled tensor programs as HIP C++ ("hip"); on demand as LLVM text ("ll"), assembly ("s") and code object ("o")."""
    chip = str(target.attrs.get("mcpu", "gfx900"))
    features = ",".join(target.mattr)

    def makers(device: IRModule) -> Mapping[str, Callable[[], str | bytes]]:
        return {
            "ll": lambda: device_text(device, AMDGPU()),
            "s": lambda: assembly(device_text(device, AMDGPU()), AMDGPU.triple, chip, features),
            "o": lambda: object_code(device_text(device, AMDGPU()), AMDGPU.triple, chip, features),
        }

    return build_with(kernels, target, lambda device: {"hip": hip_source(device)}, makers=makers)
