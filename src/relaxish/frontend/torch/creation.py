"""Operators of PyTorch that make tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
import torch

from ... import op, relax
from ...ir import PrimExpr
from ...relax.expr import Expr
from .importer import Dim, dtype_of, Importer, Number, torch_dtype
from .table import converter

__all__: list[str] = []


def _kind(dtype: torch.dtype | None, default: str = "float32") -> str:
    return default if dtype is None else torch_dtype(dtype)


@converter("arange")
def _arange(self: Importer, *args: Number, dtype: torch.dtype | None = None, **_: Any) -> Expr:
    numbers = list(args)
    start, end, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    integral = all(isinstance(v, (int, PrimExpr)) for v in (start, end, step))
    return self.emit(op.arange(start, end, step, _kind(dtype, "int64" if integral else "float32")))


@converter("full")
def _full(self: Importer, size: Sequence[Any], value: Number, *, dtype: torch.dtype | None = None, **_: Any) -> Expr:
    default = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
    kind = _kind(dtype, default)
    return self.emit(op.full(self.dims(size), self.scalar(value, kind), kind))


@converter("full_like")
def _full_like(self: Importer, x: Expr, value: Number, *, dtype: torch.dtype | None = None, **_: Any) -> Expr:
    kind = _kind(dtype, dtype_of(x))
    return self.emit(op.full(self.shape(x), self.scalar(value, kind), kind))


@converter("new_full")
def _new_full(
    self: Importer, x: Expr, size: Sequence[Any], value: Number, *, dtype: torch.dtype | None = None, **_: Any
) -> Expr:
    kind = _kind(dtype, dtype_of(x))
    return self.emit(op.full(self.dims(size), self.scalar(value, kind), kind))


@converter("zeros", "empty", "empty.memory_format")
def _zeros(self: Importer, size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any) -> Expr:
    return self.emit(op.zeros(self.dims(size), _kind(dtype)))


@converter("ones")
def _ones(self: Importer, size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any) -> Expr:
    return self.emit(op.ones(self.dims(size), _kind(dtype)))


@converter("zeros_like", "empty_like", "zero")
def _zeros_like(self: Importer, x: Expr, *, dtype: torch.dtype | None = None, **_: Any) -> Expr:
    return self.emit(op.zeros_like(x, None if dtype is None else _kind(dtype)))


@converter("ones_like")
def _ones_like(self: Importer, x: Expr, *, dtype: torch.dtype | None = None, **_: Any) -> Expr:
    return self.emit(op.ones_like(x, None if dtype is None else _kind(dtype)))


@converter("new_zeros", "new_empty")
def _new_zeros(self: Importer, x: Expr, size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any) -> Expr:
    return self.emit(op.zeros(self.dims(size), _kind(dtype, dtype_of(x))))


@converter("new_ones")
def _new_ones(self: Importer, x: Expr, size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any) -> Expr:
    kind = _kind(dtype, dtype_of(x))
    return self.emit(op.full(self.dims(size), self.scalar(1, kind), kind))


@converter("eye")
def _eye(self: Importer, n: Dim, m: Dim | None = None, *, dtype: torch.dtype | None = None, **_: Any) -> Expr:
    return self.emit(op.eye(n, m, 0, _kind(dtype)))


@converter("scalar_tensor", "tensor")
def _scalar_tensor(self: Importer, value: Number, *, dtype: torch.dtype | None = None, **_: Any) -> Expr:
    return self.tensor(value, dtype=None if dtype is None else torch_dtype(dtype))


@converter("fill", "fill_")
def _fill(self: Importer, x: Expr, value: Number) -> Expr:
    filler = self.emit(op.reshape(value, [])) if self.is_tensor(value) else self.scalar(value, dtype_of(x))
    return self.emit(op.full(self.shape(x), filler, dtype_of(x)))


@converter("linspace")
def _linspace(
    self: Importer, start: float, end: float, steps: int, *, dtype: torch.dtype | None = None, **_: Any
) -> Expr:
    if not math.isfinite(end - start):
        raise ValueError("linspace needs finite ends")
    import numpy as np

    return relax.const(np.linspace(start, end, steps).astype(_kind(dtype)), _kind(dtype))
