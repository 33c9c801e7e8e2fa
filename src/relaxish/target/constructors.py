"""Short ways to write common targets."""

from __future__ import annotations

import warnings
from typing import Any

from ..ir.errors import CheckValueError
from .compose import TargetSpec
from .target import Target

Options = str | list[str] | None


def _merge(options: Options) -> list[str]:
    return [] if options is None else options.split() if isinstance(options, str) else list(options)


def _make(kind: str, words: list[str], options: Options) -> Target:
    given = {word.lstrip("-").split("=")[0] for word in _merge(options)}
    kept = [word for word in words if word.lstrip("-").split("=")[0] not in given]
    return Target(" ".join([kind, *kept, *_merge(options)]))


def cuda(model: str = "unknown", arch: str | None = None, options: Options = None) -> Target:
    """An NVIDIA GPU."""
    return _make("cuda", [f"-model={model}", *([f"-arch={arch}"] if arch else [])], options)


def rocm(model: str = "unknown", options: Options = None) -> Target:
    """An AMD GPU."""
    return _make("rocm", [f"-model={model}"], options)


def mali(model: str = "unknown", options: Options = None) -> Target:
    """An ARM Mali GPU through OpenCL."""
    return _make("opencl", ["-device=mali", f"-model={model}"], options)


def intel_graphics(model: str = "unknown", options: Options = None) -> Target:
    """An Intel GPU through OpenCL."""
    return _make("opencl", ["-device=intel_graphics", f"-model={model}", "-thread_warp_size=16"], options)


def adreno(model: str = "unknown", options: Options = None, backend: str = "opencl") -> Target:
    """A Qualcomm Adreno GPU through OpenCL or Vulkan."""
    return _make(backend, ["-device=adreno", f"-model={model}"], options)


def bifrost(model: str = "unknown", options: Options = None) -> Target:
    """An ARM Bifrost GPU through OpenCL."""
    return _make("opencl", ["-device=bifrost", f"-model={model}"], options)


_ARM_BOARDS = {
    "pixel2": ["-model=snapdragon835", "-mtriple=arm64-linux-android", "-mattr=+neon"],
    "mate10": ["-model=kirin970", "-mtriple=arm64-linux-android", "-mattr=+neon"],
    "p20": ["-model=kirin970", "-mtriple=arm64-linux-android", "-mattr=+neon"],
    "rasp3b": ["-model=bcm2837", "-mtriple=armv7l-linux-gnueabihf", "-mattr=+neon"],
    "rasp4b": ["-model=bcm2711", "-mtriple=armv8l-linux-gnueabihf", "-mattr=+neon", "-mcpu=cortex-a72"],
    "rasp4b64": ["-model=bcm2711", "-mtriple=aarch64-linux-gnu", "-mcpu=cortex-a72", "-mattr=+neon"],
    "rk3399": ["-model=rk3399", "-mtriple=aarch64-linux-gnu", "-mattr=+neon"],
    "pynq": ["-model=pynq", "-mtriple=armv7a-linux-eabi", "-mattr=+neon"],
    "ultra96": ["-model=ultra96", "-mtriple=aarch64-linux-gnu", "-mattr=+neon"],
    "beagleai": ["-model=beagleai", "-mtriple=armv7a-linux-gnueabihf", "-mattr=+neon", "-mcpu=cortex-a15"],
}


def arm_cpu(model: str = "unknown", options: Options = None) -> Target:
    """An ARM CPU, by board name where it is a known one."""
    words = _ARM_BOARDS.get(model, [f"-model={model}"])
    return _make("llvm", ["-device=arm_cpu", "-keys=arm_cpu,cpu", *words], options)


def rasp(options: Options = None) -> Target:
    """Deprecated: the Raspberry Pi 3."""
    warnings.warn("target.rasp() is deprecated, use target.arm_cpu('rasp3b')", DeprecationWarning, stacklevel=2)
    return arm_cpu("rasp3b", options)


def riscv_cpu(model: str = "sifive-u54", options: Options = None) -> Target:
    """A RISC-V CPU."""
    cores = {
        "sifive-e31": ["-mtriple=riscv32-unknown-elf", "-mcpu=sifive-e31", "-mabi=ilp32"],
        "sifive-e76": ["-mtriple=riscv32-unknown-elf", "-mcpu=sifive-e76", "-mabi=ilp32"],
        "sifive-u54": ["-mtriple=riscv64-unknown-linux-gnu", "-mcpu=sifive-u54", "-mabi=lp64d"],
        "sifive-u74": ["-mtriple=riscv64-unknown-linux-gnu", "-mcpu=sifive-u74", "-mabi=lp64d"],
        "licheepi3a": ["-mtriple=riscv64-unknown-linux-gnu", "-mcpu=spacemit-x60", "-mabi=lp64d"],
    }
    words = cores.get(model, ["-mtriple=riscv64-unknown-linux-gnu"])
    return _make("llvm", ["-keys=arm_cpu,cpu", "-device=arm_cpu", f"-model={model}", *words], options)


def hexagon(cpu_ver: str = "v68", **kwargs: Any) -> Target:
    """A Qualcomm Hexagon DSP."""
    config: dict[str, Any] = {
        "kind": "hexagon",
        "mtriple": "hexagon",
        "mcpu": "hexagon" + cpu_ver,
        "num-cores": int(kwargs.pop("num_cores", 4)),
        "vtcm-capacity": int(kwargs.pop("vtcm_capacity", 0)),
    }
    if kwargs:
        raise CheckValueError(f"Unknown Hexagon options: {', '.join(sorted(kwargs))}")
    return Target(config)


def stm32(series: str = "unknown", options: Options = None) -> Target:
    """An STM32 microcontroller, by series name."""
    table = {
        "F7": "cortex-m7",
        "H7": "cortex-m7",
        "L4": "cortex-m4",
        "F4": "cortex-m4",
        "G4": "cortex-m4",
        "L5": "cortex-m33",
        "U5": "cortex-m33",
    }
    core = table.get(series.upper().removeprefix("STM32")[:2])
    if core is None:
        raise CheckValueError(
            f"Series {series} is not supported by the stm32 target; known: {', '.join(sorted(table))}"
        )
    return _make("c", ["-keys=arm_cpu,cpu", "-device=arm_cpu", f"-mcpu={core}", f"-model=stm32{series}"], options)


def create(target: TargetSpec) -> Target:
    """Deprecated: use ``Target(...)``."""
    warnings.warn("target.create() is deprecated, use Target(...)", DeprecationWarning, stacklevel=2)
    return Target(target)
