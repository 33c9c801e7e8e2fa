"""Targets: which device to compile for and what it can do."""

from __future__ import annotations

from . import codegen, datatype, x86
from .constructors import (
    adreno,
    arm_cpu,
    bifrost,
    create,
    cuda,
    hexagon,
    intel_graphics,
    mali,
    rasp,
    riscv_cpu,
    rocm,
    stm32,
)
from .generic_func import GenericFunc, generic_func, get_native_generic_func, override_native_generic_func
from .limits import attrs_with_limits
from .kind import TargetKind, register_kind
from .shared_memory import opt_in_shared_memory
from .tags import list_tags, register_tag
from .target import Target, TargetFeatures
from .virtual_device import VirtualDevice

__all__ = [
    "GenericFunc",
    "Target",
    "TargetFeatures",
    "TargetKind",
    "VirtualDevice",
    "adreno",
    "arm_cpu",
    "attrs_with_limits",
    "bifrost",
    "codegen",
    "create",
    "cuda",
    "datatype",
    "generic_func",
    "get_native_generic_func",
    "hexagon",
    "intel_graphics",
    "list_tags",
    "mali",
    "opt_in_shared_memory",
    "override_native_generic_func",
    "rasp",
    "register_kind",
    "register_tag",
    "riscv_cpu",
    "rocm",
    "stm32",
    "x86",
]


def _connect_to_ir() -> None:
    """Let modules hold targets: in virtual devices and in saved JSON."""
    from ..ir.global_info import TARGET_FROM
    from ..ir.serial import register_foreign

    TARGET_FROM["convert"] = Target
    register_foreign("target", Target, Target.export, Target)


_connect_to_ir()
