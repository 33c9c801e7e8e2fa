"""A GPT-2 style decoder with a paged key-value cache: model, export, and a session that generates text.

>>> from relaxish.testing.gpt2 import Config, Session
>>> session = Session(Config(vocab=64, positions=128, hidden=32, layers=1, heads=2))  # doctest: +SKIP
>>> session.generate([3, 1, 4], count=8)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import tir
from ..frontend import nn
from ..frontend.nn.llm.kv_cache import PagedKVCache, RopeMode, TIRPagedKVCache
from ..ir.expr import PrimExpr
from ..ir.module import IRModule
from ..runtime import Device, ShapeTuple, VirtualMachine, cpu, get_global_func
from ..runtime.arrays.ndarray import NDArray, array
from ..target import Target
from ..te.tensor import Tensor

__all__ = ["Config", "GPT2", "Session", "export", "random_weights"]


@dataclass(frozen=True)
class Config:
    """Sizes; the defaults are GPT-2's smallest model."""

    vocab: int = 50257
    positions: int = 1024
    hidden: int = 768
    layers: int = 12
    heads: int = 12
    page_size: int = 16

    @property
    def head_dim(self) -> int:
        """Size of one head."""
        return self.hidden // self.heads


class _Block(nn.Module):
    def __init__(self, config: Config, index: int) -> None:
        self.config, self.index = config, index
        self.ln_1 = nn.LayerNorm(config.hidden, eps=1e-5)
        self.c_attn = nn.Linear(config.hidden, 3 * config.hidden)
        self.c_proj = nn.Linear(config.hidden, config.hidden)
        self.ln_2 = nn.LayerNorm(config.hidden, eps=1e-5)
        self.c_fc = nn.Linear(config.hidden, 4 * config.hidden)
        self.c_out = nn.Linear(4 * config.hidden, config.hidden)

    def forward(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        config = self.config
        b, s, _ = x.shape
        qkv = self.c_attn(self.ln_1(x)).reshape(b, s, 3 * config.heads, config.head_dim)
        attended = cache.attention_with_fused_qkv(self.index, qkv, config.heads, config.head_dim**-0.5)
        x = x + self.c_proj(attended.reshape(b, s, config.hidden))
        return x + self.c_out(nn.op.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """``prefill`` takes one sequence's tokens, ``decode`` one token of each sequence; both give the last logits."""

    def __init__(self, config: Config, target: str = "llvm") -> None:
        self.config = config
        self.target = Target(target) if isinstance(target, str) else target
        self.wte = nn.Embedding(config.vocab, config.hidden)
        self.wpe = nn.Embedding(config.positions, config.hidden)
        self.h = nn.ModuleList([_Block(config, i) for i in range(config.layers)])
        self.ln_f = nn.LayerNorm(config.hidden, eps=1e-5)

    def create_cache(
        self,
        max_batch_size: tir.Var,
        max_total_seq_len: tir.Var,
        prefill_chunk_size: tir.Var,
        page_size: tir.Var,
        support_sliding_window: tir.Var,
    ) -> PagedKVCache:
        """A new cache."""
        from .. import relax

        config = self.config
        return TIRPagedKVCache(
            "mha", max_batch_size, max_total_seq_len, prefill_chunk_size, page_size, support_sliding_window,
            relax.ShapeExpr([0, config.layers]), config.layers, config.heads, config.heads, config.head_dim,
            config.head_dim, 0, 0, RopeMode.NONE, 1, 10000, {}, None, config.head_dim, False, "float32", self.target,
        )  # fmt: skip

    def _hidden(self, tokens: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        b, s = tokens.shape
        positions = cache.get_query_positions(b * s)
        x = self.wte(tokens) + self.wpe(positions).reshape(b, s, self.config.hidden)
        for block in self.h:
            x = block(x, cache)
        return self.ln_f(x)

    def _logits(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.matmul(x, nn.op.permute_dims(self.wte.weight, [1, 0]))

    def prefill(self, tokens: nn.Tensor, cache: PagedKVCache) -> tuple[nn.Tensor, PagedKVCache]:
        """Logits after the last of a sequence's new tokens."""
        x = self._hidden(tokens, cache)
        length, hidden = x.shape[1], self.config.hidden
        last = nn.op.tensor_expr_op(_last_row, "last_row", [x, length])
        return self._logits(last.reshape(1, 1, hidden)), cache

    def decode(self, tokens: nn.Tensor, cache: PagedKVCache) -> tuple[nn.Tensor, PagedKVCache]:
        """Logits after one more token of each sequence."""
        return self._logits(self._hidden(tokens, cache)), cache


def _last_row(x: Tensor, length: PrimExpr) -> Tensor:
    from .. import te

    return te.compute((1, x.shape[2]), lambda i, j: x[0, length - 1, j], name="last_row")


def export(config: Config, batch: int | str = 1, target: str = "llvm") -> tuple[IRModule, dict[str, Any]]:
    """The module and its parameters."""
    plain = {"param_mode": "packed", "effect_mode": "none"}
    cache = nn.spec.Object(PagedKVCache)
    sizes = ("max_batch_size", "max_total_seq_len", "prefill_chunk_size", "page_size", "support_sliding_window")
    spec = {
        "create_cache": {**{name: int for name in sizes}, "$": {"param_mode": "none", "effect_mode": "none"}},
        "prefill": {"tokens": nn.spec.Tensor([1, "seq_len"], "int32"), "cache": cache, "$": plain},
        "decode": {"tokens": nn.spec.Tensor([batch, 1], "int32"), "cache": cache, "$": plain},
    }
    mod, params = GPT2(config, target).export_tvm(spec)
    return mod, dict(params)


def random_weights(config: Config, seed: int = 0) -> dict[str, Any]:
    """Weights by name, as a trained model's are spread."""
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {}
    for name, param in GPT2(config).state_dict().items():
        shape = tuple(param.shape)
        values = rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
        is_norm = name.split(".")[-2].startswith("ln") and name.endswith("weight")
        made[name] = values + np.float32(1.0) if is_norm else values
    return made


class Session:
    """A compiled model with weights and a cache, on the CPU unless another device is given (with its target)."""

    def __init__(
        self,
        config: Config,
        weights: Mapping[str, Any] | None = None,
        *,
        batch: int | str = 1,
        target: str = "llvm",
        max_batch: int = 4,
        exec_mode: str = "bytecode",
        device: Device | None = None,
    ) -> None:
        from ..driver import build
        from ..transform import FuseTransposeMatmul

        self.config = config
        mod, params = export(config, batch, target)
        # The weights are parameters: their transposes would be computed in each step.
        mod = FuseTransposeMatmul()(mod)
        values = dict(weights or random_weights(config))
        self.device = cpu() if device is None else device
        self.params = tuple(array(np.ascontiguousarray(values[name]), self.device) for name in params)
        self.vm = VirtualMachine(build(mod, target, exec_mode=exec_mode), self.device)
        tokens = max_batch * config.positions
        sizes = [[n] for n in (max_batch, tokens, config.positions, config.page_size, 0)]
        self.cache = self.vm["create_cache"](*(ShapeTuple(s) for s in sizes))
        self._prefill, self._decode = self.vm["prefill"], self.vm["decode"]
        self._begin, self._end, self._add, self._remove = (
            get_global_func(f"vm.builtin.kv_state_{n}")
            for n in ("begin_forward", "end_forward", "add_sequence", "remove_sequence")
        )

    def add(self, seq_id: int) -> None:
        """Begin a sequence."""
        self._add(self.cache, seq_id)

    def remove(self, seq_id: int) -> None:
        """Forget a sequence."""
        self._remove(self.cache, seq_id)

    def prefill(self, seq_id: int, tokens: Sequence[int]) -> NDArray:
        """Feed tokens of one sequence; the logits after the last, (1, 1, vocabulary)."""
        return self._run(self._prefill, [seq_id], [len(tokens)], np.array([tokens], np.int32))

    def decode(self, seq_ids: Sequence[int], tokens: Sequence[int]) -> NDArray:
        """Feed one token of each sequence; logits (batch, 1, vocabulary)."""
        return self._run(self._decode, list(seq_ids), [1] * len(tokens), np.array(tokens, np.int32).reshape(-1, 1))

    def _run(
        self, function: Callable[..., Any], seq_ids: Sequence[int], lengths: Sequence[int], tokens: np.ndarray[Any, Any]
    ) -> NDArray:
        self._begin(self.cache, ShapeTuple(seq_ids), ShapeTuple(lengths))
        logits: NDArray = function(array(tokens, self.device), self.cache, self.params)[0]
        self._end(self.cache)
        return logits

    def generate(
        self, prompt: Sequence[int], count: int, *, temperature: float = 0.0, top_p: float = 1.0, seed: int = 0
    ) -> list[int]:
        """Continue a prompt: greedily at temperature zero, else sampling among the likeliest tokens."""
        sample = get_global_func("vm.builtin.sample_top_p_from_logits")
        rng = np.random.default_rng(seed)
        self.add(0)
        made: list[int] = []
        logits = self.prefill(0, prompt)
        for _ in range(count):
            made.append(sample(logits, temperature, top_p, float(rng.random())))
            if len(made) < count:
                logits = self.decode([0], made[-1:])
        self.remove(0)
        return made
