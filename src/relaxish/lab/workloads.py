"""The programs of the spaces that come with the package, and their sketches; small enough to measure every one."""

from __future__ import annotations

from collections.abc import Callable

from .. import te, topi
from ..tir import PrimFunc, Schedule

__all__ = ["WORKLOADS", "Workload"]

Workload = tuple[Callable[[], PrimFunc], Callable[[Schedule], None]]


def _annotate(sch: Schedule, depths: list[int]) -> None:
    """Vectors as wide as the search makes them, and a sampled depth of unrolling."""
    root = sch.get_block("root")
    sch.annotate(root, "meta_schedule.vectorize", 64)
    depth = sch.sample_categorical(depths, [1.0 / len(depths)] * len(depths))
    sch.annotate(root, "meta_schedule.unroll_explicit", depth)


def _gemm() -> PrimFunc:
    a, b = te.placeholder((128, 128), name="A"), te.placeholder((128, 128), name="B")
    k = te.reduce_axis((0, 128), name="k")
    c = te.compute((128, 128), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c])


def _gemm_sketch(sch: Schedule) -> None:
    """A block of rows and columns of the result, and in it one that stays in registers."""
    i, j, k = sch.get_loops(sch.get_block("C"))
    i0, i1, i2 = sch.split(i, sch.sample_perfect_tile(i, 3, 64))
    j0, j1 = sch.split(j, sch.sample_perfect_tile(j, 2, 128))
    k0, k1 = sch.split(k, sch.sample_perfect_tile(k, 2, 128))
    sch.reorder(i0, j0, i1, k0, k1, i2, j1)
    _annotate(sch, [0, 64])


def _conv2d() -> PrimFunc:
    data, kernel = te.placeholder((1, 18, 18, 32), name="data"), te.placeholder((3, 3, 32, 64), name="kernel")
    rh, rw, rc = (
        te.reduce_axis((0, 3), name="rh"),
        te.reduce_axis((0, 3), name="rw"),
        te.reduce_axis((0, 32), name="rc"),
    )
    out = te.compute(
        (1, 16, 16, 64),
        lambda n, h, w, c: te.sum(data[n, h + rh, w + rw, rc] * kernel[rh, rw, rc, c], axis=[rh, rw, rc]),
        name="conv2d",
    )
    return te.create_prim_func([data, kernel, out])


def _conv2d_sketch(sch: Schedule) -> None:
    """Tiles of pixels and channels; the kernel's window between the two levels."""
    n, h, w, c, rh, rw, rc = sch.get_loops(sch.get_block("conv2d"))
    h0, h1 = sch.split(h, sch.sample_perfect_tile(h, 2, 16))
    w0, w1 = sch.split(w, sch.sample_perfect_tile(w, 2, 16))
    c0, c1 = sch.split(c, sch.sample_perfect_tile(c, 2, 64))
    r0, r1 = sch.split(rc, sch.sample_perfect_tile(rc, 2, 32))
    sch.reorder(n, h0, w0, c0, r0, rh, rw, r1, h1, w1, c1)
    _annotate(sch, [0, 64])


def _softmax() -> PrimFunc:
    x = te.placeholder((128, 1024), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x, axis=1)])


def _softmax_sketch(sch: Schedule) -> None:
    """All stages for a tile of rows, each with columns in two levels."""
    largest, powers, total, norm = (sch.get_block(f"T_softmax_{x}") for x in ("maxelem", "exp", "expsum", "norm"))
    rows, columns = sch.get_loops(norm)
    outer, inner = sch.split(rows, sch.sample_perfect_tile(rows, 2, 128))
    sch.split(columns, sch.sample_perfect_tile(columns, 2, 1024))
    for block in (total, powers, largest):
        sch.compute_at(block, outer, preserve_unit_loops=True)
    _, _, width = sch.get_loops(powers)
    sch.split(width, sch.sample_perfect_tile(width, 2, 1024))
    _annotate(sch, [0, 64])


#: Name: the program, and the function that makes its sketch.
WORKLOADS: dict[str, Workload] = {
    "gemm": (_gemm, _gemm_sketch),
    "conv2d": (_conv2d, _conv2d_sketch),
    "softmax": (_softmax, _softmax_sketch),
}
