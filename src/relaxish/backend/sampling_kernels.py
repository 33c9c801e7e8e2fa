"""Kernels that draw from cumulated probabilities."""

# mypy: disable-error-code="valid-type, call-arg, operator, attr-defined, no-untyped-def"
# The functions under ``T.prim_func`` are TVMScript: they are parsed and never run as Python.
from __future__ import annotations

from typing import Any

from ..script import tir as T

__all__ = ["generic_get_sample_index"]


def generic_get_sample_index(
    prob_dtype: str = "float32",
    sample_dtype: str = "float32",
    sample_indices_dtype: str = "int64",
    dtype: str = "int64",
    is_size_var: bool = False,
) -> Any:
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
