"""Random operators of training (dropout and its kin), which a compiled function cannot repeat."""

from __future__ import annotations

from typing import Any

from ... import op
from ...relax.expr import Expr
from ...support.log import get_logger
from .importer import Deferred, Importer
from .table import converter

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
