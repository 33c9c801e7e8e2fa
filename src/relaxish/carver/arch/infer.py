"""Choice of the device description for a target, and of the default device."""

from __future__ import annotations

from typing import Any

from ...ir.errors import CheckValueError
from ...support.log import get_logger
from ...target import Target
from .cpu import CPU
from .device import TileDevice, target_of
from .gpus import _RDNA_FAMILIES, CDNA, CUDA, METAL, RDNA, OtherGPU

__all__ = ["auto_infer_current_arch", "get_arch", "some_cuda_target"]

_log = get_logger("carver")
_ASSUMED = "nvidia/nvidia-a100"


def get_arch(target: Target | str | dict[str, Any] | TileDevice = "cuda") -> TileDevice:
    """The description of a target's device. Raises CheckValueError for a kind that has none.

    >>> type(get_arch("rocm -mcpu=gfx1100")).__name__, type(get_arch("llvm")).__name__
    ('RDNA', 'CPU')
    """
    match target:
        case TileDevice():
            return target
        case str() if target.strip() == "cuda":
            return CUDA(target)
    made = target_of(target)
    kind = made.kind.name
    if kind == "cuda":
        return CUDA(made)
    if kind == "rocm":
        desktop = str(made.attrs.get("mcpu", "")).startswith(_RDNA_FAMILIES)
        return RDNA(made) if desktop else CDNA(made)
    if kind == "metal":
        return METAL(made)
    if made.get_target_device_type() == 1:
        return CPU(made)
    if "gpu" in made.keys:
        return OtherGPU(made)
    raise CheckValueError(
        f"carver knows no device of kind {kind!r}; it describes cuda, rocm, metal, llvm, opencl, vulkan and webgpu targets"
    )


def auto_infer_current_arch() -> TileDevice:
    """The current target's device; outside of a target's scope this machine's GPU, or else its CPU."""
    current = Target.current(allow_none=True)
    if current is not None:
        return get_arch(current)
    found = _cuda_here()
    return CUDA(found) if found is not None else CPU("llvm")


def some_cuda_target() -> Target:
    """The target meant by plain ``cuda``: the current one, this machine's device, or else a common one (logged)."""
    current = Target.current(allow_none=True)
    if current is not None and current.kind.name == "cuda":
        return current
    found = _cuda_here()
    if found is not None:
        return found
    _log.warning(
        'no CUDA device here: hints are those of %s; name another, as in CUDA("nvidia/geforce-rtx-4090")', _ASSUMED
    )
    return Target(_ASSUMED)


def _cuda_here() -> Target | None:
    try:
        return Target.from_device("cuda")
    except (ValueError, RuntimeError, OSError):
        return None
