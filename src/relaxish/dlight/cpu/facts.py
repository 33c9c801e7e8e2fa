"""What rules ask about blocks: their iterators, what they read and write, and which access moves with which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arith.functor import uses_var
from ...ir.functor import pre_order_visit
from ...ir.prim import Add, Call, Div, IntImm, IterVar, Max, Min, Var
from ...tir import BufferLoad, BufferStore
from ...tir.analysis.linear import coefficient
from ...tir.schedule import Schedule


@dataclass
class IterInfo:
    """A block iterator: kind "S" (spatial), "R" (reduction) or "O" (other), its variable, extent and loop."""

    kind: str
    var: Any
    extent: Any
    loop: Any

    @property
    def dom(self) -> int | None:
        """The extent when it is a constant."""
        return int(self.extent.value) if isinstance(self.extent, IntImm) else None


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

        def look(item: Any) -> bool:
            if isinstance(item, BufferLoad) and item.buffer.data not in written:
                found.append(item)
            return True

        pre_order_visit(self.block.body, look)
        return found


def block_info(sch: Schedule, rv: Any) -> BlockInfo | None:
    """Facts of a block; None when its loops do not bind its iterators one to one."""
    block = sch.get(rv)
    sref = sch.get_sref(rv)
    realize = _realize_of(sch, sref)
    loops = sch.get_loops(rv)
    by_var = {sch.get(loop).loop_var: loop for loop in loops}
    kinds = {IterVar.DataPar: "S", IterVar.CommReduce: "R"}
    iters = []
    for iter_var, value in zip(block.iter_vars, realize.iter_values, strict=True):
        loop = by_var.get(value)
        if loop is None:
            if isinstance(value, IntImm):
                continue
            return None
        iters.append(IterInfo(kinds.get(iter_var.iter_type, "O"), iter_var.var, iter_var.dom.extent, loop))
    if len({id(it.loop) for it in iters}) != len(iters):
        return None
    order = {id(loop): i for i, loop in enumerate(loops)}
    iters.sort(key=lambda it: order[id(it.loop)])
    return BlockInfo(block.name_hint, rv, block, iters)


def _realize_of(sch: Schedule, sref: Any) -> Any:
    from ...tir.schedule.subst import realize_of

    return realize_of(sref)


def get_root_block(sch: Schedule, func_name: str = "main") -> Any:
    """The root block of a function."""
    return sch.get_block("root", func_name)


def access_stride(indices: Any, var: Any) -> str:
    """How an access moves with ``var``: "none", "unit" (next element), "strided" (2 to 4 elements) or "other"."""
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
        stride = stride * extent.value if isinstance(extent, IntImm) else 0
    return total


_COSTLY = frozenset("exp exp2 log tanh sigmoid erf sin cos tan atan pow sinh cosh log2 log10 log1p".split())


def is_costly(block: Any) -> bool:
    """Whether computing an element again would cost noticeably: transcendental functions and divisions by data."""
    hit = False

    def look(item: Any) -> bool:
        nonlocal hit
        if isinstance(item, Call) and getattr(item.op, "name", "").removeprefix("tir.") in _COSTLY:
            hit = True
        if isinstance(item, Div) and isinstance(item.b, BufferLoad):
            hit = True
        return not hit

    pre_order_visit(block.body, look)
    return hit


def is_conditional(block: Any) -> bool:
    """Whether the body chooses between values by position, as padding does."""
    hit = False

    def look(item: Any) -> bool:
        nonlocal hit
        if isinstance(item, Call) and getattr(item.op, "name", "") == "tir.if_then_else":
            hit = True
        return not hit

    pre_order_visit(block.body, look)
    return hit


def combiner_of(block: Any) -> str:
    """What a reduction block does with each element: "sum", "max", "min" or "other"."""
    body = block.body
    if not isinstance(body, BufferStore):
        return "other"
    names: dict[type, str] = {Add: "sum", Max: "max", Min: "min"}
    return names.get(type(body.value), "other")
