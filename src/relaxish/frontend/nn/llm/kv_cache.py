"""The paged key-value cache in models, and the factories of the loop programs behind it.

A model creates a :class:`TIRPagedKVCache` in one of its functions and takes a :class:`PagedKVCache` in the others::

    def create_cache(self, max_batch: tir.Var, max_tokens: tir.Var, chunk: tir.Var, page: tir.Var, sliding: tir.Var):
        return TIRPagedKVCache("mha", max_batch, max_tokens, chunk, page, sliding, ...)

    def decode(self, embed: Tensor, cache: PagedKVCache):
        ...cache.attention_with_fused_qkv(layer, qkv, num_heads, head_dim**-0.5)...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Literal

from .... import op as relax_op
from .... import relax, tir
from ....relax.expr import Expr, Var
from ....support.errors import RelaxishError
from ....target import Target
from ....tir import PrimExpr, PrimFunc
from ..core import Dim, Object, Tensor
from . import _page_kernels as page_kernels
from . import _paged_kernels as kernels
from ._attention_kernels import Sizes
from .position_embedding import llama_rope_with_position_map
from .tree_attn import (
    tree_attn,
    tree_attn_cpu,
    tree_attn_with_paged_kv_cache,
    tree_attn_with_paged_kv_cache_cpu,
)

__all__ = [
    "AttnKind",
    "FlashInferPagedKVCache",
    "PagedKVCache",
    "RopeMode",
    "TIRPagedKVCache",
    "llama_rope_with_position_map",
    "tree_attn",
    "tree_attn_cpu",
    "tree_attn_with_paged_kv_cache",
    "tree_attn_with_paged_kv_cache_cpu",
]

_PAGE_SIZE = 16
_BUILTIN = "vm.builtin.attention_kv_cache_"


class AttnKind(IntEnum):
    """Whether heads have keys and values of their own (MHA) or share one latent vector (MLA)."""

    MHA = 0
    MLA = 1


class RopeMode(IntEnum):
    """When rotary positions are applied: never, before keys are stored, or each time they are read."""

    NONE = 0
    NORMAL = 1
    INLINE = 2


def _emit(value: Expr) -> Var:
    builder = relax.BlockBuilder.current()
    if builder is None:
        raise RuntimeError("a paged KV cache is used while a module is exported: it needs an active BlockBuilder")
    return builder.emit(value)


def _prim(value: Dim | PrimExpr) -> relax.PrimValue:
    return relax.PrimValue(value)


def _info(shape: Sequence[Any], dtype: str) -> relax.TensorStructInfo:
    return relax.TensorStructInfo(list(shape), dtype)


class PagedKVCache(Object):
    """A paged cache inside ``forward``: attention of the new tokens over their sequences."""

    def attention_with_fused_qkv(self, layer_id: int, qkv: Tensor, num_qo_heads: int, sm_scale: float) -> Tensor:
        """Append the new tokens' keys and values and attend.

        ``qkv`` is (batch, length, query heads + 2 * key heads, dimension); prefill takes a batch of one that holds all
        sequences one after another, decoding a length of one.
        """
        b, s, _, d = qkv._expr.struct_info.shape.values
        rows = qkv.reshape(b * s, qkv.shape[2], d)
        call = relax_op.call_dps_packed(
            _BUILTIN + "attention_with_fused_qkv",
            [self._expr, _prim(layer_id), _prim(tir.FloatImm("float64", sm_scale)), rows._expr],
            out_sinfo=_info((b * s, num_qo_heads, d), qkv.dtype),
        )
        return Tensor(_expr=_emit(call)).reshape(b, s, num_qo_heads, d)

    def self_attention(self, layer_id: int, q: Tensor, k: Tensor, v: Tensor, sm_scale: float) -> tuple[Tensor, Tensor]:
        """Attention of the new tokens among themselves: its output, and the logarithms of its sums."""
        b, s, heads, d_qk = q._expr.struct_info.shape.values
        _, _, kv_heads, d_v = v._expr.struct_info.shape.values
        rows = q.reshape(b * s, heads, d_qk), k.reshape(b * s, kv_heads, d_qk), v.reshape(b * s, kv_heads, d_v)
        scale = _prim(tir.FloatImm("float64", sm_scale))
        args = [self._expr, _prim(layer_id), scale, *(r._expr for r in rows)]
        return self._with_lse("self_attention", args, (b, s, heads, d_v), q.dtype)

    def cross_attention(self, layer_id: int, q: Tensor, v_head_dim: int, sm_scale: float) -> tuple[Tensor, Tensor]:
        """Attention of the new tokens over what the cache holds."""
        b, s, heads, d_qk = q._expr.struct_info.shape.values
        rows = q.reshape(b * s, heads, d_qk)
        args = [self._expr, _prim(layer_id), _prim(tir.FloatImm("float64", sm_scale)), rows._expr]
        return self._with_lse("cross_attention", args, (b, s, heads, v_head_dim), q.dtype)

    @staticmethod
    def _with_lse(name: str, args: list[Any], shape: tuple[Any, Any, Any, Any], dtype: str) -> tuple[Tensor, Tensor]:
        b, s, heads, dim = shape
        infos = [_info((b * s, heads, dim), dtype), _info((b * s, heads), "float32")]
        both = _emit(relax_op.call_dps_packed(_BUILTIN + name, args, out_sinfo=infos))
        return _unpacked(both, shape)

    def append_mla_kv(self, layer_id: int, kv: Tensor) -> PagedKVCache:
        """Store the new tokens' latent vectors (batch, length, 1, dimension)."""
        b, s, _, d = kv._expr.struct_info.shape.values
        rows = kv.reshape(b * s, d)
        call = relax_op.call_pure_packed(
            _BUILTIN + "append_mla_kv", self._expr, _prim(layer_id), rows._expr, sinfo_args=relax.ObjectStructInfo()
        )
        return PagedKVCache(_expr=_emit(call), _name="paged_kv_cache")

    def merge_attn_output_inplace(
        self, o_self_attn: Tensor, lse_self_attn: Tensor, o_cross_attn: Tensor, lse_cross_attn: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Merge two attention results; the first two tensors are overwritten."""
        b, s, heads, dim = o_self_attn._expr.struct_info.shape.values
        outs = [t.reshape(b * s, heads, dim)._expr for t in (o_self_attn, o_cross_attn)]
        sums = [t.reshape(b * s, heads)._expr for t in (lse_self_attn, lse_cross_attn)]
        call = relax_op.call_pure_packed(
            _BUILTIN + "merge_attn_output_inplace",
            self._expr,
            outs[0],
            sums[0],
            outs[1],
            sums[1],
            sinfo_args=relax.TupleStructInfo([outs[0].struct_info, sums[0].struct_info]),
        )
        return _unpacked(_emit(call), (b, s, heads, dim))

    def get_query_positions(self, total_length: PrimExpr) -> Tensor:
        """The position of each of the ``total_length`` new tokens in its sequence."""
        info = _info((total_length,), "int32")
        return Tensor(
            _expr=_emit(relax_op.call_pure_packed(_BUILTIN + "get_query_positions", self._expr, sinfo_args=info))
        )


def _unpacked(both: Expr, shape: tuple[Dim, Dim, Dim, Dim]) -> tuple[Tensor, Tensor]:
    b, s, heads, dim = shape
    out = Tensor(_expr=_emit(relax.TupleGetItem(both, 0))).reshape(b, s, heads, dim)
    return out, Tensor(_expr=_emit(relax.TupleGetItem(both, 1))).reshape(b, s, heads)


class TIRPagedKVCache(PagedKVCache):
    """Creates a cache whose kernels are loop programs added to the module.

    ``attn_kind`` is "mha" or "mla", or a list with one of them for each layer. The first five sizes are symbolic
    variables given at run time; the last, ``support_sliding_window``, is 0 or 1.
    """

    def __init__(
        self,
        attn_kind: Literal["mha", "mla"] | Sequence[Literal["mha", "mla"]],
        max_batch_size: tir.Var,
        max_total_seq_len: tir.Var,
        prefill_chunk_size: tir.Var,
        page_size: tir.Var | int,
        support_sliding_window: tir.Var,
        layer_partition: Expr,
        num_hidden_layers: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        qk_head_dim: int,
        v_head_dim: int,
        mla_original_qk_head_dim: int,
        mla_original_v_head_dim: int,
        rope_mode: RopeMode,
        rope_scale: int,
        rope_theta: int,
        rope_scaling: Mapping[str, Any],
        rope_ext_factors: Expr | None,
        rotary_dim: int,
        enable_disaggregation: bool,
        dtype: str,
        target: Target,
        name: str = "paged_kv_cache",
    ) -> None:
        kinds = [attn_kind] * num_hidden_layers if isinstance(attn_kind, str) else list(attn_kind)
        is_latent = kinds[0] == "mla"
        sizes = Sizes(
            num_key_value_heads, num_attention_heads, qk_head_dim, v_head_dim, dtype, dict(rope_scaling),
            rotary_dim or None, threads=str(target.kind.name) not in ("llvm", "c"),
        )  # fmt: skip
        page = _static_page(page_size)
        made = _latent_kernels(sizes, page, num_hidden_layers, mla_original_qk_head_dim, mla_original_v_head_dim)
        if not is_latent:
            made = _head_kernels(sizes, page, num_hidden_layers)
        rope = llama_rope_with_position_map(
            rope_theta, rope_scale, qk_head_dim, num_attention_heads, num_key_value_heads, dtype, dict(rope_scaling),
            rotary_dim or None, threads=sizes.threads,
        )  # fmt: skip
        made["split_rotary"] = rope
        builder = relax.BlockBuilder.current()
        if builder is None:
            raise RuntimeError("a paged KV cache is created while a module is exported: it needs a BlockBuilder")
        functions = {key: builder.add_func(func, f"kv_cache_{key}") for key, func in made.items()}
        none = relax.Tuple([])

        def one(key: str) -> Expr:
            return functions.get(key, _prim(0))

        def attention(key: str) -> Expr:
            return relax.Tuple([relax.StringImm("tir"), functions[key]]) if key in functions else none

        config = [max_batch_size, max_total_seq_len, prefill_chunk_size, page_size, support_sliding_window]
        args = [
            relax.ShapeExpr(config),
            layer_partition,
            *(_prim(n) for n in (num_attention_heads, num_key_value_heads, qk_head_dim, v_head_dim)),
            relax.ShapeExpr([int(AttnKind[k.upper()]) for k in kinds]),
            _prim(int(enable_disaggregation)),
            _prim(int(rope_mode)),
            _prim(tir.FloatImm("float64", float(rope_scale))),
            _prim(tir.FloatImm("float64", float(rope_theta))),
            rope_ext_factors if rope_ext_factors is not None else _prim(0),
            relax_op.zeros((), dtype),
            one("append"),
            one("append_mla"),
            *(attention(n) for n in ("prefill_ragged", "prefill", "decode", "prefill_sliding", "decode_sliding")),
            *(attention(n) for n in ("tree_paged", "tree", "mla_prefill")),
            relax.Tuple([functions["merge"]]),
            *(one(n) for n in ("split_rotary", "copy_page", "debug_get", "compact")),
        ]
        call = relax_op.call_pure_packed(
            "vm.builtin.paged_attention_kv_cache_create", *args, sinfo_args=relax.ObjectStructInfo()
        )
        super().__init__(_expr=_emit(call), _name=name)


def _static_page(page_size: PrimExpr | int) -> int:
    """Kernels are made for one page size: 16, unless the model names another."""
    if isinstance(page_size, int | tir.IntImm):
        return int(page_size)
    return _PAGE_SIZE


def _head_kernels(sizes: Sizes, page: int, layers: int) -> dict[str, tir.PrimFunc]:
    h, d, dtype, gpu = sizes.kv_heads, sizes.key_dim, sizes.dtype, sizes.threads
    return {
        "append": page_kernels.append(d, h, dtype, page, gpu),
        "prefill_ragged": kernels.prefill_ragged(sizes),
        "prefill": kernels.prefill(sizes, page, False),
        "decode": kernels.decode(sizes, page, False),
        "prefill_sliding": kernels.prefill(sizes, page, True),
        "decode_sliding": kernels.decode(sizes, page, True),
        "tree_paged": kernels.prefill(sizes, page, False, tree=True),
        "tree": kernels.prefill_ragged(sizes, tree=True),
        "merge": kernels.merge_state(dtype, gpu),
        "copy_page": page_kernels.copy_page(h, page, d, dtype, gpu),
        "debug_get": page_kernels.debug_get(layers, h, d, dtype, page, gpu),
        "compact": page_kernels.compact(h, d, dtype, page, gpu),
    }


def _latent_kernels(sizes: Sizes, page: int, layers: int, qk_dim: int, v_dim: int) -> dict[str, tir.PrimFunc]:
    d, dtype, gpu = sizes.key_dim, sizes.dtype, sizes.threads
    rows = Sizes(sizes.q_heads, sizes.q_heads, qk_dim, v_dim, dtype, sizes.rope_scaling, None, gpu)
    if not qk_dim or not v_dim:
        rows = sizes
    return {
        "append_mla": page_kernels.append_latent(d, dtype, page, gpu),
        "prefill_ragged": kernels.prefill_ragged(rows),
        "mla_prefill": kernels.prefill_latent(sizes, page),
        "merge": kernels.merge_state(dtype, gpu),
        "copy_page": page_kernels.copy_page_latent(page, d, dtype, gpu),
        "debug_get": page_kernels.debug_get_latent(layers, d, dtype, page, gpu),
    }


class FlashInferPagedKVCache(PagedKVCache):
    """A cache with FlashInfer's CUDA kernels. Raises RelaxishError: that library's sources are not bundled."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RelaxishError("FlashInfer is not available; use TIRPagedKVCache")


# ---- factories under the names that model code imports. CPU and GPU versions differ in how the outer loop is bound.


def _on_gpu() -> bool:
    """Whether the target in scope is a GPU: of these kernels there is one factory for both."""
    target = Target.current()
    return target is not None and "gpu" in target.keys


def _attention_prefill_cpu(
    h_kv: int, h_q: int, d: int, dtype: str, sliding_window: bool, rope_scaling: Mapping[str, Any], page_size: int = 16
) -> tir.PrimFunc:
    return kernels.prefill(Sizes(h_kv, h_q, d, d, dtype, rope_scaling), page_size, sliding_window)


def _attention_prefill(
    h_kv: int, h_q: int, d: int, dtype: str, sliding_window: bool, rope_scaling: Mapping[str, Any], target: Target | None,
    page_size: int = 16,
) -> tir.PrimFunc:  # fmt: skip
    return kernels.prefill(Sizes(h_kv, h_q, d, d, dtype, rope_scaling, threads=True), page_size, sliding_window)


def _attention_decode_cpu(
    num_kv_heads: int, num_qo_heads: int, head_dim: int, qkv_dtype: str, sliding_window: bool,
    rope_scaling: Mapping[str, Any], page_size: int = 16,
) -> tir.PrimFunc:  # fmt: skip
    sizes = Sizes(num_kv_heads, num_qo_heads, head_dim, head_dim, qkv_dtype, rope_scaling)
    return kernels.decode(sizes, page_size, sliding_window)


def _attention_decode(
    num_kv_heads: int, num_qo_heads: int, head_dim: int, qkv_dtype: str, sliding_window: bool,
    rope_scaling: Mapping[str, Any], target: Target | None, page_size: int = 16,
) -> tir.PrimFunc:  # fmt: skip
    sizes = Sizes(num_kv_heads, num_qo_heads, head_dim, head_dim, qkv_dtype, rope_scaling, threads=True)
    return kernels.decode(sizes, page_size, sliding_window)


def _attention_prefill_ragged_cpu(
    h_kv: int, h_q: int, d_qk: int, d_v: int, dtype: str, rope_scaling: Mapping[str, Any]
) -> tir.PrimFunc:
    return kernels.prefill_ragged(Sizes(h_kv, h_q, d_qk, d_v, dtype, rope_scaling))


def _attention_prefill_ragged(
    h_kv: int, h_q: int, d_qk: int, d_v: int, dtype: str, rope_scaling: Mapping[str, Any], target: Target | None
) -> tir.PrimFunc:
    return kernels.prefill_ragged(Sizes(h_kv, h_q, d_qk, d_v, dtype, rope_scaling, threads=True))


def _attention_prefill_mla(
    h_q: int, d_latent: int, d_rope: int, dtype: str, sliding_window: bool, target: Target | None, page_size: int = 16
) -> tir.PrimFunc:
    if sliding_window:
        raise RelaxishError("attention over latent vectors has no sliding window")
    gpu = str(getattr(getattr(target, "kind", None), "name", "llvm")) not in ("llvm", "c")
    return kernels.prefill_latent(Sizes(1, h_q, d_latent + d_rope, d_latent, dtype, threads=gpu), page_size)


def _merge_state_inplace_cpu(v_dtype: str) -> tir.PrimFunc:
    return kernels.merge_state(v_dtype, False)


def _merge_state_inplace(
    num_heads: int, head_dim: int, v_dtype: str, target: Target | None, global_symbol: str | None = None
) -> PrimFunc:
    made = kernels.merge_state(v_dtype, True)
    return made.with_attr("global_symbol", global_symbol) if global_symbol else made


def _kv_cache_transpose_append(
    num_key_value_heads: int, head_dim: int, dtype: str, page_size: int = 16
) -> tir.PrimFunc:
    return page_kernels.append(head_dim, num_key_value_heads, dtype, page_size, _on_gpu())


def _kv_cache_transpose_append_mla(d_qk: int, dtype: str, page_size: int = 16) -> tir.PrimFunc:
    return page_kernels.append_latent(d_qk, dtype, page_size, _on_gpu())


def _kv_cache_debug_get_kv(num_hidden_layers: int, num_key_value_heads: int, head_dim: int, dtype: str) -> tir.PrimFunc:
    return page_kernels.debug_get(num_hidden_layers, num_key_value_heads, head_dim, dtype, None, _on_gpu())


def _kv_cache_debug_get_kv_mla(num_hidden_layers: int, d_qk: int, dtype: str) -> tir.PrimFunc:
    return page_kernels.debug_get_latent(num_hidden_layers, d_qk, dtype, None, _on_gpu())


def _copy_single_page_cpu(num_heads: int, page_size: int, head_dim: int, dtype: str) -> tir.PrimFunc:
    return page_kernels.copy_page(num_heads, page_size, head_dim, dtype)


def _copy_single_page(num_heads: int, page_size: int, head_dim: int, dtype: str, target: Target | None) -> tir.PrimFunc:
    return page_kernels.copy_page(num_heads, page_size, head_dim, dtype, True)


def _copy_single_page_mla(page_size: int, head_dim: int, dtype: str, target: Target | None) -> tir.PrimFunc:
    gpu = str(getattr(getattr(target, "kind", None), "name", "llvm")) not in ("llvm", "c")
    return page_kernels.copy_page_latent(page_size, head_dim, dtype, gpu)


def _compact_kv_copy_cpu(num_heads: int, head_dim: int, dtype: str, page_size: int = 16) -> tir.PrimFunc:
    return page_kernels.compact(num_heads, head_dim, dtype, page_size)


def _compact_kv_copy(
    num_heads: int, head_dim: int, dtype: str, target: Target | None, page_size: int = 16
) -> tir.PrimFunc:
    return page_kernels.compact(num_heads, head_dim, dtype, page_size, True)
