"""The attention kernels of a paged cache: decode, prefill over pages, prefill over ragged rows, trees, latent vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from .... import tir
from ....script.ir_builder import IRBuilder
from ....script.ir_builder import tir as T
from ....tir import Buffer, PrimExpr
from ._attention_kernels import (
    Keys,
    Queries,
    Rope,
    Sizes,
    attention_by,
    local,
    matched,
    owner_of,
    rows_of_heads,
    scalars,
    size_var,
)
from ._threads import each_by_lane, first_lane, rows_by_threads

_ATTRS: Mapping[str, Any] = {"tir.is_scheduled": True, "tir.noalias": True}


def _function(name: str, emit: Callable[[], None]) -> tir.PrimFunc:
    with IRBuilder() as builder:
        with T.prim_func():
            T.func_name(name)
            T.func_attr(dict(_ATTRS))
            emit()
    return builder.get()


def _handles(*names: str) -> dict[str, Any]:
    return {name: T.arg(f"var_{name}", T.handle()) for name in names}


class _Pages:
    """Page parameters of a kernel."""

    def __init__(self, sizes: Sizes, args: Mapping[str, Any], page_size: int, sliding: bool, *, latent: bool) -> None:
        self.page_size = page_size
        self.sliding = sliding
        self.latent = latent
        count, listed, self.batch = size_var("max_num_pages"), size_var("nnz_pages"), size_var("batch_size")
        shape = (count, page_size, sizes.key_dim) if latent else (count, 2, sizes.kv_heads, page_size, sizes.key_dim)
        self.pages = matched(args["pages"], shape, sizes.dtype, "pages")
        self.indptr = matched(args["page_indptr"], (self.batch + 1,), "int32", "page_indptr")
        self.values = matched(args["page_values"], (listed,), "int32", "page_values")
        filling = (3, self.batch) if sliding else (self.batch,)
        self.filling = matched(args["length_info"], filling, "int32", "length_info")

    def count(self, b: PrimExpr) -> PrimExpr:
        """Number of keys of a sequence."""
        pages = self.indptr[b + 1] - self.indptr[b]
        before = (pages - 1) * self.page_size
        if self.sliding:
            filled = before + self.filling[0, b] - self.filling[1, b] + self.filling[2, b]
        else:
            filled = before + self.filling[b]
        return tir.if_then_else(pages > 0, filled, 0)

    def _slot(self, b: PrimExpr, token: PrimExpr) -> PrimExpr:
        if not self.sliding:
            return token
        sink = self.filling[2, b]
        return tir.if_then_else(token < sink, token, token - sink + self.filling[1, b])

    def read(self, b: PrimExpr, part: int) -> Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]:
        """Element of a key (``part`` 0) or value (1)."""

        def element(token: PrimExpr, head: PrimExpr, d: PrimExpr) -> PrimExpr:
            slot = self._slot(b, token)
            page = self.values[self.indptr[b] + tir.floordiv(slot, self.page_size)]
            at = tir.floormod(slot, self.page_size)
            return self.pages[page, at, d] if self.latent else self.pages[page, part, head, at, d]

        return element


def decode(sizes: Sizes, page_size: int, sliding: bool) -> tir.PrimFunc:
    """One query row for each sequence, over all of its pages.

    ``(q, pages, page_indptr, page_values, length_info, k_rope_pos_offset, q_rope_position, output, lse, rotary_mode,
    rope_scale, rope_theta, sm_scale)``
    """

    def emit() -> None:
        args = _handles(
            "q", "pages", "page_indptr", "page_values", "length_info", "k_rope_pos_offset", "q_rope_position", "output",
            "lse",
        )  # fmt: skip
        rope = Rope(*scalars("rotary_mode", "rope_scale", "rope_theta", "sm_scale"))
        pages = _Pages(sizes, args, page_size, sliding, latent=False)
        batch = pages.batch
        q = matched(args["q"], (batch, sizes.q_heads, sizes.key_dim), sizes.dtype, "q")
        offsets = matched(args["k_rope_pos_offset"], (batch,), "int32", "k_rope_pos_offset")
        positions = matched(args["q_rope_position"], (batch,), "int32", "q_rope_position")
        out = matched(args["output"], (batch, sizes.q_heads, sizes.value_dim), sizes.dtype, "output")
        lse = matched(args["lse"], (batch, sizes.q_heads), "float32", "lse")
        queries = Queries(q, lambda row: positions[row], out, lse)
        with rows_of_heads(sizes, batch) as (item, lane), ExitStack() as stack:
            b, head = tir.floordiv(item, sizes.q_heads), tir.floormod(item, sizes.q_heads)
            attention = attention_by(sizes, rope, lane)
            attention.allocate(stack)
            keys = Keys(pages.count(b), pages.read(b, 0), pages.read(b, 1), offsets[b])
            attention.emit(queries, keys, b, head, tir.floordiv(head, sizes.group))

    return _function("batch_decode_paged_kv_sliding_window" if sliding else "batch_decode_paged_kv", emit)


def prefill(sizes: Sizes, page_size: int, sliding: bool, *, tree: bool = False) -> tir.PrimFunc:
    """Several query rows for each sequence, over all of its pages.

    ``(q, q_indptr, pages, page_indptr, page_values, length_info, k_rope_pos_offset, q_rope_position, output, lse, causal,
    rotary_mode, rope_scale, rope_theta, sm_scale)``; with ``tree`` there is no ``causal``, and the last parameters are
    ``tree_order_indptr`` and ``tree_order``.
    """

    def emit() -> None:
        args = _handles(
            "q", "q_indptr", "pages", "page_indptr", "page_values", "length_info", "k_rope_pos_offset", "q_rope_position",
            "output", "lse",
        )  # fmt: skip
        causal = None if tree else scalars("causal")[0]
        rope = Rope(*scalars("rotary_mode", "rope_scale", "rope_theta", "sm_scale"))
        trees = _handles("tree_order_indptr", "tree_order") if tree else {}
        pages = _Pages(sizes, args, page_size, sliding, latent=False)
        rows = size_var("total_len")
        q = matched(args["q"], (rows, sizes.q_heads, sizes.key_dim), sizes.dtype, "q")
        indptr = matched(args["q_indptr"], (pages.batch + 1,), "int32", "q_indptr")
        offsets = matched(args["k_rope_pos_offset"], (pages.batch,), "int32", "k_rope_pos_offset")
        positions = matched(args["q_rope_position"], (rows,), "int32", "q_rope_position")
        out = matched(args["output"], (rows, sizes.q_heads, sizes.value_dim), sizes.dtype, "output")
        lse = matched(args["lse"], (rows, sizes.q_heads), "float32", "lse")
        order = _tree_order(trees, pages.batch + 1) if tree else None
        queries = Queries(q, lambda row: positions[row], out, lse)
        with rows_of_heads(sizes, rows) as (item, lane), ExitStack() as stack:
            row, head = tir.floordiv(item, sizes.q_heads), tir.floormod(item, sizes.q_heads)
            attention = attention_by(sizes, rope, lane)
            attention.allocate(stack)
            b = owner_of(stack, indptr, pages.batch, row)
            keys = Keys(pages.count(b), pages.read(b, 0), pages.read(b, 1), offsets[b])
            _restrict(stack, keys, causal, order, indptr, b, row)
            attention.emit(queries, keys, row, head, tir.floordiv(head, sizes.group))

    name = "tree_attn_paged_kv" if tree else "batch_prefill_paged_kv"
    return _function(f"{name}_sliding_window" if sliding else name, emit)


def prefill_ragged(sizes: Sizes, *, tree: bool = False) -> tir.PrimFunc:
    """Several query rows for each sequence, over keys that lie in rows as the queries do.

    ``(q, q_indptr, k, v, kv_indptr, q_rope_position, k_rope_pos_offset, output, lse, causal, rotary_mode, rope_scale,
    rope_theta, sm_scale)``; with ``tree`` ``mn_indptr`` and ``mask`` (the tree orders) stand in place of
    ``k_rope_pos_offset`` and there is no ``causal``.
    """

    def emit() -> None:
        special = ("mn_indptr", "mask") if tree else ("k_rope_pos_offset",)
        args = _handles("q", "q_indptr", "k", "v", "kv_indptr", "q_rope_position", *special, "output", "lse")
        causal = None if tree else scalars("causal")[0]
        rope = Rope(*scalars("rotary_mode", "rope_scale", "rope_theta", "sm_scale"))
        rows, kv_rows, ends = size_var("qo_len"), size_var("kv_len"), size_var("batch_size_plus_1")
        batch = ends - 1
        q = matched(args["q"], (rows, sizes.q_heads, sizes.key_dim), sizes.dtype, "q")
        indptr = matched(args["q_indptr"], (ends,), "int32", "q_indptr")
        k = matched(args["k"], (kv_rows, sizes.kv_heads, sizes.key_dim), sizes.dtype, "k")
        v = matched(args["v"], (kv_rows, sizes.kv_heads, sizes.value_dim), sizes.dtype, "v")
        kv_indptr = matched(args["kv_indptr"], (ends,), "int32", "kv_indptr")
        positions = matched(args["q_rope_position"], (rows,), "int32", "q_rope_position")
        order = offsets = None
        if tree:
            order = _tree_order({"tree_order_indptr": args["mn_indptr"], "tree_order": args["mask"]}, ends)
        else:
            offsets = matched(args["k_rope_pos_offset"], (batch,), "int32", "k_rope_pos_offset")
        out = matched(args["output"], (rows, sizes.q_heads, sizes.value_dim), sizes.dtype, "output")
        lse = matched(args["lse"], (rows, sizes.q_heads), "float32", "lse")
        queries = Queries(q, lambda row: positions[row], out, lse)
        with rows_of_heads(sizes, rows) as (item, lane), ExitStack() as stack:
            row, head = tir.floordiv(item, sizes.q_heads), tir.floormod(item, sizes.q_heads)
            attention = attention_by(sizes, rope, lane)
            attention.allocate(stack)
            b = owner_of(stack, indptr, batch, row)
            begin = kv_indptr[b]
            keys = Keys(
                kv_indptr[b + 1] - begin,
                lambda token, h, d: k[begin + token, h, d],
                lambda token, h, d: v[begin + token, h, d],
                # In a tree keys and queries are the same nodes: a node's own position turns its key.
                offsets[b] if offsets is not None else tir.const(0, "int32"),
            )
            if tree:
                keys.position = lambda token: positions[indptr[b] + token]
            _restrict(stack, keys, causal, order, indptr, b, row)
            attention.emit(queries, keys, row, head, tir.floordiv(head, sizes.group))

    return _function("batch_tree_attn" if tree else "batch_prefill_ragged_kv", emit)


def prefill_latent(sizes: Sizes, page_size: int) -> tir.PrimFunc:
    """Attention of all heads over latent vectors; the first ``value_dim`` elements of a key are its value.

    ``(q, q_indptr, pages, page_indptr, page_values, length_info, output, lse, causal, sm_scale)``
    """

    def emit() -> None:
        args = _handles("q", "q_indptr", "pages", "page_indptr", "page_values", "length_info", "output", "lse")
        causal, sm_scale = scalars("causal", "sm_scale")
        pages = _Pages(sizes, args, page_size, False, latent=True)
        rows = size_var("total_len")
        q = matched(args["q"], (rows, sizes.q_heads, sizes.key_dim), sizes.dtype, "q")
        indptr = matched(args["q_indptr"], (pages.batch + 1,), "int32", "q_indptr")
        out = matched(args["output"], (rows, sizes.q_heads, sizes.value_dim), sizes.dtype, "output")
        lse = matched(args["lse"], (rows, sizes.q_heads), "float32", "lse")
        with rows_of_heads(sizes, rows) as (item, lane), ExitStack() as stack:
            row, head = tir.floordiv(item, sizes.q_heads), tir.floormod(item, sizes.q_heads)
            attention = attention_by(sizes, Rope(None, None, None, sm_scale), lane)
            attention.allocate(stack)
            b = owner_of(stack, indptr, pages.batch, row)
            keys = Keys(pages.count(b), pages.read(b, 0), pages.read(b, 0), tir.const(0, "int32"))
            _restrict(stack, keys, causal, None, indptr, b, row)
            attention.emit(Queries(q, lambda r: r, out, lse), keys, row, head, tir.const(0, "int32"))

    return _function("batch_prefill_paged_kv_mla", emit)


def _tree_order(handles: Mapping[str, Any], ends: PrimExpr) -> tuple[Buffer, Buffer]:
    nodes = size_var("tree_size")
    indptr = matched(handles["tree_order_indptr"], (ends,), "int32", "tree_order_indptr")
    return indptr, matched(handles["tree_order"], (nodes, 2), "int32", "tree_order")


def _restrict(
    stack: ExitStack,
    keys: Keys,
    causal: PrimExpr | None,
    order: tuple[Buffer, Buffer] | None,
    indptr: Buffer,
    b: PrimExpr,
    row: PrimExpr,
) -> None:
    """Which keys a row sees: with ``causal`` those up to its own, in a tree those before the tree and its ancestors."""
    if order is None:
        # How many keys: the row's own distance from the last row is cut off.
        limit = local(stack, (1,), "int32", "limit")
        assert causal is not None  # without a tree, kernels are told
        behind = indptr[b + 1] - 1 - row
        T.buffer_store(limit, tir.if_then_else(causal > 0, keys.count - behind, keys.count), [0])
        keys.count = limit[0]
        return
    order_indptr, orders = order
    nodes = order_indptr[b + 1] - order_indptr[b]
    start = keys.count - nodes
    own = order_indptr[b] + row - indptr[b] + nodes - (indptr[b + 1] - indptr[b])

    def visible(_row: PrimExpr, token: PrimExpr) -> PrimExpr:
        other = order_indptr[b] + tir.max(token - start, 0)
        inside = tir.all(orders[own, 0] >= orders[other, 0], orders[own, 0] < orders[other, 1])
        return tir.any(token < start, inside)

    keys.visible = visible


def merge_state(dtype: str, threads: bool) -> tir.PrimFunc:
    """Merge attention over two sets of keys into the first: ``(v, s, v_other, s_other)``."""

    def emit() -> None:
        args = _handles("v", "s", "v_other", "s_other")
        rows, heads, dim = size_var("N"), size_var("H"), size_var("D")
        v = matched(args["v"], (rows, heads, dim), dtype, "v")
        s = matched(args["s"], (rows, heads), "float32", "s")
        other_v = matched(args["v_other"], (rows, heads, dim), dtype, "v_other")
        other_s = matched(args["s_other"], (rows, heads), "float32", "s_other")
        with rows_by_threads(rows * heads, threads) as (item, lane), ExitStack() as stack:
            row, head = tir.floordiv(item, heads), tir.floormod(item, heads)
            state = local(stack, (3,), "float32", "state")
            most = tir.max(s[row, head], other_s[row, head])
            T.buffer_store(state, tir.exp2(s[row, head] - most), [0])
            T.buffer_store(state, tir.exp2(other_s[row, head] - most), [1])
            T.buffer_store(state, most, [2])
            if lane is not None:  # everybody has read the sums before the first thread writes the new one
                T.evaluate(tir.call_intrin("int32", "tir.tvm_storage_sync", tir.StringImm("shared")))
            total = state[0] + state[1]
            with each_by_lane(dim, lane) as d:
                own, other = v[row, head, d].astype("float32"), other_v[row, head, d].astype("float32")
                T.buffer_store(v, ((own * state[0] + other * state[1]) / total).astype(dtype), [row, head, d])
            with first_lane(lane):
                T.buffer_store(s, state[2] + tir.log2(total), [row, head])

    return _function("merge_state_inplace", emit)
