"""Recognises matrix-vector products and brings their loops into one order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith.build import as_int
from ...arith import normalize_to_iter_sum
from ...ir.expr import PrimExpr, Range
from ...ir.structural import same_expression
from ...tir import Add, Block, Buffer, BufferLoad, BufferStore
from ...tir.schedule import Schedule
from ...tir.schedule.walk import vars_in
from .blocks import BlockInfo, IterInfo, collect_block_iter_vars_used_in_access_region, detect_dominant_read

__all__ = ["is_gemv", "normalize", "summand"]


def is_gemv(sch: Schedule, block_info: BlockInfo) -> list[Buffer] | None:
    """The vector operands of a matrix-vector product; None for any other block."""
    block = sch.get(block_info.block_rv)
    if not block_info.is_reduction() or len(block.reads) < 2 or len(block.writes) != 1 or summand(block) is None:
        return None
    if not collect_block_iter_vars_used_in_access_region(block, block.writes[0].region):
        return None
    used = [len(collect_block_iter_vars_used_in_access_region(block, read.region)) for read in block.reads]
    vectors = [r.buffer for r, n in zip(block.reads, used, strict=True) if 0 < n < len(block.iter_vars)]
    return vectors if 0 < len(vectors) < len(block.reads) else None


def summand(block: Block) -> PrimExpr | None:
    """``Y`` of a block that does ``X[...] = X[...] + Y``; None for any other."""
    store = block.body
    if not isinstance(store, BufferStore) or not isinstance(store.value, Add):
        return None
    if not same_expression(store.value.a, BufferLoad(store.buffer, store.indices)):
        return None
    return store.value.b


def normalize(sch: Schedule, block_info: BlockInfo) -> bool | None:
    """Order and fuse the loops as batch, rows, reduction, packed; whether the matrix is read along the reduction.

    None when the access of the matrix is beyond the rule.
    """
    block = sch.get(block_info.block_rv)
    domains = {v.var: v.dom for v in block.iter_vars}
    try:
        access = normalize_to_iter_sum(detect_dominant_read(block), domains)
    except ValueError:  # the read does not go through memory by steps
        return None
    # Where the matrix begins may come from outside of the block, as with the weights of one expert of many.
    if not (_is_zero(access.base) or _outside(block, access.base)) or not access.args:
        return None
    axes: dict[Any, IterInfo] = {i.var: i for i in block_info.iters}
    uses = [_used(block, r.region) for r in (*block.writes, *block.reads)]
    loops: dict[str, list[Any]] = {"batch": [], "S": [], "R": [], "packed": []}
    for term in access.args:
        axis = axes[term.source.source]
        loop, factor = axis.loop_rv, _constant(term.lower_factor)
        if factor is None or factor > 1:
            # Only a reduction may be packed, and only one.
            if factor is None or loops["packed"] or axis.kind != "R":
                return None
            loop, packed = sch.split(loop, factors=[None, factor])
            loops["packed"].append(packed)
        kind = "R" if axis.kind == "R" else "batch" if all(axis.var in used for used in uses) else "S"
        loops[kind].append(loop)
    if not loops["S"] or not loops["R"]:
        return None
    for kind in ("packed", "batch"):
        if not loops[kind]:
            loops[kind].append(sch.add_unit_loop(block_info.block_rv))
    sch.reorder(*loops["batch"], *loops["S"], *loops["R"], *loops["packed"])
    for kind in ("batch", "S", "R"):
        sch.fuse(*loops[kind])
    return axes[access.args[-1].source.source].kind == "R"


def _outside(block: Block, expr: PrimExpr) -> bool:
    """Whether an offset follows from variables of blocks further out alone."""
    used = set(vars_in(expr))
    return bool(used) and used.isdisjoint(v.var for v in block.iter_vars)


def _used(block: Block, region: Sequence[Range]) -> set[Any]:
    return set(collect_block_iter_vars_used_in_access_region(block, region))


def _constant(expr: PrimExpr) -> int | None:
    return as_int(expr)


def _is_zero(expr: PrimExpr) -> bool:
    return _constant(expr) == 0
