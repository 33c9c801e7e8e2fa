"""Entering operators in the table: one record holds all there is to an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.op import Op
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, Var
from ..relax.op_table import OTHER, Gradient, Infer, OpKind, OpRecord, Sample, register_op
from .sharding import spread

__all__ = ["by_operands", "define", "example"]


def define(name: str, infer: Infer, *, kind: OpKind = OTHER, attrs: str = "", **fields: Any) -> OpRecord:
    """Register operator ``relax.<name>``, whose attributes are ``relax.attrs.<attrs>Attrs``.

    An operator with a rule for axes takes distributed tensors, too.
    """
    record = OpRecord(f"relax.{name}", infer, kind, f"relax.attrs.{attrs}Attrs" if attrs else None, **fields)
    if record.axes is not None:
        inner, record.infer = spread(infer, record.axes)
        Op.register(record.name).set_attr("dist.FInferStructInfo", inner)
    return register_op(record)


def example(*args: Any, **kwargs: Any) -> Callable[[], Sequence[Sample]]:
    """One example call, as a record wants them."""
    return lambda: [(args, kwargs)]


def by_operands(rule: Callable[..., Expr | Sequence[Expr]]) -> Gradient:
    """The gradient that ``rule(*operands, result, gradient of the result)`` gives, for the only or for each operand."""

    def gradient(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
        made = rule(*call.args, var, out)
        return [made] if isinstance(made, Expr) else made

    return gradient
