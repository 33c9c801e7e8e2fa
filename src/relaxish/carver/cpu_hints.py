"""Hints for CPUs: register tiles, strips of packed operands, depth of a pass, tasks; ranked by estimated cycles.

The nest that a hint describes::

    for others, v_outer, row_task:            # parallel
        pack the strips of this task          # operands named in ``packed``
        for k_outer:                          # ``rstep`` steps at a time
            for r_outer:
                for k_inner:                  # accumulators stay in registers
                    for row, vector: C += A * B
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arith.affine import coefficient
from ..ir import dtype as dt
from ..ir.errors import CheckValueError
from ..ir.prim import const_ints, const_int
from ..support.sequences import as_list
from ..tir import Block, PrimFunc
from ..tir.stmt import Stmt
from .arch import CPU
from .block_facts import (
    BlockInfo, IterInfo, access_stride, combiner_of, facts_of, flat_stride, operand_names, row_axis, streams, vector_axis,
)  # fmt: skip
from .machine import CpuModel
from .roller import Hint
from .tiling import Access, Axis, TilingModel
from ..ir.plain import plain_int

__all__ = [
    "ORDERS", "PARALLEL_WORK", "ROWS_TO_TURN", "CpuTile", "TileProblem", "cpu_hints", "hint_of_tile", "hints_of_block",
    "line_axis",
]  # fmt: skip

#: Which loop over register tiles runs outermost: columns outside all but the outermost other loop, columns just outside
#: the rows, or rows outside the columns.
ORDERS = ("mixed", "columns-inside", "rows-outside")
# Every x86 and most Arm cores have first-level caches of at least eight ways of one page.
_WAYS = 8
_WAY_BYTES = 4096
# A good half of the second-level cache of most cores.
_STRIP_BYTES = 640 * 1024
# Strips of a pass over part of the reduction.
_PASS_BYTES = 256 * 1024
#: Turning an operand around costs about as much as using it once: so many rows must share it.
ROWS_TO_TURN = 8
# So many rows share a strip before packing it can pay.
_ROWS_TO_PACK = 32
_MOST_ROWS = 16
# Rows of a tile, and about how many of a task, where it is not known how many there are.
_ROWS_OF_UNKNOWN = (4, 6, 8, 12, 14)
_TASK_OF_UNKNOWN = 64
_MOST_VECTORS = 6
_MOST_LINES = 4
#: A parallel region costs about a microsecond: loops with less work than this stay serial.
PARALLEL_WORK = 16384
# What an axis of unknown size is taken for.
_UNKNOWN = 128
# Bytes of a strip that a core copies in a cycle.
_COPY_RATE = 6.0
# A partial last tile is a loop of its own, with its own start and end.
_PARTIAL_COST = 1.05
# Measured: what the model sees in other orders and in several passes over a reduction it overestimates by about as much.
_ORDER_COST = 1.08
_PASSES_COST = 1.04
_STRUCTURE = "SRSRS"


@dataclass(frozen=True)
class CpuTile:
    """The numbers of a hint: ``rows`` x ``vectors`` of ``lanes`` results in registers, ``depth`` steps of a pass over the
    reduction (0: all of it), ``packed`` operands, ``row_task`` rows of a task (0: all), ``order`` of the outer loops,
    ``lines`` such tiles side by side along a further axis (where vectors are few).
    """

    lanes: int
    vectors: int
    rows: int
    depth: int = 0
    packed: tuple[str, ...] = ()
    row_task: int = 0
    order: str = "mixed"
    lines: int = 1

    @property
    def width(self) -> int:
        """Columns."""
        return self.lanes * self.vectors

    @staticmethod
    def of(hint: Hint, info: BlockInfo) -> CpuTile:
        """The tile of a hint for a block. Raises CheckValueError for a hint for something else."""
        vector = vector_axis(info) or _turned(info)[0]
        spatial, reductions = info.spatial, info.reductions
        if vector is None or len(hint.thread) != len(spatial) or len(hint.rstep) != len(reductions):
            raise CheckValueError(
                f"the hint {hint} is not for block {info.name}, which has {len(spatial)} spatial and {len(reductions)} "
                "reduction axes: ask carver.recommend(func, target) for this function"
            )
        lanes = max(1, *hint.vectorize.values()) if hint.vectorize else 1
        width = hint.thread[spatial.index(vector)]
        depth = hint.rstep[0] if len(reductions) == 1 and reductions[0].dom not in (None, hint.rstep[0]) else 0
        rows, count, task = row_axis(info, vector), 1, 0
        further = line_axis(info, vector, rows)
        lines = hint.thread[spatial.index(further)] if further is not None else 1
        if rows is not None:
            place = spatial.index(rows)
            count = hint.thread[place]
            task = 0 if hint.block[place] == rows.dom else hint.block[place]
        order = hint.order or "mixed"
        return CpuTile(lanes, max(1, width // lanes), count, depth, tuple(hint.packed), task, order, lines)


def line_axis(info: BlockInfo, vector: IterInfo, rows: IterInfo | None) -> IterInfo | None:
    """The innermost axis, beside those of the vectors and the rows, that a tile can extend along."""
    others = [it for it in info.spatial if it is not vector and it is not rows and it.dom is not None and it.dom > 1]
    return others[-1] if others else None


def cpu_hints(
    func: PrimFunc, arch: CPU, topk: int, prepacked: Collection[str] = (), may_pack: bool = True
) -> list[Hint]:
    """Hints for the only reduction of a function. Raises CheckValueError where there is nothing to tile."""
    found: list[Block] = []

    def look(stmt: Stmt) -> None:
        block = getattr(stmt, "block", None)
        if isinstance(block, Block):
            if block.iter_vars:
                found.append(block)
            look(block.body)
            return
        for name in ("seq", "body", "then_case", "else_case"):
            child = getattr(stmt, name, None)
            for item in as_list(child):
                if item is not None and hasattr(item, "iter_children"):
                    look(item)

    look(func.body)
    reducing = [block for block in found if facts_of(block).is_reduction]
    if not reducing:
        return [_elementwise(facts_of(found[-1]), arch.model)][:topk] if found else []
    known = _constant_names(func) | set(prepacked)
    hints = hints_of_block(facts_of(reducing[-1]), arch.model, topk, known, may_pack)
    for hint in hints:
        hint.arch = arch
    if not hints:
        raise CheckValueError(
            f"block {reducing[-1].name_hint} has no axis that runs through neighbouring elements of its result and of "
            "an operand: a register tile is nothing for it (dlight schedules it by rows)"
        )
    return hints


def _constant_names(func: PrimFunc) -> set[str]:
    places = (func.attrs or {}).get("layout_free_buffers") or ()
    return {func.buffer_map[func.params[plain_int(i)]].name for i in places}


def _elementwise(info: BlockInfo, machine: CpuModel) -> Hint:
    """Rows in parallel, vectors along the last axis."""
    hint = Hint()
    sizes = [it.dom or _UNKNOWN for it in info.spatial]
    store = info.store
    lanes = machine.lanes(dt.bits(store.value.dtype) // 8 or 1) if store is not None else 1
    while sizes and lanes > 1 and sizes[-1] % lanes:
        lanes //= 2
    hint.block = [1] * (len(sizes) - 1) + sizes[-1:]
    hint.thread = [1] * (len(sizes) - 1) + [lanes][: len(sizes)]
    hint.parallel = list(range(max(1, len(sizes) - 1)))[: len(sizes)]
    return hint


def hints_of_block(
    info: BlockInfo, machine: CpuModel, topk: int, prepacked: Collection[str] = (), may_pack: bool = True
) -> list[Hint]:
    """Hints for a reduction, the fastest by estimate first; none where no axis can be put in vector lanes.

    ``prepacked``: operands that are in strips already, or will be before the function runs; without ``may_pack`` the
    others stay where they are.
    """
    problem = TileProblem.of(info, machine, prepacked)
    if problem is None:
        return []
    tiles = list(problem.tiles(may_pack))
    costs = problem.cycles(tiles)
    return [problem.hint(tiles[i], float(costs[i])) for i in np.argsort(costs, kind="stable")[:topk]]


def hint_of_tile(info: BlockInfo, machine: CpuModel, **numbers: Any) -> Hint:
    """The hint for a block with the given numbers of a :class:`CpuTile`; without ``lanes``, those that fit best."""
    problem = TileProblem.of(info, machine, ())
    if problem is None:
        raise CheckValueError(f"block {info.name} has no axis for vectors")
    numbers["packed"] = tuple(numbers.get("packed", ()))
    tile = CpuTile(**{"lanes": problem.lanes(), **numbers})
    return problem.hint(tile, 0.0)


@dataclass
class TileProblem:
    """A reduction as tiles see it: axes as others, the vectors', the rows', reductions; operands and the result."""

    info: BlockInfo
    machine: CpuModel
    vector: IterInfo
    rows: IterInfo | None
    others: list[IterInfo]
    loads: list[Any]
    prepacked: frozenset[str]

    @staticmethod
    def of(info: BlockInfo, machine: CpuModel, prepacked: Collection[str]) -> TileProblem | None:
        vector, known = vector_axis(info), set(prepacked)
        if vector is None:
            vector, turned = _turned(info)
            known |= turned
        if vector is None or not (vector.dom or vector.multiple > 1):
            return None
        if all(it.dom is not None for it in info.iters) and prod(it.dom or 1 for it in info.iters) < PARALLEL_WORK:
            machine = replace(machine, cores=1)
        rows = row_axis(info, vector)
        others = [it for it in info.spatial if it is not vector and it is not rows]
        return TileProblem(info, machine, vector, rows, others, info.loads(), frozenset(known))

    # ---- candidates

    def tiles(self, may_pack: bool = True) -> Iterator[CpuTile]:
        """Register tiles that fit the registers, with every choice that goes with them."""
        lanes = self.lanes()
        packable = self.packable() if may_pack else ()
        for vectors, rows in self._register_tiles(lanes):
            for packed in ((), packable) if packable else ((),):
                for depth in self.depths(lanes * vectors):
                    unknown = self.rows is not None and self.rows.dom is None
                    for row_task in self.row_tasks(rows, lanes * vectors) if packed or depth or unknown else (0,):
                        for order in ("mixed",) if packed or depth or row_task else self._orders():
                            tile = CpuTile(lanes, vectors, rows, depth, packed, row_task, order)
                            if self._holds(tile):
                                yield tile

    def lanes(self) -> int:
        """Lanes that divide the axis: a power of two unless another number fills the register much better."""
        width, most = self.vector.multiple, self.machine.lanes(_item(self.info.store.value.dtype))  # type: ignore[union-attr]
        fit = max(_divisors(width, most))
        power = max(d for d in (1 << i for i in range(most.bit_length())) if width % d == 0)
        # Vectors of 10 or 12 numbers are taken apart again; eight fill a register or half of one.
        return power if 2 * power > fit or 2 * power >= most else fit

    def lane_counts(self, limit: int) -> list[int]:
        """The ``limit`` greatest numbers of lanes that divide the axis, :meth:`lanes` first."""
        most = self.machine.lanes(_item(self.info.store.value.dtype))  # type: ignore[union-attr]
        best = self.lanes()
        others = [d for d in reversed(_divisors(self.vector.multiple, most)) if d != best]
        return [best, *others[: limit - 1]]

    def vector_counts(self, lanes: int) -> list[int]:
        """Vectors side by side that divide the axis."""
        most = 2 if streams(self.info, self.vector) else _MOST_VECTORS
        return _divisors(self.vector.multiple // lanes, most)

    def fits(self, rows: int, vectors: int) -> bool:
        """Whether the registers hold so many accumulators and what a step of the reduction needs."""
        return rows * vectors + vectors + 1 <= self.machine.registers

    def lines(self) -> IterInfo | None:
        """The axis along which tiles can be side by side."""
        return line_axis(self.info, self.vector, self.rows)

    def line_counts(self) -> list[int]:
        """Tiles side by side along that axis."""
        axis = self.lines()
        return _divisors(axis.dom or 1, _MOST_LINES) if axis is not None else [1]

    def _register_tiles(self, lanes: int) -> Iterator[tuple[int, int]]:
        for vectors in self.vector_counts(lanes):
            for rows in self.row_counts():
                if self.fits(rows, vectors):
                    yield vectors, rows

    def row_counts(self) -> list[int]:
        """Rows of a register tile."""
        if self.rows is None:
            return [1]
        height = self.rows.dom
        if height is None:
            return [n for n in _ROWS_OF_UNKNOWN if n <= self._rows_side_by_side()]
        whole = _divisors(height, self._rows_side_by_side())
        # No divisor fills the registers (of a prime, say): the last tile is partial.
        return whole if height <= _MOST_ROWS or max(whole) >= 6 else [*whole, 6, 12]

    def _rows_side_by_side(self) -> int:
        """How many rows of a broadcast operand the first cache holds at once: a stride of 4096 puts all in one set."""
        limit = _MOST_ROWS
        for load in self.loads:
            if self.rows is not None and access_stride(load.indices, self.vector.var) == "none":
                nbytes = abs(flat_stride(load, self.rows.var) or 0) * _item(load.dtype)
                if nbytes:
                    limit = min(limit, _WAYS * (_WAY_BYTES // gcd(nbytes, _WAY_BYTES)))
        return limit

    def packable(self) -> tuple[str, ...]:
        """Operands that many rows share, that move with the columns along their last axis and lie apart otherwise."""
        if self.rows is None or len(self.others) > 1 or self.vector.dom is None:
            return ()
        found, names = [], operand_names(self.info.block)
        counts: dict[Any, int] = {}
        for load in self.loads:
            counts[load.buffer] = counts.get(load.buffer, 0) + 1
        for load in self.loads:
            name = names[load.buffer]
            shared = flat_stride(load, self.rows.var) == 0 and (self.rows.dom or _UNKNOWN) >= _ROWS_TO_PACK
            plain = len(load.indices) > 1 and load.indices[-1] is self.vector.var
            known = const_ints(load.buffer.shape) is not None
            if shared and plain and known and counts[load.buffer] == 1 and load.buffer.name not in self.prepacked:
                found.append(name)
        return tuple(found)

    def _depth(self) -> int:
        return prod(it.dom or _UNKNOWN for it in self.info.reductions)

    def depths(self, width: int) -> list[int]:
        """Steps of one pass over the reduction: all of it (0), or as many as keep a strip in the second-level cache."""
        reductions = self.info.reductions
        if len(reductions) != 1 or reductions[0].dom is None or self.rows is None or len(self.others) > 1:
            return [0]
        whole, step = reductions[0].dom, width * self._operand_bytes()
        parts = [d for d in _divisors(whole, whole // 2) if d >= 64 and _PASS_BYTES // 8 <= d * step <= _PASS_BYTES]
        return [0, *parts[-2:]]

    def row_tasks(self, rows: int, width: int) -> list[int]:
        """Rows of a task: all (0), or parts of them where strips alone do not keep the cores busy."""
        height, strips = self.rows.dom if self.rows is not None else None, (self.vector.dom or _UNKNOWN) // width
        if self.rows is not None and height is None:
            return [_TASK_OF_UNKNOWN // rows * rows]
        strips *= prod(it.dom or _UNKNOWN for it in self.others)
        if height is None or height % rows or strips >= 4 * self.machine.cores:
            return [0]
        parts = [
            n
            for n in _divisors(height // rows, 4 * self.machine.cores)
            if 1 < n and strips * n <= 8 * self.machine.cores
        ]
        return [0, *(height // n for n in parts)]

    def _orders(self) -> tuple[str, ...]:
        height = self.rows.dom if self.rows is not None else None
        return ORDERS if height is not None else ORDERS[:1]

    def _holds(self, tile: CpuTile) -> bool:
        """Whether a strip of operands in their own places stays in the second-level cache for all rows."""
        if tile.packed or tile.depth or tile.order == "rows-outside":
            return True
        most = max(2, _STRIP_BYTES // max(1, self._depth() * tile.lanes * self._operand_bytes()))
        return tile.vectors <= most

    def _operand_bytes(self) -> int:
        return max(_item(load.dtype) for load in self.loads)

    # ---- their cost

    def cycles(self, tiles: Sequence[CpuTile]) -> npt.NDArray[np.float64]:
        """Estimated cycles of the busiest core."""
        costs = np.zeros(len(tiles))
        kinds: dict[tuple[Any, ...], list[int]] = {}
        for i, tile in enumerate(tiles):
            kinds.setdefault((tile.packed, tile.order), []).append(i)
        for (packed, order), places in kinds.items():
            chosen = [tiles[i] for i in places]
            costs[places] = self._cycles(packed, order, chosen)
        return costs

    def _cycles(self, packed: tuple[str, ...], order: str, tiles: list[CpuTile]) -> npt.NDArray[np.float64]:
        axes, first = self._axes(order)
        model = TilingModel([axis for _, axis in axes], self._accesses(axes, packed), _STRUCTURE, self.machine)
        factors, partial = self._factors(axes, first, tiles)
        cycles = model.cycles(factors) * np.where(partial, _PARTIAL_COST, 1.0)
        cycles *= np.array([_PASSES_COST if tile.depth else 1.0 for tile in tiles])
        cycles *= 1.0 if order == ORDERS[0] else _ORDER_COST
        if packed:
            for i, tile in enumerate(tiles):
                strips = prod(it.dom or _UNKNOWN for it in self.others) * (self.vector.dom or _UNKNOWN)
                copies = (self.rows.dom or _UNKNOWN) // (tile.row_task or self.rows.dom or _UNKNOWN)  # type: ignore[union-attr]
                copied = strips * copies * self._depth() * self._operand_bytes() * len(packed)
                cycles[i] += 2 * copied / _COPY_RATE / max(1, self.machine.cores)
        return cycles

    def _axes(self, order: str) -> tuple[list[tuple[IterInfo, Axis]], list[IterInfo]]:
        """Axes from the outside in, and those of the outermost loops."""
        rows = [self.rows] if self.rows is not None else []
        if order == "columns-inside":
            line, first = [*self.others, self.vector, *rows], list(self.others)
        elif order == "rows-outside":
            line, first = [*self.others, *rows, self.vector], [*self.others, *rows]
        else:
            line, first = [*self.others[:1], self.vector, *self.others[1:], *rows], [*self.others[:1], self.vector]
        line = [*line, *self.info.reductions]
        return [(it, Axis(it.dom or _UNKNOWN, it.kind == "R")) for it in line], first

    def _accesses(self, axes: list[tuple[IterInfo, Axis]], packed: tuple[str, ...]) -> list[Access]:
        store: Any = self.info.store
        found, names = [], operand_names(self.info.block)
        for load in [*self.loads, store]:
            dims = []
            for index in load.indices:
                steps = {i: coefficient(index, it.var) for i, (it, _) in enumerate(axes)}
                dims.append(({i: step for i, step in steps.items() if step}, 1))
            shape = load.buffer.shape
            last = const_int(shape[-1], 0) if len(shape) > 1 else 0
            item = _item(load.buffer.dtype)
            ordered = load.buffer.name in self.prepacked or names.get(load.buffer) in packed
            found.append(Access(tuple(dims), item, load is store, ordered, 0 if ordered else int(last) * item))
        return found

    def _factors(
        self, axes: list[tuple[IterInfo, Axis]], first: list[IterInfo], tiles: list[CpuTile]
    ) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]:
        """Columns of factors for each axis, and whether the last tile of rows is partial."""
        factors = []
        partial = np.zeros(len(tiles), dtype=bool)
        for it, axis in axes:
            if axis.reduction:
                steps = np.array([min(tile.depth or axis.extent, axis.extent) for tile in tiles])
                factors.append(np.stack([axis.extent // steps, steps], axis=1))
                continue
            inner = [self._size_along(it, tile) for tile in tiles]
            sizes = np.minimum(np.array(inner), axis.extent)
            count = -(-axis.extent // sizes)
            partial |= axis.extent % sizes != 0
            outer = count if it in first else np.ones_like(count)
            if it is self.rows and it not in first:
                outer = np.array([axis.extent // tile.row_task if tile.row_task else 1 for tile in tiles])
            factors.append(np.stack([outer, -(-count // outer), sizes], axis=1))
        return factors, partial

    def _size_along(self, it: IterInfo, tile: CpuTile) -> int:
        if it is self.vector:
            return tile.width
        return tile.rows if it is self.rows else tile.lines if it is self.lines() else 1

    # ---- the hint

    def hint(self, tile: CpuTile, cost: float) -> Hint:
        """A tile as a hint."""
        store: Any = self.info.store
        hint = Hint()
        for number, it in enumerate(self.info.spatial):
            block, thread = 1, 1
            if it is self.vector:
                block = thread = tile.width
                hint.parallel.append(number)
            elif it is self.rows:
                block, thread = tile.row_task or it.dom or _UNKNOWN, tile.rows
                if tile.row_task or tile.order == "rows-outside":
                    hint.parallel.append(number)
            else:
                block = thread = self._size_along(it, tile)
                hint.parallel.append(number)
            hint.block.append(block)
            hint.thread.append(thread)
        hint.rstep = [tile.depth or it.dom or _UNKNOWN for it in self.info.reductions]
        hint.vectorize = {store.buffer.name: tile.lanes}
        hint.packed, hint.order, hint.cost = list(tile.packed), tile.order, cost
        return hint


def _turned(info: BlockInfo) -> tuple[IterInfo | None, set[str]]:
    """The columns of a product such as ``A @ B.T``, and the operands to be turned so that columns are neighbours."""
    store = info.store
    if store is None or combiner_of(info.block) == "other" or any(it.kind == "O" for it in info.iters):
        return None, set()
    column = next((it for it in reversed(info.spatial) if access_stride(store.indices, it.var) == "unit"), None)
    if column is None:
        return None, set()
    turned = [load for load in info.loads() if access_stride(load.indices, column.var) == "other"]
    sharing = [it for it in info.spatial if it is not column and all(flat_stride(load, it.var) == 0 for load in turned)]
    if not turned or max((it.dom or ROWS_TO_TURN for it in sharing), default=1) < ROWS_TO_TURN:
        return None, set()
    return column, {load.buffer.name for load in turned}


def _item(dtype: str) -> int:
    return max(8, dt.bits(str(dtype))) // 8


def _divisors(n: int, limit: int) -> list[int]:
    return [d for d in range(1, min(n, limit) + 1) if n % d == 0]
