"""Small helpers every operator file uses: axis names, constant shapes, index arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.errors import CheckIndexError, CheckValueError
from .. import te, tir
from ..tir import IntImm, PrimExpr, const, floordiv, floormod
from . import tag as tags

__all__ = [
    "ax_compute",
    "const_int",
    "const_matrix",
    "equal_dims",
    "expr_list",
    "get_const_int",
    "get_const_tuple",
    "int_pair",
    "is_one",
    "normalize_axis",
    "prod",
    "ravel_index",
    "simplify",
    "unravel_index",
    "zero_of",
]


def ax_compute(
    shape: Sequence[Any],
    body: Callable[..., Any],
    name: str,
    tag: str = tags.INJECTIVE,
    attrs: dict[str, Any] | None = None,
) -> Any:
    """``te.compute`` whose axes are called ``ax0, ax1, ...``; ``body`` takes the list of indices."""
    names = [f"ax{i}" for i in range(len(shape))]
    return te.compute(shape, lambda *i: body(list(i)), name, tag, attrs, names)


def const_int(value: Any) -> int | None:
    """The integer a constant holds, else ``None``."""
    if isinstance(value, IntImm):
        return int(value.value)
    if isinstance(value, int):
        return int(value)
    return None


def const_matrix(matrix: Any, name: str = "const_matrix", attrs: dict[str, Any] | None = None) -> Any:
    """A NumPy matrix as a computed tensor: a chain of selections, which folds once the indices are constants."""
    rows, columns = matrix.shape
    dtype = str(matrix.dtype)

    def element(i: Any, j: Any) -> Any:
        chosen: Any = const(0.0, dtype)
        for row in range(rows):
            for column in range(columns):
                here = tir.all((i % rows).equal(row), (j % columns).equal(column))
                chosen = tir.Select(here, const(float(matrix[row][column]), dtype), chosen)
        return chosen

    if attrs is None:
        attrs = {"const_matrix": True, "schedule_rule": "None"}
    return te.compute(matrix.shape, element, name=name, attrs=attrs)


def get_const_int(expr: Any) -> int:
    """The integer ``expr`` is. Raises ValueError if it is not a constant."""
    value = const_int(expr)
    if value is None:
        value = const_int(simplify(expr))
    if value is None:
        raise CheckValueError(f"Expect value to be constant int, got {expr}")
    return value


def get_const_tuple(values: Sequence[Any]) -> tuple[Any, ...]:
    """Constants as ints, symbolic dimensions as they are."""
    return tuple(v if (c := const_int(v)) is None else c for v in values)


def simplify(expr: Any) -> Any:
    """``expr`` simplified without any assumption."""
    if isinstance(expr, (int, float)):
        return expr
    from ..arith import Analyzer

    return Analyzer().simplify(expr)


def is_one(dim: Any) -> bool:
    """Whether a dimension is the constant one."""
    return const_int(dim) == 1


def equal_dims(a: Any, b: Any) -> bool:
    """Whether two dimensions are certainly equal."""
    ca, cb = const_int(a), const_int(b)
    if ca is not None or cb is not None:
        return ca == cb
    if a is b:
        return True
    from ..arith import Analyzer

    return bool(Analyzer().can_prove(a == b))


def zero_of(expr: Any) -> PrimExpr:
    """Zero of the same type."""
    return const(0, str(expr.dtype))


def prod(values: Sequence[Any]) -> Any:
    """The product of dimensions."""
    result: Any = 1
    for value in values:
        result = value if const_int(result) == 1 and not isinstance(value, int) else result * value
    return result


def int_pair(value: Any, count: int = 2) -> tuple[Any, ...]:
    """A scalar repeated, or a sequence of the right length."""
    if isinstance(value, (tuple, list)):
        if len(value) == 1 and count > 1:
            return tuple(value) * count
        return tuple(value)
    return (value,) * count


def expr_list(value: Any) -> list[Any]:
    """One value or many, as a list."""
    return list(value) if isinstance(value, (tuple, list)) else [value]


def normalize_axis(axis: int, ndim: int, what: str = "axis") -> int:
    """A non-negative axis. Raises IndexError when out of range."""
    axis = int(axis)
    if not -ndim <= axis < ndim:
        raise CheckIndexError(f"{what} {axis} is out of range for {ndim} dimensions")
    return axis + ndim if axis < 0 else axis


def unravel_index(index: Any, shape: Sequence[Any]) -> list[Any]:
    """Coordinates of a flat position, row by row."""
    out: list[Any] = []
    for extent in reversed(list(shape)):
        out.append(floormod(index, extent))
        index = floordiv(index, extent)
    return out[::-1]


def ravel_index(indices: Sequence[Any], shape: Sequence[Any]) -> Any:
    """The flat position of coordinates, row by row."""
    if not indices:
        return const(0, "int64")
    flat = indices[0]
    for index, extent in zip(indices[1:], list(shape)[1:]):
        flat = flat * extent + index
    return flat
