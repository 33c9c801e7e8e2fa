"""Modules for Apple devices."""

from __future__ import annotations

from ...ir.module import IRModule
from ...runtime.devices.module import DeviceModule
from ...target import Target
from ..common.device_build import build_with
from .printer import metal_source

__all__ = ["build_device"]


def build_device(kernels: IRModule, target: Target) -> DeviceModule:
    """Scheduled tensor programs as Metal Shading Language, and as programs that launch them."""
    return build_with(kernels, target, lambda device: {"metal": metal_source(device)})
