"""Canonical blocks: what the GPU rules know of a function once its loops and block iterators agree one to one.

:func:`normalize_prim_func` brings a function into that form and lists its blocks in program order.

>>> from relaxish import dlight, te, tir
>>> A = te.placeholder((8, 4), name="A")
>>> k = te.reduce_axis((0, 4), name="k")
>>> row_sum = te.create_prim_func([A, te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="row_sum")])
>>> [info] = dlight.normalize_prim_func(tir.Schedule(row_sum))
>>> info.name, info.dom_kind(), info.is_reduction()
('row_sum', 'SR', True)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith.build import as_int
from ...ir.expr import PrimExpr
from ...ir.functor import post_order_visit
from ...ir.prim import IntImm, IterVar, Var, const_int
from ...target import Target
from ...tir import Block, BlockRealize, IndexMap
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV, LoopRV

__all__ = [
    "BlockInfo", "IterInfo", "collect_block_iter_vars_used_in_access_region", "detect_dominant_read",
    "extent_of", "get_max_shared_memory_per_block", "get_max_threads_per_block", "get_reduction_blocks", "get_root_block",
    "is_broadcast_epilogue", "normalize_nested", "normalize_prim_func",
]  # fmt: skip

_KINDS = {IterVar.DataPar: "S", IterVar.CommReduce: "R"}


class IterInfo:
    """One iterator of a canonical block: kind ("S" spatial, "R" reduction, "O" other), variable, extent and loop."""

    def __init__(self, kind: str, var: Var, dom: PrimExpr, loop_rv: LoopRV) -> None:
        self.kind = kind
        self.var = var
        self._dom = dom
        self.loop_rv = loop_rv

    @property
    def dom(self) -> PrimExpr | int:
        """The extent: an ``int`` when it is known, else an expression."""
        return const_int(self._dom, self._dom)

    def __repr__(self) -> str:
        return f'Iter("{self.kind}", {self.dom})'


class BlockInfo:
    """A canonical block: its name, iterators in loop order, schedule handle, and whether it reduces."""

    def __init__(self, name: str, iters: Sequence[IterInfo], block_rv: BlockRV, reduction_block: bool = False) -> None:
        self.name = name
        self.iters = list(iters)
        self.block_rv = block_rv
        self._reduction_block = reduction_block

    def dom(self) -> list[Any]:
        """The extents of the iterators."""
        return [i.dom for i in self.iters]

    def dom_kind(self) -> str:
        """The kinds of the iterators as a word, for example ``"SSR"``."""
        return "".join(i.kind for i in self.iters)

    def is_injective(self) -> bool:
        """Whether every iterator is spatial."""
        return all(i.kind == "S" for i in self.iters)

    def is_reduction(self) -> bool:
        """Whether the block is a reduction block, that is it combines into what it writes."""
        return self._reduction_block

    def is_elementwise(self, sch: Schedule) -> bool:
        """Whether the block reads one buffer and writes one, both at its iterators in order."""
        block = sch.get(self.block_rv)
        if not self.is_injective() or len(block.reads) != 1 or len(block.writes) != 1:
            return False
        regions = (block.reads[0].region, block.writes[0].region)
        return len(regions[0]) == len(regions[1]) and all(
            dim.min.same_as(axis.var) and _is_one(dim.extent)
            for region in regions
            for axis, dim in zip(block.iter_vars, region)
        )

    def __repr__(self) -> str:
        return f'BlockInfo("{self.name}", "{self.dom_kind()}", {self.dom()})'


def normalize_prim_func(sch: Schedule) -> list[BlockInfo] | None:
    """Make loops and block iterators of every top-level block agree one to one, without unit iterators.

    Blocks nested in blocks, loops that do not start at zero and bindings other than plain loop variables are beyond
    it: None. A block without spatial iterator gets a unit one in front; one without any loop is left as it is.

    Before and after (block iterators of a matrix-vector product with a unit row)::

        for i, j, k in T.grid(1, 64, 32):          for ax0, ax1 in T.grid(64, 32):
            v_i, v_j, v_k = "SSR"                      v0, v1 = "SR"
    """
    return _normalize(sch, sch.get_child_blocks(sch.get_block("root")))


def normalize_nested(sch: Schedule, serial: bool = False) -> list[BlockInfo] | None:
    """:func:`normalize_prim_func`, or the same of what a single block holds whose loops are in ``blockIdx.y`` or ``z``.

    So are programs written that take one part of their inputs per row of thread blocks: what is inside is scheduled in
    ``blockIdx.x`` and threads as if it were a function. With ``serial`` the loops around may be in no threads.
    """
    blocks = sch.get_child_blocks(sch.get_block("root"))
    inside = sch.get_child_blocks(blocks[0]) if len(blocks) == 1 else []
    threads = [sch.get(loop).thread_binding for loop in sch.get_loops(blocks[0])] if inside else []
    if inside and all(serial if t is None else t.thread_tag in ("blockIdx.y", "blockIdx.z") for t in threads):
        return _normalize(sch, inside)
    return _normalize(sch, blocks)


def _normalize(sch: Schedule, blocks: Sequence[BlockRV]) -> list[BlockInfo] | None:
    if not all(_bound_to_loops(sch, block) for block in blocks):
        return None
    infos = []
    for rv in blocks:
        block = sch.get(rv)
        if not sch.get_loops(rv):
            infos.append(BlockInfo(block.name_hint, [], rv, False))
            continue
        sch.transform_block_layout(rv, _without_unit_iters(block))
        block = sch.get(rv)
        iters = [
            IterInfo(_KINDS.get(v.iter_type, "O"), v.var, extent_of(v), loop)
            for v, loop in zip(block.iter_vars, sch.get_loops(rv), strict=True)
        ]
        infos.append(BlockInfo(block.name_hint, iters, rv, _reduces(block)))
    return infos


def _bound_to_loops(sch: Schedule, rv: BlockRV) -> bool:
    loops = [sch.get(loop) for loop in sch.get_loops(rv)]
    values = _realize(sch, rv).iter_values
    if not loops:
        return True
    return len(loops) == len(values) and all(
        value.same_as(loop.loop_var) and as_int(loop.min) == 0 for loop, value in zip(loops, values, strict=True)
    )


def _realize(sch: Schedule, rv: BlockRV) -> BlockRealize:
    from ...tir.schedule.subst import realize_of

    return realize_of(sch.get_sref(rv))


def extent_of(axis: IterVar) -> PrimExpr:
    """Extent of a block iterator."""
    assert axis.dom is not None, "block iterators have domains"
    return axis.dom.extent


def _is_one(extent: PrimExpr) -> bool:
    return as_int(extent) == 1


def _without_unit_iters(block: Block) -> IndexMap:
    inputs = [Var(v.var.name, v.var.dtype) for v in block.iter_vars]
    kept = [
        (new, old) for new, old in zip(inputs, block.iter_vars, strict=True)
        if not _is_one(extent_of(old))
    ]  # fmt: skip
    outputs: list[Any] = [new for new, _ in kept]
    if not any(old.iter_type == IterVar.DataPar for _, old in kept):
        outputs.insert(0, IntImm("int64", 0))
    return IndexMap(inputs, outputs, None)


def _reduces(block: Block) -> bool:
    kinds = {v.iter_type for v in block.iter_vars}
    return IterVar.CommReduce in kinds and kinds <= {IterVar.DataPar, IterVar.CommReduce} and block.init is not None


def get_root_block(sch: Schedule, func_name: str = "main") -> BlockRV:
    """The root block of a function. Raises ValueError when the body is no block."""
    body = sch.mod[func_name].body
    if not isinstance(body, BlockRealize):
        raise ValueError(f"the body of {func_name} is not a block but {type(body).__name__}")
    return sch.get_block(body.block.name_hint, func_name)


def get_reduction_blocks(sch: Schedule, blocks: Sequence[Any]) -> list[Any] | None:
    """The blocks among ``blocks`` that reduce; None if there is none, or one that is neither that nor spatial."""
    found = []
    for rv in blocks:
        kinds = {v.iter_type for v in sch.get(rv).iter_vars}
        if kinds == {IterVar.DataPar, IterVar.CommReduce}:
            found.append(rv)
        elif kinds != {IterVar.DataPar}:
            return None
    return found or None


def _check_gpu(target: Target) -> None:
    if "gpu" not in target.keys:
        raise ValueError(f"expected a GPU target, got {target}")


def get_max_threads_per_block(target: Target) -> int:
    """Thread limit of a block on the target, 64 if it does not say. Raises ValueError if it is no GPU."""
    _check_gpu(target)
    for name in ("max_threads_per_block", "max_num_threads"):
        value = target.attrs.get(name)
        if value is not None:
            return int(value)
    return 64


def get_max_shared_memory_per_block(target: Target) -> int:
    """Bytes of shared memory of a block. Raises ValueError if the target does not say, or is no GPU."""
    _check_gpu(target)
    value = target.attrs.get("max_shared_memory_per_block")
    if value is None:
        raise ValueError(f"cannot find `max_shared_memory_per_block` in {target}, please specify it manually")
    return int(value)


def collect_block_iter_vars_used_in_access_region(block: Block, region: Sequence[Any]) -> set[Var]:
    """The block's iterators that a region's bounds mention."""
    used: set[Var] = set()

    def look(item: PrimExpr) -> None:
        if isinstance(item, Var):
            used.add(item)

    for dim in region:
        for part in (dim.min, dim.extent):
            post_order_visit(part, look)
    return used & {v.var for v in block.iter_vars}


def detect_dominant_read(block: Block) -> PrimExpr:
    """Flat element offset of the read that moves with most iterators of the block. Raises ValueError without reads."""
    best, count = None, -1
    for read in block.reads:
        used = collect_block_iter_vars_used_in_access_region(block, read.region)
        if len(used) > count:
            best, count = read, len(used)
    if best is None:
        raise ValueError(f"block {block.name_hint} reads nothing")
    (offset,) = best.buffer.offset_of([r.min for r in best.region])
    return offset


def is_broadcast_epilogue(sch: Schedule, block: BlockRV, epilogue: BlockRV) -> bool:
    """Whether ``epilogue`` reads elements of ``block``'s result more than once."""
    written = {id(w.buffer) for w in sch.get(block).writes}
    after = sch.get(epilogue)
    return any(
        len(collect_block_iter_vars_used_in_access_region(after, read.region)) < len(after.iter_vars)
        for read in after.reads
        if id(read.buffer) in written
    )
