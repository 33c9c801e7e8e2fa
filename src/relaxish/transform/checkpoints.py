"""Recomputation in reverse mode: which forward values are kept, and how the others are computed again.

``R.grad.start_checkpoint`` opens and ``R.grad.end_checkpoint`` closes a region whose inner values the backward pass
computes again instead of keeping them.

Source: Chen et al., "Training deep nets with sublinear memory cost" (2016).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir.op import op_name_of
from ..relax.analysis.variables import direct_uses
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, DataflowBlock, DataflowVar, Expr, Function, Tuple, TupleGetItem, Var, VarBinding
from ..relax.expr_functor import PyExprMutator
from ..support.errors import InternalError

__all__ = ["CheckpointCollector", "Recomputer"]

_START, _END = "relax.grad.start_checkpoint", "relax.grad.end_checkpoint"


class CheckpointCollector(PyExprMutator):
    """Removes the marks from a function and remembers the values that are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: set[Var] = set()
        self._ended: set[Var] = set()
        self._sources: dict[Var, Var] = {}

    def run(self, func: Function) -> Function:
        """The function without marks."""
        self.kept.update(func.params)
        made: Function = self.visit_expr(func)
        return made

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        mark = op_name_of(value)
        if mark not in (_START, _END):
            super().visit_var_binding_(binding)
            if all(v in self.kept or v in self._ended for v in direct_uses(value)):
                self.kept.update((binding.var, self.var_remap_.get(binding.var, binding.var)))
            return
        given = value.args[0]
        if not isinstance(given, Var):
            raise InternalError(
                "The first argument of relax.grad.start_checkpoint and relax.grad.end_checkpoint should be a Var"
            )
        source: Any = self.visit_expr(given)
        target = source
        self._sources[binding.var] = source
        if not binding.var.is_dataflow and isinstance(source, DataflowVar):
            target = self.builder_.emit_output(source, source.name_hint)
        self.var_remap_[binding.var] = target
        if mark == _START:
            self.kept.add(source)
        else:
            # What follows is kept; the value itself, still inside the region, is not.
            self._ended.add(binding.var)

    def source_of(self, var: Var) -> Var:
        """The value a marked variable stands for; other variables themselves."""
        return self._sources.get(var, self.var_remap_.get(var, var))


class Recomputer:
    """Gives the backward pass forward values: kept ones as they are, others computed again when first needed."""

    def __init__(self, builder: BlockBuilder, params: Iterable[Var], block: DataflowBlock, kept: set[Var]) -> None:
        self.builder = builder
        self.values = {b.var: b.value for b in block.bindings}
        self.known: dict[Var, Var] = {p: p for p in params}
        self.known.update({v: v for v in self.values if v in kept})

    def binding(self, var: Var, value: Expr) -> tuple[Var, Any]:
        """The variable and value that stand for a forward binding in the backward pass."""
        new_value = self._value(value)
        if var not in self.known:
            self.known[var] = self.builder.emit(new_value, f"{var.name_hint}_cp")
        return self.known[var], new_value

    def _variable(self, var: Var) -> Var:
        pending = [var]
        while pending:
            current = pending[-1]
            missing = (
                [v for v in direct_uses(self.values[current]) if v not in self.known]
                if (current not in self.known)
                else []
            )
            if missing:
                pending.extend(reversed(missing))
                continue
            pending.pop()
            if current not in self.known:
                again = self._value(self.values[current])
                self.known[current] = self.builder.emit(again, f"{current.name_hint}_cp")
        return self.known[var]

    def _value(self, value: Expr) -> Expr:
        match value:
            case Var():
                return self._variable(value)
            case Tuple():
                return Tuple([self._value(f) for f in value.fields])
            case TupleGetItem():
                return TupleGetItem(self._value(value.tuple_value), value.index)
            case Call():
                made = Call(value.op, [self._value(a) for a in value.args], value.attrs, value.sinfo_args, value.span)
                made.struct_info_ = value.struct_info_
                return made
        return value
