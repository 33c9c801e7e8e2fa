"""LowerTiles: tile kernels as statements of threads, for the architecture that a function is compiled for."""

from __future__ import annotations

from typing import Any

from ...function import PrimFunc
from ..base import PrimFuncPass, func_pass
from .arch import arch_of
from .gpu import GpuKernel
from .hopper import lower_product
from .program import Kernel, has_kernels, rewrite_kernels

__all__ = ["LowerTiles", "lower_for_device"]


def lower_for_device(func: PrimFunc, target: Any) -> PrimFunc:
    """The function with its tile kernels lowered for a device. Raises TileLoweringError for what the device cannot do."""
    arch = arch_of(target)

    def lower(kernel: Kernel) -> Any:
        made = lower_product(kernel) if arch.hopper else None
        return GpuKernel(kernel, arch).lower() if made is None else made

    return rewrite_kernels(func, lower)


def LowerTiles() -> PrimFuncPass:  # noqa: N802
    """Lower the operators of tile programs (``relaxish.tile.language``) for the function's target.

    Every architecture gets its own instructions: sm_70 ``wmma``, sm_80 ``mma.sync`` with ``ldmatrix`` and ``cp.async``,
    sm_90a ``wgmma`` and bulk tensor copies; elsewhere, and for tiles that do not fit these, threads multiply. Functions
    without tile kernels stay as they are. Raises TileLoweringError, which names the operator.
    """

    def run(func: PrimFunc) -> PrimFunc:
        if not has_kernels(func):
            return func
        from ....target import Target

        target = func.get_attr("target") or Target.current()
        if target is None:
            raise ValueError(
                "LowerTiles needs a target: bind one with BindTarget, or enter one with `with Target(...)`"
            )
        return lower_for_device(func, target)

    return func_pass(run, "tir.LowerTiles")
