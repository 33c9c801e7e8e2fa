"""Modules for Vulkan devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ...ir.module import IRModule
from ...runtime.devices.module import DeviceModule
from ...target import Target
from ..common.csource.kernel import device_functions
from ..common.device_build import build_with
from .glslang import compile_spirv
from .printer import glsl_source

__all__ = ["build_device"]


def build_device(kernels: IRModule, target: Target) -> DeviceModule:
    """Scheduled tensor programs as GLSL ("comp"); each kernel's SPIR-V ("<kernel>.spv") is made on demand by glslang."""

    def makers(device: IRModule) -> Mapping[str, Callable[[], str | bytes]]:
        text = glsl_source(device)
        return {f"{name}.spv": partial(compile_spirv, text, name) for name, _ in device_functions(device)}

    return build_with(kernels, target, lambda device: {"comp": glsl_source(device)}, makers=makers)
