"""The paged key-value cache: keys and values of many sequences, in pages that sequences take and give back.

A forward pass announces its sequences (:meth:`PagedKVCache.begin_forward`), then calls attention once for each layer;
the work is done by kernels given at creation, so the cache itself is the same for all devices and models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from ...support.errors import RelaxishError
from . import token_tree
from ..device import Device, cpu
from ..devices.host_program import DeviceFunction
from ..kernels.kernel import ArgumentError, NativeKernel, PythonKernel
from .kv_pages import PageCopy, PageTable, SequencePages
from .kv_state import KVState
from .kv_transfer import Mark, send_marked
from ..arrays.ndarray import NDArray, empty, from_numpy

__all__ = ["AttnKind", "PagedKVCache", "PagedKernels", "RoPEMode"]

Kernel = Callable[..., Any]


class AttnKind(IntEnum):
    """Kind of a layer's attention: heads with their own keys and values, or one latent vector for all heads."""

    MHA = 0
    MLA = 1


class RoPEMode(IntEnum):
    """When rotary positions are applied: never, before keys are stored, or each time they are read."""

    NONE = 0
    NORMAL = 1
    INLINE = 2


@dataclass
class PagedKernels:
    """The kernels of a cache; those that a model does not need may be ``None``."""

    append: Kernel | None = None
    append_mla: Kernel | None = None
    prefill_ragged: Kernel | None = None
    prefill: Kernel | None = None
    decode: Kernel | None = None
    prefill_sliding: Kernel | None = None
    decode_sliding: Kernel | None = None
    tree_paged: Kernel | None = None
    tree: Kernel | None = None
    mla_prefill: Kernel | None = None
    merge: Kernel | None = None
    split_rotary: Kernel | None = None
    copy_page: Kernel | None = None
    debug_get: Kernel | None = None
    compact: Kernel | None = None

    def __post_init__(self) -> None:
        for name, kernel in self.__dict__.items():
            # The quick check: going through every argument again would double the cost of a decoding step.
            if isinstance(kernel, NativeKernel | PythonKernel | DeviceFunction):
                setattr(self, name, kernel.guarded)

    def need(self, name: str) -> Kernel:
        """A kernel. Raises RelaxishError if the cache was made without it."""
        kernel: Kernel | None = getattr(self, name)
        if kernel is None:
            raise RelaxishError(f"the KV cache was constructed without the function for {name!r}")
        return kernel


@dataclass(frozen=True)
class PagedLayout:
    """Sizes of a cache."""

    reserved_num_seqs: int
    total_token_capacity: int
    prefill_chunk_size: int
    page_size: int
    support_sliding_window: bool
    attn_kinds: tuple[AttnKind, ...]
    layer_offset: int
    num_qo_heads: int
    num_kv_heads: int
    qk_head_dim: int
    v_head_dim: int
    dtype: str

    @property
    def num_pages(self) -> int:
        """Pages in all; a sliding window may need two more for each sequence."""
        pages = -(-self.total_token_capacity // self.page_size)
        return pages + 2 * self.reserved_num_seqs if self.support_sliding_window else pages

    def page_shape(self, kind: AttnKind) -> tuple[int, ...]:
        """Shape of one layer's pages."""
        if kind == AttnKind.MLA:
            return (self.num_pages, self.page_size, self.qk_head_dim)
        return (self.num_pages, 2, self.num_kv_heads, self.page_size, self.qk_head_dim)


@dataclass
class _PageList:
    """Pages of a batch as the kernels take them."""

    indptr: NDArray
    values: NDArray
    lengths: NDArray
    windows: NDArray

    @staticmethod
    def of(
        table: PageTable, sequences: Sequence[SequencePages], lengths: Sequence[int], placed: Callable[[Any], NDArray]
    ) -> _PageList:
        starts, pages, filling = table.describe(sequences, lengths)
        return _PageList(
            placed(np.asarray(starts, np.int32)),
            placed(np.asarray(pages or [0], np.int32)),
            placed(filling[0].copy()),
            placed(filling),
        )


class PagedKVCache(KVState):
    """See the module. ``vm.builtin.paged_attention_kv_cache_create`` makes one."""

    def __init__(
        self,
        layout: PagedLayout,
        kernels: PagedKernels,
        rope_mode: int,
        rope_scale: float,
        rope_theta: float,
        rope_factors: NDArray | None = None,
        device: Device | None = None,
    ) -> None:
        self.device = cpu() if device is None else device
        self.rope_factors = rope_factors
        self.layout = layout
        self.kernels = kernels
        # A window that moves changes positions of stored keys: they must not be baked in.
        moves = layout.support_sliding_window and rope_mode != RoPEMode.NONE
        self.rope_mode = RoPEMode.INLINE if moves else RoPEMode(rope_mode)
        self.rope = (int(self.rope_mode == RoPEMode.INLINE), float(rope_scale), float(rope_theta))
        self.table = PageTable(layout.num_pages, layout.page_size)
        self.pages = [empty(layout.page_shape(kind), layout.dtype, self.device) for kind in layout.attn_kinds]
        rows = layout.prefill_chunk_size
        self._q = empty((rows, layout.num_qo_heads, layout.qk_head_dim), layout.dtype, self.device)
        self._k = empty((rows, layout.num_kv_heads, layout.qk_head_dim), layout.dtype, self.device)
        self._v = empty((rows, layout.num_kv_heads, layout.v_head_dim), layout.dtype, self.device)
        self._lse = empty((rows, layout.num_qo_heads), "float32", self.device)
        self.batch: list[int] = []
        self.marks: dict[int, Mark] = {}
        self.total = 0

    def _placed(self, array: np.ndarray[Any, Any]) -> NDArray:
        """A description of the batch, where the kernels run."""
        made = from_numpy(array)
        return made if self.device.device_type == Device.kDLCPU else made.copyto(self.device)

    # ---- sequences

    def clear(self) -> None:
        self.table.clear()
        self.marks.clear()
        self.batch = []

    def add_sequence(self, seq_id: int) -> None:
        self.table.add(seq_id)

    def remove_sequence(self, seq_id: int) -> None:
        self.table.remove(seq_id)
        self.marks.pop(seq_id, None)

    def fork_sequence(self, parent_seq_id: int, child_seq_id: int, fork_pos: int = -1) -> None:
        self._copy(self.table.fork(parent_seq_id, child_seq_id, fork_pos))

    def popn(self, seq_id: int, n: int) -> None:
        self._copy(self.table.pop(seq_id, n))

    def _copy(self, copy: PageCopy | None) -> None:
        if copy is not None:
            kernel = self.kernels.need("copy_page")
            for pages in self.pages:
                kernel(pages, copy.source, copy.target, copy.length)

    def enable_sliding_window(self, seq_id: int, window_size: int, sink_size: int) -> None:
        """From now on keep ``window_size`` tokens of a sequence, its first ``sink_size`` among them."""
        if not self.layout.support_sliding_window:
            raise ArgumentError("The KV cache does not support sliding window.")
        sequence = self.table[seq_id]
        if sink_size < 0:
            raise ArgumentError("The specified attention sink size is expected to be non negative")
        if window_size <= 0:
            raise ArgumentError("The specified sliding window size should be positive.")
        if sink_size >= window_size:
            raise ArgumentError("The attn sink size should be less than the sliding window size.")
        if sequence.window_size != -1:
            raise ArgumentError("A sequence cannot be enabled twice for sliding window.")
        sequence.window_size, sequence.sink_size = window_size, sink_size

    # ---- forward pass

    def begin_forward(self, seq_ids: Sequence[int], append_lengths: Sequence[int], token_tree: Any = None) -> None:
        if len(seq_ids) != len(append_lengths):
            raise ArgumentError(
                f"The seq_ids size ({len(seq_ids)}) and append_lengths size ({len(append_lengths)}) mismatch."
            )
        if any(n <= 0 for n in append_lengths):
            raise ArgumentError("Append with length 0 is not allowed.")
        total = sum(append_lengths)
        if total > self.layout.prefill_chunk_size:
            raise ArgumentError(
                f"{total} tokens exceed the prefill chunk size {self.layout.prefill_chunk_size} of the KV cache."
            )
        sequences = [self.table[s] for s in seq_ids]
        for seq_id, sequence in zip(seq_ids, sequences, strict=True):
            if not sequence.committed:
                raise ArgumentError(
                    f"The token tree of sequence {seq_id} computed in the last round of forward has not been committed "
                    f"with accepted nodes."
                )
        before = [s.length for s in sequences]
        self._plant_trees(sequences, append_lengths, token_tree)
        for sequence, count in zip(sequences, append_lengths, strict=True):
            self.table.extend(sequence, count)
        self.batch, self.total = list(seq_ids), total
        self._is_chain = all(s.is_chain for s in sequences)
        self._is_decode = self._is_chain and all(n == 1 for n in append_lengths)
        self._had_tokens = any(before)
        if not self._is_chain and any(s.window_offset for s in sequences):
            raise ArgumentError("Token trees are not supported for sequences whose window has moved.")
        self._describe(sequences, before, append_lengths)

    def _plant_trees(self, sequences: Sequence[SequencePages], counts: Sequence[int], tree: Sequence[int]) -> None:
        flat = [int(p) for p in tree] if tree is not None else None
        if flat is not None and len(flat) != sum(counts):
            raise ArgumentError(f"The token tree has {len(flat)} nodes for {sum(counts)} new tokens.")
        at = 0
        for sequence, count in zip(sequences, counts, strict=True):
            parents = list(range(-1, count - 1)) if flat is None else flat[at : at + count]
            at += count
            token_tree.check_tree(parents)
            sequence.parents = parents
            sequence.is_chain = token_tree.is_chain(parents)
            sequence.committed = flat is None

    def _describe(self, sequences: Sequence[SequencePages], before: Sequence[int], counts: Sequence[int]) -> None:
        """Everything the kernels need to know of this batch."""
        indptr = np.zeros(len(sequences) + 1, np.int32)
        np.cumsum(counts, out=indptr[1:])
        depths = [
            start + np.asarray(token_tree.depths_of(s.parents), np.int32)
            for s, start in zip(sequences, before, strict=True)
        ]
        places = [self.table.positions(s, start, s.length) for s, start in zip(sequences, before, strict=True)]
        self._indptr = self._placed(indptr)
        self._query_positions = self._placed(np.concatenate(depths).astype(np.int32))
        self._places = self._placed(np.concatenate(places).astype(np.int32))
        self._new_offsets = self._placed(np.asarray(before, np.int32))
        self._no_offsets = self._placed(np.zeros(len(sequences), np.int32))
        self._all = _PageList.of(self.table, sequences, [s.length for s in sequences], self._placed)
        self._old = self._all if self._is_decode else _PageList.of(self.table, sequences, before, self._placed)
        if not self._is_chain:
            orders = [pair for s in sequences for pair in token_tree.orders_of(s.parents)]
            self._tree_orders = self._placed(np.asarray(orders, np.int32).reshape(-1, 2))

    def end_forward(self) -> None:
        for seq_id in self.batch:
            send_marked(self, seq_id)
            sequence = self.table.sequences.get(seq_id)
            if sequence is not None:
                self.table.slide(sequence)

    def commit(self, seq_ids: Sequence[int], leaves: Sequence[int]) -> None:
        """Keep the path to an accepted node of each sequence's token tree (-1: nothing), and forget the other nodes."""
        if len(seq_ids) != len(leaves):
            raise ArgumentError("The given seq_ids and leaf_indices have different size.")
        moves: list[list[tuple[int, int]]] = []
        for seq_id, leaf in zip(seq_ids, leaves, strict=True):
            sequence = self.table[seq_id]
            if sequence.committed:
                raise ArgumentError(f"The accepted nodes of sequence {seq_id} are already committed.")
            if not -1 <= leaf < len(sequence.parents):
                raise ArgumentError(f"Invalid tree index {leaf} of sequence {seq_id}")
            path = token_tree.path_to(sequence.parents, leaf)
            start = sequence.length - len(sequence.parents)
            places = self.table.positions(sequence, start, sequence.length)
            moves.append([(int(places[n]), int(places[i])) for i, n in enumerate(path) if n != i])
        self._compact(moves)
        for seq_id, leaf in zip(seq_ids, leaves, strict=True):
            sequence = self.table[seq_id]
            accepted = len(token_tree.path_to(sequence.parents, leaf))
            self._copy(self.table.shorten(sequence, len(sequence.parents) - accepted))
            sequence.parents, sequence.is_chain, sequence.committed = [], True, True

    def _compact(self, moves: Sequence[Sequence[tuple[int, int]]]) -> None:
        flat = [m for of_sequence in moves for m in of_sequence]
        if not flat:
            return
        indptr = np.zeros(len(moves) + 1, np.int32)
        np.cumsum([len(m) for m in moves], out=indptr[1:])
        pairs = self._placed(np.ascontiguousarray(np.asarray(flat, np.int32).T))
        kernel = self.kernels.need("compact")
        for pages in self.pages:
            kernel(pages, self._placed(indptr), pairs, len(moves))

    # ---- attention

    def _layer(self, layer: int) -> int:
        local = layer - self.layout.layer_offset
        if not 0 <= local < len(self.pages):
            raise ArgumentError(f"the KV cache has no layer {layer}")
        return local

    def _rows(self, buffer: NDArray, count: int) -> NDArray:
        return NDArray(buffer.ptr, (count, *buffer.shape[1:]), buffer.dtype, buffer.device, buffer._owner)

    def attention_with_fused_qkv(self, layer: int, qkv: NDArray, out: NDArray, sm_scale: float) -> None:
        """Attention of the new tokens over their sequences; ``qkv`` holds queries, keys and values of each in a row."""
        local = self._layer(layer)
        count, heads, dim = qkv.shape
        wanted = self.layout.num_qo_heads + 2 * self.layout.num_kv_heads
        if (heads, dim) != (wanted, self.layout.qk_head_dim) or count != self.total:
            raise ArgumentError(
                f"qkv has shape {tuple(qkv.shape)}, but {(self.total, wanted, self.layout.qk_head_dim)} is expected"
            )
        q, k, v = (self._rows(b, count) for b in (self._q, self._k, self._v))
        how = int(self.rope_mode == RoPEMode.NORMAL) if self.rope_factors is None else self.rope_factors
        self.kernels.need("split_rotary")(qkv, self._query_positions, q, k, v, how)
        self.kernels.need("append")(self.pages[local], k, v, self._places)
        lse = self._rows(self._lse, count)
        if not self._had_tokens and self._is_chain and self.kernels.prefill_ragged is not None:
            self.self_attention(layer, q, k, v, out, lse, sm_scale)
        else:
            self._over_pages(local, q, out, lse, self._all, sm_scale, causal=True)

    def self_attention(
        self, layer: int, q: NDArray, k: NDArray, v: NDArray, out: NDArray, lse: NDArray, sm_scale: float
    ) -> None:
        """Attention of the new tokens among themselves. ``lse`` gets the logarithms of the sums of exponentials."""
        common = (q, self._indptr, k, v, self._indptr, self._query_positions)
        if self._is_chain:
            kernel = self.kernels.need("prefill_ragged")
            kernel(*common, self._new_offsets, out, lse, 1, *self.rope, float(sm_scale))
        else:
            kernel = self.kernels.need("tree")
            kernel(*common, self._indptr, self._tree_orders, out, lse, *self.rope, float(sm_scale))

    def cross_attention(self, layer: int, q: NDArray, out: NDArray, lse: NDArray, sm_scale: float) -> None:
        """Attention of the new tokens over what the cache held before them (when decoding: over themselves, too)."""
        self._over_pages(self._layer(layer), q, out, lse, self._old, sm_scale, causal=False)

    def _over_pages(
        self, local: int, q: NDArray, out: NDArray, lse: NDArray, pages: _PageList, sm_scale: float, *, causal: bool
    ) -> None:
        data = self.pages[local]
        if self.layout.attn_kinds[local] == AttnKind.MLA:
            kernel = self.kernels.need("mla_prefill")
            kernel(q, self._indptr, data, pages.indptr, pages.values, pages.lengths, out, lse, int(causal), sm_scale)
            return
        sliding = self.layout.support_sliding_window
        paged = (data, pages.indptr, pages.values, pages.windows if sliding else pages.lengths, self._no_offsets)
        tail = (self._query_positions, out, lse)
        if not self._is_chain and causal:
            tree = (self._indptr, self._tree_orders)
            # Trees are never longer than a window: the plain page description serves.
            paged = (*paged[:3], pages.lengths, self._no_offsets)
            self.kernels.need("tree_paged")(q, self._indptr, *paged, *tail, *self.rope, float(sm_scale), *tree)
        elif self._is_decode:
            kernel = self.kernels.need("decode_sliding" if sliding else "decode")
            kernel(q, *paged, *tail, *self.rope, float(sm_scale))
        else:
            kernel = self.kernels.need("prefill_sliding" if sliding else "prefill")
            kernel(q, self._indptr, *paged, *tail, int(causal), *self.rope, float(sm_scale))

    def append_mla_kv(self, layer: int, kv: NDArray) -> None:
        """Store the latent vectors of the new tokens."""
        self.kernels.need("append_mla")(self.pages[self._layer(layer)], kv, self._places)

    def merge_inplace(self, out: NDArray, lse: NDArray, other_out: NDArray, other_lse: NDArray) -> None:
        """Merge attention over other keys into ``out`` and ``lse``."""
        self.kernels.need("merge")(out, lse, other_out, other_lse)

    # ---- questions

    def query_positions(self) -> NDArray:
        """The position of each new token in its sequence."""
        return self._query_positions.copyto(self.device)

    def debug_get_kv(self, seq_id: int, start: int, end: int, k: NDArray, v: NDArray) -> None:
        """Copy stored keys and values of a sequence to ``k`` and ``v`` (layers, end - start, heads, dimension)."""
        places = self._debug_places(seq_id, start, end)
        kernel = self.kernels.need("debug_get")
        for layer, pages in enumerate(self.pages):
            kernel(pages, places, k, v, layer)

    def debug_get_kv_mla(self, seq_id: int, start: int, end: int, kv: NDArray) -> None:
        """Copy stored latent vectors of a sequence to ``kv`` (layers, end - start, dimension)."""
        places = self._debug_places(seq_id, start, end)
        kernel = self.kernels.need("debug_get")
        for layer, pages in enumerate(self.pages):
            kernel(pages, places, kv, layer)

    def _debug_places(self, seq_id: int, start: int, end: int) -> NDArray:
        sequence = self.table[seq_id]
        if start < 0:
            raise ArgumentError(f"DebugGetKV does not accept negative start_pos {start}")
        if end > sequence.length:
            raise ArgumentError(f"DebugGetKV does not accept out-of-range end_pos {end}")
        if start >= end:
            raise ArgumentError('DebugGetKV does not accept "start_pos >= end_pos"')
        return self._placed(self.table.positions(sequence, start, end))

    def total_sequence_length(self) -> int:
        """Tokens of all sequences."""
        return sum(s.length for s in self.table.sequences.values())
