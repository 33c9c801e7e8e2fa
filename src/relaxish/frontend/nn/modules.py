"""Ready-made modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import op as relax_op
from ... import relax
from ...support.sequences import as_list
from . import op
from .core import Dim, Effect, get_default_dtype, Module, ModuleList, Parameter, Steps, Tensor

__all__ = [
    "Attention", "AvgPool2D", "BatchNorm2D", "Conv1D", "Conv2D", "Conv3D", "ConvTranspose1D", "Dropout", "Embedding",
    "GELU", "GroupNorm", "IOEffect", "Identity", "KVCache", "LayerNorm", "Linear", "MaxPool2D", "MultiheadAttention", "RMSNorm",
    "ReLU", "SiLU", "Softmax", "Tanh", "TimestepEmbedding", "Timesteps",
]  # fmt: skip


class IOEffect(Effect):
    """A token that orders printing and debugging calls."""

    def __init__(self) -> None:
        self.effect: Any = None

    def emit_init(self, name_hint: str, builder: relax.BlockBuilder) -> list[Any]:
        return [builder.emit(relax_op.null_value(), f"{name_hint}.io")]

    def create(self, name_hint: str) -> list[Any]:
        self.effect = relax.Var(f"{name_hint}.io", relax.ObjectStructInfo())
        return [self.effect]

    def set_state(self, state_vars: list[Any]) -> None:
        (self.effect,) = state_vars

    def finalize(self) -> list[Any]:
        state, self.effect = self.effect, None
        return [state]


class Identity(Module):
    """Passes its input on."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Dropout(Module):
    """Dropout, which at inference is the identity."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return x


class ReLU(Module):
    """``max(x, 0)``"""

    def forward(self, x: Tensor) -> Tensor:
        return op.relu(x)


class SiLU(Module):
    """``x * sigmoid(x)``"""

    def forward(self, x: Tensor) -> Tensor:
        return op.silu(x)


class GELU(Module):
    """Gaussian error linear unit."""

    def forward(self, x: Tensor) -> Tensor:
        return op.gelu(x)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        return op.tanh(x)


class Softmax(Module):
    """Softmax along an axis."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return op.softmax(x, self.axis)


class Linear(Module):
    """``x @ weight.T + bias``; the weight is ``[out_features, in_features]``."""

    def __init__(
        self, in_features: Dim | str, out_features: Dim | str, bias: bool = True, dtype: str | None = None,
        out_dtype: str | None = None,
    ) -> None:  # fmt: skip
        self.in_features = in_features
        self.out_features = out_features
        self.out_dtype = out_dtype
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), dtype if out_dtype is None else out_dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        # The transpose is fused into the product, and folded away once the weight is a constant.
        out = op.matmul(x, op.permute_dims(self.weight), out_dtype=self.out_dtype)
        return out if self.bias is None else out + self.bias


def _spatial(value: Steps, rank: int) -> list[int]:
    return [value] * rank if isinstance(value, int) else list(value)


class _Conv(Module):
    rank = 2

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Steps, stride: Steps = 1, padding: Steps = 0,
        dilation: Steps = 1, groups: int = 1, bias: bool = True, dtype: str | None = None, data_layout: str = "",
    ) -> None:  # fmt: skip
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _spatial(kernel_size, self.rank)
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.groups = groups
        self.data_layout = data_layout or {1: "NCW", 2: "NCHW", 3: "NCDHW"}[self.rank]
        self.weight = Parameter((out_channels, in_channels // groups, *self.kernel_size), dtype)
        self.bias = Parameter((out_channels,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        function = {1: op.conv1d, 2: op.conv2d, 3: op.conv3d}[self.rank]
        options: dict[str, Any] = {} if self.rank == 1 else {"data_layout": self.data_layout}
        return function(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups, **options)  # type: ignore[operator]


class Conv1D(_Conv):
    """Convolution over ``[batch, channels, width]``."""

    rank = 1


class Conv2D(_Conv):
    """Convolution over ``[batch, channels, height, width]`` (or ``NHWC``)."""

    rank = 2


class Conv3D(_Conv):
    """Convolution over ``[batch, channels, depth, height, width]``."""

    rank = 3


class ConvTranspose1D(Module):
    """Transposed convolution over ``[batch, channels, width]``."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0,
        output_padding: int = 0, dilation: int = 1, groups: int = 1, bias: bool = True, dtype: str | None = None,
    ) -> None:  # fmt: skip
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.dilation, self.groups = dilation, groups
        self.weight = Parameter((in_channels, out_channels // groups, kernel_size), dtype)
        self.bias = Parameter((out_channels,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return op.conv1d_transpose(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.dilation, self.groups
        )


class _Pool2D(Module):
    _pool: Callable[..., Tensor]

    def __init__(self, kernel_size: Steps, stride: Steps | None = None, padding: Steps = 0) -> None:
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride

    def forward(self, x: Tensor) -> Tensor:
        return type(self)._pool(x, self.kernel_size, self.stride, self.padding)


class MaxPool2D(_Pool2D):
    """Maximum over windows."""

    _pool = op.max_pool2d


class AvgPool2D(_Pool2D):
    """Mean over windows."""

    _pool = op.avg_pool2d


class BatchNorm2D(Module):
    """Batch normalisation with stored statistics (inference)."""

    def __init__(self, num_features: int, eps: float = 1e-5, dtype: str | None = None) -> None:
        self.eps = eps
        self.weight = Parameter((num_features,), dtype)
        self.bias = Parameter((num_features,), dtype)
        self.running_mean = Parameter((num_features,), dtype)
        self.running_var = Parameter((num_features,), dtype)

    def forward(self, x: Tensor) -> Tensor:
        return op.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, self.eps)


class LayerNorm(Module):
    """Normalisation over the trailing dimensions ``normalized_shape`` (one int: the last)."""

    def __init__(
        self,
        normalized_shape: Steps,
        eps: float | None = 1e-5,
        elementwise_affine: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.normalized_shape = normalized_shape
        self.eps = eps
        dims = tuple(as_list(normalized_shape))
        self.weight = Parameter(dims, dtype) if elementwise_affine else None
        self.bias = Parameter(dims, dtype) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        return op.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Division by the root mean square over ``axes``."""

    def __init__(
        self,
        hidden_size: int,
        axes: Steps,
        epsilon: float = 1e-5,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.axes = axes
        self.weight = Parameter((hidden_size,), dtype)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        out = op.rms_norm(x, self.weight, self.axes, self.epsilon)
        return out if self.bias is None else out + self.bias


class GroupNorm(Module):
    """Normalisation over groups of channels."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, dtype: str | None = None
    ) -> None:
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Parameter((num_channels,), dtype) if affine else None
        self.bias = Parameter((num_channels,), dtype) if affine else None

    def forward(self, x: Tensor, channel_axis: int = 1, axes: Sequence[int] | None = None) -> Tensor:
        return op.group_norm(x, self.num_groups, self.weight, self.bias, self.eps, channel_axis, axes)


class Embedding(Module):
    """Rows of a table by index."""

    def __init__(self, num: Dim | str, dim: Dim | str, dtype: str | None = None) -> None:
        self.num, self.dim = num, dim
        self.weight = Parameter((num, dim), dtype)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 1:
            return op.take(self.weight, x, axis=0)
        rows = op.take(self.weight, op.reshape(x, [-1]), axis=0)
        return op.reshape(rows, [*x.shape, self.dim])


class TimestepEmbedding(Module):
    """Two linear maps with SiLU between them, for the time embedding of diffusion models."""

    def __init__(
        self, in_channels: int, time_embed_dim: int, act_fn: str = "silu", out_dim: int | None = None,
        post_act_fn: str | None = None, cond_proj_dim: int | None = None,
    ) -> None:  # fmt: skip
        if act_fn != "silu" or post_act_fn not in (None, "silu"):
            raise ValueError("TimestepEmbedding supports the activation 'silu' only")
        self.linear_1 = Linear(in_channels, time_embed_dim)
        self.cond_proj = Linear(cond_proj_dim, in_channels, bias=False) if cond_proj_dim is not None else None
        self.act = SiLU()
        self.linear_2 = Linear(time_embed_dim, out_dim if out_dim is not None else time_embed_dim)
        self.post_act = SiLU() if post_act_fn is not None else None

    def forward(self, sample: Tensor, condition: Tensor | None = None) -> Tensor:
        if condition is not None and self.cond_proj is not None:
            sample = sample + self.cond_proj(condition)
        sample = self.linear_2(self.act(self.linear_1(sample)))
        return sample if self.post_act is None else self.post_act(sample)


class Timesteps(Module):
    """Sinusoidal embedding of time steps."""

    def __init__(self, num_channels: int, flip_sin_to_cos: bool = False, downscale_freq_shift: float = 1) -> None:
        self.num_channels = num_channels
        self.flip_sin_to_cos = flip_sin_to_cos
        self.downscale_freq_shift = downscale_freq_shift

    def forward(self, x: Tensor) -> Tensor:
        return op.get_timestep_embedding(
            x, embedding_dim=self.num_channels, flip_sin_to_cos=self.flip_sin_to_cos,
            downscale_freq_shift=self.downscale_freq_shift,
        )  # fmt: skip


class Attention(Module):
    """Multi-head (self or cross) attention over ``[batch, length, features]``."""

    def __init__(
        self,
        query_dim: int,
        cross_attention_dim: int | None = None,
        heads: int = 8,
        dim_head: int = 64,
        bias: bool = False,
        norm_num_groups: int | None = None,
        out_bias: bool = True,
        scale_qk: bool = True,
    ) -> None:
        self.query_dim = query_dim
        self.cross_attention_dim = query_dim if cross_attention_dim is None else cross_attention_dim
        self.heads, self.dim_head, self.inner_dim = heads, dim_head, dim_head * heads
        self.scale = None if scale_qk else 1.0
        self.to_q = Linear(query_dim, self.inner_dim, bias=bias)
        self.to_k = Linear(self.cross_attention_dim, self.inner_dim, bias=bias)
        self.to_v = Linear(self.cross_attention_dim, self.inner_dim, bias=bias)
        self.group_norm = GroupNorm(norm_num_groups, query_dim) if norm_num_groups is not None else None
        self.to_out = ModuleList([Linear(self.inner_dim, query_dim, bias=out_bias)])

    def forward(self, hidden_states: Tensor, encoder_hidden_states: Tensor | None = None) -> Tensor:
        if self.group_norm is not None:
            hidden_states = self.group_norm(hidden_states, channel_axis=2, axes=[1])
        query = self.to_q(hidden_states)
        context = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        heads = [0, -1, self.heads, self.dim_head]
        query, key, value = (op.reshape(part, heads) for part in (query, self.to_k(context), self.to_v(context)))
        out = op.scaled_dot_product_attention(query, key, value, is_causal=False, scale=self.scale)
        return self.to_out[0](op.reshape(out, [0, -1, self.inner_dim]))


class MultiheadAttention(Attention):
    """Attention with biases on all projections, as in ``torch.nn.MultiheadAttention(batch_first=True)``."""

    def __init__(self, embed_dim: int, num_heads: int, bias: bool = True) -> None:
        super().__init__(embed_dim, None, num_heads, embed_dim // num_heads, bias=bias, out_bias=bias)


class KVCache(Effect):
    """A cache of keys (or values) of growing length, read and appended to as the model runs."""

    def __init__(self, init_seq_len: int, unit_shape: Sequence[int], dtype: str | None = None) -> None:
        self.init_seq_len = init_seq_len
        self.unit_shape = [int(i) for i in unit_shape]
        self.dtype = dtype or get_default_dtype()
        self.cache: Any = None

    def emit_init(self, name_hint: str, builder: relax.BlockBuilder) -> list[Any]:
        shape = relax.ShapeExpr([self.init_seq_len, *self.unit_shape])
        made = relax_op.call_pure_packed(
            "vm.builtin.attention_kv_cache_create",
            relax_op.zeros(shape, self.dtype),
            shape,
            relax.PrimValue(0),
            sinfo_args=[relax.ObjectStructInfo()],
        )
        return [builder.emit(made, name_hint)]

    def create(self, name_hint: str) -> list[Any]:
        self.cache = relax.Var(name_hint, relax.ObjectStructInfo())
        return [self.cache]

    def set_state(self, state_vars: list[Any]) -> None:
        (self.cache,) = state_vars

    def finalize(self) -> list[Any]:
        state, self.cache = self.cache, None
        return [state]

    def to(self, dtype: str | None = None) -> None:
        if dtype is not None:
            self.dtype = dtype

    def view(self, seq_len: Dim) -> Tensor:
        """The first ``seq_len`` entries."""
        shape = relax.ShapeExpr([seq_len, *self.unit_shape])
        info = relax.TensorStructInfo(shape, self.dtype)
        read = relax_op.call_pure_packed("vm.builtin.attention_kv_cache_view", self.cache, shape, sinfo_args=[info])
        return Tensor(_expr=_builder().emit(read))

    def append(self, new_element: Tensor) -> None:
        """Add entries at the end. Raises TypeError for another dtype than the cache has."""
        if new_element.dtype != self.dtype:
            raise TypeError(f'KVCache has been set to use dtype "{self.dtype}", but got "{new_element.dtype}"')
        grown = relax_op.call_inplace_packed(
            "vm.builtin.attention_kv_cache_append",
            self.cache,
            new_element._expr,
            inplace_indices=[0],
            sinfo_args=[relax.ObjectStructInfo()],
        )
        self.cache = _builder().emit(grown)


def _builder() -> relax.BlockBuilder:
    current = relax.BlockBuilder.current()
    if current is None:
        raise RuntimeError("a KVCache is used while a module is exported")
    return current
