"""Operation count of a program, the unit of reported speeds."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...ir.prim import is_call_of, IterVar
from ... import te
from ...ir import IRModule
from ...support.errors import RelaxishError
from ...support.sequences import of_kind
from ...te.schedule import Schedule
from ...tir import Call, Cast, FloatImm, IntImm, Let, Not, PrimExpr, ProducerLoad, Reduce, Select, StringImm, Var
from ...tir import Schedule as BlockSchedule

__all__ = ["FlopCalculationError", "compute_flop", "count_flop"]

_FREE = (IntImm, FloatImm, StringImm, Var, ProducerLoad)


class FlopCalculationError(RelaxishError):
    """The operations of a program cannot be counted."""


def _extents(axes: Sequence[IterVar]) -> int:
    sizes = []
    for axis in axes:
        extent = axis.dom.extent
        if not isinstance(extent, IntImm):
            raise FlopCalculationError("The length of axis is not constant")
        sizes.append(int(extent.value))
    return prod(sizes)


def count_flop(expr: PrimExpr) -> int:
    """The operations of one expression: 1 for each binary operation, comparison and condition, 0 for loads."""
    if isinstance(expr, Reduce):
        if len(expr.combiner.result) != 1 or len(expr.source) != 1:
            raise FlopCalculationError("Found multiple output in the combiner of reduce op")
        return _extents(expr.axis) * (count_flop(expr.combiner.result[0]) + count_flop(expr.source[0]))
    if isinstance(expr, _FREE):
        return 0
    match expr:
        case Cast():
            return count_flop(expr.value)
        case Let():
            return count_flop(expr.value) + count_flop(expr.body)
        case Not():
            return 1 + count_flop(expr.a)
        case Select():
            return count_flop(expr.condition) + max(count_flop(expr.true_value), count_flop(expr.false_value))
        case Call():
            if is_call_of(expr, "tir.if_then_else"):
                return count_flop(expr.args[0]) + max(count_flop(expr.args[1]), count_flop(expr.args[2]))
            return sum(count_flop(a) for a in of_kind(expr.args, PrimExpr))
    if hasattr(expr, "a") and hasattr(expr, "b"):
        return 1 + count_flop(expr.a) + count_flop(expr.b)
    raise FlopCalculationError(f"Found unsupported operator in the compute expr: {type(expr).__name__}")


def _of_operations(outputs: Any) -> float:
    total = 0.0
    todo, seen = list(outputs), set()
    while todo:
        op = todo.pop()
        if op in seen or isinstance(op, te.PlaceholderOp):
            continue
        seen.add(op)
        if not isinstance(op, te.ComputeOp):
            raise FlopCalculationError(f"{op.name} is no te.compute")
        if len(op.body) != 1:
            raise FlopCalculationError("Found multiple output in the compute")
        total += _extents(op.axis) * count_flop(op.body[0])
        todo += [t.op for t in op.input_tensors]
    return total


def compute_flop(sch: BlockSchedule | Schedule) -> float:
    """The operations of a scheduled program. Raises RuntimeError where they cannot be counted, or are none."""
    hint = "Please use `cfg.add_flop` to manually set FLOP for this operator"
    try:
        if isinstance(sch, te.Schedule):
            found = _of_operations(sch.outputs)
        else:
            from ...tir.analysis import estimate_tir_flops

            mod = sch.mod if isinstance(sch, BlockSchedule) else sch
            found = float(estimate_tir_flops(mod if isinstance(mod, IRModule) else IRModule({"main": mod})))
    except RelaxishError as error:
        raise RuntimeError(f"FLOP estimator fails for this operator. Error msg: {error}. {hint}") from error
    if not found:
        raise RuntimeError(f"Cannot find float number operation in this operator. {hint}")
    return found
