"""Running sums over the elements of one thread block, as macros for kernels."""

# mypy: disable-error-code="valid-type, call-arg, operator, attr-defined, no-untyped-def, name-defined, misc, index, no-redef"
# The functions under ``T.macro`` are TVMScript: they are parsed and never run as Python.
from __future__ import annotations

from dataclasses import dataclass

from ...ir.expr import PrimExpr
from ...script import tir as T
from ...script.parser.tir.entry import TIRMacro

__all__ = ["Threads", "block_cumsum", "lockstep_cumsum", "log2"]


@dataclass(frozen=True)
class Threads:
    """``ty_len`` rows of ``tx_len`` threads with ``thread_elem`` elements each."""

    ty_len: int
    tx_len: int
    thread_elem: int

    @property
    def are_powers_of_two(self) -> bool:
        """Whether all three are 1, 2, 4, 8, ..."""
        return all(n > 0 and n & (n - 1) == 0 for n in (self.ty_len, self.tx_len, self.thread_elem))

    @property
    def count(self) -> int:
        """Threads of a block."""
        return self.tx_len * self.ty_len

    @property
    def warp_elem(self) -> PrimExpr:
        """Elements of a row."""
        return T.int64(self.tx_len * self.thread_elem)

    @property
    def block_elem(self) -> PrimExpr:
        """Elements of a block."""
        return T.int64(self.count * self.thread_elem)


def log2(n: int) -> PrimExpr:
    """The logarithm of a power of two."""
    return T.int64(n.bit_length() - 1)


def block_cumsum(threads: Threads, dtype: str) -> TIRMacro:
    """A macro ``(ty, tx, mine, shared)``: running sums of what all threads have in ``mine``, into ``shared``.

    Within a thread; then within a row, where each thread takes over from 1, 2, 4, ... before; then each row adds what the
    rows before it have. Everybody has read before anybody writes.
    """
    TY, N = T.int64(threads.ty_len), T.int64(threads.thread_elem)
    LOG_TX, warp_elem = log2(threads.tx_len), threads.warp_elem

    @T.macro
    def sum_up(ty, tx, mine, shared):
        with T.block():
            taken = T.alloc_buffer((1,), dtype, scope="local")
            for i in T.unroll(1, N):
                mine[i] += mine[i - 1]
            for i in T.vectorized(N):
                shared[ty * warp_elem + tx * N + i] = mine[i]
            for i in T.unroll(LOG_TX):
                taken[0] = T.Cast(dtype, 0)
                if tx >= (1 << i):
                    taken[0] = shared[ty * warp_elem + tx * N - (1 << i) * N + N - 1]
                T.tvm_storage_sync("shared")
                for j in T.vectorized(N):
                    shared[ty * warp_elem + tx * N + j] += taken[0]
            taken[0] = T.Cast(dtype, 0)
            for i in T.unroll(1, TY):
                if i <= ty:
                    taken[0] += shared[i * warp_elem - 1]
            T.tvm_storage_sync("shared")
            for j in T.vectorized(N):
                shared[ty * warp_elem + tx * N + j] += taken[0]

    return sum_up


def lockstep_cumsum(threads: Threads) -> TIRMacro:
    """As :func:`block_cumsum`, the way the field has it: the threads of a row (a warp) must run in lockstep.

    A thread reads its neighbour's sum in the very statement in which the neighbour updates it. That holds on GPUs whose
    warps are as wide as a row; tools that look for races report it.
    """
    TY, N = T.int64(threads.ty_len), T.int64(threads.thread_elem)
    LOG_TX, warp_elem = log2(threads.tx_len), threads.warp_elem

    @T.macro
    def sum_up(ty, tx, mine, shared):
        for i in T.unroll(1, N):
            mine[i] += mine[i - 1]
        for i in T.vectorized(N):
            shared[ty * warp_elem + tx * N + i] = mine[i]
        for i in T.unroll(LOG_TX):
            for j in T.vectorized(N):
                at: T.int64 = ty * warp_elem + tx * N
                if tx >= (1 << i):
                    shared[at + j] += shared[at - (1 << i) * N + N - 1]
        for i in T.unroll(1, TY):
            for j in T.vectorized(N):
                if ty == 0:
                    at: T.int64 = i * warp_elem + tx * N
                    shared[at + j] += shared[i * warp_elem - 1]

    return sum_up
