"""Random arguments: what inference says of symbolic shapes, with numbers put in, is what it says of the numbers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from relaxish import relax, tir
from relaxish.arith import Analyzer
from relaxish.relax import op
from relaxish.relax.scalars import const_int
from relaxish.relax.struct_info import TensorStructInfo, TupleStructInfo
from relaxish.tir.stmt_functor import substitute

Tensor = Callable[..., Any]
_ROUNDS = 12


def sizes(rng: random.Random, count: int, low: int = 2, high: int = 9) -> list[int]:
    return [rng.randint(low, high) for _ in range(count)]


def add(rng: random.Random, t: Tensor) -> Any:
    shape = sizes(rng, rng.randint(1, 4))
    other = [1 if rng.random() < 0.3 else d for d in shape][rng.randint(0, len(shape) - 1) :]
    return op.add(t(*shape), t(*other))


def where(rng: random.Random, t: Tensor) -> Any:
    a, b = sizes(rng, 2)
    return op.where(t(a, 1, dtype="bool"), t(b), t(1, b))


def matmul(rng: random.Random, t: Tensor) -> Any:
    batch, m, k, n = sizes(rng, 4)
    return op.matmul(t(*([batch] if rng.random() < 0.5 else []), m, k), t(batch, k, n))


def concat(rng: random.Random, t: Tensor) -> Any:
    shape, axis = sizes(rng, 3), rng.randint(-3, 2)
    parts = []
    for _ in range(rng.randint(1, 4)):
        part = list(shape)
        part[axis] = rng.randint(2, 9)
        parts.append(t(*part))
    return op.concat(parts, axis)


def split(rng: random.Random, t: Tensor) -> Any:
    shape, axis = sizes(rng, 3), rng.randint(-3, 2)
    if rng.random() < 0.5:
        # Too many parts would leave a negative length to the last one.
        parts = [p for p in range(1, 5) if -(-shape[axis] // p) * (p - 1) <= shape[axis]]
        return op.split(t(*shape), rng.choice(parts), axis)
    return op.split(t(*shape), sorted(rng.randint(0, 12) for _ in range(rng.randint(0, 3))), axis)


def strided_slice(rng: random.Random, t: Tensor) -> Any:
    shape = sizes(rng, 3)
    axes = rng.sample(range(3), rng.randint(0, 3))
    step = [rng.choice([-2, -1, 1, 2, 3]) for _ in axes]
    return op.strided_slice(
        t(*shape), axes, [rng.randint(-9, 9) for _ in axes], [rng.randint(-9, 9) for _ in axes], step
    )


def reshape(rng: random.Random, t: Tensor) -> Any:
    a, b, c = sizes(rng, 3)
    return op.reshape(t(a, 6 * b, c), rng.choice([(0, -1), (-1, 3), (0, 2, 3, -1), (-1,)]))


def collapse(rng: random.Random, t: Tensor) -> Any:
    shape = sizes(rng, 3)
    return op.collapse_sum_like(t(*shape), t(*[1 if rng.random() < 0.5 else d for d in shape[rng.randint(0, 2) :]]))


def repeat(rng: random.Random, t: Tensor) -> Any:
    return op.repeat(t(*sizes(rng, 3)), rng.randint(1, 4), rng.choice([None, 0, -1]))


def tile(rng: random.Random, t: Tensor) -> Any:
    return op.tile(t(*sizes(rng, 2)), sizes(rng, rng.randint(1, 3), 1, 3))


def pad(rng: random.Random, t: Tensor) -> Any:
    return op.nn.pad(t(*sizes(rng, 2)), sizes(rng, 4, 0, 3))


def take(rng: random.Random, t: Tensor) -> Any:
    return op.take(t(*sizes(rng, 3)), t(*sizes(rng, rng.randint(0, 2)), dtype="int64"), rng.randint(-3, 2))


def gather_nd(rng: random.Random, t: Tensor) -> Any:
    a, b, c, d = sizes(rng, 4)
    batch = rng.randint(0, 1)
    index = relax.Var("i", TensorStructInfo([a, d, rng.randint(1, 2)], "int64"))
    return op.gather_nd(relax.Var("x", TensorStructInfo([a, b, c], "float32")), index, batch)


def reduction(rng: random.Random, t: Tensor) -> Any:
    axes = rng.choice([None, 0, [1, -1], [0, 1, 2]])
    return rng.choice([op.sum, op.max, op.variance])(t(*sizes(rng, 3)), axes, rng.random() < 0.5)


def scan(rng: random.Random, t: Tensor) -> Any:
    return op.cumsum(t(*sizes(rng, 3)), rng.choice([None, 0, -1]))


def one_hot(rng: random.Random, t: Tensor) -> Any:
    return op.one_hot(t(*sizes(rng, 2), dtype="int64"), 1, 0, rng.randint(2, 5), rng.randint(-3, 2))


def shapes(rng: random.Random, t: Tensor) -> Any:
    a, b, c = sizes(rng, 3)
    x = t(a, b, c)
    return rng.choice(
        [op.permute_dims(x, [2, 0, 1]), op.expand_dims(x, [1, -1]), op.flatten(x), op.squeeze(t(a, 1, b), [1]),
         op.einsum((x, t(c, b)), "abc,cb->ab"), op.topk(x, 1, 1, "values"), op.argmax(x, 1, True)]
    )  # fmt: skip


def conv2d(rng: random.Random, t: Tensor) -> Any:
    n, groups, per_group, filters, h, w = *sizes(rng, 4), *sizes(rng, 2, 8, 20)
    layout = rng.choice(["NCHW", "NHWC"])
    extents = {"N": n, "C": groups * per_group, "H": h, "W": w}
    data, weight = t(*[extents[c] for c in layout]), t(filters * groups, per_group, *sizes(rng, 2, 1, 3))
    return op.nn.conv2d(
        data, weight, strides=sizes(rng, 2, 1, 3),
        padding=sizes(rng, 4, 0, 2), dilation=sizes(rng, 2, 1, 2), groups=groups, data_layout=layout,
        out_layout=rng.choice(["NCHW", "NHWC"]),
    )  # fmt: skip


def conv2d_transpose(rng: random.Random, t: Tensor) -> Any:
    n, c, f = sizes(rng, 3)
    step = sizes(rng, 2, 1, 3)
    return op.nn.conv2d_transpose(
        t(n, c, *sizes(rng, 2)), t(c, f, *sizes(rng, 2, 3, 4)), strides=step, padding=sizes(rng, 2, 0, 1),
        output_padding=[rng.randint(0, s - 1) for s in step],
    )  # fmt: skip


def pool2d(rng: random.Random, t: Tensor) -> Any:
    window = sizes(rng, 2, 2, 4)
    return op.nn.max_pool2d(
        t(*sizes(rng, 2), *sizes(rng, 2, 8, 20)), window, sizes(rng, 2, 1, 3), [rng.randint(0, 1)] * 4,
    )  # fmt: skip


def attention(rng: random.Random, t: Tensor) -> Any:
    b, s, k, h, d, v = sizes(rng, 6)
    return op.nn.attention(t(b, s, h, d), t(b, k, h, d), t(b, k, h, v))


def resize2d(rng: random.Random, t: Tensor) -> Any:
    return op.image.resize2d(t(*sizes(rng, 4)), sizes(rng, 2), layout=rng.choice(["NCHW", "NHWC"]))


MAKERS = [
    add, where, matmul, concat, split, strided_slice, reshape, collapse, repeat, tile, pad, take, gather_nd, reduction,
    scan, one_hot, shapes, conv2d, conv2d_transpose, pool2d, attention, resize2d,
]  # fmt: skip


def infer(call: Any) -> list[Any]:
    info = relax.BlockBuilder().normalize(call).struct_info
    return list(info.fields) if isinstance(info, TupleStructInfo) else [info]


def static(*shape: Any, dtype: str = "float32") -> Any:
    return relax.Var("x", TensorStructInfo(shape, dtype))


def symbolic(symbols: dict[int, Any]) -> Tensor:
    """Tensors whose extents, one aside, are symbols: equal extents the same symbol."""

    def tensor(*shape: Any, dtype: str = "float32") -> Any:
        dims = [symbols.setdefault(d, tir.Var(f"n{d}", "int64")) if d > 1 else d for d in shape]
        return relax.Var("x", TensorStructInfo(dims, dtype))

    return tensor


@pytest.mark.parametrize("make", MAKERS, ids=[m.__name__ for m in MAKERS])
def test_symbols_stand_for_numbers(make: Callable[..., Any]) -> None:
    told = 0
    for seed in range(_ROUNDS):
        want = infer(make(random.Random(seed), static))
        symbols: dict[int, Any] = {}
        got = infer(make(random.Random(seed), symbolic(symbols)))
        values = {symbol: tir.IntImm("int64", size) for size, symbol in symbols.items()}
        assert len(got) == len(want)
        for ours, theirs in zip(got, want):
            assert ours.dtype == theirs.dtype
            assert ours.ndim == theirs.ndim
            if ours.shape is None:
                continue
            told += 1
            # The length of an empty slice of symbolic bounds comes out negative.
            numbers = [max(int(Analyzer().simplify(substitute(d, values))), 0) for d in ours.shape.values]
            assert numbers == [const_int(d) for d in theirs.shape.values], (seed, ours, theirs)
    assert told, "inference said nothing of symbolic shapes"


def test_no_symbol_is_better_than_a_number() -> None:
    """With ranks alone, every maker's result has at least its rank."""

    def ranked(*shape: Any, dtype: str = "float32") -> Any:
        return relax.Var("x", TensorStructInfo(None, dtype, ndim=len(shape)))

    for make in (add, where, matmul, concat, strided_slice, tile, pad, take, reduction, one_hot, conv2d, pool2d):
        for seed in range(_ROUNDS):
            want = infer(make(random.Random(seed), static))
            for ours, theirs in zip(infer(make(random.Random(seed), ranked)), want):
                assert ours.dtype == theirs.dtype
                assert ours.ndim == theirs.ndim
