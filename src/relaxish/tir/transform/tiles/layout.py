"""Fragment layouts: the thread that holds an element, and its place among that thread's registers.

An element's coordinate along each dimension is a number in mixed radix. A layout says of each digit whether it chooses
the thread or the register. Digits without a dimension are copies: threads that differ in them hold the same elements.

>>> tile = natural((4, 8), 8, 2)
>>> tile.threads, tile.registers
(8, 4)
>>> [[int(t) for t in row] for row in tile.owners()]
[[0, 0, 1, 1, 2, 2, 3, 3], [4, 4, 5, 5, 6, 6, 7, 7], [0, 0, 1, 1, 2, 2, 3, 3], [4, 4, 5, 5, 6, 6, 7, 7]]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .shared import Indices

__all__ = ["Digit", "Layout", "accumulator", "by_rows", "natural", "operand_a", "outer_product"]


@dataclass(frozen=True)
class Digit:
    """``coordinate[dim] // stride % extent`` is ``index // out % extent``, the index being thread or register.

    ``dim`` -1: copies, which only threads have.
    """

    dim: int
    extent: int
    stride: int
    thread: bool
    out: int


@dataclass(frozen=True)
class Layout:
    """The layout of a fragment of ``shape``; ``threads`` of the block take part, each holds ``registers`` elements."""

    shape: tuple[int, ...]
    digits: tuple[Digit, ...]

    @property
    def threads(self) -> int:
        """Threads that hold elements, copies counted."""
        return math.prod(d.extent for d in self.digits if d.thread)

    @property
    def registers(self) -> int:
        """Elements of a thread."""
        return math.prod(d.extent for d in self.digits if not d.thread)

    @property
    def copies(self) -> int:
        """Threads that hold the same element."""
        return math.prod(d.extent for d in self.digits if d.dim < 0)

    def of_dim(self, dim: int) -> list[Digit]:
        """The digits of a dimension."""
        return [d for d in self.digits if d.dim == dim]

    def owners(self) -> Indices:
        """The first thread of each element."""
        return self._sum(True)

    def places(self) -> Indices:
        """The register of each element."""
        return self._sum(False)

    def _sum(self, thread: bool) -> Indices:
        grids = np.indices(self.shape) if self.shape else np.zeros((0,))
        total = np.zeros(self.shape, dtype=np.int64)
        for d in self.digits:
            if d.dim >= 0 and d.thread is thread:
                total = total + grids[d.dim] // d.stride % d.extent * d.out
        return total

    def holds(self, coordinates: Sequence[Any], threads: Any) -> npt.NDArray[np.bool_]:
        """Whether threads hold the elements at coordinates (arrays that broadcast)."""
        fine = np.ones(np.broadcast_shapes(np.shape(threads), *[np.shape(c) for c in coordinates]), dtype=bool)
        for d in self.digits:
            if d.thread and d.dim >= 0:
                fine &= coordinates[d.dim] // d.stride % d.extent == threads // d.out % d.extent
        return fine

    def project(self, dims: Sequence[int], shape: Sequence[int]) -> Layout:
        """The layout of a fragment whose dimension ``n`` goes along dimension ``dims[n]`` of this one (-1: none, size 1).

        Digits of other dimensions become copies where they choose threads, and are left out where they choose registers.
        """
        made: list[Digit] = []
        position = {dim: n for n, dim in enumerate(dims) if dim >= 0}
        step = 1
        for d in sorted((d for d in self.digits if not d.thread), key=lambda d: d.out):
            if d.dim in position:
                made.append(Digit(position[d.dim], d.extent, d.stride, False, step))
                step *= d.extent
        for d in self.digits:
            if d.thread:
                made.append(Digit(position.get(d.dim, -1), d.extent, d.stride if d.dim in position else 1, True, d.out))
        return Layout(tuple(shape), tuple(made))


def natural(shape: Sequence[int], threads: int, vector: int) -> Layout:
    """A layout for copies: neighbouring threads hold neighbouring vectors of ``vector`` elements of the last dimension."""
    digits: list[Digit] = []
    out, step, left = 1, 1, threads
    for dim in reversed(range(len(shape))):
        extent, stride = shape[dim], 1
        if dim == len(shape) - 1 and vector > 1:
            digits.append(Digit(dim, vector, 1, False, step))
            step *= vector
            stride, extent = vector, extent // vector
        share = math.gcd(extent, left)
        outer = math.prod(shape[:dim])
        if share == 1 and extent <= left and extent * outer <= left:
            share = extent  # the rest of the threads have none
        if share > 1:
            digits.append(Digit(dim, share, stride, True, out))
            out *= share
            left //= share
        if extent // share > 1:
            digits.append(Digit(dim, extent // share, stride * share, False, step))
            step *= extent // share
    if left > 1 and threads % out == 0:
        digits.append(Digit(-1, left, 1, True, out))
    return Layout(tuple(shape), tuple(digits))


def accumulator(m: int, n: int, warps_m: int, warps_n: int, rows: int = 16) -> Layout:
    """The result of ``mma.sync`` (``rows`` of 16 or 8, columns of 8) shared by warps; also of ``wgmma``, whose four warps are
    rows."""
    tall, wide, held = m // warps_m // rows, n // warps_n // 8, rows // 4
    return Layout((m, n), tuple(d for d in (
        Digit(1, 2, 1, False, 1), Digit(0, rows // 8, 8, False, 2), Digit(1, wide, 8, False, held),
        Digit(0, tall, rows, False, held * wide), Digit(1, 4, 2, True, 1), Digit(0, 8, 1, True, 4),
        Digit(0, warps_m, rows * tall, True, 32), Digit(1, warps_n, 8 * wide, True, 32 * warps_m),
    ) if d.extent > 1))  # fmt: skip


def operand_a(m: int, k: int, warps_m: int, warps_n: int, rows: int = 16, run: int = 2) -> Layout:
    """The left operand of ``mma.sync`` in registers: every warp has its rows, all depth. ``run`` elements of a row lie side by
    side in a thread: two of 16 bits, four of 8, one of 64 (whose products have 8 rows)."""
    halves, parts = rows // 8, 1 if rows == 8 else 2
    tall, deep, held = m // warps_m // rows, k // (4 * run * parts), run * halves * parts
    return Layout((m, k), tuple(d for d in (
        Digit(1, run, 1, False, 1), Digit(0, halves, 8, False, run), Digit(1, parts, 4 * run, False, halves * run),
        Digit(1, deep, 4 * run * parts, False, held), Digit(0, tall, rows, False, held * deep),
        Digit(1, 4, run, True, 1), Digit(0, 8, 1, True, 4),
        Digit(0, warps_m, rows * tall, True, 32), Digit(-1, warps_n, 1, True, 32 * warps_m),
    ) if d.extent > 1))  # fmt: skip


def outer_product(m: int, n: int, threads: int) -> Layout:
    """A result whose threads each hold a grid of elements: few loads for each multiplication."""
    best: tuple[float, int, int] | None = None
    for across in (1 << p for p in range(threads.bit_length())):
        if threads % across:
            continue
        rows, columns = math.gcd(m, threads // across), math.gcd(n, across)
        held = (m // rows) * (n // columns)
        cost = held + (m // rows + n // columns) + (0 if rows * columns == threads else held)
        if best is None or cost < best[0]:
            best = (cost, rows, columns)
    assert best is not None
    _, rows, columns = best
    vector = math.gcd(n // columns, 4)
    rest = threads // (rows * columns)
    step = vector
    digits = [Digit(1, vector, 1, False, 1), Digit(1, columns, vector, True, 1)]
    digits.append(Digit(1, n // columns // vector, vector * columns, False, step))
    step *= n // columns // vector
    digits += [Digit(0, rows, 1, True, columns), Digit(0, m // rows, rows, False, step)]
    if rest > 1 and threads % (rows * columns) == 0:
        digits.append(Digit(-1, rest, 1, True, rows * columns))
    return Layout((m, n), tuple(d for d in digits if d.extent > 1))


def by_rows(m: int, n: int, threads: int) -> Layout:
    """A result whose rows belong to the same threads whatever ``n`` is, as those of products that follow each other must."""
    rows = math.gcd(m, max(1, threads // 4))
    team = threads // rows
    vector = math.gcd(n, 4)
    share = math.gcd(n // vector, team)
    rest = n // vector // share
    digits = (
        Digit(1, vector, 1, False, 1), Digit(1, share, vector, True, 1), Digit(1, rest, vector * share, False, vector),
        Digit(-1, team // share, 1, True, share), Digit(0, rows, 1, True, team), Digit(0, m // rows, rows, False, vector * rest),
    )  # fmt: skip
    return Layout((m, n), tuple(d for d in digits if d.extent > 1))
