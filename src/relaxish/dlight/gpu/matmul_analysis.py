"""Recognises matrix products in any layout, and the maps that bring them to ``C[S, I, J] += A[S, I, K] * B[S, J, K]``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...ir.prim import IntImm, IterVar, Var
from ...tir import Block, BufferLoad, Cast, IndexMap
from ...tir.analysis import undefined_vars
from ...tir.schedule import Schedule
from ..analysis import extent_of, get_reduction_blocks
from ..base import ILLEGAL

__all__ = [
    "IterKind", "IterTrait", "auto_inline_consumer_chain", "auto_inline_consumers", "auto_inline_producers",
    "detect_iter_traits", "get_in_out_dtypes", "get_index_map", "get_single_reduction", "make_iter_fusion_index_map", "normalize_matmul",
]  # fmt: skip


class IterKind(Enum):
    """What an iterator does in a product: batch (S), rows (I), columns (J), reduction (K), or nothing (T)."""

    kIter_S = 0
    kIter_I = 1
    kIter_J = 2
    kIter_K = 3
    kIter_T = 4


@dataclass
class IterTrait:
    """An iterator's kind and extent."""

    kind: IterKind
    extent: Any


def make_iter_fusion_index_map(traits: Sequence[IterTrait], kind_order: Sequence[IterKind]) -> IndexMap:
    """The map that fuses all iterators of one kind, kinds in the given order; kinds that do not occur become 0.

    Raises ValueError for a kind outside the order.
    """
    fused: dict[IterKind, Any] = {}
    inputs = []
    for index, trait in enumerate(traits):
        var = Var(f"i{index}", trait.extent.dtype)
        inputs.append(var)
        if trait.kind == IterKind.kIter_T:
            continue
        if trait.kind not in kind_order:
            raise ValueError(f"Unknown iter kind {trait.kind}")
        before = fused.get(trait.kind)
        fused[trait.kind] = var if before is None else before * trait.extent + var
    zero = IntImm(traits[0].extent.dtype, 0)
    return IndexMap(inputs, [fused.get(kind, zero) for kind in kind_order], None)


def detect_iter_traits(block: Block) -> tuple[list[IterTrait], ...] | None:
    """Traits of the iterators of A, B, C and of the block, each in block order; None for what is no product."""
    if len(block.reads) != 2 or len(block.writes) != 1:
        return None
    regions = [_access_axes(r.region) for r in (block.reads[0], block.reads[1], block.writes[0])]
    if any(axes is None for axes in regions):
        return None
    in_a, in_b, in_c = (axes or set() for axes in regions)
    traits: dict[Var, IterTrait] = {}
    for axis in block.iter_vars:
        kind = _kind(axis, axis.var in in_a, axis.var in in_b, axis.var in in_c)
        if kind is None:
            return None
        traits[axis.var] = IterTrait(kind, extent_of(axis))
    if not {IterKind.kIter_I, IterKind.kIter_J, IterKind.kIter_K} <= {t.kind for t in traits.values()}:
        return None
    order = [v.var for v in block.iter_vars]
    return (*([traits[v] for v in order if v in axes] for axes in (in_a, in_b, in_c)), [traits[v] for v in order])


def _access_axes(region: Sequence[Any]) -> set[Var] | None:
    """Variables of the indices of an element access; None if the region is larger than an element."""
    axes: set[Var] = set()
    for dim in region:
        if not (isinstance(dim.extent, IntImm) and dim.extent.value == 1):
            return None
        axes |= set(undefined_vars(dim.min))
    return axes


def _kind(axis: IterVar, in_a: bool, in_b: bool, in_c: bool) -> IterKind | None:
    extent = extent_of(axis)
    if isinstance(extent, IntImm) and extent.value == 1:
        return IterKind.kIter_T
    table = {
        (IterVar.DataPar, True, True, True): IterKind.kIter_S,
        (IterVar.DataPar, True, False, True): IterKind.kIter_I,
        (IterVar.DataPar, False, True, True): IterKind.kIter_J,
        (IterVar.CommReduce, True, True, False): IterKind.kIter_K,
    }
    return table.get((axis.iter_type, in_a, in_b, in_c))


def get_index_map(block: Block) -> tuple[IndexMap, ...] | None:
    """Maps of the block, A, B and C to the canonical product; None for what is no product."""
    traits = detect_iter_traits(block)
    if traits is None:
        return None
    a, b, c, whole = traits
    s, i, j, k = IterKind.kIter_S, IterKind.kIter_I, IterKind.kIter_J, IterKind.kIter_K
    return (
        make_iter_fusion_index_map(whole, [s, i, j, k]),
        make_iter_fusion_index_map(a, [s, i, k]),
        make_iter_fusion_index_map(b, [s, j, k]),
        make_iter_fusion_index_map(c, [s, i, j]),
    )


def normalize_matmul(sch: Schedule, main_block: Any) -> bool:
    """Rewrite the block as ``C[S, I, J] += A[S, I, K] * B[S, J, K]`` over re-indexed operands; False if it is none."""
    if get_index_map(sch.get(main_block)) is None:
        return False
    copies = [sch.reindex(main_block, place) for place in (("read", 0), ("read", 1), ("write", 0))]
    # The copies may lack unit iterators that the operands were indexed with.
    maps = get_index_map(sch.get(main_block))
    assert maps is not None, "reindexing keeps the iterators' kinds"
    whole, *parts = maps
    for copy, kind, index_map in zip(copies, ("write", "write", "read"), parts, strict=True):
        sch.transform_layout(copy, (kind, 0), index_map)
    sch.transform_block_layout(main_block, whole)
    return True


def get_single_reduction(sch: Schedule, root: Any) -> Any:
    """The only reduction block below ``root``; None if there are others, or blocks that are not spatial besides."""
    reductions = get_reduction_blocks(sch, sch.get_child_blocks(root))
    return reductions[0] if reductions is not None and len(reductions) == 1 else None


def get_in_out_dtypes(block: Block) -> tuple[str, str]:
    """Dtype of the operands (under casts) and of the result of a product block."""
    product = block.body.value.b  # type: ignore[attr-defined]
    operand = product.a
    while isinstance(operand, Cast):
        operand = operand.value
    dtype = operand.buffer.dtype if isinstance(operand, BufferLoad) else operand.dtype
    return str(dtype), str(block.writes[0].buffer.dtype)


def auto_inline_producers(sch: Schedule, block: Any, skip_blocks: Sequence[Any] = ()) -> None:
    """Inline producers of ``block``, theirs too, as long as any can be."""
    changed = True
    while changed:
        changed = False
        for producer in sch.get_producers(block):
            if any(sch.get(producer).same_as(sch.get(skip)) for skip in skip_blocks):
                continue
            try:
                sch.compute_inline(producer)
            except ILLEGAL:
                continue
            changed = True


def auto_inline_consumers(sch: Schedule, block: Any) -> None:
    """Inline consumers of ``block`` forward, or back into it, as long as any can be."""
    changed = True
    while changed:
        changed = False
        for inline in (sch.compute_inline, sch.reverse_compute_inline):
            for consumer in sch.get_consumers(block):
                try:
                    inline(consumer)
                except ILLEGAL:
                    continue
                changed = True


def auto_inline_consumer_chain(sch: Schedule, block: Any) -> None:
    """:func:`auto_inline_consumers`; if some stay because of their other producers, those are inlined first."""
    auto_inline_consumers(sch, block)
    left = sch.get_consumers(block)
    if left:
        for consumer in left:
            for producer in sch.get_producers(consumer):
                if not sch.get(producer).same_as(sch.get(block)):
                    sch.compute_inline(producer)
        auto_inline_consumers(sch, block)
