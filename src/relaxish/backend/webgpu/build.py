"""Modules for WebGPU."""

from __future__ import annotations

from ...ir.module import IRModule
from ...runtime.devices.module import DeviceModule
from ...target import Target
from ...tir.transform import ForceNarrowIndexToInt32
from ..common.device_build import build_with
from .printer import wgsl_source

__all__ = ["build_device"]


def build_device(kernels: IRModule, target: Target) -> DeviceModule:
    """Scheduled tensor programs as WGSL, and as programs that launch them; indices have 32 bits there."""
    return build_with(kernels, target, lambda device: {"wgsl": wgsl_source(device)}, prepare=ForceNarrowIndexToInt32())
