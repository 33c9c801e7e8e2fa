"""Operators of PyTorch that rearrange, pick or join elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from itertools import accumulate

import numpy as np

from ... import op, relax, tir
from ...relax.expr import Expr
from ...support.errors import OpNotImplemented
from .importer import Dim, dtype_of, Importer, Steps, Value
from .table import converter, CONVERTERS, Made

__all__: list[str] = []
_INT_MAX = 9223372036854775807


@converter("view", "reshape", "_unsafe_view", "view_copy", "_reshape_alias")
def _reshape(self: Importer, x: Expr, shape: Sequence[Dim], *_: Any) -> Expr:
    return self.emit(op.reshape(x, self.dims(shape)))


@converter("as_strided", "as_strided_copy")
def _as_strided(
    self: Importer, x: Expr, size: Sequence[Dim], stride: Sequence[Dim], storage_offset: Dim | None = None
) -> Expr:
    """Elements by their distances in memory, where PyTorch has a tensor that fills its memory."""
    value = None if self.node is None else self.node.all_input_nodes[0].meta.get("val")
    begin: Any = 0
    if value is not None:
        order = sorted(range(value.dim()), key=lambda d: (value.stride(d), value.shape[d]), reverse=True)
        step: Any = 1
        for d in reversed(order):
            if value.shape[d] != 1 and value.stride(d) != step:
                raise OpNotImplemented("as_strided of a view that skips elements of its memory")
            step = step * value.shape[d]
        if order != sorted(order):
            x = self.emit(op.permute_dims(x, order))
        begin = 0 if storage_offset is None else storage_offset - value.storage_offset()
    elif storage_offset is not None:
        begin = storage_offset
    sizes, steps, total = self.dims(size), self.dims(stride), _count(self.shape(x))
    known = [v for v in (*sizes, *steps, begin, total) if isinstance(v, int)]
    if len(known) < len(sizes) + len(steps) + 2:
        raise OpNotImplemented("as_strided with sizes that are not known")
    extents, strides, (first, count) = known[: len(sizes)], known[len(sizes) : -2], known[-2:]
    last = first + sum((n - 1) * by for n, by in zip(extents, strides))
    if 0 not in extents and not (0 <= first and last < count):
        raise OpNotImplemented("as_strided of elements outside of the tensor that it is given")
    places = np.full(extents, first, "int64")
    for axis, (n, by) in enumerate(zip(extents, strides)):
        places += (np.arange(n) * by).reshape([-1] + [1] * (len(extents) - 1 - axis))
    return self.emit(op.take(self.emit(op.reshape(x, [total])), relax.const(places, "int64"), 0))


@converter("resize", "resize_")
def _resize(self: Importer, x: Expr, size: Sequence[Dim], **_: Any) -> Expr:
    """The first elements in another shape; PyTorch says nothing of those that are new, which are zero here."""
    wanted, have = _count(self.dims(size)), _count(self.shape(x))
    if not (isinstance(wanted, int) and isinstance(have, int)):
        raise OpNotImplemented("resize_ with sizes that are not known")
    flat = self.emit(op.reshape(x, [have]))
    if wanted > have:
        flat = self.emit(op.concat([flat, self.emit(op.zeros([wanted - have], dtype_of(x)))], 0))
    elif wanted < have:
        flat = self.emit(op.strided_slice(flat, [0], [0], [wanted]))
    return self.emit(op.reshape(flat, self.dims(size)))


def _count(sizes: Sequence[Dim]) -> Any:
    total: Any = 1
    for size in sizes:
        total = total * size
    return total


@converter("sym_numel")
def _numel(self: Importer, x: Expr) -> Any:
    return _count(self.shape(x))


@converter("sym_stride")
def _stride(self: Importer, x: Expr, dim: int) -> Any:
    """Tensors of a compiled function lie row by row."""
    return _count(self.shape(x)[self.axis(x, dim) + 1 :])


@converter("sym_storage_offset")
def _storage_offset(self: Importer, x: Expr) -> int:
    return 0


@converter("flatten")
def _flatten(self: Importer, x: Expr, start_dim: int = 0, end_dim: int = -1) -> Expr:
    shape = self.shape(x)
    if not shape:
        return self.emit(op.reshape(x, [1]))
    start, end = self.axis(x, start_dim), self.axis(x, end_dim)
    merged: Any = 1
    for dim in shape[start : end + 1]:
        merged = merged * dim
    return self.emit(op.reshape(x, [*shape[:start], merged, *shape[end + 1 :]]))


@converter("unflatten")
def _unflatten(self: Importer, x: Expr, dim: int, sizes: Sequence[Dim]) -> Expr:
    shape, dim = self.shape(x), self.axis(x, dim)
    sizes = list(self.dims(sizes))
    if -1 in sizes:
        known: Dim = 1
        for size in sizes:
            known = known * size if size != -1 else known
        sizes[sizes.index(-1)] = shape[dim] // known
    return self.emit(op.reshape(x, [*shape[:dim], *sizes, *shape[dim + 1 :]]))


@converter("transpose", "swapaxes", "transpose_copy")
def _transpose(self: Importer, x: Expr, dim0: int, dim1: int) -> Expr:
    axes = list(range(self.rank(x)))
    a, b = self.axis(x, dim0), self.axis(x, dim1)
    axes[a], axes[b] = axes[b], axes[a]
    return self.emit(op.permute_dims(x, axes))


@converter("t", "t_copy", "numpy_T")
def _t(self: Importer, x: Expr) -> Expr:
    return x if self.rank(x) < 2 else self.emit(op.permute_dims(x))


@converter("permute", "permute_copy")
def _permute(self: Importer, x: Expr, dims: Sequence[int]) -> Expr:
    return self.emit(op.permute_dims(x, [self.axis(x, d) for d in dims]))


@converter("unsqueeze", "unsqueeze_copy")
def _unsqueeze(self: Importer, x: Expr, dim: int) -> Expr:
    return self.emit(op.expand_dims(x, dim))


@converter("squeeze", "squeeze_copy")
def _squeeze(self: Importer, x: Expr, dim: Steps | None = None) -> Expr:
    dims = [dim] if isinstance(dim, int) else list(dim) if dim is not None else None
    if dims is None:
        return self.emit(op.squeeze(x))
    shape = self.shape(x)
    keep = [self.axis(x, d) for d in dims if shape and shape[self.axis(x, d)] == 1]
    return self.emit(op.squeeze(x, keep)) if keep else x


@converter("expand", "expand_copy", "broadcast_to")
def _expand(self: Importer, x: Expr, sizes: Sequence[Dim], *_: Any, **__: Any) -> Expr:
    sizes = list(self.dims(sizes))
    shape = self.shape(x)
    offset = len(sizes) - len(shape)
    for index, size in enumerate(sizes):
        if isinstance(size, int) and size == -1:
            sizes[index] = shape[index - offset]
    return self.emit(op.broadcast_to(x, sizes))


@converter("expand_as")
def _expand_as(self: Importer, x: Expr, other: Expr) -> Expr:
    return self.emit(op.broadcast_to(x, self.shape(other)))


@converter("cat", "concat", "concatenate")
def _cat(self: Importer, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    kept = [t for t in tensors if self.shape(t) != [0]] or list(tensors)[:1]
    if len(kept) == 1:
        return kept[0]
    return self.emit(op.concat(self.together(*kept), dim))


@converter("stack")
def _stack(self: Importer, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    """Pieces one behind the other, whose dimension a reshape divides; a new last dimension has to be there first."""
    shape = self.shape(tensors[0])
    dim = dim + len(shape) + 1 if dim < 0 else dim
    if dim < len(shape):
        joined = self.emit(op.concat(self.together(*tensors), dim))
        return self.emit(op.reshape(joined, [*shape[:dim], len(tensors), *shape[dim:]]))
    return self.emit(op.concat([self.emit(op.expand_dims(t, dim)) for t in self.together(*tensors)], dim))


def _pieces(self: Importer, value: Expr, count: int) -> list[Expr]:
    return [self.emit(relax.TupleGetItem(value, i)) for i in range(count)]


def _split_at(self: Importer, x: Expr, cuts: list[int], dim: int) -> list[Any]:
    if not cuts:
        return [x]
    return _pieces(self, self.emit(op.split(x, cuts, dim)), len(cuts) + 1)


def _split_by(self: Importer, x: Expr, step: int, total: int, dim: int) -> list[Any]:
    """Pieces of ``step``, the last one of what is left: told by their number where that says the same."""
    count = max(1, -(-total // step)) if step else 1
    if count > 1 and -(-total // count) == step:
        return _pieces(self, self.emit(op.split(x, count, dim)), count)
    return _split_at(self, x, list(range(step, total, step)) if step else [], dim)


@converter("split", "split_with_sizes", "split_copy", "split_with_sizes_copy", "unsafe_split")
def _split(self: Importer, x: Expr, size: Steps, dim: int = 0) -> list[Any]:
    dim = self.axis(x, dim)
    if isinstance(size, int):
        return _split_by(self, x, size, self.known(x, dim, "split"), dim)
    return _split_at(self, x, list(accumulate(size[:-1])), dim)


@converter("chunk", "unsafe_chunk")
def _chunk(self: Importer, x: Expr, chunks: int, dim: int = 0) -> list[Any]:
    dim = self.axis(x, dim)
    total = self.known(x, dim, "chunk")
    return _split_by(self, x, -(-total // chunks), total, dim)


@converter("unbind", "unbind_copy")
def _unbind(self: Importer, x: Expr, dim: int = 0) -> list[Any]:
    dim = self.axis(x, dim)
    count = self.known(x, dim, "unbind")
    parts = _split_at(self, x, list(range(1, count)), dim)
    return [self.emit(op.squeeze(p, [dim])) for p in parts]


@converter("slice", "slice_copy")
def _slice(
    self: Importer, x: Expr, dim: int = 0, start: Dim | None = None, end: Dim | None = None, step: int = 1
) -> Expr:
    dim = self.axis(x, dim)
    size = self.shape(x)[dim]
    begin = 0 if start is None else start
    stop = _INT_MAX if end is None else end
    if isinstance(begin, int) and begin == 0 and step == 1 and isinstance(stop, int):
        if stop >= _INT_MAX or (isinstance(size, int) and stop >= size):
            return x
    if isinstance(size, int):
        begin = max(begin + size, 0) if isinstance(begin, int) and begin < 0 else begin
        stop = max(stop + size, 0) if isinstance(stop, int) and stop < 0 else stop
        stop = min(stop, size) if isinstance(stop, int) else stop
        begin = min(begin, size) if isinstance(begin, int) else begin
    return self.emit(op.strided_slice(x, [dim], [begin], [stop], [step]))


@converter("select", "select_copy")
def _select(self: Importer, x: Expr, dim: int, index: Dim) -> Expr:
    dim = self.axis(x, dim)
    size = self.shape(x)[dim]
    if isinstance(index, int) and index < 0:
        index = index + size
    return self.emit(op.take(x, relax.const(index, "int64") if isinstance(index, int) else self.tensor(index), dim))


@converter("narrow")
def _narrow(self: Importer, x: Expr, dim: int, start: Dim, length: Dim) -> Expr:
    return self.emit(op.strided_slice(x, [self.axis(x, dim)], [start], [start + length]))


@converter("index_select")
def _index_select(self: Importer, x: Expr, dim: int, index: Expr) -> Expr:
    return self.emit(op.take(x, index, self.axis(x, dim)))


@converter("embedding")
def _embedding(self: Importer, weight: Expr, indices: Expr, *_: Any) -> Expr:
    shape = self.shape(indices)
    if len(shape) <= 1:
        return self.emit(op.take(weight, indices, 0))
    flat = self.emit(op.reshape(indices, [-1]))
    rows = self.emit(op.take(weight, flat, 0))
    return self.emit(op.reshape(rows, [*shape, self.shape(weight)[1]]))


@converter("gather")
def _gather(self: Importer, x: Expr, dim: int, index: Expr, **_: Any) -> Expr:
    return self.emit(op.gather_elements(x, index, dim if self.rank(x) else 0))


@converter("repeat")
def _repeat(self: Importer, x: Expr, repeats: Sequence[Dim]) -> Expr:
    if all(isinstance(r, int) for r in repeats):
        return self.emit(op.tile(x, list(repeats)))
    # A number of copies that is known at run time only: a new dimension of that size is merged with the old one.
    shape = [*[1] * (len(repeats) - self.rank(x)), *self.shape(x)]
    apart = [n for size in shape for n in (1, size)]
    copies = [n for times, size in zip(repeats, shape, strict=True) for n in (times, size)]
    spread = self.emit(op.broadcast_to(self.emit(op.reshape(x, apart)), copies))
    return self.emit(op.reshape(spread, [times * size for times, size in zip(repeats, shape, strict=True)]))


CONVERTERS["tile"] = CONVERTERS["repeat"]


@converter("repeat_interleave")
def _repeat_interleave(self: Importer, x: Expr, repeats: int, dim: int | None = None, **_: Any) -> Expr:
    return self.emit(op.repeat(x, repeats, dim))


@converter("flip")
def _flip(self: Importer, x: Expr, dims: Sequence[int]) -> Expr:
    for dim in dims:
        x = self.emit(op.flip(x, self.axis(x, dim)))
    return x


@converter("roll")
def _roll(self: Importer, x: Expr, shifts: Steps, dims: Steps = ()) -> Expr:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    original = self.shape(x)
    if not dims:
        x = self.emit(op.reshape(x, [-1]))
        dims = [0]
    for shift, dim in zip(shifts, dims):
        dim = self.axis(x, dim)
        size = self.shape(x)[dim]
        if not isinstance(size, int):
            cut = tir.floormod(size - shift, size)
            parts = [op.strided_slice(x, [dim], [begin], [end]) for begin, end in ((cut, size), (0, cut))]
            x = self.emit(op.concat([self.emit(part) for part in parts], dim))
        elif size and (size - shift) % size:
            a, b = _split_at(self, x, [(size - shift) % size], dim)
            x = self.emit(op.concat([b, a], dim))
    return self.emit(op.reshape(x, original)) if self.rank(x) != len(original) else x


@converter("tril")
def _tril(self: Importer, x: Expr, diagonal: int = 0) -> Expr:
    return self.emit(op.tril(x, diagonal))


@converter("triu")
def _triu(self: Importer, x: Expr, diagonal: int = 0) -> Expr:
    return self.emit(op.triu(x, diagonal))


@converter("one_hot")
def _one_hot(self: Importer, x: Expr, num_classes: int = -1) -> Expr:
    if num_classes < 0:
        raise ValueError("one_hot needs num_classes: the largest class is not known when compiling")
    return self.emit(op.one_hot(x, relax.PrimValue(1), relax.PrimValue(0), num_classes, -1))


@converter("pad", "constant_pad_nd")
def _pad(self: Importer, x: Expr, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Expr:
    if not isinstance(mode, str):
        mode, value = "constant", mode
    if all(isinstance(p, int) and p == 0 for p in pad):
        return x
    widths = [0] * (2 * self.rank(x))
    for index in range(len(pad) // 2):
        dim = self.rank(x) - 1 - index
        widths[2 * dim], widths[2 * dim + 1] = pad[2 * index], pad[2 * index + 1]
    kept = [max(w, 0) if isinstance(w, int) else w for w in widths]
    if kept == widths:
        return self.emit(op.nn.pad(x, widths, mode if mode != "replicate" else "edge", float(value or 0.0)))
    if mode == "circular":
        # Of the rest that negative widths leave the repeats are taken, all other modes look at the whole.
        return _pad(self, _cropped(self, x, widths), [max(p, 0) for p in pad], mode, value)
    return _cropped(self, _pad(self, x, [max(p, 0) for p in pad], mode, value), widths)


def _cropped(self: Importer, x: Expr, widths: Sequence[int]) -> Expr:
    """``x`` without as many elements at the ends of its dimensions as negative widths say."""
    shape = self.shape(x)
    axes = [d for d in range(self.rank(x)) if min(widths[2 * d], widths[2 * d + 1]) < 0]
    begin = [max(-widths[2 * d], 0) for d in axes]
    end = [shape[d] - max(-widths[2 * d + 1], 0) for d in axes]
    return self.emit(op.strided_slice(x, axes, begin, end, [1] * len(axes)))


@converter("sym_size.int", "sym_size")
def _sym_size(self: Importer, x: Expr, dim: int) -> Dim:
    return self.shape(x)[self.axis(x, dim)]


@converter("getitem")
def _getitem(self: Importer, value: Made, index: int) -> Made:
    if isinstance(value, (list, tuple)):
        return value[index]
    source: Any = value
    return self.emit(relax.TupleGetItem(source, index))


@converter("item", "_local_scalar_dense")
def _item(self: Importer, x: Expr) -> Value:
    return x


@converter("sort")
def _sort(self: Importer, x: Expr, dim: int = -1, descending: bool = False, **_: Any) -> list[Any]:
    order = self.emit(op.argsort(x, dim, descending, "int64"))
    return [self.emit(op.sort(x, dim, descending)), order]


@converter("argsort")
def _argsort(self: Importer, x: Expr, *args: Any, dim: int = -1, descending: bool = False, **_: Any) -> Expr:
    # ``argsort.stable`` has its flag first; ours is always stable.
    given = dict(zip(("dim", "descending"), args))
    order = op.argsort(x, given.get("dim", dim), given.get("descending", descending), "int64")
    return self.emit(order)


@converter("take")
def _take(self: Importer, x: Expr, index: Expr) -> Expr:
    if self.rank(x) == 1:
        return self.emit(op.take(x, index))
    return self.emit(op.take(self.emit(op.reshape(x, [-1])), index, axis=0))


@converter("topk")
def _topk(self: Importer, x: Expr, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Any]:
    return _pieces(self, self.emit(op.topk(x, k, dim, "both", largest, "int64")), 2)


@converter("pixel_shuffle")
def _pixel_shuffle(self: Importer, x: Expr, factor: int) -> Expr:
    *lead, channels, height, width = self.shape(x)
    r, n = factor, len(lead)
    split = self.emit(op.reshape(x, [*lead, channels // (r * r), r, r, height, width]))
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    moved = self.emit(op.permute_dims(split, order))
    return self.emit(op.reshape(moved, [*lead, channels // (r * r), height * r, width * r]))


@converter("diff")
def _diff(
    self: Importer, x: Expr, n: int = 1, dim: int = -1, prepend: Expr | None = None, append: Expr | None = None
) -> Expr:
    parts = [p for p in (prepend, x, append) if p is not None]
    x = self.emit(op.concat([self.cast(p, dtype_of(x)) for p in parts], self.axis(x, dim))) if len(parts) > 1 else x
    for _ in range(n):
        axis = self.axis(x, dim)
        size = self.shape(x)[axis]
        after = self.emit(op.strided_slice(x, [axis], [1], [size], [1]))
        before = self.emit(op.strided_slice(x, [axis], [0], [size - 1], [1]))
        differ = op.not_equal if dtype_of(x) == "bool" else op.subtract
        x = self.emit(differ(after, before))
    return x
