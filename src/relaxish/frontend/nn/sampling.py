"""Drawing tokens: cumulated probabilities, top-p and top-k cut-offs, index lookup."""

# mypy: disable-error-code="valid-type, call-arg, operator, attr-defined, no-untyped-def"
# The functions under ``T.prim_func`` are TVMScript: they are parsed and never run as Python.
from __future__ import annotations

from typing import Any


import numpy as np

from ... import op as _op
from ... import te, tir
from ...backend.gpu_generic.sampling import generic_get_sample_index
from ...script import tir as T
from ...tir import Buffer, PrimExpr, PrimFunc
from .calls import tensor_expr_op, tensor_ir_op
from .core import Tensor, wrap_tensor

__all__ = [
    "multinomial_from_uniform",
    "renormalize_top_p_top_k_prob",
    "sample_top_p_top_k_from_sorted_prob",
]


def _cumsum(x: Tensor) -> Tensor:
    return wrap_tensor(_op.cumsum(x._expr, 1, exclusive=False), "cumsum")


def _rows(prob: Tensor, uniform_sample: Tensor, sample_indices: Tensor | None) -> Tensor:
    """Which row of ``prob`` each draw is from; the row of the same number if nothing is said."""
    if sample_indices is None:
        if prob.shape[0] != uniform_sample.shape[0]:
            raise ValueError(
                "Without sample_indices there must be one uniform sample a row: "
                f"{prob.shape[0]} rows, {uniform_sample.shape[0]} samples"
            )
        count = int(uniform_sample.shape[0])
        return Tensor.from_const(np.arange(count, dtype="int64").reshape(count, 1))
    if list(sample_indices.shape) != list(uniform_sample.shape):
        raise ValueError(
            f"sample_indices has shape {sample_indices.shape}, uniform_sample {uniform_sample.shape}: they must agree"
        )
    return sample_indices


def multinomial_from_uniform(
    prob: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
    dtype: str = "int64",
    name: str = "multinomial_from_uniform",
) -> Tensor:
    """Draw an index from rows of ``prob`` for every uniform number in ``uniform_sample`` ``[n, 1]``.

    ``sample_indices`` ``[n, 1]`` says which row each draw is from.
    """
    rows = _rows(prob, uniform_sample, sample_indices)
    out = Tensor.placeholder([uniform_sample.shape[0], 1], dtype)
    func = generic_get_sample_index(prob.dtype, uniform_sample.dtype, rows.dtype, dtype, is_size_var=True)
    return tensor_ir_op(func, "get_sample_index", [_cumsum(prob), uniform_sample, rows], out)


def sample_top_p_top_k_from_sorted_prob(
    sorted_prob: Tensor,
    sorted_index: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
) -> Tensor:
    """Draw from the ``top_k`` most probable tokens whose probabilities add up to ``top_p``.

    Probabilities and their indices are sorted in descending order; ``top_p``, ``top_k``: ``[batch, 1]``.
    """
    rows = _rows(sorted_prob, uniform_sample, sample_indices)
    kind, index = sorted_prob.dtype, sorted_index.dtype
    total = _cumsum(sorted_prob)
    kept = tensor_ir_op(
        _get_renorm_prob(kind, index),
        "get_renorm_prob",
        [total, top_p, top_k],
        Tensor.placeholder([sorted_prob.shape[0], 1], kind),
    )
    out = Tensor.placeholder([uniform_sample.shape[0], 1], index)
    lookup = _get_index_from_sorted(kind, index, rows.dtype)
    args = [total, sorted_index, kept, uniform_sample, rows]
    return tensor_ir_op(lookup, "get_index_from_sorted", args, out)


def _below(total: Buffer, top_p: Buffer, top_k: Buffer, i: PrimExpr, j: PrimExpr | int) -> PrimExpr:
    """Whether both limits allow a token after the ``j``-th."""
    return tir.all(total[i, j] < top_p[i, 0], j + 1 < top_k[i, 0])


@T.macro
def _store_last_kept(
    result: Any,
    values: Buffer,
    total: Buffer,
    top_p: Buffer,
    top_k: Buffer,
    row: PrimExpr,
    token: PrimExpr,
    vocabulary: PrimExpr,
) -> None:
    """Store the value of a row's last token that is kept, if this is the one before it (or the first or last one)."""
    if _below(total, top_p, top_k, row, 0) == 0:
        result[row, 0] = values[row, 0]
    elif _below(total, top_p, top_k, row, token) == 1:
        if token + 1 == vocabulary:
            result[row, 0] = values[row, token]
        elif _below(total, top_p, top_k, row, token + 1) == 0:
            result[row, 0] = values[row, token + 1]


def _get_renorm_prob(kind: str, index: str) -> PrimFunc:
    """The cumulated probability of the tokens that are kept."""

    @T.prim_func(private=True)
    def get_renorm_prob(A: T.handle, B: T.handle, C: T.handle, D: T.handle):
        batch, vocab_size = T.int64(is_size_var=True), T.int64(is_size_var=True)
        cumsum_sorted = T.match_buffer(A, (batch, vocab_size), kind)
        top_p = T.match_buffer(B, (batch, 1), kind)
        top_k = T.match_buffer(C, (batch, 1), index)
        renorm_prob = T.match_buffer(D, (batch, 1), kind)
        for ax0, ax1 in T.grid(batch, vocab_size):
            with T.block("T_get_renorm_prob"):
                v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                _store_last_kept(renorm_prob, cumsum_sorted, cumsum_sorted, top_p, top_k, v_ax0, v_ax1, vocab_size)

    return get_renorm_prob


def _get_index_from_sorted(kind: str, index: str, rows_dtype: str) -> PrimFunc:
    """The token at which the renormalised cumulated probability exceeds the draw."""

    @T.prim_func(private=True)
    def get_index_from_sorted(A: T.handle, B: T.handle, C: T.handle, D: T.handle, E: T.handle, F: T.handle):
        batch, vocab_size = T.int64(is_size_var=True), T.int64(is_size_var=True)
        cumsum_sorted = T.match_buffer(A, (batch, vocab_size), kind)
        indices = T.match_buffer(B, (batch, vocab_size), index)
        renorm_prob = T.match_buffer(C, (batch, 1), kind)
        out_batch = T.int64(is_size_var=True)
        usample = T.match_buffer(D, (out_batch, 1), kind)
        sample_indices = T.match_buffer(E, (out_batch, 1), rows_dtype)
        output_index = T.match_buffer(F, (out_batch, 1), index)
        for ax0, ax1 in T.grid(out_batch, vocab_size):
            with T.block("T_get_index_from_sorted"):
                v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                T.writes(output_index[v_ax0, 0])
                row = T.meta_var(sample_indices[v_ax0, T.int64(0)])
                draw = T.meta_var(usample[v_ax0, T.int64(0)])
                if draw < cumsum_sorted[row, v_ax1] / renorm_prob[row, 0] or v_ax1 + 1 == vocab_size:
                    if v_ax1 == 0:
                        output_index[v_ax0, 0] = indices[row, 0]
                    elif draw >= cumsum_sorted[row, v_ax1 - 1] / renorm_prob[row, 0]:
                        output_index[v_ax0, 0] = indices[row, v_ax1]

    return get_index_from_sorted


def renormalize_top_p_top_k_prob(prob: Tensor, sorted_prob: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """``prob`` with the tokens outside top-p and top-k at zero, and the rest scaled to add up to one."""
    kind, index = sorted_prob.dtype, top_k.dtype
    batch, vocabulary = sorted_prob.shape
    cutoff = tensor_ir_op(
        _get_renorm_cutoff(kind, index),
        "get_renorm_cutoff",
        [sorted_prob, _cumsum(sorted_prob), top_p, top_k],
        Tensor.placeholder([batch, 1], kind),
    )

    def keep(values: te.Tensor, limit: te.Tensor) -> te.Tensor:
        return te.compute(
            (batch, vocabulary),
            lambda i, j: tir.Select(values[i, j] >= limit[i, 0], values[i, j], tir.const(0.0, kind)),
            name="filter_with_top_p_top_k",
        )

    filtered = tensor_expr_op(keep, "filter_with_top_p_top_k", [prob, cutoff])
    total = wrap_tensor(_op.sum(filtered._expr, 1, True), "sum")
    return wrap_tensor(_op.divide(filtered._expr, total._expr), "divide")


def _get_renorm_cutoff(kind: str, index: str) -> PrimFunc:
    """The smallest probability that is kept."""

    @T.prim_func(private=True)
    def get_renorm_cutoff(A: T.handle, B: T.handle, C: T.handle, D: T.handle, E: T.handle):
        batch, vocab_size = T.int64(), T.int64()
        sorted_prob = T.match_buffer(A, (batch, vocab_size), kind)
        cumsum_sorted = T.match_buffer(B, (batch, vocab_size), kind)
        top_p = T.match_buffer(C, (batch, 1), kind)
        top_k = T.match_buffer(D, (batch, 1), index)
        cutoff = T.match_buffer(E, (batch, 1), kind)
        for ax0, ax1 in T.grid(batch, vocab_size):
            with T.block("T_get_renorm_prob"):
                v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                _store_last_kept(cutoff, sorted_prob, cumsum_sorted, top_p, top_k, v_ax0, v_ax1, vocab_size)

    return get_renorm_cutoff
