"""Facts of blocks on CPUs: iterators, what is read and written, which access moves with which, and what to vectorise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..arith.build import as_int
from ..ir.expr import PrimExpr
from ..ir.node import Node
from ..ir.op import op_name_of
from ..arith.affine import coefficient
from ..arith.functor import uses_var
from ..ir.functor import all_nodes, pre_order_visit
from ..ir.prim import Add, Call, Div, IterVar, Max, Min, Mul, Var, const_int, is_call_of
from ..tir import Block, Buffer, BufferLoad, BufferStore
from ..tir.intrinsics import COSTLY, named

__all__ = [
    "BlockInfo", "IterInfo", "access_stride", "combiner_of", "facts_of", "flat_stride", "is_conditional", "is_costly",
    "operand_names", "row_axis", "streams", "vector_axis",
]  # fmt: skip

_KINDS = {IterVar.DataPar: "S", IterVar.CommReduce: "R"}


@dataclass
class IterInfo:
    """A block iterator: kind "S" (spatial), "R" (reduction) or "O" (other), its variable, extent and loop (None: no
    schedule yet)."""

    kind: str
    var: Any
    extent: Any
    loop: Any

    @property
    def dom(self) -> int | None:
        """The extent when it is a constant."""
        return as_int(self.extent)

    @property
    def multiple(self) -> int:
        """Largest known divisor of the extent: the extent itself where constant, ``c`` where it is written ``x * c``."""
        constant = self.extent.b if isinstance(self.extent, Mul) else self.extent
        return const_int(constant, 1)


@dataclass
class BlockInfo:
    """A block with its iterators in loop order."""

    name: str
    rv: Any
    block: Any
    iters: list[IterInfo]

    @property
    def is_reduction(self) -> bool:
        """Whether any iterator is a reduction."""
        return any(it.kind == "R" for it in self.iters)

    @property
    def is_injective(self) -> bool:
        """Whether all iterators are spatial."""
        return all(it.kind == "S" for it in self.iters)

    @property
    def store(self) -> Any | None:
        """The block's store when it has exactly one."""
        return self.block.body if isinstance(self.block.body, BufferStore) else None

    @property
    def spatial(self) -> list[IterInfo]:
        """The spatial iterators."""
        return [it for it in self.iters if it.kind == "S"]

    @property
    def reductions(self) -> list[IterInfo]:
        """The reduction iterators."""
        return [it for it in self.iters if it.kind == "R"]

    def loads(self) -> list[Any]:
        """Loads in the body, except those of what it writes."""
        written = {region.buffer.data for region in self.block.writes}
        found: list[Any] = []

        def look(item: Node) -> bool:
            if isinstance(item, BufferLoad) and item.buffer.data not in written:
                found.append(item)
            return True

        pre_order_visit(self.block.body, look)
        return found


def facts_of(block: Block) -> BlockInfo:
    """Facts of a block by itself: its iterators in their own order, without loops."""
    iters = []
    for axis in block.iter_vars:
        assert axis.dom is not None, "block iterators have domains"
        iters.append(IterInfo(_KINDS.get(axis.iter_type, "O"), axis.var, axis.dom.extent, None))
    return BlockInfo(block.name_hint, None, block, iters)


def access_stride(indices: Sequence[PrimExpr], var: PrimExpr) -> str:
    """Stride of an access in ``var``: "none", "unit" (next element), "strided" (2 to 4 elements) or "other"."""
    if not indices:
        return "none"
    last = coefficient(indices[-1], var)
    if any(uses_var(i, var) for i in indices[:-1]) or last is None:
        return "other" if any(uses_var(i, var) for i in indices) else "none"
    return {0: "none", 1: "unit", 2: "strided", 3: "strided", 4: "strided"}.get(last, "other")


def flat_stride(load: BufferLoad, var: Var) -> int | None:
    """Elements between the places an access reads at ``var`` and ``var + 1``; None when not constant."""
    total, stride = 0, 1
    for index, extent in zip(reversed(load.indices), reversed(load.buffer.shape), strict=True):
        step = coefficient(index, var)
        if step is None or (step and not stride):
            return None
        total += step * stride
        stride = stride * const_int(extent, 0)
    return total


_COSTLY = frozenset(named(lambda record: record.cost >= COSTLY))


def is_costly(block: Block) -> bool:
    """Whether computing an element again would cost noticeably: transcendental functions and divisions by data."""
    return any(
        (isinstance(item, Call) and op_name_of(item).removeprefix("tir.") in _COSTLY)
        or (isinstance(item, Div) and isinstance(item.b, BufferLoad))
        for item in all_nodes(block.body)
    )


def is_conditional(block: Block) -> bool:
    """Whether the body chooses between values by position, as padding does."""
    return any(is_call_of(item, "tir.if_then_else") for item in all_nodes(block.body))


def operand_names(block: Block) -> dict[Buffer, str]:
    """Names of what a block reads, each of its own: fused programs have parameters of one name, and then it is that which the
    script shows (``x``, ``x_1``)."""
    names: dict[Buffer, str] = {}
    for region in block.reads:
        name, count = region.buffer.name, 0
        while region.buffer not in names and name in names.values():
            count += 1
            name = f"{region.buffer.name}_{count}"
        names.setdefault(region.buffer, name)
    return names


def combiner_of(block: Block) -> str:
    """Combiner of a reduction block: "sum", "max", "min" or "other"."""
    body = block.body
    if not isinstance(body, BufferStore):
        return "other"
    names: dict[type, str] = {Add: "sum", Max: "max", Min: "min"}
    return names.get(type(body.value), "other")


def streams(info: BlockInfo, vector: IterInfo) -> bool:
    """Whether every operand moves along the vectors, as in depthwise convolution and pooling: nothing is broadcast."""
    return all(access_stride(load.indices, vector.var) != "none" for load in info.loads())


def vector_axis(info: BlockInfo) -> IterInfo | None:
    """The spatial iterator to put in vector lanes: contiguous in the output, contiguous or absent in every input."""
    store = info.store
    if store is None or combiner_of(info.block) == "other" or any(it.kind == "O" for it in info.iters):
        return None
    for it in reversed(info.spatial):
        if access_stride(store.indices, it.var) != "unit":
            continue
        kinds = [access_stride(load.indices, it.var) for load in info.loads()]
        if "other" not in kinds and ("unit" in kinds or "strided" in kinds):
            return it
    return None


def row_axis(info: BlockInfo, vector: IterInfo) -> IterInfo | None:
    """The axis whose values share the vector loads: the innermost that some vector input does not move along."""
    candidates = [it for it in info.spatial if it is not vector and (it.dom is None or it.dom > 1)]
    loads = info.loads()

    def shares(it: IterInfo) -> bool:
        return any(
            access_stride(load.indices, vector.var) in ("unit", "strided") and not _moves(load.indices, it.var)
            for load in loads
        )

    for it in reversed(candidates):
        if it.dom is not None and shares(it) and max(d for d in range(1, 17) if it.dom % d == 0) >= 4:
            return it
    sharing = [it for it in candidates if shares(it)]
    if sharing:
        return sharing[-1]
    return candidates[-1] if candidates else None


def _moves(indices: Sequence[PrimExpr], var: PrimExpr) -> bool:
    return any(uses_var(index, var) for index in indices)
