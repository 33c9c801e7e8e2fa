"""Kernels that move data in and out of pages: append, copy, compact, read for debugging."""

from __future__ import annotations

from contextlib import AbstractContextManager

from .... import tir
from ....script.ir_builder import tir as T
from ....tir import Buffer, PrimExpr
from ..core import Dim
from ._attention_kernels import matched, size_var
from ._paged_kernels import _function, _handles
from ._threads import each_by_lane, rows_by_threads


def _loop(extent: PrimExpr, threads: bool) -> AbstractContextManager[tuple[PrimExpr, PrimExpr | None]]:
    return rows_by_threads(extent, threads, parallel=False)


def _place(position: PrimExpr, page_size: Dim) -> tuple[PrimExpr, PrimExpr]:
    return tir.floordiv(position, page_size), tir.floormod(position, page_size)


def append(head_dim: int, kv_heads: int, dtype: str, page_size: int, threads: bool = False) -> tir.PrimFunc:
    """Write keys and values of new tokens to their places: ``(pages, k_data, v_data, position_map)``."""

    def emit() -> None:
        args = _handles("pages", "k_data", "v_data", "position_map")
        tokens, count = size_var("ntoken"), size_var("num_pages")
        pages = matched(args["pages"], (count, 2, kv_heads, page_size, head_dim), dtype, "pages")
        data = [matched(args[n], (tokens, kv_heads, head_dim), dtype, n) for n in ("k_data", "v_data")]
        places = matched(args["position_map"], (tokens,), "int32", "position_map")
        with _loop(tokens, threads) as (token, lane), T.If(places[token] != -1), T.Then():
            page, slot = _place(places[token], page_size)
            with T.serial(kv_heads) as head:
                for part, source in enumerate(data):
                    _copy_row(head_dim, pages, [page, part, head, slot], source, [token, head], lane)

    return _function("tir_kv_cache_transpose_append", emit)


def _copy_row(dim: int, target: Buffer, at: list[Dim], source: Buffer, where: list[Dim], lane: PrimExpr | None) -> None:
    with T.vectorized(dim) if lane is None else each_by_lane(dim, lane) as d:
        T.buffer_store(target, source[(*where, d)], [*at, d])


def append_latent(dim: int, dtype: str, page_size: int, threads: bool = False) -> tir.PrimFunc:
    """Write latent vectors of new tokens to their places: ``(pages, kv_data, position_map)``."""

    def emit() -> None:
        args = _handles("pages", "kv_data", "position_map")
        tokens, count = size_var("ntoken"), size_var("num_pages")
        pages = matched(args["pages"], (count, page_size, dim), dtype, "pages")
        data = matched(args["kv_data"], (tokens, dim), dtype, "kv_data")
        places = matched(args["position_map"], (tokens,), "int32", "position_map")
        with _loop(tokens, threads) as (token, lane), T.If(places[token] != -1), T.Then():
            page, slot = _place(places[token], page_size)
            _copy_row(dim, pages, [page, slot], data, [token], lane)

    return _function("tir_kv_cache_transpose_append_mla", emit)


def debug_get(
    num_layers: int, kv_heads: int, head_dim: int, dtype: str, page_size: int | None, threads: bool = False
) -> tir.PrimFunc:
    """Read stored keys and values: ``(pages, position_map, k_data, v_data, layer_id)``."""

    def emit() -> None:
        args = _handles("pages", "position_map", "k_data", "v_data")
        layer = T.arg("layer_id", tir.Var("layer_id", "int64"))
        tokens, count, size = size_var("seqlen"), size_var("num_pages"), page_size or size_var("page_size")
        pages = matched(args["pages"], (count, 2, kv_heads, size, head_dim), dtype, "pages")
        places = matched(args["position_map"], (tokens,), "int32", "position_map")
        data = [matched(args[n], (num_layers, tokens, kv_heads, head_dim), dtype, n) for n in ("k_data", "v_data")]
        with _loop(tokens, threads) as (token, lane):
            page, slot = tir.floordiv(places[token], size), tir.floormod(places[token], size)
            with T.serial(kv_heads) as head:
                for part, target in enumerate(data):
                    with each_by_lane(head_dim, lane) as d:
                        T.buffer_store(target, pages[page, part, head, slot, d], [layer, token, head, d])

    return _function("tir_kv_cache_debug_get_kv", emit)


def debug_get_latent(
    num_layers: int, dim: int, dtype: str, page_size: int | None, threads: bool = False
) -> tir.PrimFunc:
    """Read stored latent vectors: ``(pages, position_map, compressed_kv_with_k_pe_data, layer_id)``."""

    def emit() -> None:
        args = _handles("pages", "position_map", "kv_data")
        layer = T.arg("layer_id", tir.Var("layer_id", "int64"))
        tokens, count, size = size_var("seqlen"), size_var("num_pages"), page_size or size_var("page_size")
        pages = matched(args["pages"], (count, size, dim), dtype, "pages")
        places = matched(args["position_map"], (tokens,), "int32", "position_map")
        data = matched(args["kv_data"], (num_layers, tokens, dim), dtype, "kv_data")
        with _loop(tokens, threads) as (token, lane), each_by_lane(dim, lane) as d:
            page, slot = tir.floordiv(places[token], size), tir.floormod(places[token], size)
            T.buffer_store(data, pages[page, slot, d], [layer, token, d])

    return _function("tir_kv_cache_debug_get_kv_mla", emit)


def copy_page(kv_heads: int, page_size: int, head_dim: int, dtype: str, threads: bool = False) -> tir.PrimFunc:
    """Copy the first slots of a page to another: ``(pages, src_page_id, tgt_page_id, copy_length)``."""

    def emit() -> None:
        args = _handles("pages")
        source, target, length = (T.arg(n, tir.Var(n, "int64")) for n in ("src_page_id", "tgt_page_id", "copy_length"))
        pages = matched(args["pages"], (size_var("num_pages"), 2, kv_heads, page_size, head_dim), dtype, "pages")
        with _loop(length, threads) as (slot, lane), T.serial(kv_heads) as head:
            for part in range(2):
                _copy_row(head_dim, pages, [target, part, head, slot], pages, [source, part, head, slot], lane)

    return _function("copy_single_page", emit)


def copy_page_latent(page_size: int, dim: int, dtype: str, threads: bool = False) -> tir.PrimFunc:
    """As :func:`copy_page`, for latent vectors."""

    def emit() -> None:
        args = _handles("pages")
        source, target, length = (T.arg(n, tir.Var(n, "int64")) for n in ("src_page_id", "tgt_page_id", "copy_length"))
        pages = matched(args["pages"], (size_var("num_pages"), page_size, dim), dtype, "pages")
        with _loop(length, threads) as (slot, lane):
            _copy_row(dim, pages, [target, slot], pages, [source, slot], lane)

    return _function("copy_single_page_mla", emit)


def compact(kv_heads: int, head_dim: int, dtype: str, page_size: int, threads: bool = False) -> tir.PrimFunc:
    """Move tokens within pages, in order for each sequence.

    ``(pages, copy_length_indptr, copy_src_dst_pos, batch_size)``; the positions are a row of sources and one of targets.
    """

    def emit() -> None:
        args = _handles("pages", "copy_length_indptr", "copy_src_dst_pos")
        batch = T.arg("batch_size", tir.Var("batch_size", "int32"))
        total = size_var("total_copy_length")
        pages = matched(args["pages"], (size_var("num_pages"), 2, kv_heads, page_size, head_dim), dtype, "pages")
        indptr = matched(args["copy_length_indptr"], (batch + 1,), "int32", "copy_length_indptr")
        moves = matched(args["copy_src_dst_pos"], (2, total), "int32", "copy_src_dst_pos")
        with _loop(batch, threads) as (b, lane), T.serial(indptr[b + 1] - indptr[b]) as i:
            source = _place(moves[0, indptr[b] + i], page_size)
            target = _place(moves[1, indptr[b] + i], page_size)
            with T.serial(kv_heads) as head:
                for part in range(2):
                    _copy_row(
                        head_dim,
                        pages,
                        [target[0], part, head, target[1]],
                        pages,
                        [source[0], part, head, source[1]],
                        lane,
                    )

    return _function("compact_kv_copy", emit)
