"""Shared parts of the attention kernel: a block's coordinates, its memory, and its warps' matrix operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import gcd
from typing import Any

from .... import tir
from ....arith import Analyzer
from ....ir.expr import ExprLike
from ....relax.scalars import const_int
from ....script.ir_builder import IRBuilder
from ....script.ir_builder import tir as T
from .problem import AttentionProblem
from .tiling import Tiling

__all__ = [
    "Block",
    "register_loops",
    "flattened",
    "float32",
    "emit_intrinsic",
    "local",
    "sync_threads",
    "bind",
    "only_if",
    "pairs",
    "bind_register",
    "vector_width",
]

_MMA_TYPES = {"float16": "fp16", "bfloat16": "bf16"}


def float32(value: float) -> tir.PrimExpr:
    """A float32 constant."""
    return tir.const(value, "float32")


def emit_intrinsic(name: str, *args: Any, dtype: str = "int32") -> None:
    """Append a call of the intrinsic ``tir.<name>`` as a statement; ``dtype`` is the type of the call."""
    T.evaluate(tir.call_intrin(dtype, f"tir.{name}", *args))


def sync_threads() -> None:
    """Append a barrier for all threads of the block (``__syncthreads``)."""
    emit_intrinsic("tvm_storage_sync", "shared.dyn")


@contextmanager
def only_if(condition: tir.PrimExpr | None) -> Iterator[None]:
    """Put the statements of the ``with`` block under a condition; None means that it always holds."""
    if condition is None:
        yield
        return
    with T.If(condition), T.Then():
        yield


@contextmanager
def register_loops(*extents: int) -> Iterator[tuple[Any, ...]]:
    """Open nested loops over arrays in registers, which the code generator unrolls; gives their indices.

    A loop of one iteration is left out: its index is 0.
    """
    with ExitStack() as stack:
        yield tuple(0 if n == 1 else stack.enter_context(T.serial(n)) for n in extents)


def bind(stack: ExitStack, name: str, value: tir.PrimExpr) -> tir.PrimExpr:
    """Bind a value to a variable (``let``) in scope until ``stack`` closes; constants and variables stay as they are."""
    if isinstance(value, int) or const_int(value) is not None or isinstance(value, tir.Var):
        return value
    made = stack.enter_context(T.LetStmt(value))
    IRBuilder.name(name, made)
    return made


def local(stack: ExitStack, name: str, count: int, dtype: str = "float32") -> tir.Buffer:
    """Allocate ``count`` registers in each thread, in scope until ``stack`` closes."""
    made = stack.enter_context(T.decl_buffer((count,), dtype, scope="local"))
    IRBuilder.name(name, made)
    return made


def bind_register(stack: ExitStack, name: str, value: tir.PrimExpr) -> tir.PrimExpr:
    """As :func:`bind`, but by a store to a register, so that no simplification computes the value again at its uses."""
    if const_int(value) is not None:
        return value
    register = local(stack, name, 1, value.dtype)
    T.buffer_store(register, value, [0])
    return register[0]


def flattened(stack: ExitStack, buffer: tir.Buffer) -> tir.Buffer:
    """A one-dimensional view of a buffer."""
    count: Any = 1
    for extent in buffer.shape:
        count = count * extent
    made = stack.enter_context(T.decl_buffer((count,), buffer.dtype, data=buffer.data))
    IRBuilder.name(f"{buffer.name}_flat", made)
    return made


def pairs(at: tir.PrimExpr) -> tir.PrimExpr:
    """The indices ``at`` and ``at + 1``."""
    return tir.Ramp(tir.convert(at), tir.const(1, "int32"), 2)


def vector_width(columns: int, *distances: Any) -> int:
    """The widest vector (8, 4, 2 or 1 elements of two bytes) that is aligned at every sum of multiples of ``distances``.

    ``columns``, the length of a row, is divisible by it, too.
    """
    analyzer = Analyzer()
    step = gcd(columns, 8)
    for distance in distances:
        value = const_int(distance)
        if value is None:
            facts = analyzer.modular_set(distance)
            step = gcd(step, gcd(facts.coeff, facts.base))
        else:
            step = gcd(step, value)
    return step


@dataclass
class Block:
    """The variables of one thread block. ``shared`` is its shared memory, in elements of the inputs' type.

    ``rows`` and ``keys`` are the numbers of query rows and keys of this batch and key head, ``first_row`` is the first row
    that the block computes, and ``part`` says which part of the keys it reads where these are split among blocks.
    """

    problem: AttentionProblem
    tiling: Tiling
    shared: Any
    thread: Any
    batch: Any
    kv_head: Any
    first_row: Any
    part: Any
    rows: Any
    keys: Any

    def __post_init__(self) -> None:
        self.lane = self.thread % 32
        warp = self.thread // 32
        self.row_warp = warp % self.tiling.row_warps
        self.key_warp = warp // self.tiling.row_warps
        self.quad = self.lane % 4

    # -- counts of matrices ---------------------------------------------------------------------------------

    @property
    def warp_keys(self) -> int:
        """Keys that one warp takes of each tile of keys."""
        return self.tiling.keys // self.tiling.key_warps

    @property
    def warp_rows(self) -> int:
        """Query rows that one warp computes."""
        return 16 * self.tiling.row_tiles

    def own_row(self, row_tile: tir.PrimExpr, half: tir.Var) -> tir.PrimExpr:
        """The block's row to which this thread's elements of an ``mma`` result belong.

        ``row_tile`` numbers the warp's tiles of 16 rows, ``half`` is 0 for the upper and 1 for the lower eight of them.
        """
        return self.row_warp * self.warp_rows + row_tile * 16 + half * 8 + self.lane // 4

    def position(self, row: tir.PrimExpr) -> tuple[Any, Any]:
        """(query, head within the group) of a row of the problem."""
        group = self.problem.group
        return (row, 0) if group == 1 else (row // group, row % group)

    # -- matrices from shared memory ------------------------------------------------------------------------

    def by_rows(self, pitch: int) -> tir.PrimExpr:
        """The offset that this lane passes to ``ldmatrix`` for a 16 x 16 tile, in elements from the tile's first one.

        For a left operand, or a right one that ``ldmatrix`` transposes; ``pitch`` is the distance of rows.
        """
        return self.lane % 16 * pitch + self.lane // 16 * 8

    def by_columns(self, pitch: int) -> tir.PrimExpr:
        """As :meth:`by_rows`, for a right operand that memory holds transposed."""
        return (self.lane % 8 + self.lane // 16 * 8) * pitch + self.lane // 8 % 2 * 8

    def load(self, registers: tir.Buffer, at: ExprLike, place: tir.PrimExpr, transposed: bool = False) -> None:
        """Load a 16 x 16 tile from shared memory (``ldmatrix``): eight elements for each thread, from ``registers[at]`` on."""
        dtype, shared = self.problem.dtype, self.shared.data
        emit_intrinsic("ptx_ldmatrix", transposed, 4, ".b16", registers.data, at, shared, place, dtype=dtype)

    def multiply(
        self, sums: tir.Buffer, at: ExprLike, left: tir.Buffer, left_at: ExprLike, right: tir.Buffer, right_at: int
    ) -> None:
        """Add the product of a 16 x 16 and a 16 x 8 tile to ``sums[at : at + 4]`` (``mma.sync``)."""
        kind = _MMA_TYPES[self.problem.dtype]
        emit_intrinsic(
            "ptx_mma", "m16n8k16", "row", "col", kind, kind, "fp32", left.data, left_at, right.data, right_at,
            sums.data, at, False, dtype="float32",
        )  # fmt: skip

    def reduce_quad(self, combine: Callable[[Any, Any], Any], registers: tir.Buffer, at: tir.PrimExpr) -> None:
        """Reduce ``registers[at]`` over the four threads that hold the same row; all of them get the result."""
        for distance in (1, 2):
            other = tir.call_intrin(
                "float32", "tir.tvm_warp_shuffle_xor", tir.const(0xFFFFFFFF, "uint32"), registers[at], distance, 32, 32
            )
            T.buffer_store(registers, combine(registers[at], other), [at])
