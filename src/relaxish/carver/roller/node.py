"""Graphs of functions that one kernel computes together, as policies see them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir import dtype as dt
from ...ir.errors import CheckValueError
from ...tir import PrimFunc
from .shapes import Access, Length, Stage, read_stages

__all__ = ["Edge", "Node", "OutputNode", "PlaceHolderNode", "PrimFuncNode", "find_topo_sort"]


@dataclass(eq=False)
class Edge:
    """Output ``src_id`` of one node is input ``dst_id`` of another."""

    src_node: Node
    dst_node: Node
    src_id: int
    dst_id: int


class Node:
    """A node with edges in and out, and tags that policies look at."""

    def __init__(self, tags: Mapping[str, Any] | None = None, name: str = "Node") -> None:
        self.name = name
        self._in_edges: list[Edge] = []
        self._out_edges: list[Edge] = []
        self._tags: dict[str, Any] = dict(tags or {})
        self._shapes: dict[int, list[int]] = {}
        self._dtypes: dict[int, str] = {}

    @property
    def inputs(self) -> list[Edge]:
        """Edges in, by argument."""
        return self._in_edges

    @property
    def outputs(self) -> list[Edge]:
        """Edges out."""
        return self._out_edges

    def set_inputs(self, i: int, edge: Edge) -> None:
        """Take argument ``i`` from another node; what provided it before no longer does."""
        if not 0 <= i < len(self._in_edges):
            raise CheckValueError(f"{self.name} has {len(self._in_edges)} inputs; there is no number {i}")
        before = self._in_edges[i]
        before.src_node._out_edges = [e for e in before.src_node._out_edges if e is not before]
        self._in_edges[i] = edge

    def set_outputs(self, i: int, edge: Edge) -> None:
        """Replace edge ``i`` among those out."""
        if not 0 <= i < len(self._out_edges):
            raise CheckValueError(f"{self.name} has {len(self._out_edges)} edges out; there is no number {i}")
        self._out_edges[i] = edge

    def connect(self, dst: Node, src_id: int = 0, dst_id: int = 0) -> Edge:
        """Make output ``src_id`` input ``dst_id`` of another node."""
        edge = Edge(self, dst, src_id, dst_id)
        dst.set_inputs(dst_id, edge)
        self._out_edges.append(edge)
        return edge

    def update_tags(self, tags: Mapping[str, Any]) -> None:
        """Add tags."""
        self._tags.update(tags)

    def add_tag(self, k: str, v: Any = True) -> None:
        """Add one tag."""
        self._tags[k] = v

    set_tag = add_tag

    def get_tag(self, k: str) -> Any:
        """A tag's value, None without it."""
        return self._tags.get(k)

    def is_placeholder(self) -> bool:
        """Whether the node stands for an argument."""
        return False

    def is_output(self) -> bool:
        """Whether the node stands for a result."""
        return False

    def get_shape(self, id: int = 0) -> list[int]:  # public name
        """Shape of an output."""
        return self._shapes[id]

    def set_shape(self, shape: Sequence[int], id: int = 0) -> None:
        """Say the shape of an output."""
        self._shapes[id] = [int(n) for n in shape]

    def get_dtype(self, id: int = 0) -> str:
        """Dtype of an output."""
        return self._dtypes[id]

    def set_dtype(self, dtype: str, id: int = 0) -> None:
        """Say the dtype of an output; bool takes a byte."""
        self._dtypes[id] = "int8" if str(dtype) == "bool" else str(dtype)

    def num_outputs(self) -> int:
        """Outputs that are used."""
        return max((e.src_id for e in self._out_edges), default=-1) + 1

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {self.name}>"


class PlaceHolderNode(Node):
    """An argument."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name=f"PlaceHolder_{name}")

    def is_placeholder(self) -> bool:
        """True."""
        return True


class OutputNode(Node):
    """A result: ``OutputNode(node)`` is output ``id`` of ``node``."""

    def __init__(self, node: Node, id: int = 0) -> None:
        super().__init__(name="Output")
        if not isinstance(node, PrimFuncNode):
            raise CheckValueError(f"OutputNode takes the PrimFuncNode whose result it is, got {type(node).__name__}")
        edge = Edge(node, self, int(id), 0)
        self._in_edges = [edge]
        node._out_edges.append(edge)
        self.set_shape(node.get_shape(id))
        self.set_dtype(node.get_dtype(id))

    def is_output(self) -> bool:
        """True."""
        return True


class PrimFuncNode(Node):
    """A function: its stages, and what a tile of its result needs of every tensor.

    The tile is one of the last reduction block's spatial axes (of the output block where nothing is reduced), axes of
    extent 1 left out.
    """

    def __init__(self, prim_func: PrimFunc, tags: Mapping[str, Any] | None = None, name: str = "PrimFuncNode") -> None:
        if not isinstance(prim_func, PrimFunc):
            raise CheckValueError(f"PrimFuncNode takes a PrimFunc, got {type(prim_func).__name__}")
        super().__init__({**{str(k): v for k, v in (prim_func.attrs or {}).items()}, **(tags or {})}, name)
        self.prim_func = prim_func
        self.stages = read_stages(prim_func, self.get_tag("opt_shapes"))
        if not self.stages:
            raise CheckValueError(f"{name} has no blocks: there is nothing to tile")
        reducing = [stage for stage in self.stages if stage.reduction]
        written = {w.tensor for stage in self.stages for w in stage.writes}
        self.reduction_stage: Stage | None = reducing[-1] if reducing else None
        self.tiled = self.reduction_stage or self.stages[-1]
        spatial = self.tiled.spatial
        self._space = [i for i in spatial if self.tiled.axes[i].extent > 1] or spatial[-1:]
        if not self._space:
            raise CheckValueError(
                f"block {self.tiled.name} of {name} has no spatial axis: a result of one number is not tiled"
            )
        self.raxis = [axis for axis in self.tiled.axes if axis.reduction]
        self._producer = {w.tensor: stage for stage in self.stages for w in stage.writes}
        buffers = [prim_func.buffer_map[p] for p in prim_func.params if p in prim_func.buffer_map]
        self.input_buffers = [b for b in buffers if b.name not in written]
        self.output_buffers = [b for b in buffers if b.name in written]
        if not self.output_buffers:
            raise CheckValueError(f"{name} writes none of its parameters: there is nothing to tile")
        self._known: dict[Any, dict[str, list[Length]]] = {}
        self._after = self._stages_after()
        self._shape_of = {a.tensor: a.shape for stage in self.stages for a in (*stage.reads, *stage.writes)}
        for i, buffer in enumerate(self.input_buffers):
            place = PlaceHolderNode(buffer.name)
            place.set_shape(self._shape_of.get(buffer.name, ()))
            place.set_dtype(buffer.dtype)
            edge = Edge(place, self, 0, i)
            self._in_edges.append(edge)
            place._out_edges.append(edge)
        for i, buffer in enumerate(self.output_buffers):
            self.set_shape(self._shape_of[buffer.name], i)
            self.set_dtype(buffer.dtype, i)

    def _stages_after(self) -> set[str]:
        """Names of the stages that use the tiled stage's result."""
        known = {w.tensor for w in self.tiled.writes}
        names = set()
        for stage in self.stages[self.stages.index(self.tiled) + 1 :]:
            if any(r.tensor in known for r in stage.reads):
                names.add(stage.name)
                known |= {w.tensor for w in stage.writes}
        return names

    def get_space_dim(self) -> list[int]:
        """Extents of the axes that are tiled."""
        return [self.tiled.axes[i].extent for i in self._space]

    @property
    def space_axes(self) -> list[str]:
        """Names of the axes that are tiled."""
        return [self.tiled.axes[i].name for i in self._space]

    def reduce_inputs(self) -> tuple[Access, ...]:
        """Inputs of the reduction; none without one."""
        return self.reduction_stage.reads if self.reduction_stage is not None else ()

    # ---- lengths

    def lengths(self, tile: Sequence[Length], rstep: Mapping[str, Length] | None = None) -> dict[str, list[Length]]:
        """The part of every tensor that a tile needs with these steps of the reduction axes (all of them: the whole)."""
        rstep = rstep or {}
        key = None
        if not any(isinstance(n, np.ndarray) for n in (*tile, *rstep.values())):
            key = (*map(int, tile), *sorted(rstep.items()))
            if key in self._known:
                return self._known[key]
        axes: list[Length] = [rstep.get(axis.name, axis.extent) if axis.reduction else 1 for axis in self.tiled.axes]
        least, most = (np.minimum, np.maximum) if key is None else (min, max)
        for position, size in zip(self._space, tile, strict=True):
            axes[position] = size
        found: dict[str, list[Length]] = {}

        def take(stage: Stage, axes: Sequence[Length]) -> None:
            for access in (*stage.reads, *stage.writes):
                here = access.lengths(axes, least)
                before = found.get(access.tensor)
                found[access.tensor] = (
                    here if before is None else [most(a, b) for a, b in zip(before, here, strict=True)]
                )

        take(self.tiled, axes)
        for stage in self.stages[self.stages.index(self.tiled) + 1 :]:
            if stage.name in self._after:
                take(stage, _axes_from(stage, stage.reads, found, most))
        for stage in reversed(self.stages[: self.stages.index(self.tiled)]):
            if any(w.tensor in found for w in stage.writes):
                take(stage, _axes_from(stage, stage.writes, found, most))
        if key is not None:
            self._known[key] = found
        return found

    def propagate_inputs(self, tile: Sequence[Length], rstep: Mapping[str, Length] | None = None) -> list[list[Length]]:
        """The part of each input that a tile needs."""
        found = self.lengths(tile, rstep)
        return [found.get(b.name, [0] * len(b.shape)) for b in self.input_buffers]

    def propagate_outputs(
        self, tile: Sequence[Length], rstep: Mapping[str, Length] | None = None
    ) -> list[list[Length]]:
        """The part of each output that a tile is."""
        found = self.lengths(tile, rstep)
        return [found[b.name] for b in self.output_buffers]

    def propagate_reduction_inputs(
        self, tile: Sequence[Length], rstep: Mapping[str, Length] | None = None
    ) -> dict[str, list[Length]]:
        """The part of each tensor that the reduction reads."""
        found = self.lengths(tile, rstep)
        return {access.tensor: found[access.tensor] for access in self.reduce_inputs()}

    def tile_for(self, shape: Sequence[Length], output: int = 0) -> list[Length]:
        """The tile whose output has the given lengths."""
        name = self.output_buffers[output].name
        found: dict[str, list[Length]] = {name: list(shape)}
        stage = self._producer[name]
        while stage is not self.tiled:
            axes = _axes_from(stage, stage.writes, found)
            for access in stage.reads:
                found[access.tensor] = access.lengths(axes)
            stage = next((self._producer[a.tensor] for a in stage.reads if a.tensor in self._producer), self.tiled)
        axes = _axes_from(self.tiled, self.tiled.writes, found)
        return [axes[i] for i in self._space]

    def footprint(self, tile: Sequence[Length], rstep: Mapping[str, Length]) -> tuple[Length, list[str]]:
        """Bytes of shared memory for the tensors a tile is computed from, and the tensors that go through it.

        These are what a reduction reads, and what is read more than once (broadcast); what is needed after the
        reduction is over reuses the memory.
        """
        found = self.lengths(tile, rstep)
        total: Length = 0
        cached: list[str] = []
        for stage in self.stages:
            written = stage.writes[0]
            for access in stage.reads:
                if access.tensor in cached:
                    continue
                broadcast = len(written.shape) > len(access.shape) and math.prod(written.shape) > math.prod(
                    access.shape
                )
                if not (broadcast or stage.reduction) or access.tensor not in found:
                    continue
                cached.append(access.tensor)
                if stage.name in self._after:
                    continue
                elements: Length = 1
                for n in found[access.tensor]:
                    elements = elements * n
                nbytes = elements * (-(-dt.bits(access.dtype) // 8))
                total = total + (nbytes + 31) // 32 * 32
        return total, cached


def _axes_from(
    stage: Stage,
    accesses: Iterable[Access],
    found: Mapping[str, Sequence[Length]],
    most: Callable[..., Any] = np.maximum,
) -> list[Length]:
    """Lengths of a stage's axes from those of tensors it indexes with them; the whole of axes that no index has.

    An index such as ``v0 * 3136 + v1 * 56 + v2`` takes a run of elements apart: 100 of them are two rows of 56.
    """
    axes: list[Length | None] = [None] * len(stage.axes)
    for access in accesses:
        for steps, length in zip(access.steps, found.get(access.tensor, ()), strict=False):
            for axis, factor in (steps or {}).items():
                here = _least(stage.axes[axis].extent, -(-length // abs(factor)))
                before = axes[axis]
                axes[axis] = here if before is None else most(before, here)
    return [axis.extent if n is None else n for axis, n in zip(stage.axes, axes, strict=True)]


def _least(extent: int, length: Length) -> Length:
    return np.minimum(length, extent) if isinstance(length, np.ndarray) else min(length, extent)


def find_topo_sort(output_nodes: Sequence[Node]) -> list[Node]:
    """All nodes that results depend on, each after what it depends on."""
    order: list[Node] = []
    seen: set[int] = set()

    def visit(node: Node) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        for edge in node.inputs:
            visit(edge.src_node)
        order.append(node)

    for node in output_nodes:
        visit(node)
    return order
