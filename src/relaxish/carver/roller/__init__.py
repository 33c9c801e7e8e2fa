"""Tiles grown from the smallest one by the traffic they save: nodes, hints, orders of blocks, and the two policies."""

from __future__ import annotations

from .hint import Hint, IntrinInfo, Stride, TileDict
from .node import Edge, Node, OutputNode, PlaceHolderNode, PrimFuncNode, find_topo_sort
from .policy import DefaultPolicy, TensorCorePolicy
from .rasterization import NoRasterization, Rasterization, Rasterization2DColumn, Rasterization2DRow

__all__ = [
    "DefaultPolicy", "Edge", "Hint", "IntrinInfo", "NoRasterization", "Node", "OutputNode", "PlaceHolderNode",
    "PrimFuncNode", "Rasterization", "Rasterization2DColumn", "Rasterization2DRow", "Stride", "TensorCorePolicy", "TileDict",
    "find_topo_sort",
]  # fmt: skip
