"""``T.Kernel``: loops over the blocks of a grid, around one block that holds the program of a block of threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.expr import Range, as_expr, PrimExpr
from ...ir.prim import Var, const, const_int
from ...script.ir_builder import tir as B
from ...script.ir_builder.base import IRBuilder
from ...script.ir_builder.tir.frame import PrimFuncFrame, TIRFrame, add_to_parent, as_stmt
from ...ir.functor import post_order_visit
from ...tir import (
    Buffer,
    IndexMap,
    Block,
    BlockRealize,
    BufferLoad,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    For,
    IterVar,
    Stmt,
)
from ...tir.functor import renew_defs
from ...tir.stmt import ForKind
from ...tir.transform.tiles.names import KERNEL, LAYOUT, SWIZZLE
from .blocks import inside_kernel
from .finish import finish_kernel
from .phases import phases_of
from .regions import TileError
from .threads import made_barriers
from ...ir.plain import plain_int

__all__ = [
    "ClusterKernel", "Kernel", "KernelFrame", "get_block_binding", "get_block_bindings", "get_block_extent",
    "get_thread_binding", "get_thread_bindings", "get_thread_extent", "get_thread_extents", "use_swizzle",
]  # fmt: skip

_AXES = "xyz"
_DEFAULT_THREADS = 128


class KernelFrame(B.frame.BlockFrame):
    """A kernel being written."""

    def __init__(self, blocks: Sequence[Any], threads: Sequence[int]) -> None:
        super().__init__("tile_kernel")
        exprs = [as_expr(b) for b in blocks]
        self.vars = [Var(f"b{a}", e.dtype) for a, e in zip(_AXES, exprs, strict=False)]
        self.doms = [Range.from_min_extent(const(0, e.dtype), e) for e in exprs]
        self.threads = tuple(threads)
        self.thread_vars: list[Var] = []
        self.safe_values: dict[Any, Any] = {}
        self.hints: dict[str, Any] = {}
        self.reducers: list[tuple[Any, str]] = []
        self.layouts: dict[Buffer, IndexMap] = {}
        self.barriers: dict[Any, list[int]] = {}

    def __enter__(self) -> Var | list[Var]:
        super().__enter__()
        if sum(isinstance(f, KernelFrame) for f in IRBuilder.current().frames) > 1:
            raise TileError("T.Kernel inside of T.Kernel: a program has its kernels one after the other")
        return self.vars[0] if len(self.vars) == 1 else self.vars

    def finish(self) -> None:
        function = IRBuilder.current().find(PrimFuncFrame)
        if function is not None:
            function.attrs.setdefault("tir.is_scheduled", True)
        for number, (statements, allocated) in enumerate(phases_of(self.stmts, self.alloc_buffers)):
            made = self._launch(statements, allocated)
            add_to_parent(renew_defs(made) if number else made)

    def _launch(self, statements: list[Stmt], allocated: list[Buffer]) -> Stmt:
        """The loops over the grid, around the block with some statements and the memory that they use."""
        annotations = {KERNEL: list(self.threads), **self.hints}
        body = as_stmt(statements)
        if self.barriers and self.thread_vars:
            counts = [c for each in self.barriers.values() for c in each]
            body = as_stmt([*made_barriers(counts, self.thread_vars), *statements])
        for tag, var in reversed(list(zip(_AXES, self.thread_vars, strict=False))):
            body = _bound(var, Range(0, self.threads[_AXES.index(tag)]), f"threadIdx.{tag}", body)
        body = finish_kernel(body, dict(zip(self.vars, self.doms, strict=True)), self.safe_values, allocated)
        numbers = {b: n for n, b in enumerate(allocated)}
        layouts = [[numbers[b], index_map] for b, index_map in self.layouts.items() if b in numbers]
        if layouts:
            annotations[LAYOUT] = layouts
        reads, writes = _touched(body, allocated)
        block = Block((), reads, writes, self.name, body, None, allocated, (), annotations, span=self.entry_span)
        stmt: Stmt = BlockRealize((), True, block, span=self.entry_span)
        for tag, var, dom in reversed(list(zip(_AXES, self.vars, self.doms, strict=False))):
            stmt = _bound(var, dom, f"blockIdx.{tag}", stmt)
        return stmt


def _touched(body: Any, own: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """All of each buffer that the kernel reads and writes: where it does so may depend on what it computes."""
    loads: dict[Any, None] = {}
    stores: dict[Any, None] = {}

    def look(node: Any) -> None:
        match node:
            case BufferLoad() if node.buffer not in own:
                loads[node.buffer] = None
            case BufferStore() if node.buffer not in own:
                stores[node.buffer] = None

    post_order_visit(body, look)
    views = {d.buffer for d in _views(body)}
    return tuple(  # type: ignore[return-value]
        [
            BufferRegion(b, [Range.from_min_extent(const(0, e.dtype), e) for e in b.shape])
            for b in found
            if b not in views
        ]
        for found in (loads, stores)
    )


def _views(body: Any) -> list[Any]:
    found: list[Any] = []
    post_order_visit(body, lambda n: found.append(n) if isinstance(n, DeclBuffer) else None)
    return found


def _bound(var: Any, dom: Range, tag: str, body: Stmt) -> For:
    binding = IterVar(None, Var("", var.dtype), IterVar.ThreadIndex, tag)
    return For(var, dom.min, dom.extent, ForKind.THREAD_BINDING, body, binding)


def Kernel(*blocks: Any, threads: Any = None, prelude: str | None = None, is_cpu: bool = False) -> TIRFrame:
    """Run the body once for each block of a grid of one to three extents; ``as (bx, by)`` names the block's place.

    ``threads`` (128) are the threads of a block, an int or up to three. On a CPU they are not needed. ``prelude`` is
    source text for the device's compiler; programs here have none, so that anything but None raises TileError.
    """
    del is_cpu
    if len(blocks) == 1 and isinstance(blocks[0], (list, tuple)):
        blocks = tuple(blocks[0])
    if not 1 <= len(blocks) <= 3:
        raise TileError(f"T.Kernel takes one to three extents of the grid, not {len(blocks)}")
    if prelude is not None:
        raise TileError(
            "T.Kernel(prelude=...) is source text, which this compiler has no use for; write it as statements"
        )
    given: Any = (
        (_DEFAULT_THREADS,) if threads is None else threads if isinstance(threads, (list, tuple)) else (threads,)
    )
    if not 1 <= len(given) <= 3 or not all(_positive(t) for t in given):
        raise TileError(f"threads= takes one to three positive numbers, not {threads}")
    counts = [plain_int(t) for t in given]
    total = 1
    for count in counts:
        total *= count
    if total > 1024:
        raise TileError(f"a block has at most 1024 threads, not {total}")
    return KernelFrame(blocks, (*counts, *[1] * (3 - len(counts))))


def _positive(t: Any) -> bool:
    return const_int(t, 0) > 0


def ClusterKernel(*blocks: Any, cluster_dims: Any, threads: Any = None) -> TIRFrame:
    """``T.Kernel`` whose blocks come in clusters. They share nothing that a program here can name: a plain grid does."""
    dims = cluster_dims if isinstance(cluster_dims, (list, tuple)) else (cluster_dims,)
    frame = Kernel(*blocks, threads=threads)
    assert isinstance(frame, KernelFrame)
    for extent, size in zip(frame.doms, dims, strict=False):
        if const_int(extent.extent, 0) % int(size):
            raise TileError(f"a grid of {extent.extent} blocks is no multiple of the cluster's {size}")
    frame.hints["tile.cluster"] = [int(d) for d in dims]
    return frame


def use_swizzle(panel_size: int, order: str = "row", enable: bool = True) -> None:
    """Visit the blocks of the grid in panels of ``panel_size`` rows (or columns), every second one backwards."""
    if order not in ("row", "column"):
        raise TileError(f"T.use_swizzle(order=...) is 'row' or 'column', not {order!r}")
    if enable:
        inside_kernel("T.use_swizzle").hints[SWIZZLE] = [int(panel_size), int(order == "column")]


# -- places of blocks and threads


def get_block_binding(dim: int = 0) -> Var:
    """The place of this block along an axis of the grid."""
    return inside_kernel("T.get_block_binding").vars[dim]


def get_block_bindings() -> list[Any]:
    """The place of this block along all axes."""
    return list(inside_kernel("T.get_block_bindings").vars)


def get_block_extent(dim: int = 0) -> PrimExpr:
    """Blocks along an axis of the grid."""
    return inside_kernel("T.get_block_extent").doms[dim].extent


def get_thread_extent(dim: int = 0) -> int:
    """Threads of a block along an axis."""
    return int(inside_kernel("T.get_thread_extent").threads[dim])


def get_thread_extents() -> list[int]:
    """Threads of a block along all axes."""
    return list(inside_kernel("T.get_thread_extents").threads)


def get_thread_binding(dim: int = 0) -> Var:
    """The place of a thread in its block: the kernel is then written for one thread, without tile operators."""
    frame = inside_kernel("T.get_thread_binding")
    while len(frame.thread_vars) <= dim:
        frame.thread_vars.append(Var(f"t{_AXES[len(frame.thread_vars)]}", "int32"))
    return frame.thread_vars[dim]


def get_thread_bindings() -> list[Any]:
    """The place of a thread along all axes."""
    return [get_thread_binding(d) for d in range(3)]
