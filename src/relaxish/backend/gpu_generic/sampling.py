"""Kernels that draw from probabilities."""

# mypy: disable-error-code="valid-type, call-arg, operator, attr-defined, no-untyped-def, name-defined, misc, index"
# The functions under ``T.prim_func`` and ``T.macro`` are TVMScript: they are parsed and never run as Python.
from __future__ import annotations

from typing import Any

from ...ir.expr import PrimExpr
from ...script import tir as T
from ...script.parser.tir.entry import TIRMacro
from ...target import Target
from ...tir.function import PrimFunc
from .block_scan import Threads, block_cumsum, lockstep_cumsum, log2

__all__ = ["generic_get_sample_index", "gpu_multinomial_from_uniform"]


def _differ(a: PrimExpr, b: PrimExpr) -> PrimFunc:
    # Vulkan does not compare truth values.
    return T.Cast("int8", a) != T.Cast("int8", b)


def _smaller(a: PrimExpr, b: PrimExpr) -> PrimFunc:
    return T.min(a, b)


def _plus(a: Any, b: PrimExpr) -> PrimExpr:
    return a + b


def _block_changes(threads: Threads) -> TIRMacro:
    """A macro: where a flag differs from the one before it, which may be the previous thread's."""
    TX, N, count = T.int64(threads.tx_len), T.int64(threads.thread_elem), T.int64(threads.count)
    differ = _differ

    @T.macro
    def block_changes(ty, tx, flags, changes):
        with T.block():
            last = T.alloc_buffer((count,), "bool", scope="shared")
            thread = ty * TX + tx
            last[thread] = flags[N - 1]
            changes[0] = T.if_then_else(thread != 0, differ(flags[0], last[thread - 1]), flags[0])
            for i in T.unroll(1, N):
                changes[i] = differ(flags[i], flags[i - 1])

    return block_changes


def _block_reduce(threads: Threads) -> TIRMacro:
    """A macro: one value from what all threads have, of that under the mask where there is one."""
    TX, N, count = T.int64(threads.tx_len), T.int64(threads.thread_elem), T.int64(threads.count)
    LOG_COUNT = log2(threads.count)

    @T.macro
    def block_reduce(ty, tx, init, data, result, result_dtype, combine, mask):
        with T.block():
            mine = T.alloc_buffer((), result_dtype, scope="local")
            shared = T.alloc_buffer((count,), result_dtype, scope="shared")
            thread = ty * TX + tx
            mine[()] = T.Cast(result_dtype, init)
            for i in T.unroll(N):
                if mask is not None:
                    if mask[i]:
                        mine[()] = combine(mine[()], data[i])
                else:
                    mine[()] = combine(mine[()], data[i])
            shared[thread] = mine[()]
            for i in T.unroll(LOG_COUNT):
                if thread % (1 << (i + 1)) == 0:
                    shared[thread] = combine(shared[thread], shared[thread + (1 << i)])
            result[()] = shared[0]

    return block_reduce


def _sample_stretch(threads: Threads, prob_dtype: str, dtype: str, eps: float, lockstep: bool) -> TIRMacro:
    """A macro: add up one stretch of a row, and if the draw falls into it, find where."""
    N, warp_elem, block_elem = T.int64(threads.thread_elem), threads.warp_elem, threads.block_elem
    sum_up = lockstep_cumsum(threads) if lockstep else block_cumsum(threads, prob_dtype)
    block_changes, block_reduce = _block_changes(threads), _block_reduce(threads)
    plus, smaller = _plus, _smaller

    @T.macro
    def sample_stretch(prob, row, vocab_size, ty, tx, step, threshold, seen, draw, found):
        with T.block():
            weights = T.alloc_buffer((N,), prob_dtype, scope="local")
            sums = T.alloc_buffer((block_elem,), prob_dtype, scope="shared")
            reached = T.alloc_buffer((N,), "bool", scope="local")
            mask = T.alloc_buffer((N,), "bool", scope="local")
            valid = T.alloc_buffer((N,), "bool", scope="local")
            places = T.alloc_buffer((N), dtype, scope="local")
            here = T.alloc_buffer((), prob_dtype, scope="local")
            for v in T.unroll(N):
                at = step * block_elem + ty * warp_elem + tx * N + v
                weight = T.if_then_else(at < vocab_size, prob[row, at], T.Cast(prob_dtype, 0))
                weights[v] = T.if_then_else(weight > threshold, weight, T.Cast(prob_dtype, 0))
                valid[v] = weight > threshold and at < vocab_size
            block_reduce(ty, tx, 0, weights, here, prob_dtype, plus, None)
            if T.tvm_thread_invariant(seen[()] + here[()] >= draw - eps):
                sum_up(ty, tx, weights, sums)
                # Unrolled, not vectorized: Vulkan has no vectors of truth values.
                for v in T.unroll(N):
                    reached[v] = sums[ty * warp_elem + tx * N + v] + seen[()] >= draw - eps
                block_changes(ty, tx, reached, mask)
                for v in T.unroll(N):
                    mask[v] = mask[v] and valid[v]
                    places[v] = step * block_elem + ty * warp_elem + tx * N + v
                block_reduce(ty, tx, vocab_size - 1, places, found, dtype, smaller, mask)
            seen[()] += here[()]

    return sample_stretch


def gpu_multinomial_from_uniform(
    prob_dtype: str = "float32",
    sample_dtype: str = "float32",
    sample_indices_dtype: str = "int64",
    dtype: str = "int64",
    ty_len: int = 4,
    tx_len: int = 32,
    thread_elem: int = 4,
    eps: float = 1e-6,
    *,
    lockstep: bool = True,
) -> PrimFunc:
    """A scheduled PrimFunc ``(probabilities, draws, rows, token_ids)``: where each draw falls in its row.

    A block works on one draw. It goes along the row, ``tx_len * ty_len * thread_elem`` elements at a time, until the sum
    of what it has seen reaches the draw (less ``eps``); in that stretch the running sum shows the first place where it
    does.  Without ``lockstep`` no thread relies on others of its warp being as far as itself.  Raises ValueError unless
    the sizes are powers of two.
    """
    threads = Threads(ty_len, tx_len, thread_elem)
    if not threads.are_powers_of_two:
        raise ValueError(
            f"Configuration of tx_len, ty_len, thread_elem must be power of 2,but got {tx_len}, {ty_len}, {thread_elem}"
        )
    index_dtype = "int32" if "webgpu" in str(Target.current(allow_none=True)) else "int64"
    TX, TY, block_elem = T.int64(tx_len), T.int64(ty_len), threads.block_elem
    sample_stretch = _sample_stretch(threads, prob_dtype, dtype, eps, lockstep)

    @T.prim_func(private=False)
    def parallel_sampling_from_prob(
        var_prob: T.handle, var_uniform_samples: T.handle, var_row_indices: T.handle, var_sampled_token_ids: T.handle
    ):
        T.func_attr({"tir.is_scheduled": True})
        n, vocab_size, batch_size = T.int64(), T.int64(), T.int64()
        prob = T.match_buffer(var_prob, (n, vocab_size), prob_dtype)
        uniform_samples = T.match_buffer(var_uniform_samples, (batch_size, 1), sample_dtype)
        row_indices = T.match_buffer(var_row_indices, (batch_size, 1), sample_indices_dtype)
        token_ids = T.match_buffer(var_sampled_token_ids, (batch_size, 1), dtype)
        seen = T.alloc_buffer((), prob_dtype, scope="local")
        found = T.alloc_buffer((), dtype, scope="local")
        step = T.alloc_buffer((), "int32", scope="local")
        for bx in T.thread_binding(batch_size, thread="blockIdx.x"):
            row = row_indices[bx, 0]
            for ty in T.thread_binding(TY, thread="threadIdx.y"):
                for tx in T.thread_binding(TX, thread="threadIdx.x"):
                    draw = uniform_samples[bx, 0]
                    seen[()] = T.Cast(prob_dtype, 0)
                    step[()] = T.int32(0)
                    while T.tvm_thread_invariant(
                        (step[()] == 0 or seen[()] < draw - eps)
                        and T.Cast(index_dtype, step[()]) < T.Cast(index_dtype, T.ceildiv(vocab_size, block_elem))
                    ):
                        sample_stretch(
                            prob, row, vocab_size, ty, tx, T.Cast(index_dtype, step[()]), 0.0, seen, draw, found
                        )
                        step[()] += 1
                    if tx == 0 and ty == 0:
                        token_ids[bx, 0] = found[()]

    return parallel_sampling_from_prob


def generic_get_sample_index(
    prob_dtype: str = "float32",
    sample_dtype: str = "float32",
    sample_indices_dtype: str = "int64",
    dtype: str = "int64",
    is_size_var: bool = False,
) -> PrimFunc:
    """The first place of a row where the cumulated probability exceeds the draw, the last one if none does.

    ``is_size_var``: the dimensions are known to be non-negative.
    """

    @T.prim_func(private=True)
    def get_sample_index(A: T.handle, B: T.handle, C: T.handle, D: T.handle):
        batch, vocab_size = T.int64(is_size_var=is_size_var), T.int64(is_size_var=is_size_var)
        prob = T.match_buffer(A, (batch, vocab_size), prob_dtype)
        out_batch = T.int64(is_size_var=is_size_var)
        usample = T.match_buffer(B, (out_batch, 1), sample_dtype)
        sample_indices = T.match_buffer(C, (out_batch, 1), sample_indices_dtype)
        output_index = T.match_buffer(D, (out_batch, 1), dtype)
        for ax0, ax1 in T.grid(out_batch, vocab_size):
            with T.block("T_get_sample_index"):
                v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                T.writes(output_index[v_ax0, 0])
                if (
                    usample[v_ax0, T.int64(0)] < prob[sample_indices[v_ax0, T.int64(0)], v_ax1]
                    or v_ax1 + 1 == vocab_size
                ):
                    if v_ax1 == 0:
                        output_index[v_ax0, 0] = 0
                    elif usample[v_ax0, T.int64(0)] >= prob[sample_indices[v_ax0, T.int64(0)], v_ax1 - 1]:
                        output_index[v_ax0, 0] = v_ax1

    return get_sample_index
