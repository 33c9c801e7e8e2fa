"""Rotary position embeddings: how a position turns the halves (or pairs) of a query or key.

A rope function gives the cosine and sine of the angle of dimension ``d`` at position ``s``;
:func:`switch_rope_freq_func` chooses one by the model's ``rope_scaling`` configuration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .... import te, tir
from ....script.ir_builder import IRBuilder
from ....ir.plain import plain_int
from ....script.ir_builder import tir as T
from ....target import Target
from ....tir import Buffer, PrimExpr
from .. import op
from ..core import Tensor
from ._threads import each_by_lane, rows_by_threads

__all__ = [
    "llama_rope",
    "llama_rope_with_position_map",
    "rope_freq_default",
    "rope_freq_gptj",
    "rope_freq_llama3",
    "rope_freq_longrope",
    "rope_freq_yarn",
    "switch_rope_freq_func",
    "yarn_find_correction_dim",
    "yarn_find_correction_range",
]

# cosine, sine, and the values of the variables they use
Frequency = tuple[Any, Any, dict[Any, Any]]


def _of_angle(angle: PrimExpr, dtype: str, factor: float = 1.0) -> Frequency:
    var = tir.Var("freq", "float32")
    cos, sin = tir.cos(var), tir.sin(var)
    if factor != 1.0:
        cos, sin = cos * tir.const(factor, "float32"), sin * tir.const(factor, "float32")
    return cos.astype(dtype), sin.astype(dtype), {var: angle}


def _inverse(s: PrimExpr, d: PrimExpr, d_range: int, theta: PrimExpr | float, step: PrimExpr) -> PrimExpr:
    """``s / theta ** (step / d_range)``."""
    base = tir.const(theta, "float32") if isinstance(theta, int | float) else theta
    return s / tir.power(base, step / tir.const(d_range, "float32"))


def rope_freq_default(s: PrimExpr, d: PrimExpr, d_range: int, theta: float, dtype: str) -> Frequency:
    """Neighbouring halves: dimension ``d`` turns with ``d + d_range / 2``."""
    return _of_angle(_inverse(s, d, d_range, theta, d * 2 % d_range), dtype)


def rope_freq_gptj(s: PrimExpr, d: PrimExpr, d_range: int, theta: float, dtype: str) -> Frequency:
    """Interleaved: dimensions ``2 i`` and ``2 i + 1`` turn together."""
    return _of_angle(_inverse(s, d, d_range, theta, 2 * (d // 2) % d_range), dtype)


def rope_freq_llama4(
    s: PrimExpr,
    d: PrimExpr,
    d_range: int,
    theta: float,
    dtype: str,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: float,
) -> Frequency:
    """Llama 3's scaling of long wavelengths, on interleaved pairs."""
    plain = _inverse(tir.const(1, "float32"), d, d_range, theta, 2 * (d // 2) % d_range)
    return _smoothed(s, plain, dtype, factor, low_freq_factor, high_freq_factor, original_max_position_embeddings)


def rope_freq_llama3(
    s: PrimExpr,
    d: PrimExpr,
    d_range: int,
    theta: float,
    dtype: str,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: float,
) -> Frequency:
    """Long wavelengths are slowed down by ``factor``, short ones kept, those between blended."""
    plain = _inverse(tir.const(1, "float32"), d, d_range, theta, d * 2 % d_range)
    return _smoothed(s, plain, dtype, factor, low_freq_factor, high_freq_factor, original_max_position_embeddings)


def _smoothed(
    s: PrimExpr, plain: PrimExpr, dtype: str, factor: float, low: float, high: float, original: float
) -> Frequency:
    var = tir.Var("orig_freq", "float32")
    span = high - low
    smooth = var * tir.const(original / (2 * math.pi * span), "float32") - tir.const(low / span, "float32")
    blend = tir.max(tir.const(0.0, "float32"), tir.min(tir.const(1.0, "float32"), smooth))
    scaled = tir.const(1.0 - 1.0 / factor, "float32") * blend + tir.const(1.0 / factor, "float32")
    angle = s * var * scaled
    return tir.cos(angle).astype(dtype), tir.sin(angle).astype(dtype), {var: plain}


def rope_freq_longrope(
    s: PrimExpr,
    d: PrimExpr,
    d_range: int,
    theta: float,
    dtype: str,
    max_position_embeddings: int,
    original_max_position_embeddings: int,
    ext_factors: Buffer | None = None,
) -> Frequency:
    """Each dimension has a factor of its own, and all are stretched for the longer context."""
    scale = max_position_embeddings / original_max_position_embeddings
    factor = math.sqrt(1 + math.log(scale) / math.log(original_max_position_embeddings)) if scale > 1.0 else 1.0
    angle = _inverse(s, d, d_range, theta, d * 2 % d_range)
    if ext_factors is not None:
        angle = angle / ext_factors[d % (d_range // 2)]
    return _of_angle(angle, dtype, factor)


def yarn_find_correction_dim(num_rotations: int, d: int, theta: float, max_position_embeddings: int) -> float:
    """The dimension that turns ``num_rotations`` times over the original context."""
    return (d * math.log(max_position_embeddings / (num_rotations * 2 * math.pi))) / (2 * math.log(theta))


def yarn_find_correction_range(
    low_rot: int, high_rot: int, d: int, theta: float, max_position_embeddings: int
) -> tuple[float, float]:
    """Between which dimensions interpolation and extrapolation are blended."""
    low = yarn_find_correction_dim(low_rot, d, theta, max_position_embeddings)
    high = yarn_find_correction_dim(high_rot, d, theta, max_position_embeddings)
    return max(low, 0), min(high, d - 1)


def rope_freq_yarn(
    s: PrimExpr,
    d: PrimExpr,
    d_range: int,
    theta: float,
    dtype: str,
    original_max_position_embeddings: int,
    scaling_factor: float,
    beta_fast: int,
    beta_slow: int,
) -> Frequency:
    """Slow dimensions are interpolated, fast ones extrapolated, with a ramp between."""
    power = _inverse(tir.const(1, "float32"), d, d_range, theta, d * 2 % d_range)
    low, high = yarn_find_correction_range(beta_fast, beta_slow, d_range, theta, original_max_position_embeddings)
    high = high + 0.001 if low == high else high
    ramp = (tir.Cast("float32", d % (d_range // 2)) - tir.const(low, "float32")) / tir.const(high - low, "float32")
    keep = tir.const(1.0, "float32") - tir.max(tir.const(0.0, "float32"), tir.min(tir.const(1.0, "float32"), ramp))
    inverse = power / tir.const(scaling_factor, "float32") * (tir.const(1.0, "float32") - keep) + power * keep
    return _of_angle(s * inverse, dtype)


def switch_rope_freq_func(rope_scaling: Mapping[str, Any] | None) -> Callable[..., Frequency]:
    """The rope function of a ``rope_scaling`` configuration. Raises ValueError for an unknown ``rope_type``."""
    config = dict(rope_scaling or {})
    kind = config.get("rope_type")
    if kind is None:
        return rope_freq_default
    if kind == "gptj":
        return rope_freq_gptj
    if kind in ("llama3", "llama4"):
        names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        return _partial(rope_freq_llama3 if kind == "llama3" else rope_freq_llama4, config, names)
    if kind == "longrope":
        return _partial(rope_freq_longrope, config, ("max_position_embeddings", "original_max_position_embeddings"))
    if kind == "yarn":
        config["scaling_factor"] = config.get("scaling_factor", config.get("factor"))
        names = ("original_max_position_embeddings", "scaling_factor", "beta_fast", "beta_slow")
        return _partial(rope_freq_yarn, config, names)
    raise ValueError(f"Unsupported RoPE scaling type: {kind}")


def _partial(
    func: Callable[..., Frequency], config: Mapping[str, Any], names: tuple[str, ...]
) -> Callable[..., Frequency]:
    given = {name: config[name] for name in names}

    def chosen(s: PrimExpr, d: PrimExpr, d_range: int, theta: float, dtype: str, **more: Any) -> Frequency:
        return func(s, d, d_range, theta, dtype, **given, **more)

    return chosen


def _is_interleaved(rope_scaling: Mapping[str, Any] | None) -> bool:
    return bool(rope_scaling) and dict(rope_scaling or {}).get("rope_type") in ("gptj", "llama4")


def rotated(
    read: Callable[[PrimExpr], PrimExpr],
    d: PrimExpr,
    position: PrimExpr,
    rotary_dim: int,
    theta: PrimExpr | float,
    dtype: str,
    rope_scaling: Mapping[str, Any] | None,
    ext_factors: Buffer | None = None,
) -> PrimExpr:
    """Element ``d`` of a turned vector; ``read(i)`` gives element ``i`` of the vector."""
    more = {"ext_factors": ext_factors} if ext_factors is not None else {}
    cos, sin, values = switch_rope_freq_func(rope_scaling)(position, d, rotary_dim, theta, "float32", **more)
    x = read(d).astype("float32")
    if _is_interleaved(rope_scaling):
        partner = tir.if_then_else(d % 2 == 0, -read(d + 1), read(d - 1))
    else:
        half = rotary_dim // 2
        partner = tir.if_then_else(d < half, -read(d + half), read(d - half))
    turned = cos * x + sin * partner.astype("float32")
    for var, value in values.items():
        turned = tir.Let(var, value, turned)
    return turned.astype(dtype)


def llama_rope(
    qkv: Tensor,
    total_seq_len: PrimExpr,
    theta: float,
    scale: float,
    num_q_heads: int,
    num_kv_heads: int,
    rope_scaling: Mapping[str, Any],
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Split fused queries, keys and values (batch, length, heads, dimension), and turn queries and keys.

    ``total_seq_len`` is the length with what came before: the last token's position is ``total_seq_len - 1``.
    """
    _, _, fused_heads, head_dim = qkv.shape
    if fused_heads != num_q_heads + 2 * num_kv_heads:
        raise AssertionError(f"{fused_heads} heads, but {num_q_heads} + 2 * {num_kv_heads} are expected")
    rotary = head_dim if rotary_dim is None else rotary_dim
    dtype = qkv.dtype

    def part(x: te.Tensor, first: int, count: int, turn: bool, length: PrimExpr) -> te.Tensor:
        seq = x.shape[1]

        def element(b: PrimExpr, s: PrimExpr, h: PrimExpr, d: PrimExpr) -> PrimExpr:
            if not turn:
                return x[b, s, h + first, d]
            position = (s + (length - seq)).astype("float32") * tir.const(scale, "float32")
            made = rotated(lambda i: x[b, s, h + first, i], d, position, rotary, theta, dtype, rope_scaling)
            return made if rotary == head_dim else tir.if_then_else(d < rotary, made, x[b, s, h + first, d])

        return te.compute((x.shape[0], seq, count, head_dim), element, name="rope" if turn else "split")

    def split(first: int, count: int, turn: bool) -> Tensor:
        return op.tensor_expr_op(
            lambda x, length: part(x, first, count, turn, length), "llama_rope", [qkv, total_seq_len]
        )

    query = split(0, num_q_heads, True)
    key = split(num_q_heads, num_kv_heads, True)
    return query, key, split(num_q_heads + num_kv_heads, num_kv_heads, False)


def llama_rope_with_position_map(
    theta: float,
    scale: float,
    head_dim: int,
    num_q_heads: int,
    num_kv_heads: int,
    dtype: str,
    rope_scaling: Mapping[str, Any],
    rotary_dim: int | None = None,
    *,
    threads: bool | None = None,
) -> tir.PrimFunc:
    """The loop program ``(qkv, position_map, q, k, v, apply_rope)`` that a paged cache splits fused rows with.

    ``threads``: for a GPU, where a warp takes each head of a row; unless given, the target in scope decides.

    With "longrope" scaling the factors of the dimensions stand in place of ``apply_rope``: rows are always turned.
    """
    rotary = head_dim if rotary_dim is None else rotary_dim
    fused_heads = num_q_heads + num_kv_heads * 2
    is_long = dict(rope_scaling or {}).get("rope_type") == "longrope"
    if threads is None:
        current = Target.current()
        threads = current is not None and "gpu" in current.keys
    with IRBuilder() as builder:
        with T.prim_func():
            T.func_name("fused_rope")
            T.func_attr({"op_pattern": 8, "tir.noalias": True, "tir.is_scheduled": True})
            names = ["qkv", "position_map", "q", "k", "v"]
            handles = [T.arg(f"var_{n}", T.handle()) for n in names]
            apply_rope: Any = tir.const(1, "int32")
            if is_long:
                handles.append(T.arg("var_ext_factors", T.handle()))
            else:
                apply_rope = T.arg("apply_rope", tir.Var("apply_rope", "int32"))
            count = tir.SizeVar("seq_len", "int32")
            heads = [fused_heads, 0, num_q_heads, num_kv_heads, num_kv_heads]
            qkv, positions, q, k, v = (
                T.match_buffer(
                    handle, (count, n, head_dim) if n else (count,), dtype if n else "int32", offset_factor=1
                )
                for handle, n in zip(handles, heads, strict=False)
            )
            for name, buffer in zip(names, (qkv, positions, q, k, v), strict=True):
                IRBuilder.name(name, buffer)
            factors = None
            if is_long:
                factors = T.match_buffer(handles[-1], (rotary // 2,), "float32")
                IRBuilder.name("ext_factors", factors)
            with _rows(count, fused_heads, threads) as (s, h, lane):
                for first, heads_of, out in ((0, num_q_heads, q), (num_q_heads, num_kv_heads, k)):
                    _emit_turned(
                        qkv, out, s, h, first, heads_of, positions[s], apply_rope, rotary, theta, scale, dtype,
                        rope_scaling, factors, lane,
                    )  # fmt: skip
                with T.If(h >= num_q_heads + num_kv_heads), T.Then(), each_by_lane(head_dim, lane) as d:
                    T.buffer_store(v, qkv[s, h, d], [s, h - (num_q_heads + num_kv_heads), d])
    return builder.get()


@contextmanager
def _rows(count: PrimExpr, heads: int, threads: bool) -> Iterator[tuple[PrimExpr, PrimExpr, PrimExpr | None]]:
    """A loop over rows and heads: (row, head, thread of the warp or None)."""
    if threads:
        with rows_by_threads(count * heads, True) as (item, lane):
            yield tir.floordiv(item, heads), tir.floormod(item, heads), lane
        return
    with T.serial(count) as s, T.serial(heads) as h:
        yield s, h, None


def _emit_turned(
    qkv: Buffer, out: Buffer, s: PrimExpr, h: PrimExpr, first: int, heads: int, position: PrimExpr, apply_rope: PrimExpr, rotary: int,
    theta: float, scale: float, dtype: str, rope_scaling: Mapping[str, Any] | None, factors: Buffer | None, lane: PrimExpr | None,
) -> None:  # fmt: skip
    """The statements that write one head of ``out``, turned if ``apply_rope``."""
    head_dim = plain_int(qkv.shape[2])
    with T.If(tir.all(h >= first, h < first + heads)), T.Then(), T.If(apply_rope > 0):
        with T.Then(), each_by_lane(head_dim, lane) as d:
            at = position.astype("float32") * tir.const(scale, "float32")
            turned = rotated(lambda i: qkv[s, h, i], d, at, rotary, theta, dtype, rope_scaling, factors)
            value = turned if rotary == head_dim else tir.if_then_else(d < rotary, turned, qkv[s, h, d])
            T.buffer_store(out, value, [s, h - first, d])
        with T.Else(), each_by_lane(head_dim, lane) as d:
            T.buffer_store(out, qkv[s, h, d], [s, h - first, d])
