"""Shipped tensor intrinsics; a family is defined when one of its names is first looked up."""

from __future__ import annotations

__all__ = ["load_all"]

_DONE = [False]


def load_all() -> None:
    """Define every shipped intrinsic."""
    if _DONE[0]:
        return
    _DONE[0] = True
    from . import amx, cuda, dot_product_common, metal, x86

    for family in (x86, amx, cuda, dot_product_common, metal):
        family.define()


def __getattr__(name: str) -> object:
    """Family modules load on demand."""
    import importlib

    if name in ("amx", "build", "cuda", "dot_product_common", "metal", "mma", "mma_layouts", "mma_m16n8k8", "wmma", "x86"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
