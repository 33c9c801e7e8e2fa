"""Checks of results of functions compiled elsewhere against their declared shapes and types.

The compiler believes what a program says of the result of ``R.call_packed``: kernels that work on it are made for that
shape and type. Declarations are plain data: ``("tensor", dtype, rank, extents)`` with "" for any type, -1 for any rank and
None for an extent that is known at run time only, ``("shape", rank)``, ``("tuple", fields)`` with None for any field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .instructions import Declared
from ..arrays.container import ShapeTuple, type_key_of
from ..kernels.kernel import ArgumentError, ArgumentTypeError
from ..arrays.ndarray import NDArray, as_ndarray

__all__ = ["checked_result"]


def checked_result(function: Callable[..., Any], name: str, declared: Declared) -> Callable[..., Any]:
    """The function, whose result is compared with its declaration.

    Raises ArgumentError or ArgumentTypeError. Tensors of other libraries become arrays.
    """

    def call(*args: Any) -> object:
        return _fitting(function(*args), declared, f"the result of {name}")

    return call


def _fitting(value: object, declared: Declared | None, what: str) -> object:
    if declared is None:
        return value
    kind = declared[0]
    if kind == "tensor":
        return _tensor(value, declared, what)
    if kind == "shape":
        if not isinstance(value, tuple) or not all(isinstance(d, int) for d in value):
            raise ArgumentTypeError(f"{what} is declared to be a Shape, but is a {type_key_of(value)}")
        if declared[1] not in (-1, len(value)):
            raise ArgumentError(f"{what} is declared to be a Shape of rank {declared[1]}, but has rank {len(value)}")
        return value
    fields = declared[1]
    if not isinstance(value, tuple | list) or isinstance(value, ShapeTuple):
        raise ArgumentTypeError(f"{what} is declared to be a Tuple, but is a {type_key_of(value)}")
    if len(value) != len(fields):
        raise ArgumentError(f"{what} is declared to be a Tuple of {len(fields)} fields, but has {len(value)}")
    made = [_fitting(v, d, f"field {i} of {what}") for i, (v, d) in enumerate(zip(value, fields, strict=True))]
    return value if all(a is b for a, b in zip(made, value, strict=True)) else tuple(made)


def _tensor(value: object, declared: Declared, what: str) -> NDArray:
    _, dtype, rank, extents = declared
    tensor = value if value.__class__ is NDArray else as_ndarray(value)
    if tensor is None:
        raise ArgumentTypeError(f"{what} is declared to be a Tensor, but is a {type_key_of(value)}")
    if dtype and tensor.dtype != dtype:
        raise ArgumentError(f"{what} is declared to have dtype {dtype}, but has {tensor.dtype}")
    if rank not in (-1, len(tensor.shape)):
        raise ArgumentError(f"{what} is declared to have rank {rank}, but has shape {tensor.shape}")
    if extents is not None and any(
        want is not None and want != have for want, have in zip(extents, tensor.shape, strict=False)
    ):
        shown = ", ".join("?" if d is None else str(d) for d in extents)
        raise ArgumentError(f"{what} is declared to have shape ({shown}), but has {tensor.shape}")
    return tensor
