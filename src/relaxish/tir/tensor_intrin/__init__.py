"""Shipped tensor intrinsics; a family is defined when one of its names is first looked up."""

from __future__ import annotations

from ...support.entry_points import lazy_package

__all__ = ["load_all"]

_DONE = [False]


def load_all() -> None:
    """Define every shipped intrinsic."""
    if _DONE[0]:
        return
    _DONE[0] = True
    from . import amx, arm_cpu, cuda, dot_product_common, hexagon, metal, rocm, x86

    for family in (x86, amx, arm_cpu, cuda, dot_product_common, hexagon, metal, rocm):
        family.define()


__getattr__, __dir__ = lazy_package(globals())  # families load on first use
