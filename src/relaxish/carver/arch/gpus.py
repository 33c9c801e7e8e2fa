"""NVIDIA, AMD, Apple and other GPUs as tile policies see them."""

from __future__ import annotations

from typing import Any

from ...ir.errors import CheckValueError
from ...target import Target
from ...target.shared_memory import STATIC_SHARED_MEMORY
from .chips import chip_of, compute_capability
from .device import TensorInstruction, TileDevice

__all__ = [
    "CDNA", "CUDA", "METAL", "RDNA", "OtherGPU", "has_mma_support", "is_ada_arch", "is_ampere_arch", "is_cdna_arch",
    "is_cuda_arch", "is_hopper_arch", "is_metal_arch", "is_rdna_arch", "is_tensorcore_supported_precision", "is_volta_arch",
]  # fmt: skip

_TRANSACTION = [32, 128]
_RDNA_FAMILIES = ("gfx10", "gfx11", "gfx12")


class _Gpu(TileDevice):
    """Common part: everything that follows from the table of chips and the target's limits."""

    def __init__(self, target: Target | str | dict[str, Any]) -> None:
        super().__init__(target)
        chip = chip_of(self.target)
        attrs = self.target.attrs
        self.smem_cap = int(attrs.get("max_shared_memory_per_block") or min(chip.shared_memory, STATIC_SHARED_MEMORY))
        self.max_smem_usage = 2 * self.smem_cap
        self.compute_max_core = chip.cores
        # Some kinds do not know theirs and say 1.
        self.warp_size = max(32, int(attrs.get("thread_warp_size") or 32))
        self.reg_cap = 32768
        self.sm_partition = 4
        self.l2_cache_size_bytes = chip.l2_cache
        self.transaction_size = list(_TRANSACTION)
        self.bandwidth = [750, 12080]


class CUDA(_Gpu):
    """An NVIDIA GPU: ``CUDA("nvidia/geforce-rtx-4090")``, ``CUDA("cuda -arch=sm_80")``, ``CUDA(target)``.

    Plain ``"cuda"`` says nothing of the device: the one of this machine is meant, or else the current target's.

    >>> arch = CUDA("nvidia/geforce-rtx-4090")
    >>> arch.compute_max_core, arch.smem_cap, arch.sm_version
    (128, 49152, 89)
    """

    def __init__(self, target: Target | str | dict[str, Any]) -> None:
        if isinstance(target, str) and target.strip() == "cuda":
            from .infer import some_cuda_target

            target = some_cuda_target()
        super().__init__(target)
        self._require("cuda")
        self.sm_version = compute_capability(self.target.attrs.get("arch", ""))
        if not self.sm_version:
            raise CheckValueError(
                f"the target {str(self.target)!r} does not say which architecture it has; name the GPU "
                '("nvidia/nvidia-a100") or its architecture ("cuda -arch=sm_80")'
            )
        self.compute_capability = str(self.sm_version)
        self.platform = "CUDA"
        self.reg_cap = 65536
        # A block's shared memory of fixed size: more can be had at the launch, tiles are judged by what every launch has.
        self.smem_cap = min(self.smem_cap, STATIC_SHARED_MEMORY)
        self.max_smem_usage = 2 * self.smem_cap

    def _instructions(self) -> tuple[TensorInstruction, ...]:
        return TensorInstruction("mma", [16, 16]), TensorInstruction("wmma", [16, 16])


class CDNA(_Gpu):
    """An AMD data centre GPU (gfx90a, gfx942, gfx950, ...)."""

    def __init__(self, target: Target | str | dict[str, Any]) -> None:
        super().__init__(target)
        self._require("rocm")
        self.compute_capability = str(self.target.attrs.get("mcpu", "unknown"))
        self.platform = "CDNA"
        self.bandwidth = [1300, 14000]
        if self.compute_capability.startswith("gfx950"):
            self.smem_cap = 160 * 1024
            self.max_smem_usage = 2 * self.smem_cap

    def _instructions(self) -> tuple[TensorInstruction, ...]:
        return (TensorInstruction("mfma", [16, 16]),)


class RDNA(_Gpu):
    """An AMD desktop GPU (gfx10, gfx11, gfx12)."""

    def __init__(self, target: Target | str | dict[str, Any]) -> None:
        super().__init__(target)
        self._require("rocm")
        self.compute_capability = str(self.target.attrs.get("mcpu", "unknown"))
        if not self.compute_capability.startswith(_RDNA_FAMILIES):
            raise CheckValueError(
                f"RDNA describes gfx10, gfx11 and gfx12, but the target has {self.compute_capability}; "
                "use CDNA, or name the GPU (rocm -mcpu=gfx1100)"
            )
        self.platform = "RDNA"
        self.warp_size = 32

    def _instructions(self) -> tuple[TensorInstruction, ...]:
        return (TensorInstruction("wmma", [16, 16]),) if self.compute_capability >= "gfx11" else ()


class METAL(_Gpu):
    """An Apple GPU."""

    def __init__(self, target: Target | str | dict[str, Any]) -> None:
        super().__init__(target)
        self._require("metal")
        self.platform = "METAL"
        self.warp_size = 32


class OtherGPU(_Gpu):
    """A GPU reached by OpenCL, Vulkan or WebGPU: a mid-range part with the target's limits."""

    def __init__(self, target: Target | str | dict[str, Any]) -> None:
        super().__init__(target)
        self.platform = self.target.kind.name.upper()


def is_cuda_arch(arch: TileDevice) -> bool:
    """Whether the device is NVIDIA's."""
    return isinstance(arch, CUDA)


def _between(arch: TileDevice, low: int, high: int) -> bool:
    return isinstance(arch, CUDA) and low <= arch.sm_version < high


def is_volta_arch(arch: TileDevice) -> bool:
    """Volta or Turing: compute capability 7.x."""
    return _between(arch, 70, 80)


def is_ampere_arch(arch: TileDevice) -> bool:
    """Ampere: compute capability 8.0 to 8.8."""
    return _between(arch, 80, 89)


def is_ada_arch(arch: TileDevice) -> bool:
    """Ada: compute capability 8.9."""
    return _between(arch, 89, 90)


def is_hopper_arch(arch: TileDevice) -> bool:
    """Hopper: compute capability 9.0."""
    return _between(arch, 90, 91)


def is_cdna_arch(arch: TileDevice) -> bool:
    """Whether the device is an AMD data centre GPU."""
    return isinstance(arch, CDNA)


def is_rdna_arch(arch: TileDevice) -> bool:
    """Whether the device is an AMD desktop GPU."""
    return isinstance(arch, RDNA)


def is_metal_arch(arch: TileDevice) -> bool:
    """Whether the device is Apple's."""
    return isinstance(arch, METAL)


def has_mma_support(arch: TileDevice) -> bool:
    """Whether the device has ``mma.sync`` with operands from ``ldmatrix``: sm_80 and later."""
    return isinstance(arch, CUDA) and arch.sm_version >= 80


_HALF = {("float16", "float32"), ("float16", "float16")}
_AMPERE = _HALF | {("bfloat16", "float32"), *((f"int{bits}", "int32") for bits in (8, 4, 2, 1))}
_FLOAT8 = ("float8_e5m2", "float8_e4m3", "float8_e4m3fn", "e5m2_float8", "e4m3_float8")
_ADA = _HALF | {("bfloat16", "float32"), ("int8", "int32"), *((name, "float32") for name in _FLOAT8)}


def is_tensorcore_supported_precision(in_dtype: str, accum_dtype: str, arch: TileDevice) -> bool:
    """Whether tensor cores multiply operands of ``in_dtype`` and add in ``accum_dtype``.

    Raises CheckValueError for a device without tensor cores.
    """
    if not isinstance(arch, CUDA) or arch.sm_version < 70:
        raise CheckValueError(
            f"{arch!r} has no tensor cores; ask only about cuda targets of sm_70 and later (has_mma_support tells)"
        )
    table = _HALF if is_volta_arch(arch) else _AMPERE if is_ampere_arch(arch) else _ADA
    return (str(in_dtype), str(accum_dtype)) in table
