"""Lowest common ancestors of accesses: the innermost loop or block around all accesses of each buffer."""

from __future__ import annotations

from typing import Any

from ...ir.expr import PrimExpr
from ...ir.functor import Visitor
from ...ir.prim import Var
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..stmt import Block, BlockRealize, BufferStore, For
from ..walk import post_order_visit

__all__ = ["detect_buffer_access_lca"]

Path = list[Any]  # the loops and blocks from the outermost to the innermost


def _common(a: Path, b: Path) -> Path:
    size = 0
    for x, y in zip(a, b, strict=False):
        if x is not y:
            break
        size += 1
    return a[:size]


class _Accesses(Visitor):
    def __init__(self, func: PrimFunc) -> None:
        self.path: Path = []
        self.found: dict[Buffer, Path] = {}
        self.of_pointer: dict[Any, Buffer] = {b.data: b for b in func.buffer_map.values()}
        self.views: set[Buffer] = set()
        self.loops: dict[Any, Path] = {}  # loop variable -> the path outside its loop
        self.grids: list[Path] = []  # the paths down to loops bound to blockIdx

    def _touch(self, buffer: Buffer, path: Path) -> None:
        self.of_pointer.setdefault(buffer.data, buffer)
        if buffer not in self.views:
            known = self.found.get(buffer)
            self.found[buffer] = list(path) if known is None else _common(known, path)

    def visit_For(self, node: For) -> None:
        self.loops[node.loop_var] = list(self.path)
        self.path.append(node)
        if node.thread_binding is not None and node.thread_binding.thread_tag.startswith("blockIdx"):
            self.grids.append(list(self.path))
        for part in (node.min, node.extent, node.body):
            self.visit(part)
        self.path.pop()
        del self.loops[node.loop_var]

    def visit_BlockRealize(self, node: BlockRealize) -> None:
        block: Block = node.block
        for buffer in block.alloc_buffers:
            self.of_pointer.setdefault(buffer.data, buffer)
        self.path.append(block)
        self._keep_above_carrying_loops(node)
        for match in block.match_buffers:
            self._touch(match.source.buffer, self.path)
            self.views.add(match.buffer)
        self.visit(node.iter_values)
        self.visit(node.predicate)
        self.visit(block)
        self.path.pop()

    def visit_Block(self, block: Block) -> None:
        for part in (block.init, block.body):
            if part is not None:
                self.visit(part)

    def _keep_above_carrying_loops(self, realize: BlockRealize) -> None:
        """What a block indexes with an opaque or ordered axis outlives the loops that drive this axis."""
        above: dict[Any, Path] = {}
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if axis.iter_type in (IterVar.DataPar, IterVar.CommReduce):
                continue
            for path in self._mentioned(value, self.loops):
                known = above.get(axis.var)
                above[axis.var] = path if known is None or len(path) < len(known) else known
        if not above:
            return
        for region in (*realize.block.reads, *realize.block.writes):
            place = self.path
            for dim in region.region:
                for path in (*self._mentioned(dim.min, above), *self._mentioned(dim.extent, above)):
                    place = path if len(path) < len(place) else place
            self._touch(region.buffer, place)

    @staticmethod
    def _mentioned(expr: PrimExpr, table: dict[Any, Path]) -> list[Path]:
        paths: list[Path] = []
        post_order_visit(
            expr, lambda n: paths.append(table[n]) if getattr(n, "_is_var", False) and n in table else None
        )
        return paths

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self._touch(node.buffer, self.path)
        self.visit(node.indices)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self._touch(node.buffer, self.path)
        self.visit(node.value)
        self.visit(node.indices)

    def visit_Var(self, node: Var) -> None:
        buffer = self.of_pointer.get(node)
        if buffer is not None:
            self._touch(buffer, self.path)

    def visit_Buffer(self, node: Buffer) -> None:
        """Declarations are no accesses."""


def detect_buffer_access_lca(func: PrimFunc) -> dict[Buffer, Any]:
    """For every accessed buffer the deepest loop or block around all its accesses; None for the whole function.

    Buffers in global memory stay outside loops bound to ``blockIdx``, which run on different processors.

    >>> from relaxish.script import tir as T
    >>> @T.prim_func
    ... def f(A: T.Buffer((4,), "float32")):
    ...     for i in range(4):
    ...         A[i] = T.float32(0)
    >>> type(detect_buffer_access_lca(f)[f.buffer_map[f.params[0]]]).__name__
    'For'
    """
    visitor = _Accesses(func)
    visitor.visit(func.body)
    out: dict[Buffer, Any] = {}
    for buffer, path in visitor.found.items():
        if buffer.scope() == "global":
            for grid in visitor.grids:
                path = _common(path, grid)
        out[buffer] = path[-1] if path else None
    return out
