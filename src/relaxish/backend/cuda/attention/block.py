"""What the parts of the kernel share: one block's place in the work, its memory, and its warps' matrix operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import gcd
from typing import Any

from .... import tir
from ....arith import Analyzer
from ....relax.scalars import const_int
from ....script.ir_builder import IRBuilder
from ....script.ir_builder import tir as T
from .problem import AttentionProblem
from .tiling import Tiling

__all__ = [
    "Block",
    "each",
    "flat",
    "float32",
    "instruct",
    "local",
    "meet",
    "named",
    "only_if",
    "pairs",
    "settled",
    "vector_width",
]

_MMA_TYPES = {"float16": "fp16", "bfloat16": "bf16"}


def float32(value: float) -> Any:
    """A float32 constant."""
    return tir.const(value, "float32")


def instruct(name: str, *args: Any, dtype: str = "int32") -> None:
    """A statement that is one instruction."""
    T.evaluate(tir.call_intrin(dtype, f"tir.{name}", *args))


def meet() -> None:
    """All threads of the block wait for each other."""
    instruct("tvm_storage_sync", "shared.dyn")


@contextmanager
def only_if(condition: Any) -> Iterator[None]:
    """What follows is done where the condition holds; None: always."""
    if condition is None:
        yield
        return
    with T.If(condition), T.Then():
        yield


@contextmanager
def each(*extents: int) -> Iterator[tuple[Any, ...]]:
    """Loops over registers: the code generator unrolls what indexes registers. A loop of one turn is its body."""
    with ExitStack() as stack:
        yield tuple(0 if n == 1 else stack.enter_context(T.serial(n)) for n in extents)


def named(stack: ExitStack, name: str, value: Any) -> Any:
    """A value computed once, until ``stack`` closes."""
    if isinstance(value, int) or const_int(value) is not None or isinstance(value, tir.Var):
        return value
    made = stack.enter_context(T.LetStmt(value))
    IRBuilder.name(name, made)
    return made


def local(stack: ExitStack, name: str, count: int, dtype: str = "float32") -> Any:
    """Registers of one thread, until ``stack`` closes."""
    made = stack.enter_context(T.decl_buffer((count,), dtype, scope="local"))
    IRBuilder.name(name, made)
    return made


def settled(stack: ExitStack, name: str, value: Any) -> Any:
    """A value that is computed once and kept in a register, whatever passes know of what it is computed from."""
    if const_int(value) is not None:
        return value
    register = local(stack, name, 1, value.dtype)
    T.buffer_store(register, value, [0])
    return register[0]


def flat(stack: ExitStack, buffer: Any) -> Any:
    """A buffer as one row of elements."""
    count: Any = 1
    for extent in buffer.shape:
        count = count * extent
    made = stack.enter_context(T.decl_buffer((count,), buffer.dtype, data=buffer.data))
    IRBuilder.name(f"{buffer.name}_flat", made)
    return made


def pairs(at: Any) -> Any:
    """The indices ``at`` and ``at + 1``."""
    return tir.Ramp(tir.convert(at), tir.const(1, "int32"), 2)


def vector_width(columns: int, *distances: Any) -> int:
    """How many elements of two bytes may be moved at once (8, 4, 2 or 1) if places are sums of these distances."""
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
    """One thread block. ``shared`` is all its shared memory, in elements of the inputs' type.

    ``rows`` and ``keys`` are how many there are for this batch and key head; ``first_row`` is the block's first of them.
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
        """Keys of a tile that one warp multiplies."""
        return self.tiling.keys // self.tiling.key_warps

    @property
    def warp_rows(self) -> int:
        """Rows of one warp."""
        return 16 * self.tiling.row_tiles

    def own_row(self, row_tile: Any, half: Any) -> Any:
        """The row within the block of this thread's elements of a result."""
        return self.row_warp * self.warp_rows + row_tile * 16 + half * 8 + self.lane // 4

    def position(self, row: Any) -> tuple[Any, Any]:
        """(query, head within the group) of a row of the problem."""
        group = self.problem.group
        return (row, 0) if group == 1 else (row // group, row % group)

    # -- matrices from shared memory ------------------------------------------------------------------------

    def by_rows(self, pitch: int) -> Any:
        """Where this lane's part of a 16 x 16 tile lies: a left operand, or a right one that is to be transposed."""
        return self.lane % 16 * pitch + self.lane // 16 * 8

    def by_columns(self, pitch: int) -> Any:
        """The same for a right operand, of which memory has the transposed."""
        return (self.lane % 8 + self.lane // 16 * 8) * pitch + self.lane // 8 % 2 * 8

    def load(self, registers: Any, at: Any, place: Any, transposed: bool = False) -> None:
        """A 16 x 16 tile, eight elements a thread."""
        dtype, shared = self.problem.dtype, self.shared.data
        instruct("ptx_ldmatrix", transposed, 4, ".b16", registers.data, at, shared, place, dtype=dtype)

    def multiply(self, sums: Any, at: Any, left: Any, left_at: Any, right: Any, right_at: Any) -> None:
        """Add the product of a 16 x 16 and a 16 x 8 tile."""
        kind = _MMA_TYPES[self.problem.dtype]
        instruct(
            "ptx_mma", "m16n8k16", "row", "col", kind, kind, "fp32", left.data, left_at, right.data, right_at,
            sums.data, at, False, dtype="float32",
        )  # fmt: skip

    def over_quad(self, combine: Callable[[Any, Any], Any], registers: Any, at: Any) -> None:
        """Combine one register of the four threads that share a row."""
        for distance in (1, 2):
            other = tir.call_intrin(
                "float32", "tir.tvm_warp_shuffle_xor", tir.const(0xFFFFFFFF, "uint32"), registers[at], distance, 32, 32
            )
            T.buffer_store(registers, combine(registers[at], other), [at])
