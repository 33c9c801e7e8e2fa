"""The one place that is asked how to tile a function: default schedules, the search, and users' kernels ask it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..ir import IRModule
from ..ir.errors import CheckValueError
from ..target.target import Target
from ..tir import PrimFunc
from .arch import CPU, TileDevice, get_arch
from .arch.device import target_of
from .block_facts import BlockInfo
from .cpu_hints import cpu_hints, hints_of_block
from .gpu_hints import gpu_hints
from .machine import CpuModel
from .products import Product
from .roller import OutputNode
from .utils import get_roller_hints_from_func, get_roller_hints_from_output_nodes, retrieve_func_from_module

__all__ = ["recommend"]

_POLICIES = ("model", "roller")


def recommend(
    func: Any,
    target: Any = None,
    topk: int = 10,
    policy: str = "model",
    *,
    prepacked: Collection[str] = (),
    may_pack: bool = True,
) -> list[Any]:
    """The ``topk`` best tilings of a function for a target, the best first.

    ``func``: a PrimFunc before it is scheduled, a module of one, a template, a list of OutputNodes; the facts of a single
    block (CPUs); the sizes of a product (matrix units of GPUs). ``target``: a target, its text, or a device of
    ``carver.arch``; None for the current one. ``policy`` "model" ranks by estimated time (waves, latency, spills, caches),
    "roller" by the published order (GPUs only). On CPUs ``prepacked`` names operands that are stored in strips anyway;
    without ``may_pack`` no others are to be copied. Raises CheckValueError for what carver cannot read, saying why.
    """
    if policy not in _POLICIES:
        raise CheckValueError(
            f'policy is "model" (by estimated time) or "roller" (the published order); got {policy!r}'
        )
    if not isinstance(topk, int) or topk < 1:
        raise CheckValueError(f"topk is the number of hints wanted, at least 1; got {topk!r}")
    match func:
        case Product():
            return gpu_hints(func, _device_of(target), topk)
        case BlockInfo():
            return hints_of_block(func, CpuModel.of_target(target_of(target)), topk, prepacked, may_pack)
    what = _function_of(func, target)
    arch = _device_of(target)
    if isinstance(arch, CPU):
        if policy == "roller":
            raise CheckValueError('the published policy is for GPUs; for a CPU ask with policy="model"')
        return cpu_hints(_single(what), arch, topk, prepacked, may_pack)
    if policy == "roller":
        if isinstance(what, list):
            return get_roller_hints_from_output_nodes(what, arch, topk)
        return get_roller_hints_from_func(what, arch, topk, allow_gemv=True) or []
    return gpu_hints(what, arch, topk)


def _device_of(target: Target | TileDevice) -> TileDevice:
    from .arch import auto_infer_current_arch

    return auto_infer_current_arch() if target is None else get_arch(target)


def _function_of(func: Any, target: Target | TileDevice) -> PrimFunc | list[OutputNode]:
    from .template import BaseTemplate

    if isinstance(func, BaseTemplate):
        device = _device_of(target) if target is not None else func.arch
        func.with_arch(device)
        nodes = None if isinstance(func.equivalent_function(), PrimFunc) else func.output_nodes
        return nodes if nodes is not None else func.equivalent_function()
    match func:
        case PrimFunc():
            return func
        case IRModule():
            return retrieve_func_from_module(func)
        case OutputNode():
            return [func]
        case list() | tuple() if func and all(isinstance(n, OutputNode) for n in func):
            return list(func)
    raise CheckValueError(
        "recommend takes a PrimFunc, a module of one, a template (MatmulTemplate(...)) or a list of OutputNodes; "
        f"got {type(func).__name__}"
    )


def _single(what: PrimFunc | list[OutputNode]) -> PrimFunc:
    if isinstance(what, PrimFunc):
        return what
    raise CheckValueError("for CPUs carver tiles one function at a time: pass one of the PrimFuncs")
