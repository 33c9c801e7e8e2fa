"""Random operators: draws, new ones in each run of a virtual machine, and those that only training has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import op, te
from ...ir.expr import as_expr
from ...relax.call_forms import call_pure_packed
from ...relax.expr import Expr, PrimValue
from ...relax.struct_info import TensorStructInfo
from ...support.log import get_logger
from ...topi import random
from .importer import Deferred, Dim, dtype_of, Importer, torch_dtype
from .table import converter, Converter

__all__ = ["warn_of_training"]

_log = get_logger("frontend.torch")


def warn_of_training(what: str) -> None:
    """Tell that something which is random in training is imported as it is in inference."""
    _log.warning("%s in training mode is imported as in inference: call model.eval() before exporting", what)


@converter("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def _dropout(self: Importer, x: Expr, p: float = 0.5, train: bool = False) -> Expr:
    if train and p:
        warn_of_training("dropout")
    return x


@converter("native_dropout")
def _native_dropout(self: Importer, x: Expr, p: float, train: bool | None) -> list[Any]:
    kept = Deferred(lambda: self.emit(op.full(self.shape(x), self.scalar(True, "bool"), "bool")))
    return [_dropout(self, x, p, bool(train)), kept]


def _drawn(
    self: Importer, draw: Callable[..., te.Tensor], sizes: Sequence[Dim], bounds: tuple[float, float], kind: str
) -> Expr:
    """Numbers that are PyTorch's in distribution only."""
    call = call_pure_packed(
        "vm.builtin.random_key", PrimValue(-1), PrimValue(next(self.draws)), sinfo_args=TensorStructInfo([1], "int64")
    )
    shape = [as_expr(s) for s in self.dims(sizes)]
    return self.builder.emit_te(
        lambda key: draw(key, shape, *bounds, kind), self.emit(call), primfunc_name_hint=draw.__name__
    )


def _of_sizes(draw: Callable[..., te.Tensor], bounds: tuple[float, float]) -> Converter:
    def convert(self: Importer, size: Sequence[Dim], *, dtype: torch.dtype | None = None, **_: Any) -> Expr:
        return _drawn(self, draw, size, bounds, torch_dtype(dtype or torch.get_default_dtype()))

    return convert


def _like(draw: Callable[..., te.Tensor], bounds: tuple[float, float]) -> Converter:
    def convert(self: Importer, x: Expr, *, dtype: torch.dtype | None = None, **_: Any) -> Expr:
        return _drawn(self, draw, self.shape(x), bounds, torch_dtype(dtype) if dtype else dtype_of(x))

    return convert


for _name, _draw in (("rand", random.uniform), ("randn", random.normal)):
    converter(f"{_name}.default")(_of_sizes(_draw, (0.0, 1.0)))
    converter(f"{_name}_like")(_like(_draw, (0.0, 1.0)))


@converter("randperm.default")
def _permutation(self: Importer, n: Dim, *, dtype: torch.dtype | None = None, **_: Any) -> Expr:
    order = self.emit(op.argsort(_drawn(self, random.uniform, [n], (0.0, 1.0), "float64"), 0, False, "int64"))
    return self.cast(order, torch_dtype(dtype or torch.int64))
