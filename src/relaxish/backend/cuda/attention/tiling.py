"""Tile sizes of attention kernels: rows and keys of a tile, warps, pipeline stages, and parts of the keys."""

from __future__ import annotations

from dataclasses import dataclass

from ....carver import GpuModel
from ....relax.scalars import const_int
from ....target.target import Target
from .problem import AttentionProblem

__all__ = ["Tiling", "choose_tiling", "padded"]

#: Elements of two bytes by which rows in shared memory are longer: successive rows begin in other banks.
_PAD = 8
_RESERVED = 1024  # bytes of shared memory that the system keeps of each block
# Blocks of fewer keys than these are not worth a part of their own.
_KEYS_OF_PART = 256
_MOST_PARTS = 32
# Keys of a tile and stages, the better first: for tiles of many rows, and for warps that share the keys.
_MANY_ROWS = ((64, 2), (32, 2), (64, 1), (32, 1))
_FEW_ROWS = ((128, 2), (128, 1), (64, 2), (64, 1))


def padded(columns: int) -> int:
    """The number of columns rounded up to a multiple of 16, as tensor cores take them."""
    return -(-columns // 16) * 16


@dataclass(frozen=True)
class Tiling:
    """Division of a thread block's work: ``row_warps * key_warps`` warps of ``16 * row_tiles`` query rows each.

    The ``key_warps`` warps of the same rows share the ``keys`` of every tile. Shared memory holds ``stages`` tiles of keys
    (and of values), so that copies of later tiles overlap the products of the current one. ``parts`` blocks split the
    keys of the same rows among them; ``combine.py`` adds up their results.
    """

    row_warps: int
    row_tiles: int
    key_warps: int
    keys: int
    stages: int
    parts: int = 1

    @property
    def rows(self) -> int:
        """Query rows of a block."""
        return 16 * self.row_tiles * self.row_warps

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.row_warps * self.key_warps

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    def keeps_queries(self, problem: AttentionProblem) -> bool:
        """Whether a warp's queries fit in its registers; else they are read from shared memory for each tile of keys."""
        return self.row_tiles * padded(problem.size) <= 128

    def registers(self, problem: AttentionProblem) -> int:
        """Registers of a thread that hold parts of matrices at the same time (queries, scores and results)."""
        queries = self.row_tiles * padded(problem.size) // 4 if self.keeps_queries(problem) else 4 * self.row_tiles
        scores = self.row_tiles * self.keys // self.key_warps // 2
        return queries + scores + self.row_tiles * padded(problem.value_size) // 2

    def tiles(self, problem: AttentionProblem) -> int | None:
        """The largest number of key tiles that a block processes; None if the number of keys is symbolic."""
        keys = const_int(problem.keys)
        if keys is None:
            return None
        of_all = (keys + self.keys - 1) // self.keys
        return (of_all + self.parts - 1) // self.parts

    # -- shared memory, in elements of the inputs' type -----------------------------------------------------

    @staticmethod
    def pitch(columns: int) -> int:
        """Distance of rows in shared memory: an odd multiple of 16 bytes, so that ``ldmatrix`` has no bank conflicts."""
        return padded(columns) + _PAD

    def buffers(self, problem: AttentionProblem) -> int:
        """Tiles of keys that shared memory holds at the same time."""
        return min(self.stages, self.tiles(problem) or self.stages)

    def query_elements(self, problem: AttentionProblem) -> int:
        """Elements of shared memory for the block's queries."""
        return self.rows * self.pitch(problem.size)

    def stage_elements(self, problem: AttentionProblem) -> tuple[int, int]:
        """Elements of shared memory for one tile of keys, and for one of values."""
        return self.keys * self.pitch(problem.size), self.keys * self.pitch(problem.value_size)

    def result_pitch(self, problem: AttentionProblem) -> int:
        """Distance of rows, in float32 elements, while warps add up their results in shared memory."""
        return padded(problem.value_size) + 4

    def shared_elements(self, problem: AttentionProblem) -> int:
        """Elements of shared memory of a block; in the end the results reuse the memory of the operands."""
        operands = self.query_elements(problem) + self.buffers(problem) * sum(self.stage_elements(problem))
        results = self.rows * self.pitch(problem.value_size)
        if self.key_warps > 1 or self.parts > 1:
            results = 2 * self.key_warps * self.rows * (self.result_pitch(problem) + 2)
        return max(operands, results)

    def shared_bytes(self, problem: AttentionProblem) -> int:
        """Bytes of shared memory of a block."""
        return 2 * self.shared_elements(problem)


def _fits(tiling: Tiling, problem: AttentionProblem, limit: int) -> bool:
    return tiling.shared_bytes(problem) <= limit and tiling.registers(problem) <= 200


def _shapes(problem: AttentionProblem, limit: int) -> list[Tiling]:
    """Tilings that fit the hardware, those of most rows first: more rows reuse each key that is read."""
    found = []
    for row_warps, row_tiles, key_warps in ((4, 2, 1), (4, 1, 1), (2, 1, 2), (1, 1, 4)):
        made = [
            Tiling(row_warps, row_tiles, key_warps, keys, stages)
            for keys, stages in (_FEW_ROWS if key_warps > 1 else _MANY_ROWS)
            if 16 <= keys // key_warps <= 64
        ]
        fitting = [t for t in made if _fits(t, problem, limit)]
        # Two blocks of a multiprocessor hide each other's waits; few rows have that many blocks only in parts.
        pairs = [t for t in fitting if 2 * t.shared_bytes(problem) + _RESERVED <= limit]
        found += (pairs or fitting)[:1] if key_warps == 1 else fitting[:1]
    return found


def choose_tiling(problem: AttentionProblem, target: Target) -> Tiling | None:
    """The tiling with the most rows that still gives every multiprocessor a block; None where nothing fits.

    With few rows (a decoder's step) the keys are split among blocks too.
    """
    device = GpuModel.of_target(target)
    shapes = _shapes(problem, min(device.shared_memory - _RESERVED, 227 * 1024))
    if not shapes:
        return None
    sizes = [const_int(v) for v in (problem.batch, problem.rows, problem.kv_heads)]
    batch, rows, heads = (1 if v is None else v for v in sizes)
    if problem.starts is not None:
        batch = 1  # ``rows`` are those of all sequences
    if sizes[1] is None:
        return next((t for t in shapes if t.rows == 64), shapes[0])

    def blocks(tiling: Tiling) -> int:
        return batch * heads * -(-rows // tiling.rows)

    enough = [t for t in shapes if blocks(t) >= device.multiprocessors and (t.rows <= rows or t is shapes[-1])]
    if enough:
        return enough[0]
    chosen = shapes[-1]
    if problem.starts is not None or problem.window is not None:
        return chosen
    return _in_parts(chosen, problem, device.multiprocessors // max(1, blocks(chosen)))


def _in_parts(tiling: Tiling, problem: AttentionProblem, wanted: int) -> Tiling:
    """Split the keys into as many parts as there are multiprocessors without work."""
    keys = const_int(problem.keys)
    useful = _MOST_PARTS // 4 if keys is None else keys // _KEYS_OF_PART
    parts = min(wanted, useful, _MOST_PARTS)
    if parts < 2:
        return tiling
    return Tiling(tiling.row_warps, tiling.row_tiles, tiling.key_warps, tiling.keys, tiling.stages, parts)
