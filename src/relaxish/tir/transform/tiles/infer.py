"""Layouts of a kernel's fragments: products say first, then what they touch follows, the rest is laid out for copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...stmt import Stmt
from ....ir.expr import PrimExpr
from ...buffer import Buffer
from ....ir import dtype as dt
from ....ir.prim import IntImm, Var, is_one, is_zero
from .layout import Digit, Layout, natural
from .names import FRAGMENT
from .program import Kernel, Nest, TileLoweringError, Walk, accesses, as_int

__all__ = ["Accesses", "accesses_of", "covering", "infer_layouts", "loop_layout", "nests_of", "plain_dims"]

Accesses = list[tuple[Any, tuple[Any, ...]]]


def nests_of(body: Stmt) -> list[Nest]:
    """All operators of a program, in order."""
    found: list[Nest] = []

    class Look(Walk):
        def nest(self, nest: Nest) -> Stmt:
            found.append(nest)
            return nest.body

        def atomic(self, how: str, body: Stmt) -> Stmt:
            return body

    Look().visit(body)
    return found


def accesses_of(nest: Nest) -> Accesses:
    """Fragments that an operator reads or writes, with their indices; what it writes comes first."""
    nodes = accesses(nest.body)
    return [(n.buffer, tuple(n.indices)) for n in nodes if n.buffer.scope() == FRAGMENT]


def plain_dims(
    indices: Sequence[PrimExpr], loops: Sequence[tuple[Var, PrimExpr]], shape: Sequence[PrimExpr]
) -> list[int] | None:
    """The loop that each index is, -1 for the first element of a dimension of size 1; None for other indices."""
    places = {v: n for n, (v, _) in enumerate(loops)}
    dims: list[int] = []
    for index, extent in zip(indices, shape, strict=True):
        if isinstance(index, Var) and index in places and places[index] not in dims:
            dims.append(places[index])
        elif is_zero(index) and is_one(extent):
            dims.append(-1)
        else:
            return None
    return dims


def covering(nest: Nest, layouts: dict[Buffer, Layout]) -> Layout | None:
    """The layout of the loops that a fragment over all of them gives."""
    wide = {n for n, (_, e) in enumerate(nest.loops) if not is_one(e)}
    for buffer, indices in accesses_of(nest):
        layout = layouts.get(buffer)
        dims = None if layout is None else plain_dims(indices, nest.loops, buffer.shape)
        if layout is None or dims is None or not wide <= set(dims):
            continue
        if any(as_int(nest.loops[d][1], "an extent") != layout.shape[n] for n, d in enumerate(dims) if d >= 0):
            continue
        shape = tuple(as_int(e, f"an extent of T.{nest.op}") for _, e in nest.loops)
        digits = tuple(
            Digit(dims[d.dim] if d.dim >= 0 else -1, d.extent, d.stride, d.thread, d.out) for d in layout.digits
        )
        return Layout(shape, digits)
    return None


def loop_layout(nest: Nest, layouts: dict[Buffer, Layout], threads: int, vector: int) -> Layout:
    """The layout of an operator's loops: a fragment's that covers them, or one that fits the fragments there are."""
    found = covering(nest, layouts)
    if found is not None:
        return found
    shape = tuple(as_int(e, f"an extent of T.{nest.op}") for _, e in nest.loops)
    for buffer, indices in accesses_of(nest):
        layout = layouts.get(buffer)
        dims = None if layout is None else plain_dims(indices, nest.loops, buffer.shape)
        if layout is not None and dims is not None:
            return _extended(layout, dims, shape)
    return natural(shape, threads, vector)


def _extended(layout: Layout, dims: Sequence[int], shape: tuple[int, ...]) -> Layout:
    """A layout over more loops: copies share the loops that the fragment does not know."""
    digits = [
        Digit(dims[d.dim], d.extent, d.stride, d.thread, d.out)
        for d in layout.digits
        if d.dim >= 0 and dims[d.dim] >= 0
    ]
    copies = [d for d in layout.digits if d.dim < 0]
    step = math.prod(d.extent for d in digits if not d.thread)
    for loop in reversed(range(len(shape))):
        if loop in dims:
            continue
        left, stride = shape[loop], 1
        rest: list[Digit] = []
        for copy in copies:
            share = math.gcd(left, copy.extent)
            if share > 1:
                digits.append(Digit(loop, share, stride, True, copy.out))
                left, stride = left // share, stride * share
            if copy.extent // share > 1:
                rest.append(Digit(-1, copy.extent // share, 1, True, copy.out * share))
        copies = rest
        if left > 1:
            digits.append(Digit(loop, left, stride, False, step))
            step *= left
    return Layout(shape, (*digits, *copies))


def infer_layouts(
    kernel: Kernel, nests: Sequence[Nest], threads: int, product: Callable[[Nest], dict[Buffer, Layout]]
) -> dict[Buffer, Layout]:
    """A layout for each fragment. ``product`` gives what a product wants of its operands. Raises TileLoweringError."""
    layouts: dict[Buffer, Layout] = {}
    for nest in nests:
        if nest.op not in ("gemm", "gemm_sp"):
            continue
        for buffer, layout in product(nest).items():
            if layouts.setdefault(buffer, layout) != layout:
                raise TileLoweringError(
                    f"fragment {buffer.name} has two layouts: two products want its elements in different threads. Give both "
                    "T.gemm the same policy (GemmWarpPolicy.FullRow where one takes the other's result), or copy through shared memory"
                )
    others = [n for n in nests if n.op not in ("gemm", "gemm_sp", "scan", "print")]
    _follow(others, layouts)
    fragments = [b for b in kernel.block.alloc_buffers if b.scope() == FRAGMENT]
    while True:
        missing = [b for b in fragments if b not in layouts]
        if not missing:
            return layouts
        if not _begin(others, layouts, set(missing), threads):
            for buffer in missing:
                shape = tuple(as_int(e, "a size") for e in buffer.shape)
                layouts[buffer] = natural(shape, threads, _vector(buffer, shape))
        _follow(others, layouts)


def _follow(nests: Sequence[Nest], layouts: dict[Buffer, Layout]) -> None:
    """Give layouts to what operators touch together with fragments that have one."""
    changed = True
    while changed:
        changed = False
        for nest in nests:
            loops = covering(nest, layouts)
            if loops is None:
                continue
            for buffer, indices in accesses_of(nest):
                dims = None if buffer in layouts else plain_dims(indices, nest.loops, buffer.shape)
                if dims is not None:
                    layouts[buffer] = loops.project(dims, [as_int(e, "a size") for e in buffer.shape])
                    changed = True


def _begin(nests: Sequence[Nest], layouts: dict[Buffer, Layout], missing: set[Buffer], threads: int) -> bool:
    """Lay out the largest operator that touches fragments without a layout."""
    best: tuple[int, Nest, list[tuple[Buffer, list[int]]]] | None = None
    for nest in nests:
        if not all(isinstance(e, IntImm) for _, e in nest.loops):
            continue
        found = [(b, plain_dims(i, nest.loops, b.shape)) for b, i in accesses_of(nest) if b in missing]
        plain = [(b, d) for b, d in found if d is not None and _whole(b, d, nest)]
        size = math.prod(nest.extents)
        if plain and (best is None or size > best[0]):
            best = (size, nest, plain)
    if best is None:
        return False
    _, nest, plain = best
    buffer = plain[0][0]
    shape = tuple(nest.extents)
    loops = loop_layout(nest, layouts, threads, _vector(buffer, shape))
    for buffer, dims in plain:
        layouts.setdefault(buffer, loops.project(dims, [as_int(e, "a size") for e in buffer.shape]))
    return True


def _whole(buffer: Buffer, dims: Sequence[int], nest: Nest) -> bool:
    """Whether the loops run over all of a fragment."""
    return all(d < 0 or as_int(e, "a size") == nest.extents[d] for d, e in zip(dims, buffer.shape, strict=True))


def _vector(buffer: Buffer, shape: Sequence[int]) -> int:
    """Elements of 16 bytes, as many as divide a row."""
    return math.gcd(shape[-1], max(1, 128 // max(8, dt.bits(buffer.dtype)))) if shape else 1
