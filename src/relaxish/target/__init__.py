"""Targets: which device to compile for and what it can do."""

from __future__ import annotations

from . import codegen, x86
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
from .kind import TargetKind, register_kind
from .tags import list_tags, register_tag
from .target import Target, TargetFeatures
from .virtual_device import VirtualDevice

__all__ = [
    "Target",
    "TargetFeatures",
    "TargetKind",
    "VirtualDevice",
    "adreno",
    "arm_cpu",
    "bifrost",
    "codegen",
    "create",
    "cuda",
    "hexagon",
    "intel_graphics",
    "list_tags",
    "mali",
    "rasp",
    "register_kind",
    "register_tag",
    "riscv_cpu",
    "rocm",
    "stm32",
    "x86",
]
