"""Hints by the published policy, for functions and for graphs of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir import IRModule
from ..ir.errors import CheckValueError
from ..support.errors import RelaxishError
from ..support.log import get_logger
from ..support.sequences import of_kind
from ..tir import PrimFunc
from .arch import TileDevice
from .matmul_analysis import get_tensorized_func_and_tags
from .roller import DefaultPolicy, Hint, OutputNode, Rasterization2DColumn, TensorCorePolicy

__all__ = [
    "get_rasterization_code", "get_roller_hints_from_func", "get_roller_hints_from_output_nodes", "policy_for",
    "retrieve_func_from_module",
]  # fmt: skip

_log = get_logger("carver")


def get_rasterization_code(pannel_width: int = 8) -> str:
    """CUDA C++ that renumbers blocks in panels of so many rows (the argument is spelled as in the field)."""
    return "".join(Rasterization2DColumn(pannel_width).get_code())


def retrieve_func_from_module(ir_module: IRModule) -> PrimFunc:
    """The only function of a module. Raises CheckValueError where there is not exactly one PrimFunc."""
    if not isinstance(ir_module, IRModule):
        raise CheckValueError(f"expected a PrimFunc or a module of one, got {type(ir_module).__name__}")
    functions = list(of_kind(ir_module.functions.values(), PrimFunc))
    if len(functions) != 1:
        raise CheckValueError(
            f"carver tiles one function at a time, but the module has {len(functions)} PrimFuncs: pass mod[name]"
        )
    return functions[0]


def policy_for(
    func: PrimFunc, arch: TileDevice, tags: Mapping[str, Any] | None = None, allow_gemv: bool = False
) -> DefaultPolicy:
    """The policy that suits a function: for matrix units where they compute it, else for threads."""
    normal, found = get_tensorized_func_and_tags(func, arch, allow_gemv=allow_gemv)
    if found is not None:
        return TensorCorePolicy.from_prim_func(normal, arch, {**found, **(tags or {})})
    return DefaultPolicy.from_prim_func(func, arch, tags)


def get_roller_hints_from_func(
    func_or_module: PrimFunc | IRModule,
    arch: TileDevice,
    topk: int = 10,
    tensorcore_only: bool = False,
    allow_gemv: bool = False,
) -> list[Hint] | None:
    """The ``topk`` best hints; with ``tensorcore_only`` None where matrix units do not compute the function."""
    func = func_or_module if isinstance(func_or_module, PrimFunc) else retrieve_func_from_module(func_or_module)
    policy = policy_for(func, arch, allow_gemv=allow_gemv)
    if tensorcore_only and not isinstance(policy, TensorCorePolicy):
        return None
    hints = policy.emit_config(topk)
    if not hints and isinstance(policy, TensorCorePolicy) and not tensorcore_only:
        hints = DefaultPolicy.from_prim_func(func, arch).emit_config(topk)
    return hints


def get_roller_hints_from_output_nodes(
    output_nodes: Sequence[OutputNode], arch: TileDevice, topk: int = 10, extra_tags: Mapping[str, Any] | None = None
) -> list[Any]:
    """The ``topk`` best hints of functions that one kernel computes: ``{node: hint}`` where there are several.

    Where a tile of one function's result would have to hold whole rows of another's and does not fit, the other is
    computed step by step of the reduction that uses it, as attention does with its scores.
    """
    if isinstance(output_nodes, OutputNode):
        raise CheckValueError("output_nodes is a list: [OutputNode(node)]")
    tags = dict(extra_tags or {})
    hints: list[Any] = []
    for kind in (TensorCorePolicy, DefaultPolicy):
        for streaming in (False, True):
            try:
                policy = kind.from_output_nodes(output_nodes, arch, tags)
            except RelaxishError as error:
                _log.debug("%s does not fit: %s", kind.__name__, error)
                break
            policy.streaming = streaming and len(policy.ordered_nodes) > 1
            hints = policy.emit_config(topk)
            if hints:
                return hints
    return hints
