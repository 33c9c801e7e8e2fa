"""A running sum along the last axis of a matrix, for any GPU.

Each block sums up ``block_elem`` neighbouring elements of a row and leaves its total behind; totals are summed up in
the same way, round after round, and then added to all that comes after them.
"""

# mypy: disable-error-code="valid-type, call-arg, operator, attr-defined, no-untyped-def, name-defined, misc, index"
# The functions under ``T.prim_func`` and ``T.macro`` are TVMScript: they are parsed and never run as Python.
from __future__ import annotations


from ...script import tir as T
from ...script.parser.tir.entry import TIRMacro
from ...tir.function import PrimFunc
from .block_scan import Threads, block_cumsum, log2

__all__ = ["gpu_2d_continuous_cumsum"]


def _sum_within_blocks(threads: Threads, dtype: str) -> TIRMacro:
    """A macro: each block sums up its part of a row, and leaves its total behind."""
    TX, TY, N = T.int64(threads.tx_len), T.int64(threads.ty_len), T.int64(threads.thread_elem)
    warp_elem, block_elem = threads.warp_elem, threads.block_elem
    thread_elem = threads.thread_elem
    sum_up = block_cumsum(threads, dtype)

    @T.macro
    def sum_within_blocks(rows, length, source, output, totals, source_offset, total_offset):
        for by in T.thread_binding(rows, thread="blockIdx.y"):
            for bx in T.thread_binding(T.ceildiv(length, block_elem), thread="blockIdx.x"):
                with T.block():
                    mine = T.alloc_buffer((thread_elem,), dtype, scope="local")
                    shared = T.alloc_buffer((block_elem,), dtype, scope="shared")
                    for ty in T.thread_binding(TY, thread="threadIdx.y"):
                        for tx in T.thread_binding(TX, thread="threadIdx.x"):
                            first = bx * block_elem + ty * warp_elem + tx * thread_elem
                            for i in T.vectorized(N):
                                mine[i] = T.if_then_else(
                                    first + i < length,
                                    T.Cast(dtype, source[by, source_offset + first + i]),
                                    T.Cast(dtype, 0),
                                )
                            sum_up(ty, tx, mine, shared)
                            for i in T.vectorized(N):
                                at: T.int64 = ty * warp_elem + tx * thread_elem + i
                                if bx * block_elem + at < length:
                                    output[by, source_offset + bx * block_elem + at] = shared[at]
                            if tx == 0 and ty == 0:
                                for _i in T.vectorized(N):
                                    totals[by, total_offset + bx] = shared[block_elem - 1]

    return sum_within_blocks


def _add_what_came_before(threads: Threads) -> TIRMacro:
    """A macro: to each block's sums, the total of all blocks before it is added."""
    TX, TY, N = T.int64(threads.tx_len), T.int64(threads.ty_len), T.int64(threads.thread_elem)
    warp_elem, block_elem = threads.warp_elem, threads.block_elem

    @T.macro
    def add_what_came_before(rows, length, source, output, source_offset, output_offset):
        for by in T.thread_binding(rows, thread="blockIdx.y"):
            for bx in T.thread_binding(T.ceildiv(length, block_elem), thread="blockIdx.x"):
                for ty in T.thread_binding(TY, thread="threadIdx.y"):
                    for tx in T.thread_binding(TX, thread="threadIdx.x"):
                        for i in T.serial(N):
                            at: T.int64 = bx * block_elem + ty * warp_elem + i * TX + tx
                            if at < length:
                                output[by, output_offset + at] += T.if_then_else(
                                    bx > 0, source[by, source_offset + bx - 1], 0
                                )

    return add_what_came_before


def gpu_2d_continuous_cumsum(
    ty_len: int = 4, tx_len: int = 32, thread_elem: int = 4, in_dtype: str = "int32", out_dtype: str | None = None
) -> PrimFunc:
    """A scheduled PrimFunc from a matrix to its running sums along each row.

    A block has ``ty_len`` rows of ``tx_len`` threads with ``thread_elem`` elements each.  Raises ValueError unless these
    are powers of two.
    """
    threads = Threads(ty_len, tx_len, thread_elem)
    if not threads.are_powers_of_two:
        raise ValueError("Configuration of TX, TY, N must be power of 2")
    out_dtype = out_dtype or in_dtype
    block_elem = threads.block_elem
    LOG_BLOCK_N = log2(threads.count * threads.thread_elem)
    sum_within_blocks = _sum_within_blocks(threads, out_dtype)
    add_what_came_before = _add_what_came_before(threads)

    @T.prim_func(private=True)
    def cumsum(var_a: T.handle, var_out: T.handle):
        T.func_attr({"tir.is_scheduled": True})
        m, n = T.int64(), T.int64()
        A = T.match_buffer(var_a, [m, n], dtype=in_dtype)
        Out = T.match_buffer(var_out, [m, n], dtype=out_dtype)
        Tmp = T.alloc_buffer([m, n], dtype=out_dtype)
        bits = T.Cast("int64", T.ceil(T.log2(T.Cast("float32", n))))
        rounds = bits // LOG_BLOCK_N
        sum_within_blocks(m, n, A, Out, Tmp, T.int64(0), T.int64(0))
        for i in range(rounds):
            length = T.ceildiv(n, 1 << (LOG_BLOCK_N * (i + 1)))
            sum_within_blocks(
                m, length, Tmp, Tmp, Tmp, i * T.ceildiv(n, block_elem), (i + 1) * T.ceildiv(n, block_elem)
            )
        for i in range(rounds - 1):
            back = rounds - 1 - i - 1
            length = T.ceildiv(n, 1 << (LOG_BLOCK_N * (back + 1)))
            add_what_came_before(
                m, length, Tmp, Tmp, (back + 1) * T.ceildiv(n, block_elem), back * T.ceildiv(n, block_elem)
            )
        add_what_came_before(m, n, Tmp, Out, 0, 0)

    return cumsum
