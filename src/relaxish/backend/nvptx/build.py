"""Modules of PTX."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.module import IRModule
from ...runtime.devices.module import DeviceModule
from ...target import Target
from ..common.device_build import build_with
from ..common.llvmsource import assembly, device_text
from .dialect import NVPTX

__all__ = ["build_device"]


def build_device(kernels: IRModule, target: Target) -> DeviceModule:
    """Scheduled tensor programs as PTX ("ptx") and the LLVM text it was made from ("ll")."""
    arch = str(target.attrs.get("mcpu", "sm_80"))

    def sources(device: IRModule) -> Mapping[str, str]:
        text = device_text(device, NVPTX())
        return {"ptx": assembly(text, NVPTX.triple, arch), "ll": text}

    return build_with(kernels, target, sources)
