"""Small helpers every operator file uses: axis names, constant shapes, index arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
import numpy as np

from ..ir.prim import const_int as const_int
from ..ir.errors import CheckIndexError, CheckValueError
from .. import te, tir
from ..target import Target
from ..te.tensor import Dim, ExprLike
from ..tir import FloatImm, PrimExpr, const, floordiv, floormod
from . import tag as tags

__all__ = [
    "InvalidShapeError",
    "ax_compute",
    "ceil_div",
    "const_int",
    "const_matrix",
    "equal_const_int",
    "equal_dims",
    "expr_list",
    "get_const_float",
    "get_const_int",
    "get_const_tuple",
    "get_float_tuple",
    "get_max_power2_factor",
    "get_shape",
    "int_pair",
    "is_dynamic_shape",
    "is_one",
    "is_target",
    "make_idx",
    "normalize_axis",
    "prod",
    "ravel_index",
    "simplify",
    "swap",
    "unravel_index",
    "within_index",
    "zero_of",
]

#: Strides, dilations, kernels: one number for all spatial axes, or one for each.
Steps = Dim | Sequence[Dim]
#: Borders: ``VALID`` or ``SAME``, one number for all sides, one for each axis, or one for each side.
Padding = str | Dim | Sequence[Dim]
_T = TypeVar("_T")
_Scalar = TypeVar("_Scalar", PrimExpr, int, float, Dim)


def ax_compute(
    shape: Sequence[Dim],
    body: Callable[[list[PrimExpr]], PrimExpr],
    name: str,
    tag: str = tags.INJECTIVE,
    attrs: dict[str, Any] | None = None,
) -> te.Tensor:
    """``te.compute`` whose axes are called ``ax0, ax1, ...``; ``body`` takes the list of indices."""
    names = [f"ax{i}" for i in range(len(shape))]
    return te.compute(shape, lambda *i: body(list(i)), name, tag, attrs, names)


def const_matrix(matrix: np.ndarray, name: str = "const_matrix", attrs: dict[str, Any] | None = None) -> te.Tensor:
    """A NumPy matrix as a computed tensor: a chain of selections, which folds once the indices are constants."""
    rows, columns = matrix.shape
    dtype = str(matrix.dtype)

    def element(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        chosen: Any = const(0.0, dtype)
        for row in range(rows):
            for column in range(columns):
                here = tir.all((i % rows).equal(row), (j % columns).equal(column))
                chosen = tir.Select(here, const(float(matrix[row][column]), dtype), chosen)
        return chosen

    if attrs is None:
        attrs = {"const_matrix": True, "schedule_rule": "None"}
    return te.compute(matrix.shape, element, name=name, attrs=attrs)


def get_const_int(expr: Dim) -> int:
    """The integer ``expr`` is. Raises ValueError if it is not a constant."""
    value = const_int(expr)
    if value is None:
        value = const_int(simplify(expr))
    if value is None:
        raise CheckValueError(f"Expect value to be constant int, got {expr}")
    return value


def get_const_tuple(values: Sequence[Dim]) -> tuple[Dim, ...]:
    """Constants as ints, symbolic dimensions as they are."""
    return tuple(v if (c := const_int(v)) is None else c for v in values)


def simplify(expr: _Scalar) -> _Scalar:
    """``expr`` simplified without any assumption."""
    if isinstance(expr, (int, float)):
        return expr
    from ..arith import Analyzer

    return Analyzer().simplify(expr)


def is_one(dim: Dim) -> bool:
    """Whether a dimension is the constant one."""
    return const_int(dim) == 1


def equal_dims(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are certainly equal."""
    ca, cb = const_int(a), const_int(b)
    if ca is not None or cb is not None:
        return ca == cb
    if a is b:
        return True
    from ..arith import Analyzer

    same: Any = a == b
    return bool(Analyzer().can_prove(same))


def zero_of(expr: PrimExpr) -> PrimExpr:
    """Zero of the same type."""
    return const(0, str(expr.dtype))


def prod(values: Sequence[Dim]) -> Dim:
    """The product of dimensions."""
    result: Any = 1
    for value in values:
        result = value if const_int(result) == 1 and not isinstance(value, int) else result * value
    return result


def int_pair(value: Steps, count: int = 2) -> tuple[Dim, ...]:
    """A scalar repeated, or a sequence of the right length."""
    if isinstance(value, Sequence):
        if len(value) == 1 and count > 1:
            return tuple(value) * count
        return tuple(value)
    return (value,) * count


def expr_list(value: Steps) -> list[Dim]:
    """One value or many, as a list."""
    return list(value) if isinstance(value, Sequence) else [value]


def normalize_axis(axis: int, ndim: int, what: str = "axis") -> int:
    """A non-negative axis. Raises IndexError when out of range."""
    axis = int(axis)
    if not -ndim <= axis < ndim:
        raise CheckIndexError(f"{what} {axis} is out of range for {ndim} dimensions")
    return axis + ndim if axis < 0 else axis


def unravel_index(index: PrimExpr, shape: Sequence[Dim]) -> list[PrimExpr]:
    """Coordinates of a flat position, row by row."""
    out: list[Any] = []
    for extent in reversed(list(shape)):
        out.append(floormod(index, extent))
        index = floordiv(index, extent)
    return out[::-1]


def ravel_index(indices: Sequence[PrimExpr], shape: Sequence[Dim]) -> PrimExpr:
    """The flat position of coordinates, row by row."""
    if not indices:
        return const(0, "int64")
    flat = indices[0]
    for index, extent in zip(indices[1:], list(shape)[1:]):
        flat = flat * extent + index
    return flat


class InvalidShapeError(ValueError):
    """The shape of an argument does not fit what it is for."""


def get_const_float(expr: ExprLike) -> float:
    """The number ``expr`` is. Raises ValueError if it is not a constant."""
    if isinstance(expr, float):
        return expr
    found = expr if isinstance(expr, FloatImm) else simplify(expr)
    if not isinstance(found, FloatImm):
        raise CheckValueError(f"Expect value to be constant float, got {expr}")
    return float(found.value)


def get_float_tuple(values: Sequence[ExprLike]) -> tuple[float, ...]:
    """Constants as floats."""
    return tuple(get_const_float(value) for value in values)


def equal_const_int(expr: Dim, value: int) -> bool:
    """Whether ``expr`` is a constant of that value, now or when simplified."""
    found = const_int(expr)
    return (const_int(simplify(expr)) if found is None else found) == value


def get_max_power2_factor(n: int, max_value: int | None = None) -> int:
    """The largest power of two that divides ``n``, at most ``max_value``.

    >>> get_max_power2_factor(96), get_max_power2_factor(96, 8)
    (32, 8)
    """
    factor = n & -n
    while max_value is not None and factor > max_value:
        factor //= 2
    return max(factor, 1)


def get_shape(src_shape: Sequence[Dim], src_layout: str, dst_layout: str) -> list[Dim]:
    """A shape in another layout of the same axes; the layouts may split axes (``NCHW4c``)."""
    if src_layout == dst_layout:
        return list(get_const_tuple(src_shape))
    mapping = tir.bijective_layout(src_layout, dst_layout)
    if mapping is None:
        raise CheckValueError(f"{src_layout} and {dst_layout} are not layouts of the same axes")
    return list(get_const_tuple(mapping.forward_shape([tir.convert(d) for d in src_shape])))


def within_index(b: ExprLike, e: ExprLike, s: ExprLike, i: ExprLike) -> PrimExpr:
    """Whether index ``i`` is one of those from ``b`` to before ``e`` in steps of ``s``."""
    inside = tir.Select(s < 0, tir.And(i <= b, e < i), tir.And(b <= i, i < e))
    on_step = tir.Select(s < 0, floormod(b - i, -s), floormod(i - b, s)).equal(0)
    return tir.And(inside, on_step)


def make_idx(b: ExprLike, e: ExprLike, s: ExprLike, z: ExprLike, i: ExprLike) -> PrimExpr:
    """The number of index ``i`` among those from ``b`` in steps of ``s``; ``z - 1`` where it lies beyond ``e``."""
    before = tir.Select(s < 0, b < i, i < b)
    beyond = tir.Select(s < 0, i <= e, e <= i)
    steps = tir.Select(s < 0, floordiv(b - i, -s), floordiv(i - b, s))
    return tir.Select(
        before, const(0, str(z.dtype)) if isinstance(z, PrimExpr) else 0, tir.Select(beyond, z - 1, steps)
    )


def is_dynamic_shape(shape: Sequence[Dim]) -> bool:
    """Whether some dimension is not a constant."""
    return any(const_int(dim) is None for dim in shape)


def is_target(names: str | Sequence[str]) -> bool:
    """Whether the current target has one of these keys."""
    target = Target.current(allow_none=False)
    wanted = [names] if isinstance(names, str) else names
    return any(name in target.keys for name in wanted)


def ceil_div(a: Dim, b: Dim) -> Dim:
    """The quotient rounded up."""
    return floordiv(a + b - 1, b) if isinstance(a, PrimExpr) or isinstance(b, PrimExpr) else -(-a // b)


def swap(arr: Sequence[_T], axis: int) -> list[_T]:
    """The last element and that at ``axis`` exchanged."""
    out = list(arr)
    out[axis], out[-1] = out[-1], out[axis]
    return out
