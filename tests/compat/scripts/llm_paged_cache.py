"""A small decoder with a paged key-value cache: lengths are symbolic, and decoding agrees with one long prefill."""

import numpy as np
import tvm
from tvm import relax, tir
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import Tensor, op
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode, TIRPagedKVCache
from tvm.runtime import ShapeTuple

HIDDEN, HEADS, KV_HEADS, DIM, VOCAB = 32, 4, 2, 8, 50


class Attention(nn.Module):
    def __init__(self):
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * KV_HEADS) * DIM, bias=False)
        self.o = nn.Linear(HEADS * DIM, HIDDEN, bias=False)

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int):
        b, s, _ = x.shape
        qkv = op.reshape(self.qkv(x), (b, s, HEADS + 2 * KV_HEADS, DIM))
        out = cache.attention_with_fused_qkv(layer, qkv, HEADS, sm_scale=DIM**-0.5)
        return self.o(op.reshape(out, (b, s, HEADS * DIM)))


class Decoder(nn.Module):
    def __init__(self):
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.norm = nn.RMSNorm(HIDDEN, -1, 1e-5, bias=False)
        self.attn = nn.ModuleList([Attention() for _ in range(2)])
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def _run(self, x: Tensor, cache: PagedKVCache):
        for layer, attn in enumerate(self.attn):
            x = x + attn(self.norm(x), cache, layer)
        return self.head(x)

    def prefill(self, tokens: Tensor, cache: PagedKVCache):
        return self._run(self.embed(tokens), cache), cache

    def create_cache(
        self,
        max_batch_size: tir.Var,
        max_total_seq_len: tir.Var,
        prefill_chunk_size: tir.Var,
        page_size: tir.Var,
        support_sliding_window: tir.Var,
    ) -> PagedKVCache:
        return TIRPagedKVCache(
            attn_kind="mha",
            max_batch_size=max_batch_size,
            max_total_seq_len=max_total_seq_len,
            prefill_chunk_size=prefill_chunk_size,
            page_size=page_size,
            support_sliding_window=support_sliding_window,
            layer_partition=relax.ShapeExpr([0, 2]),
            num_hidden_layers=2,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            qk_head_dim=DIM,
            v_head_dim=DIM,
            mla_original_qk_head_dim=0,
            mla_original_v_head_dim=0,
            rope_mode=RopeMode.NORMAL,
            rope_scale=1,
            rope_theta=10000,
            rope_scaling={},
            rope_ext_factors=None,
            rotary_dim=DIM,
            enable_disaggregation=False,
            dtype="float32",
            target=tvm.target.Target("llvm"),
        )


def main():
    plain = {"param_mode": "packed", "effect_mode": "none"}
    mod, named_params = Decoder().export_tvm(
        spec={
            "prefill": {
                "tokens": nn.spec.Tensor([1, "seq_len"], "int32"),
                "cache": nn.spec.Object(object_type=PagedKVCache),
                "$": plain,
            },
            "create_cache": {
                "max_batch_size": int,
                "max_total_seq_len": int,
                "prefill_chunk_size": int,
                "page_size": int,
                "support_sliding_window": int,
                "$": {"param_mode": "none", "effect_mode": "none"},
            },
        }
    )
    vm = relax.VirtualMachine(relax.build(mod, target="llvm"), tvm.cpu())
    rng = np.random.default_rng(0)
    params = [
        tvm.nd.array((0.3 * rng.standard_normal([int(d) for d in p.shape])).astype("float32")) for _, p in named_params
    ]
    fadd, fremove, fbegin, fend = (
        tvm.get_global_func(f"vm.builtin.kv_state_{n}")
        for n in ("add_sequence", "remove_sequence", "begin_forward", "end_forward")
    )
    cache = vm["create_cache"](ShapeTuple([2]), ShapeTuple([128]), ShapeTuple([64]), ShapeTuple([16]), ShapeTuple([0]))

    def forward(seq, tokens):
        fbegin(cache, ShapeTuple([seq]), ShapeTuple([len(tokens)]))
        logits, _ = vm["prefill"](tvm.nd.array(np.array([tokens], "int32")), cache, params)
        fend(cache)
        return logits.numpy()[0]

    tokens = rng.integers(0, VOCAB, 21).tolist()
    fadd(cache, 0)
    whole = forward(0, tokens)
    fadd(cache, 1)
    parts = [forward(1, tokens[:17]), *(forward(1, [t]) for t in tokens[17:])]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-3, atol=1e-4)
    assert np.abs(whole[-1] - whole[0]).max() > 1e-2
    fremove(cache, 1)
    print("paged cache is right")


if __name__ == "__main__":
    main()
