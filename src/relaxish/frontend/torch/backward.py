"""Operators of backward passes that PyTorch does not take apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import op, relax
from ...relax.expr import Expr
from .importer import Deferred, Dim, dtype_of, Importer, Steps
from .table import converter, CONVERTERS, Made
from .windows import many

__all__: list[str] = []


@converter("convolution_backward")
def _convolution_backward(
    self: Importer, grad: Expr, x: Expr, weight: Expr, bias_sizes: Sequence[Dim] | None, stride: Steps, padding: Steps,
    dilation: Steps, transposed: bool, output_padding: Steps, groups: int, output_mask: Sequence[bool],
) -> list[Any]:  # fmt: skip
    """The gradients by data, weight and bias, where ``output_mask`` asks for them."""
    rank = self.rank(weight) - 2
    steps, pads, gaps = (many(v, rank) for v in (stride, padding, dilation))
    made: list[Any] = [None, None, None]
    if output_mask[0]:
        made[0] = Deferred(lambda: _by_data(self, grad, x, weight, steps, pads, gaps, transposed, groups))
    if output_mask[1]:
        # A transposed convolution is the way back of one from its result to its data.
        wide, narrow = (grad, x) if transposed else (x, grad)
        kernel = [self.known(weight, d, "the gradient of a convolution") for d in range(2, rank + 2)]
        made[1] = Deferred(lambda: _by_weight(self, wide, narrow, kernel, steps, pads, gaps, groups))
    if output_mask[2]:
        others = [d for d in range(self.rank(grad)) if d != 1]
        made[2] = Deferred(lambda: self.emit(op.sum(grad, others)))
    return made


def _by_data(
    self: Importer, grad: Expr, x: Expr, weight: Expr, steps: list[int], pads: list[int], gaps: list[int],
    transposed: bool, groups: int,
) -> Made:  # fmt: skip
    rank = len(steps)
    if transposed:
        return CONVERTERS[f"conv{rank}d"](self, grad, weight, None, steps, pads, gaps, groups)
    # What the last windows do not reach of the data.
    sizes = zip(self.shape(x)[2:], self.shape(grad)[2:], self.shape(weight)[2:], steps, pads, gaps, strict=True)
    rest = [size - ((out - 1) * s - 2 * p + g * (k - 1) + 1) for size, out, k, s, p, g in sizes]
    if all(r.__class__ is int for r in rest):
        return CONVERTERS[f"conv_transpose{rank}d"](self, grad, weight, None, steps, pads, rest, groups, gaps)
    if all(s == 1 for s in steps):
        return CONVERTERS[f"conv_transpose{rank}d"](self, grad, weight, None, steps, pads, 0, groups, gaps)
    # Enough for every size, and what is too much cut off.
    most = [s - 1 for s in steps]
    made = CONVERTERS[f"conv_transpose{rank}d"](self, grad, weight, None, steps, pads, most, groups, gaps)
    assert self.is_tensor(made)
    axes = list(range(2, 2 + rank))
    return _cut(self, made, axes, [0] * rank, self.shape(x)[2:], [1] * rank, self.shape(x)[2:])


def _by_weight(
    self: Importer, wide: Expr, narrow: Expr, kernel: Sequence[int], steps: list[int], pads: list[int],
    gaps: list[int], groups: int,
) -> Expr:  # fmt: skip
    """For every place of the kernel a product of the gradient with the elements that the place meets.

    ``wide`` is the side that windows are taken of. The result has the channels of ``narrow`` first.
    """
    rank = len(steps)
    if any(pads):
        wide = self.emit(op.nn.pad(wide, [0, 0, 0, 0, *(p for p in pads for _ in range(2))]))
    places = self.shape(narrow)[2:]
    outs, ins = (
        self.known(narrow, 1, "the gradient of a convolution"),
        self.known(wide, 1, "the gradient of a convolution"),
    )
    axes = list(range(2, 2 + rank))
    left = _channels_first(self, narrow, groups, outs)
    products = []
    for place in _places(kernel):
        begin = [k * g for k, g in zip(place, gaps, strict=True)]
        end = [b + (n - 1) * s + 1 for b, n, s in zip(begin, places, steps, strict=True)]
        met = _cut(self, wide, axes, begin, end, steps, places)
        right = self.emit(op.permute_dims(_channels_first(self, met, groups, ins), [0, 2, 1]))
        products.append(self.emit(op.matmul(left, right)))
    # [places, groups, outs of a group, ins of a group] -> [outs, ins of a group, *places]
    stacked = self.emit(op.stack(products, 0)) if len(products) > 1 else self.emit(op.expand_dims(products[0], 0))
    moved = self.emit(op.permute_dims(stacked, [1, 2, 3, 0]))
    return self.emit(op.reshape(moved, [outs, ins // groups, *kernel]))


def _cut(
    self: Importer, x: Expr, axes: list[int], begin: Sequence[Dim], end: Sequence[Dim], steps: list[int],
    sizes: Sequence[Dim],
) -> Expr:  # fmt: skip
    """A slice of these sizes, which the bounds say in a longer way where they are symbolic."""
    made = self.emit(op.strided_slice(x, axes, begin, end, steps))
    if all(size.__class__ is int for size in sizes):
        return made
    shape = [*self.shape(x)[: axes[0]], *sizes]
    return self.builder.match_cast(made, relax.TensorStructInfo(shape, dtype_of(x)))


def _places(kernel: Sequence[int]) -> list[list[int]]:
    """Every place of a kernel, the last dimension fastest."""
    found = []
    for flat in range(math.prod(kernel)):
        place: list[int] = []
        for size in reversed(kernel):
            place.insert(0, flat % size)
            flat //= size
        found.append(place)
    return found


def _channels_first(self: Importer, x: Expr, groups: int, channels: int) -> Expr:
    """[batch, channels, *places] as [groups, channels of a group, batch * places]."""
    batch, _, *places = self.shape(x)
    moved = self.emit(op.permute_dims(x, [1, 0, *range(2, self.rank(x))]))
    count: Any = batch
    for size in places:
        count = count * size
    return self.emit(op.reshape(moved, [groups, channels // groups, count]))


@converter("avg_pool2d_backward")
def _avg_pool2d_backward(
    self: Importer, grad: Expr, x: Expr, kernel: Steps, stride: Steps, padding: Steps, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Expr:  # fmt: skip
    windows = many(kernel, 2)
    steps = many(stride, 2) if stride not in ((), [], None) else windows
    pads = many(padding, 2)
    single = self.rank(x) == 3
    if single:
        grad, x = (self.emit(op.expand_dims(v, 0)) for v in (grad, x))
    if divisor_override is not None:
        raise NotImplementedError("the gradient of a mean over windows with a divisor")
    made = self.emit(
        op.grad.avg_pool2d_backward(grad, x, windows, steps, pads * 2, (1, 1), ceil_mode, count_include_pad, "NCHW")
    )
    return self.emit(op.squeeze(made, [0])) if single else made
