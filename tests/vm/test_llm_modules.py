"""Rotary position kernels in all variants, and models on caches of latent vectors, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import relaxish
from relaxish import relax, tir
from relaxish.frontend import nn
from relaxish.relax.frontend.nn.llm import position_embedding as pe
from relaxish.relax.frontend.nn.llm.kv_cache import FlashInferPagedKVCache, PagedKVCache, RopeMode, TIRPagedKVCache
from relaxish.runtime import ShapeTuple, VirtualMachine, cpu, get_global_func, nd
from relaxish.target import Target

pytest.importorskip("llvmlite")
DIM, Q, KV, THETA = 16, 3, 1, 500.0

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
LONG = {"rope_type": "longrope", "max_position_embeddings": 256, "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "beta_fast": 32, "beta_slow": 1}
FACTORS = np.linspace(1.0, 3.0, DIM // 2).astype("float32")


def angles(positions, rotary, scaling):
    """(positions, rotary / 2) angles and the factor of their cosines and sines."""
    freq = 1.0 / THETA ** (np.arange(0, rotary, 2) / rotary)
    factor = 1.0
    kind = scaling.get("rope_type")
    if kind == "llama3":
        low, high, old = 1.0, 4.0, 64
        smooth = np.clip((old * freq / (2 * np.pi) - low) / (high - low), 0, 1)
        freq = (1 - smooth) * freq / 8.0 + smooth * freq
    elif kind == "longrope":
        freq = freq / FACTORS
        factor = math.sqrt(1 + math.log(256 / 32) / math.log(32))
    elif kind == "yarn":
        dims = [rotary * math.log(128 / (r * 2 * math.pi)) / (2 * math.log(THETA)) for r in (32, 1)]
        low, high = max(dims[0], 0), min(dims[1], rotary - 1)
        keep = 1 - np.clip((np.arange(rotary // 2) - low) / (high - low), 0, 1)
        freq = freq / 4.0 * (1 - keep) + freq * keep
    return positions[:, None] * freq, factor


def rotated(x, positions, rotary, scaling):
    angle, factor = angles(positions, rotary, scaling)
    cos, sin = np.cos(angle)[:, None] * factor, np.sin(angle)[:, None] * factor
    out = x.astype("float64").copy()
    if scaling.get("rope_type") == "gptj":
        a, b = x[..., 0:rotary:2], x[..., 1:rotary:2]
        out[..., 0:rotary:2], out[..., 1:rotary:2] = a * cos - b * sin, b * cos + a * sin
    else:
        half = rotary // 2
        a, b = x[..., :half], x[..., half:rotary]
        out[..., :half], out[..., half:rotary] = a * cos - b * sin, b * cos + a * sin
    return out


CASES = [(s, r) for s in ({}, {"rope_type": "gptj"}, LLAMA3, YARN) for r in (DIM, DIM // 2)] + [(LONG, DIM)]


@pytest.mark.parametrize(("scaling", "rotary"), CASES)
def test_rotary_kernel(scaling, rotary):
    func = pe.llama_rope_with_position_map(THETA, 1.0, DIM, Q, KV, "float32", scaling, rotary)
    run = relaxish.tir.build(func, "llvm").entry_func
    rng = np.random.default_rng(0)
    qkv = rng.standard_normal((5, Q + 2 * KV, DIM)).astype("float32")
    positions = np.array([0, 3, 17, 60, 200], "int32")
    q, k, v = nd.empty((5, Q, DIM)), nd.empty((5, KV, DIM)), nd.empty((5, KV, DIM))
    run(nd.array(qkv), nd.array(positions), q, k, v, nd.array(FACTORS) if scaling is LONG else 1)
    np.testing.assert_allclose(q.numpy(), rotated(qkv[:, :Q], positions, rotary, scaling), rtol=1e-3, atol=2e-4)
    np.testing.assert_allclose(k.numpy(), rotated(qkv[:, Q : Q + KV], positions, rotary, scaling), rtol=1e-3, atol=2e-4)
    np.testing.assert_array_equal(v.numpy(), qkv[:, Q + KV :])
    if scaling is not LONG:
        run(nd.array(qkv), nd.array(positions), q, k, v, 0)
        np.testing.assert_array_equal(q.numpy(), qkv[:, :Q])


def test_rope_as_an_operator():
    class Model(nn.Module):
        def forward(self, qkv: nn.Tensor, total: tir.Var):
            return pe.llama_rope(qkv, total, THETA, 1.0, Q, KV, {})

    spec = {"forward": {"qkv": nn.spec.Tensor([1, "s", Q + 2 * KV, DIM], "float32"), "total": int}}
    mod, _ = Model().export_tvm(spec)
    run = VirtualMachine(relaxish.build(mod, "llvm"), cpu())["forward"]
    qkv = np.random.default_rng(1).standard_normal((1, 4, Q + 2 * KV, DIM)).astype("float32")
    q, k, v = run(qkv, ShapeTuple([10]))
    positions = np.arange(6, 10)
    np.testing.assert_allclose(q.numpy()[0], rotated(qkv[0, :, :Q], positions, DIM, {}), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(k.numpy()[0], rotated(qkv[0, :, Q : Q + KV], positions, DIM, {}), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(v.numpy(), qkv[:, :, Q + KV :])


def test_unknown_scaling():
    with pytest.raises(ValueError, match="Unsupported RoPE scaling"):
        pe.switch_rope_freq_func({"rope_type": "other"})


LATENT, ROPE, HEADS, OWN = 24, 8, 3, 16


class Latent(nn.Module):
    """One layer of attention over latent vectors, in both forms."""

    def create(self, batch: tir.Var, total: tir.Var, chunk: tir.Var, page: tir.Var, sliding: tir.Var) -> PagedKVCache:
        return TIRPagedKVCache(
            "mla", batch, total, chunk, page, sliding, relax.ShapeExpr([0, 1]), 1, HEADS, 1, LATENT + ROPE, LATENT, OWN,
            OWN, RopeMode.NONE, 1, 10000, {}, None, 0, False, "float32", Target("llvm"),
        )  # fmt: skip

    def append(self, kv: nn.Tensor, cache: PagedKVCache):
        return cache.append_mla_kv(0, kv)

    def cross(self, q: nn.Tensor, cache: PagedKVCache):
        return cache.cross_attention(0, q, LATENT, 0.25)

    def own(self, q: nn.Tensor, k: nn.Tensor, v: nn.Tensor, cache: PagedKVCache):
        return cache.self_attention(0, q, k, v, 0.25)

    def merge(self, a: nn.Tensor, la: nn.Tensor, b: nn.Tensor, lb: nn.Tensor, cache: PagedKVCache):
        return cache.merge_attn_output_inplace(a, la, b, lb)


def attention(q, k, v, seen):
    scores = np.where(seen, np.einsum("ihd,jhd->hij", q, k) * 0.25, -np.inf)
    most = scores.max(-1, keepdims=True)
    weights = np.exp(scores - most)
    total = weights.sum(-1, keepdims=True)
    lse = ((np.log(total) + most) / np.log(2))[..., 0].T
    return np.einsum("hij,jhd->ihd", weights / total, v), lse


def test_latent_attention():
    cache = nn.spec.Object(PagedKVCache)
    t = lambda *shape: nn.spec.Tensor([1, "n", *shape], "float32")
    names = ("batch", "total", "chunk", "page", "sliding")
    mod, _ = Latent().export_tvm({
        "create": {n: int for n in names},
        "append": {"kv": t(1, LATENT + ROPE), "cache": cache},
        "cross": {"q": t(HEADS, LATENT + ROPE), "cache": cache},
        "own": {"q": t(HEADS, OWN), "k": t(HEADS, OWN), "v": t(HEADS, OWN), "cache": cache},
        "merge": {"a": t(HEADS, OWN), "la": t(HEADS), "b": t(HEADS, OWN), "lb": t(HEADS), "cache": cache},
    })  # fmt: skip
    machine = VirtualMachine(relaxish.build(mod, "llvm"), cpu())
    state = machine["create"](*(ShapeTuple([n]) for n in (2, 128, 64, 16, 0)))
    begin, end = (get_global_func(f"vm.builtin.kv_state_{n}_forward") for n in ("begin", "end"))
    get_global_func("vm.builtin.kv_state_add_sequence")(state, 0)
    rng = np.random.default_rng(0)
    draw = lambda *s: rng.standard_normal((1, *s)).astype("float32")
    known = np.zeros((0, LATENT + ROPE), "float32")
    for count in (20, 5, 1, 1):
        begin(state, ShapeTuple([0]), ShapeTuple([count]))
        kv, q = draw(count, 1, LATENT + ROPE), draw(count, HEADS, LATENT + ROPE)
        machine["append"](kv, state)
        before = len(known)
        known = np.concatenate([known, kv[0, :, 0]])
        visible = known if count == 1 else known[:before]
        if len(visible):
            keys = np.repeat(visible[:, None], HEADS, 1)
            out, lse = machine["cross"](q, state)
            want, want_lse = attention(q[0], keys, keys[..., :LATENT], np.ones((count, len(visible)), bool))
            np.testing.assert_allclose(out.numpy()[0], want, rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(lse.numpy()[0], want_lse, rtol=1e-3, atol=1e-3)
        rows = [draw(count, HEADS, OWN) for _ in range(3)]
        out, lse = machine["own"](*rows, state)
        want, want_lse = attention(*(r[0] for r in rows), np.tril(np.ones((count, count), bool)))
        np.testing.assert_allclose(out.numpy()[0], want, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(lse.numpy()[0], want_lse, rtol=1e-3, atol=1e-3)
        other, other_lse = draw(count, HEADS, OWN), draw(count, HEADS)
        weights = np.exp2(np.stack([want_lse, other_lse[0]]))
        merged, merged_lse = machine["merge"](out, lse, other, other_lse, state)
        mixed = (want * weights[0][..., None] + other[0] * weights[1][..., None]) / weights.sum(0)[..., None]
        np.testing.assert_allclose(merged.numpy()[0], mixed, rtol=2e-3, atol=2e-4)
        np.testing.assert_allclose(merged_lse.numpy()[0], np.log2(weights.sum(0)), rtol=1e-3, atol=1e-3)
        end(state)
    stored = nd.empty((1, len(known), LATENT + ROPE))
    get_global_func("vm.builtin.attention_kv_cache_debug_get_kv_mla")(state, 0, 0, len(known), stored)
    np.testing.assert_array_equal(stored.numpy()[0], known)


def test_flashinfer_is_refused():
    with pytest.raises(relaxish.TVMError, match="TIRPagedKVCache"):
        FlashInferPagedKVCache()
