"""Tensors seen through the operators that only rearrange them.

A projection of queries is reshaped to heads, transposed for the attention and transposed back; a bias is repeated for all
heads. None of that needs to be computed: element ``(i, j, ...)`` of such a tensor is at ``offset + i * s0 + j * s1 + ...``
of the memory of the tensor it is made from::

    q = R.matmul(x, w)                              # (1, 128, 768)
    r = R.reshape(q, R.shape([1, 128, 12, 64]))
    t = R.permute_dims(r, axes=[0, 2, 1, 3])        # a view of q: shape (1, 12, 128, 64), strides (98304, 64, 768, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ....arith import Analyzer
from ....ir.expr import ExprLike, PrimExpr
from ....ir.op import op_name_of
from ....relax.expr import Call, Expr, Tuple, TupleGetItem, Var, is_call_of
from ....relax.scalars import const_int, prove_equal
from ....relax.struct_info import tensor_dims
from ....tir import IntImm

__all__ = ["Lookup", "View", "packed_strides", "view_of", "without_repeats"]

#: The value bound to a variable, or None.
Lookup = Callable[[Var], Any]


def _number(value: PrimExpr) -> PrimExpr | int:
    """A constant as an int, anything else as it is."""
    found = const_int(value)
    return value if found is None else found


def _times(a: PrimExpr, b: ExprLike) -> PrimExpr | int:
    return Analyzer().simplify(a * b) if not (isinstance(a, int) and isinstance(b, int)) else a * b


def _same(a: PrimExpr, b: Any) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    as_expr = [IntImm("int64", x) if isinstance(x, int) else x for x in (a, b)]
    return prove_equal(as_expr[0], as_expr[1], Analyzer())


@dataclass(frozen=True)
class View:
    """``source``'s memory as a tensor of ``shape``; constants are ints, other sizes expressions."""

    source: Expr
    dtype: str
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any = 0

    @staticmethod
    def whole(source: Expr) -> View | None:
        """A tensor as it is; None if its sizes are not known."""
        info = source.struct_info
        dims = tensor_dims(info)
        if dims is None or not info.dtype:
            return None
        shape = tuple(_number(d) for d in dims)
        return View(source, info.dtype, shape, packed_strides(shape))

    @property
    def is_packed(self) -> bool:
        """Whether the elements lie one behind the other, from the first of the source on."""
        wanted = packed_strides(self.shape)
        pairs = zip(self.shape, self.strides, wanted, strict=True)
        return const_int(self.offset) == 0 and all(_same(n, 1) or _same(s, w) for n, s, w in pairs)

    def permuted(self, axes: Any) -> View:
        """With the axes in another order; without ``axes`` reversed."""
        count = len(self.shape)
        order = [int(a) % count for a in axes] if axes is not None else list(range(count))[::-1]
        return View(
            self.source,
            self.dtype,
            tuple(self.shape[a] for a in order),
            tuple(self.strides[a] for a in order),
            self.offset,
        )

    def part(self, axis: int, begin: Any, extent: Any) -> View:
        """``extent`` elements of an axis from ``begin`` on."""
        shape = tuple(extent if i == axis else n for i, n in enumerate(self.shape))
        offset = self.offset + _times(begin, self.strides[axis])
        return View(self.source, self.dtype, shape, self.strides, offset)

    def repeated(self, shape: tuple[Any, ...]) -> View:
        """Broadcast to ``shape``."""
        new = len(shape) - len(self.shape)
        have, steps = (1,) * new + self.shape, (0,) * new + self.strides
        strides = tuple(0 if _same(h, 1) and not _same(n, 1) else s for h, n, s in zip(have, shape, steps, strict=True))
        return View(self.source, self.dtype, shape, strides, self.offset)

    def reshaped(self, shape: tuple[Any, ...]) -> View | None:
        """With other axes over the same elements; None where these are not evenly spaced along one of them."""
        strides = _reshaped_strides(self.shape, self.strides, shape)
        return None if strides is None else View(self.source, self.dtype, shape, strides, self.offset)


def packed_strides(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """Strides of elements one behind the other."""
    strides: list[Any] = []
    step: Any = 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step = _times(step, extent)
    return tuple(strides)


def _reshaped_strides(old: tuple[Any, ...], steps: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Strides of ``new`` over elements of axes ``old`` with strides ``steps``.

    From the last axis on, groups of old and new axes that hold equally many elements are matched; the old ones of a group
    must follow each other without gaps.
    """
    have = [(n, s) for n, s in zip(old, steps, strict=True) if not _same(n, 1)]
    strides: list[Any] = []
    wanted = list(new)
    while wanted:
        if _same(wanted[-1], 1):
            strides.insert(0, 0)
            wanted.pop()
            continue
        if not have:
            return None
        total, step = have.pop()
        made, taken = wanted.pop(), [step]
        while not _same(made, total):
            if _divides(made, total) and wanted:
                taken.insert(0, _times(step, made))
                made = _times(made, wanted.pop())
            elif have and _same(have[-1][1], _times(step, total)):
                total = _times(total, have.pop()[0])
            else:
                return None
        strides = [*taken, *strides]
    return None if have else tuple(strides)


def _divides(part: int, whole: int) -> bool:
    """Whether ``whole`` is ``part`` times some other number than one."""
    if isinstance(part, int) and isinstance(whole, int):
        return whole > part and whole % part == 0
    return isinstance(whole, int) is False and bool(Analyzer().can_prove_equal(whole % part, IntImm("int64", 0)))


def view_of(expr: Any, lookup: Lookup, given: Mapping[Any, View] | None = None) -> View | None:
    """Strided view of the tensor that ``expr`` is made from; None if its sizes are not known.

    ``given`` are views of variables that are not to be looked up.
    """
    if given is not None and expr in given:
        return given[expr]
    whole = View.whole(expr)
    value = lookup(expr) if isinstance(expr, Var) else expr
    if whole is None:
        return None
    if isinstance(value, Var):
        return view_of(value, lookup, given)
    seen: View | None = None
    if isinstance(value, TupleGetItem):
        seen = _piece(value, lookup)
    elif is_call_of(value, *_RULES):
        inner = view_of(value.args[0], lookup, given)
        seen = None if inner is None else _RULES[value.op.name](value, inner, whole.shape)
    return seen if seen is not None else whole


def without_repeats(expr: Any, axis: int, lookup: Lookup) -> tuple[View, int] | None:
    """The tensor whose elements are repeated along ``axis`` to make ``expr``, and how often; None if none are.

    Models with fewer key heads than query heads repeat them by ``R.repeat``, or by broadcasting over a new axis that a
    reshape then merges with that of the heads.
    """
    value = lookup(expr) if isinstance(expr, Var) else expr
    if not op_name_of(value):
        return None
    name, source = value.op.name, value.args[0] if value.args else None
    if name == "relax.permute_dims" and value.attrs.axes is not None:
        axes = [int(a) for a in value.attrs.axes]
        found = without_repeats(source, axes[axis], lookup)
        return None if found is None else (found[0].permuted(axes), found[1])
    if name == "relax.repeat" and value.attrs.axis is not None:
        inner = view_of(source, lookup)
        same = inner is not None and int(value.attrs.axis) % len(inner.shape) == axis
        return (inner, int(value.attrs.repeats)) if same and inner is not None else None
    return _without_broadcast(value, axis, lookup) if name == "relax.reshape" else None


def _without_broadcast(reshape: Call, axis: int, lookup: Lookup) -> tuple[View, int] | None:
    """``reshape(x of (.., heads, n, ..))`` to ``(.., heads * n, ..)`` where ``x`` is the same for all ``n``."""
    inner, whole = view_of(reshape.args[0], lookup), View.whole(reshape)
    if inner is None or whole is None or len(inner.shape) != len(whole.shape) + 1:
        return None
    times = const_int(inner.shape[axis + 1])
    merged = (*inner.shape[:axis], _times(inner.shape[axis], inner.shape[axis + 1]), *inner.shape[axis + 2 :])
    if times is None or const_int(inner.strides[axis + 1]) != 0 or not all(map(_same, merged, whole.shape)):
        return None
    rest = [x[: axis + 1] + x[axis + 2 :] for x in (inner.shape, inner.strides)]
    return View(inner.source, inner.dtype, rest[0], rest[1], inner.offset), times


def _piece(item: TupleGetItem, lookup: Lookup) -> View | None:
    """One part of ``R.split``."""
    split = lookup(item.tuple_value) if isinstance(item.tuple_value, Var) else item.tuple_value
    if not is_call_of(split, "relax.split"):
        return None
    inner, info = view_of(split.args[0], lookup), split.struct_info
    if inner is None:
        return None
    axis = int(split.attrs.axis) % len(inner.shape)
    extents = []
    for field in info.fields[: item.index + 1]:
        dims = field.dims()
        if dims is None or const_int(dims[axis]) is None:
            return None
        extents.append(const_int(dims[axis]))
    return inner.part(axis, sum(extents[:-1]), extents[-1])


def _slice(call: Call, inner: View, shape: tuple[Any, ...]) -> View | None:
    parts = [call.args[1], call.args[2], *call.args[4:]]
    if not all(isinstance(p, Tuple) for p in parts):
        return None
    axes, begins, *strides = [[const_int(getattr(f, "value", None)) for f in p.fields] for p in parts]
    if any(s != 1 for step in strides for s in step) or None in axes or None in begins:
        return None
    for axis, begin in zip(axes, begins, strict=True):
        assert axis is not None and begin is not None
        axis %= len(inner.shape)
        extent = const_int(inner.shape[axis])
        if begin < 0 and extent is None:
            return None
        begin = begin + extent if begin < 0 else begin  # type: ignore[operator]
        inner = inner.part(axis, begin, shape[axis])
    return inner


_RULES: dict[str, Callable[[Call, View, tuple[Any, ...]], View | None]] = {
    "relax.permute_dims": lambda call, inner, shape: inner.permuted(call.attrs.axes),
    "relax.reshape": lambda call, inner, shape: inner.reshaped(shape),
    "relax.expand_dims": lambda call, inner, shape: inner.reshaped(shape),
    "relax.squeeze": lambda call, inner, shape: inner.reshaped(shape),
    "relax.flatten": lambda call, inner, shape: inner.reshaped(shape),
    "relax.broadcast_to": lambda call, inner, shape: inner.repeated(shape),
    "relax.strided_slice": _slice,
}
