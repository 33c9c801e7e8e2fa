"""Shipped tensor intrinsics; a family is defined when one of its names is first looked up."""

from __future__ import annotations

__all__ = ["load_all"]

_DONE = [False]
_MODULES = (
    "amx", "arm_cpu", "build", "cuda", "cuda_names", "dot_product_common", "hexagon", "metal", "mma", "mma_layouts",
    "mma_m16n8k8", "rocm", "rocm_mfma", "wgmma", "wmma", "x86",
)  # fmt: skip


def load_all() -> None:
    """Define every shipped intrinsic."""
    if _DONE[0]:
        return
    _DONE[0] = True
    from . import amx, arm_cpu, cuda, dot_product_common, hexagon, metal, rocm, x86

    for family in (x86, amx, arm_cpu, cuda, dot_product_common, hexagon, metal, rocm):
        family.define()


def __getattr__(name: str) -> object:
    """Family modules load on demand."""
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
