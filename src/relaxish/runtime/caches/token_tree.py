"""Token trees of speculative decoding: several candidate continuations of a sequence in one forward pass.

Source: Miao et al., "SpecInfer" (ASPLOS 2024).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels.kernel import ArgumentError

__all__ = ["check_tree", "depths_of", "is_chain", "orders_of", "path_to"]


def check_tree(parents: Sequence[int]) -> None:
    """Raise ArgumentError unless every node's parent comes before it (-1: a root)."""
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise ArgumentError(f"Invalid token tree: node {node} has parent {parent}")


def is_chain(parents: Sequence[int]) -> bool:
    """Whether each node continues the one before it.

    >>> is_chain([-1, 0, 1]), is_chain([-1, 0, 0])
    (True, False)
    """
    return all(parent == node - 1 for node, parent in enumerate(parents))


def depths_of(parents: Sequence[int]) -> list[int]:
    """Depth of each node: its number of ancestors."""
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return depths


def orders_of(parents: Sequence[int]) -> list[tuple[int, int]]:
    """For each node the interval of its subtree in depth-first order.

    ``a`` is ``b`` or an ancestor of it when ``order[a][0] <= order[b][0] < order[a][1]``.

    >>> orders_of([-1, 0, 0, 1])
    [(0, 4), (1, 3), (3, 4), (2, 3)]
    """
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    sizes = [1] * len(parents)
    for node in range(len(parents) - 1, -1, -1):
        if parents[node] >= 0:
            sizes[parents[node]] += sizes[node]
    begins = [0] * len(parents)
    pending = [(-1, 0)]
    while pending:
        parent, begin = pending.pop()
        for node in children.get(parent, ()):
            begins[node] = begin
            pending.append((node, begin + 1))
            begin += sizes[node]
    return [(begin, begin + size) for begin, size in zip(begins, sizes, strict=True)]


def path_to(parents: Sequence[int], leaf: int) -> list[int]:
    """The nodes from a root to ``leaf``."""
    path = []
    while leaf >= 0:
        path.append(leaf)
        leaf = parents[leaf]
    return path[::-1]
