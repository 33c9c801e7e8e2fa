"""suggest_layout_transforms: layouts of blocks and inputs that go with wanted layouts of outputs.

Going backwards through the blocks of a function, the layout of what a block writes says in which order its loops
should run, and that says how what it reads would best be laid out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...arith.affine import affine
from ...ir.functor import Visitor, post_order_visit
from ...ir.prim import const_ints
from ...ir.prim import Var as TirVar
from ...support.errors import RelaxishError
from ...tir import Block, BlockRealize, Buffer, BufferLoad, BufferStore, IndexMap, IterVar, PrimFunc
from ..scalars import prim_vars

__all__ = ["suggest_layout_transforms"]

#: For each dimension of a buffer, the loop variable that runs along it, if there is exactly one.
Layout = list[TirVar | None]


def _layout_of(indices: Sequence[Any], spatial: set[TirVar]) -> Layout:
    out: Layout = []
    for index in indices:
        used = [v for v in dict.fromkeys(prim_vars(index)) if v in spatial]
        fits = len(used) == 1 and affine(index, digits=False, casts=False).factors() is not None and used[0] not in out
        out.append(used[0] if fits else None)
    return out


def _inferred(source: Layout, given: IndexMap, target: Layout) -> IndexMap | None:
    """The map of ``target`` that matches ``given`` on the variables it shares with ``source``, or None.

    Dimensions of variables that only ``target`` has stay whole, next to the dimension before them.
    """
    shared = {v for v in target if v is not None and v in source}
    initial = {v: i for v, i in zip(source, given.initial_indices) if v in shared}
    known = set(initial.values())
    final: list[Any] = []
    for expr in given.final_indices:
        used = [v for v in prim_vars(expr) if v in given.initial_indices]
        if all(v in known for v in used):
            final.append(expr)
        elif any(v in known for v in used):
            return None
    if not final:
        return None
    new_initial: list[TirVar] = []
    place = 0
    for position, var in enumerate(target):
        if var in shared and var is not None:
            new_initial.append(initial[var])
        else:
            fresh = TirVar(f"d{position}", given.initial_indices[0].dtype)
            new_initial.append(fresh)
            final.insert(min(place, len(final)), fresh)
        place += 1
    return IndexMap(new_initial, final, None)


class _Accesses(Visitor):
    """Stores and loads of a block without blocks inside."""

    def __init__(self) -> None:
        self.stores: list[BufferStore] = []
        self.loads: list[BufferLoad] = []
        self.nested = False

    def visit_Block(self, block: Block) -> None:
        self.nested = True

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.stores.append(store)
        self.default_visit(store)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.loads.append(load)
        self.default_visit(load)


def _is_bijective(index_map: IndexMap, block: Block) -> bool:
    """Whether the block's loops can run in the new order without padding."""
    extents = [it.dom.extent for it in block.iter_vars]
    if const_ints(extents) is None:
        return all(isinstance(f, TirVar) for f in index_map.final_indices)
    try:
        index_map.inverse(extents)
    except (ValueError, RelaxishError):
        return False
    return True


class _Function:
    def __init__(self, func: PrimFunc, given: Sequence[IndexMap]) -> None:
        if len(given) > len(func.params):
            raise RelaxishError("Incompatible PrimFunc and write_transformations")
        self.maps: dict[Buffer, IndexMap] = {}
        self.outputs: set[Buffer] = set()
        for param, index_map in zip(func.params[len(func.params) - len(given) :], given):
            buffer = func.buffer_map.get(param)
            if buffer is None or len(buffer.shape) != len(index_map.initial_indices):
                raise RelaxishError("Mismatch between output buffer shape and index map")
            self.maps[buffer] = index_map
            self.outputs.add(buffer)
        self.result: dict[Block, dict[Any, IndexMap]] = {}
        blocks: list[Block] = []
        post_order_visit(func.body, lambda node: blocks.append(node.block) if isinstance(node, BlockRealize) else None)
        for block in reversed(blocks):
            if block.iter_vars:
                self.block(block)

    def block(self, block: Block) -> None:
        found = _Accesses()
        found.visit(block.body)
        kinds = {it.iter_type for it in block.iter_vars}
        if found.nested or len(block.writes) != 1 or not kinds <= {IterVar.DataPar, IterVar.CommReduce}:
            return
        written = block.writes[0].buffer
        given = self.maps.get(written)
        if given is None:
            return
        spatial = {it.var for it in block.iter_vars if it.iter_type == IterVar.DataPar}
        layouts = [_layout_of(s.indices, spatial) for s in found.stores if s.buffer is written]
        if not layouts or any(None in layout for layout in layouts) or any(x != layouts[0] for x in layouts):
            return
        order = _inferred(layouts[0], given, [it.var for it in block.iter_vars])
        if order is None or not _is_bijective(order, block):
            return
        suggested: dict[Any, IndexMap] = {block: order}
        for buffer, index_map in self.reads(found.loads, layouts[0], given, spatial, written).items():
            self.maps[buffer] = suggested[buffer] = index_map
        if written in self.outputs:
            self.outputs.discard(written)
            suggested[written] = given
        self.result[block] = suggested

    def reads(
        self, loads: Sequence[BufferLoad], layout: Layout, given: IndexMap, spatial: set[TirVar], written: Buffer
    ) -> Mapping[Buffer, IndexMap]:
        """Maps for the buffers read, where all reads of one agree and nothing was decided before."""
        seen: dict[Buffer, Layout | None] = {}
        for load in loads:
            if load.buffer is written or load.buffer in self.maps or not load.indices:
                continue
            found = _layout_of(load.indices, spatial)
            seen[load.buffer] = found if seen.get(load.buffer, found) == found else None
        out = {}
        for buffer, found_layout in seen.items():
            index_map = None if found_layout is None else _inferred(layout, given, found_layout)
            if index_map is not None and not _is_identity(index_map):
                out[buffer] = index_map
        return out


def _is_identity(index_map: IndexMap) -> bool:
    return len(index_map.initial_indices) == len(index_map.final_indices) and all(
        a is b for a, b in zip(index_map.initial_indices, index_map.final_indices)
    )


def suggest_layout_transforms(
    func: PrimFunc, write_buffer_transforms: Sequence[IndexMap | Callable[..., Any]]
) -> dict[Block, dict[Any, IndexMap]]:
    """Layouts for the blocks and buffers of a function, given those of its last parameters.

    ``suggest_layout_transforms(relu, [lambda n, c, h, w: (n, h, w, c)])`` gives, for each block that can follow, the
    new order of its loops and of the buffers it reads (and of the outputs it writes).
    Raises RelaxishError if the transforms do not fit the parameters.
    """
    maps = [t if isinstance(t, IndexMap) else IndexMap.from_func(t) for t in write_buffer_transforms]
    return _Function(func, maps).result
