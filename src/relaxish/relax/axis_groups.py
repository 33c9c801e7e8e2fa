"""Axes of tensors that are split together: a graph of axes, along whose edges placements on a device mesh spread.

>>> graph = AxisGroupGraph()
>>> x, y, mesh = object(), object(), object()
>>> graph.join(Axis(x, 0), Axis(y, 1), Edge.DESCEND)
>>> graph.add_source(Axis(x, 0), (mesh, 0))
>>> graph.propagate()
>>> graph.spec_of(Axis(y, 1)) == (mesh, 0)
True
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from ..ir.structural import structural_equal
from ..support.errors import InternalError

__all__ = ["Axis", "AxisGroupGraph", "Edge", "MESH_AXIS", "ShardingSpec"]

#: The axis number that stands for the tensor as a whole: on which mesh it lies.
MESH_AXIS = -1

#: A device mesh and the axis of it that an axis of a tensor is split over.
ShardingSpec = tuple[Any, int]


class Edge(IntEnum):
    """Direction of an edge's dependence: consumer to producer, siblings, or producer to consumer."""

    ASCEND = 1
    SIBLING = 2
    DESCEND = 4


_REVERSED = {Edge.ASCEND: Edge.DESCEND, Edge.SIBLING: Edge.SIBLING, Edge.DESCEND: Edge.ASCEND}

#: How much a placement counts by the kinds of edges it came along: at its source, down only, mixed, up only.
_RANK_OF_ROUTE = {0: 3, int(Edge.DESCEND): 2, int(Edge.ASCEND): 0}
_MIXED_RANK = 1


class Axis(NamedTuple):
    """One axis of a tensor, or of a field of a tuple; tensors count by identity."""

    tensor: Any
    dim: int
    field: int = 0


def same_spec(a: ShardingSpec, b: ShardingSpec) -> bool:
    """Whether both name the same axis of equal meshes."""
    return a[1] == b[1] and (a[0] is b[0] or structural_equal(a[0], b[0]))


class AxisGroupGraph:
    """Axes joined by edges, placements given at some of them, and what spreads from those to the others.

    Of several placements that reach an axis the one by the most trusted route is chosen: its own, then one that came
    down from producers, then mixed routes, then one that came up from consumers.
    """

    def __init__(self) -> None:
        self._edges: dict[Axis, list[tuple[Axis, Edge]]] = {}
        self._sources: dict[Axis, ShardingSpec] = {}
        self._cuts: set[Axis] = set()
        self._reached: dict[Axis, list[tuple[ShardingSpec, int]]] = {}

    def join(self, source: Axis, target: Axis, edge: Edge) -> None:
        """Let placements spread between two axes."""
        self._edges.setdefault(source, []).append((target, edge))
        self._edges.setdefault(target, []).append((source, _REVERSED[edge]))

    def add_source(self, axis: Axis, spec: ShardingSpec) -> None:
        """Give an axis a placement to spread."""
        self._sources[axis] = spec

    def cut(self, axis: Axis) -> None:
        """Let nothing reach an axis."""
        self._cuts.add(axis)

    def propagate(self) -> None:
        """Spread the placements. Raises InternalError if one axis is left with several."""
        self._reached = {}
        for axis, spec in self._sources.items():
            self._spread(axis, spec)
        for axis, specs in self._reached.items():
            best = max(rank for _, rank in specs)
            chosen = [(spec, rank) for spec, rank in specs if rank == best]
            if len(chosen) != 1:
                raise InternalError(f"multiple possible sharding for axis: ({axis.tensor}, {axis.dim})")
            self._reached[axis] = chosen

    def spec_of(self, axis: Axis) -> ShardingSpec | None:
        """The placement that an axis got, or None."""
        specs = self._reached.get(axis)
        return specs[0][0] if specs else None

    def _blocked(self, axis: Axis, spec: ShardingSpec) -> bool:
        own = self._sources.get(axis)
        return axis in self._cuts or (own is not None and not same_spec(own, spec))

    def _spread(self, start: Axis, spec: ShardingSpec) -> None:
        """Depth first; a route counts all kinds of edges tried so far at each axis on it, in the order of joining."""
        seen: set[Axis] = set()
        stack: list[tuple[Axis, int, Any]] = []

        def enter(axis: Axis, route: int) -> None:
            if axis in seen or self._blocked(axis, spec):
                return
            seen.add(axis)
            self._note(axis, spec, _RANK_OF_ROUTE.get(route, _MIXED_RANK))
            stack.append((axis, route, iter(self._edges.get(axis, ()))))

        enter(start, 0)
        while stack:
            axis, route, edges = stack[-1]
            step = next(edges, None)
            if step is None:
                stack.pop()
                continue
            target, edge = step
            stack[-1] = (axis, route | edge, edges)
            enter(target, route | edge)

    def _note(self, axis: Axis, spec: ShardingSpec, rank: int) -> None:
        known = self._reached.setdefault(axis, [])
        for number, (other, _) in enumerate(known):
            if same_spec(other, spec):
                known[number] = (other, rank)
                return
        known.append((spec, rank))
