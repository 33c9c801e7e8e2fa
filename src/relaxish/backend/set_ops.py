"""Native code for ``R.unique`` and ``R.nonzero``: their results' sizes are counted by one kernel and filled by the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import op as relax_op
from .. import tir
from ..ir.declared_pass import ModuleRewrite
from ..ir.expr import RelaxExpr
from ..ir.module import IRModule
from ..relax.expr import Call, PrimValue, ShapeExpr, Tuple, TupleGetItem
from ..relax.expr_functor import PyExprMutator, rewrite_functions
from ..relax.op_table import op_record_of
from ..relax.struct_info import ShapeStructInfo, TensorStructInfo
from . import set_kernels

__all__ = ["LowerSetOps"]


class _SetOpLowerer(PyExprMutator):
    def visit_call_(self, op: Call) -> RelaxExpr:
        call = super().visit_call_(op)
        record = op_record_of(call.op)
        name = record.name if record is not None else ""
        if name not in ("relax.unique", "relax.nonzero"):
            return call
        info = call.args[0].struct_info
        if not isinstance(info, TensorStructInfo) or not isinstance(info.shape, ShapeExpr) or not info.shape.values:
            return call
        if not info.dtype or any(not isinstance(a, PrimValue) for a in call.args[1:]):
            return call
        rule = self._nonzero if name == "relax.nonzero" else self._unique
        return rule(call, info)

    def _kernel(
        self, func: tir.PrimFunc, args: list[Any], outs: TensorStructInfo | Sequence[TensorStructInfo]
    ) -> RelaxExpr:
        var = self.builder_.add_func(func, str(func.attrs["global_symbol"]))
        return self.builder_.emit(relax_op.call_tir(var, args, outs))

    def _counted(self, func: tir.PrimFunc, args: list[Any], name: str) -> tir.Var:
        """The number that a counting kernel gives, as a symbolic dimension."""
        count = self._kernel(func, args, TensorStructInfo([1], "int64"))
        shape = self.builder_.emit(relax_op.tensor_to_shape(count))
        size = tir.Var(name, "int64")
        self.builder_.match_cast(shape, ShapeStructInfo([size]))
        return size

    def _flat(self, x: RelaxExpr) -> RelaxExpr:
        return x if len(x.struct_info.shape.values) == 1 else self.builder_.emit(relax_op.flatten(x))

    def _nonzero(self, call: Call, info: TensorStructInfo) -> RelaxExpr:
        x, rank = call.args[0], len(info.shape.values)
        count = self._counted(set_kernels.count_nonzero(info.dtype), [self._flat(x)], "num_nonzero")
        func = set_kernels.write_nonzero(info.dtype, rank)
        return self._kernel(func, [x], TensorStructInfo([rank, count], "int64"))

    def _unique(self, call: Call, info: TensorStructInfo) -> RelaxExpr:
        ordered, *wanted = (bool(int(a.value)) for a in call.args[1:5])
        along_axis = len(call.args) > 5
        if not ordered or (along_axis and len(info.shape.values) != 1):
            return call
        x = self._flat(call.args[0])
        size = x.struct_info.shape.values[0]
        order = self.builder_.emit(relax_op.argsort(x, axis=0, dtype="int64"))
        count = self._counted(set_kernels.count_distinct(info.dtype), [x, order], "num_distinct")
        outs = [
            TensorStructInfo([count], info.dtype),
            TensorStructInfo([count], "int64"),
            TensorStructInfo([size], "int64"),
            TensorStructInfo([count], "int64"),
        ]
        made = self._kernel(set_kernels.write_unique(info.dtype), [x, order], outs)
        chosen = [0, *(i for i, want in enumerate(wanted, 1) if want)]
        fields = [self.builder_.emit(TupleGetItem(made, i)) for i in chosen]
        return Tuple(fields) if len(fields) > 1 else fields[0]


class LowerSetOps(ModuleRewrite):
    """``R.unique`` (sorted, of all elements) and ``R.nonzero`` of tensors of known rank become loops.

    ::

        R.nonzero(x)   ->   n = R.tensor_to_shape(count_nonzero(x)); write_nonzero(x): R.Tensor((2, n), "int64")

    Other uses stay calls of the runtime's own implementation.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        lower = _SetOpLowerer(mod)
        return rewrite_functions(lower, mod)
