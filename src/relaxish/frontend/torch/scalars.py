"""Tensors without dimensions, for which PyTorch's operators over a dimension take 0 and -1 as if they had one."""

from __future__ import annotations

from typing import Any

from ... import op
from . import indexing, ordering, reduction, shape
from .importer import Importer, Value
from .table import Converter, CONVERTERS, Made

__all__: list[str] = []

_ = (indexing, ordering, reduction, shape)  # imported for the converters that are wrapped here
_NAMES = (
    "sum", "mean", "amax", "amin", "prod", "max", "min", "argmax", "argmin", "aminmax", "var", "std", "var_mean",
    "std_mean", "any", "all", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "softmax", "_softmax",
    "_safe_softmax", "log_softmax", "_log_softmax", "logsumexp", "norm", "linalg_vector_norm", "median", "kthvalue",
    "sort", "argsort", "topk", "index_select", "gather", "scatter", "scatter_add", "scatter_reduce", "flip",
)  # fmt: skip


def _as_row(self: Importer, x: Value) -> Value:
    return self.emit(op.reshape(x, [1])) if self.is_tensor(x) and self.rank(x) == 0 else x


def _as_scalar(self: Importer, x: Made) -> Made:
    if isinstance(x, (list, tuple)):
        return [_as_scalar(self, part) for part in x]
    return self.emit(op.reshape(x, [])) if self.is_tensor(x) and self.rank(x) else x


def _through_a_row(convert: Converter) -> Converter:
    def converted(self: Importer, x: Value, *args: Any, **kwargs: Any) -> Made:
        if not self.is_tensor(x) or self.rank(x):
            return convert(self, x, *args, **kwargs)
        if len(args) == 1 and self.is_tensor(args[0]):
            return convert(self, x, *args, **kwargs)  # max and min of two tensors
        made = convert(self, _as_row(self, x), *(_as_row(self, a) for a in args), **kwargs)
        return _as_scalar(self, made)

    return converted


for _name in _NAMES:
    CONVERTERS[_name] = _through_a_row(CONVERTERS[_name])
