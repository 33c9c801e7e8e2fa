"""Grouping of operators by post-dominators: the algorithm behind FuseOps.

Nodes are numbered in program order.  A node may join its immediate post-dominator's group if every path between them
stays within the fusable kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..relax.analysis.tir_pattern import OpPatternKind as K
from ..relax.expr import Expr

__all__ = ["ForwardGraph", "GraphNode", "Group", "partition"]


class GraphNode:
    """One bound value; ``outputs`` are its consumers with the kind of each use."""

    __slots__ = ("extern_ref", "index", "outputs", "pattern", "ref")

    def __init__(self, ref: Expr) -> None:
        self.ref = ref
        self.index = -1
        self.extern_ref = False
        self.pattern: int = K.OPAQUE
        self.outputs: list[tuple[GraphNode, int]] = []


class ForwardGraph:
    """Nodes by the object they stand for, and in program order."""

    def __init__(self) -> None:
        self.nodes: dict[Any, GraphNode] = {}
        self.order: list[GraphNode] = []

    def create(self, ref: Expr, pattern: int = K.OPAQUE) -> GraphNode:
        """A new node."""
        node = self.nodes[ref] = GraphNode(ref)
        node.pattern = pattern
        return node

    def place(self, node: GraphNode) -> None:
        """Give the node its number."""
        node.index = len(self.order)
        self.order.append(node)


class _TreeNode:
    __slots__ = ("depth", "node", "parent", "pattern")

    def __init__(self, node: GraphNode) -> None:
        self.node = node
        self.parent: _TreeNode | None = None
        self.depth = 1
        self.pattern: int = K.OPAQUE


def _post_dominators(order: list[GraphNode]) -> list[_TreeNode]:
    tree = [_TreeNode(node) for node in order]
    for item in reversed(tree):
        if item.node.extern_ref:
            continue
        parent: _TreeNode | None = None
        pattern: int = K.ELEM_WISE
        for count, (output, kind) in enumerate(item.node.outputs):
            other: _TreeNode | None = tree[output.index]
            if count == 0:
                parent = other
            else:
                parent, pattern = _common_ancestor(parent, other, pattern)
            pattern = max(pattern, kind)
        item.parent = parent
        item.pattern = pattern
        item.depth = parent.depth + 1 if parent is not None else 1
    return tree


def _common_ancestor(lhs: _TreeNode | None, rhs: _TreeNode | None, pattern: int) -> tuple[_TreeNode | None, int]:
    while lhs is not rhs:
        if lhs is None or rhs is None:
            return None, pattern
        if lhs.depth < rhs.depth:
            pattern = max(pattern, rhs.pattern)
            rhs = rhs.parent
        elif rhs.depth < lhs.depth:
            pattern = max(pattern, lhs.pattern)
            lhs = lhs.parent
        else:
            pattern = max(pattern, lhs.pattern, rhs.pattern)
            lhs, rhs = lhs.parent, rhs.parent
    return lhs, pattern


class Group:
    """A set of nodes that become one function; a union-find node."""

    __slots__ = ("anchor", "attrs", "num_nodes", "parent", "pattern", "root_ref")

    def __init__(self, root_ref: Expr, pattern: int) -> None:
        self.parent: Group | None = None
        self.root_ref = root_ref
        self.pattern = pattern
        self.anchor = root_ref if pattern == K.OUT_EWISE_FUSABLE else None
        self.num_nodes = 1
        self.attrs: dict[str, Any] = {}

    def find(self) -> Group:
        """The representative of the group."""
        root = self
        while root.parent is not None:
            root = root.parent
        node = self
        while node is not root:
            following = node.parent
            assert following is not None
            node.parent = root
            node = following
        return root


class _Partitioner:
    def __init__(self, graph: ForwardGraph, max_depth: int) -> None:
        self.order = graph.order
        self.max_depth = max_depth
        self.groups = [Group(node.ref, node.pattern) for node in graph.order]

    def between(self, source: GraphNode, sink: GraphNode) -> list[GraphNode]:
        """Nodes on paths from ``source`` to ``sink``, the sink last, the source left out."""
        seen = {source.index, sink.index}
        found, stack = [], [source]
        while stack:
            for output, _ in reversed(stack.pop().outputs):
                if output.index not in seen:
                    seen.add(output.index)
                    found.append(output)
                    stack.append(output)
        found.append(sink)
        return found

    def check_path(
        self, source: GraphNode, sink: GraphNode, allowed: Callable[[int, bool], bool]
    ) -> list[GraphNode] | None:
        """The nodes between, if all of their groups are allowed, else None."""
        nodes = self.between(source, sink)
        for node in nodes:
            if not allowed(self.groups[node.index].find().pattern, node is sink):
                return None
        return nodes

    def commit(self, source: GraphNode, sink: GraphNode, nodes: list[GraphNode]) -> None:
        """Merge everything between into the sink's group."""
        target = self.groups[sink.index]
        for node in (source, *nodes[:-1]):
            self._merge(self.groups[node.index], target)

    def _merge(self, child: Group, parent: Group) -> None:
        child, parent = child.find(), parent.find()
        if child is parent:
            return
        parent.num_nodes += child.num_nodes
        child.parent = parent
        if child.anchor is not None:
            parent.anchor = child.anchor
            parent.pattern = max(child.pattern, parent.pattern)

    def _too_deep(self, source: GraphNode, sink: GraphNode) -> bool:
        if len(self.order) <= self.max_depth:
            return False
        total = self.groups[sink.index].find().num_nodes
        total += sum(self.groups[n.index].num_nodes for n in self.between(source, sink)[:-1])
        return total + self.groups[source.index].num_nodes > self.max_depth

    def run(self) -> list[Group]:
        tree = _post_dominators(self.order)
        for phase in range(3):
            for item in tree:
                if item.parent is not None and self.groups[item.node.index].pattern != K.OPAQUE:
                    self._try(item, phase)
        return self.groups

    def _try(self, item: _TreeNode, phase: int) -> None:
        node, group = item.node, self.groups[item.node.index]
        assert item.parent is not None
        sink = item.parent.node
        parent_group = self.groups[sink.index]
        if self._too_deep(node, sink):
            return
        allowed: Callable[[int, bool], bool]
        if phase == 2:
            root = parent_group.find()
            if group.pattern > K.INJECTIVE or root.pattern == K.TUPLE:
                return
            if parent_group.pattern != K.TUPLE or root.pattern > K.INJECTIVE:
                return
            allowed = _injective
        elif group.find() is parent_group.find() or parent_group.pattern == K.TUPLE:
            return
        elif group.pattern == K.OUT_EWISE_FUSABLE:
            if phase != 0 or item.pattern != K.ELEM_WISE:
                return
            allowed = _broadcast
        elif group.pattern <= K.BROADCAST:
            if item.pattern > K.INJECTIVE and item.pattern != K.COMM_REDUCE:
                return
            allowed = _into_anything
        elif group.pattern in (K.INJECTIVE, K.TUPLE):
            if phase != 1:
                return
            allowed = _injective
        else:
            return
        nodes = self.check_path(node, sink, allowed)
        if nodes is not None:
            self.commit(node, sink, nodes)


def _broadcast(kind: int, _: bool) -> bool:
    return kind <= K.BROADCAST


def _injective(kind: int, _: bool) -> bool:
    return kind <= K.INJECTIVE


def _into_anything(kind: int, is_sink: bool) -> bool:
    return kind <= K.INJECTIVE or (is_sink and kind in (K.COMM_REDUCE, K.OUT_EWISE_FUSABLE))


def partition(graph: ForwardGraph, opt_level: int = 2, max_depth: int = 256) -> dict[Any, Group]:
    """From each node's object to its group."""
    run = _Partitioner(graph, max_depth)
    groups = run.groups if opt_level == 0 else run.run()
    return {node.ref: group for node, group in zip(graph.order, groups)}
