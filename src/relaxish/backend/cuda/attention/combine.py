"""Results of parts of the keys put together: sums weighted by how large each part's total is.

Source: Dao, Haziza, Massa and Sizov, "Flash-Decoding for long-context inference" (2023).
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from .... import tir
from ....script.ir_builder import IRBuilder
from ....script.ir_builder import tir as T
from .block import flattened, float32, local, bind, only_if
from .kernel import KERNEL_ATTRS, parameter, partial_shapes
from .problem import AttentionProblem, is_multiple
from .tiling import Tiling

__all__ = ["combine_kernel"]

_THREADS = 128


def combine_kernel(problem: AttentionProblem, tiling: Tiling) -> tir.PrimFunc:
    """``combine(sums, logarithms, out)``: a thread for each element of the result.

    ``logarithms`` are those (to base two) of the totals that ``sums`` were divided by; parts without keys have minus
    infinity.
    """
    shapes = partial_shapes(problem, tiling)
    with IRBuilder() as builder:
        with T.prim_func(is_private=True), ExitStack() as stack:
            T.func_name("combine_attention")
            T.func_attr(dict(KERNEL_ATTRS))
            sums = parameter("sums", shapes[0], "float32")
            logarithms = parameter("logarithms", shapes[1], "float32")
            out = parameter("out", problem.out.shape, problem.dtype)
            _emit(stack, problem, tiling, (sums, logarithms, out))
    func: tir.PrimFunc = builder.get()
    return func


def _emit(stack: ExitStack, problem: AttentionProblem, tiling: Tiling, tensors: tuple[Any, Any, Any]) -> None:
    rows: Any = tir.const(1, "int64") * problem.batch * problem.kv_heads * problem.rows
    count = rows * problem.value_size
    blocks = (count + (_THREADS - 1)) // _THREADS
    block = stack.enter_context(T.launch_thread("blockIdx.x", blocks))
    thread = stack.enter_context(T.launch_thread("threadIdx.x", tir.const(_THREADS, "int64")))
    index = bind(stack, "index", block * _THREADS + thread)
    sums, logarithms, out = (flattened(stack, t) for t in tensors)
    state = local(stack, "state", 3)  # largest logarithm, total of weights, weighted sum
    stack.enter_context(only_if(None if is_multiple(count, _THREADS) else index < count))
    row = bind(stack, "row", index // problem.value_size)
    for i, value in enumerate((float("-inf"), 0.0, 0.0)):
        T.buffer_store(state, float32(value), [i])
    with T.serial(tiling.parts) as part:
        T.buffer_store(state, tir.max(state[0], logarithms[part * rows + row]), [0])
    if problem.bias is not None:
        # A mask may leave a row no keys at all: weights are zero then, and so is the result.
        lowest = float32(float("-inf"))
        T.buffer_store(state, tir.Select(state[0] == lowest, float32(0.0), state[0]), [0])
    with T.serial(tiling.parts) as part:
        weight = tir.exp2(logarithms[part * rows + row] - state[0])
        T.buffer_store(state, state[1] + weight, [1])
        T.buffer_store(state, state[2] + weight * sums[part * count + index], [2])
    query, head = (row // problem.group, row % problem.group)
    query, batch = query % problem.queries, query // problem.queries
    kv_head, batch = batch % problem.kv_heads, batch // problem.kv_heads
    o = problem.out
    place = o.offset + batch * o.batch + query * o.row + (kv_head * problem.group + head) * o.head
    quotient = state[2] / state[1]
    if problem.bias is not None:
        quotient = tir.Select(state[1] == float32(0.0), float32(0.0), quotient)
    result = tir.Cast(problem.dtype, quotient)
    T.buffer_store(out, result, [place + index % problem.value_size])
