"""FoldConstant: ``call_tir`` on constants is evaluated at compile time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.dtype import numpy_dtype
from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.op import op_name_of
from ..relax.analysis.cleanup import remove_all_unused
from ..relax.expr import Call, Constant, Expr, Function, ShapeExpr, Tuple
from ..relax.expr_functor import PyExprMutator
from ..relax.op_table import op_record_of
from ..relax.scalars import const_int
from ..relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from ..support.errors import RelaxishError
from ..support.log import get_logger
from ..tir import PrimFunc
from .base import map_relax_functions
from ..ir.declared_pass import ModuleRewrite

__all__ = ["EVALUATORS", "FoldConstant", "evaluate_prim_func"]

# Functions ``(PrimFunc, inputs, outputs) -> bool`` tried in order; a backend puts its compiled one first.
EVALUATORS: list[Callable[[PrimFunc, Sequence[Any], Sequence[Any]], bool]] = []

# Tensors made of nothing (zeros, ranges) with more elements than this are left to run time.
_MAX_FILLED = 65536


def _interpret(func: PrimFunc, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    from ..interp import run_prim_func

    run_prim_func(func, [*inputs, *outputs])
    return True


def evaluate_prim_func(func: PrimFunc, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Run a PrimFunc on NumPy arrays, writing ``outputs``; False if nobody could, or its result is an error.

    An index that is out of bounds or a zero divisor is an error of the call, which may never be made: it stays.
    """
    for evaluator in (*EVALUATORS, _interpret):
        try:
            if evaluator(func, inputs, outputs):
                return True
        except (IndexError, ArithmeticError) as error:
            get_logger("relax.fold").debug("%s is left for run time: %s", func.attrs, error)
            return False
        except (RelaxishError, NotImplementedError, TypeError, ValueError) as error:
            # What one evaluator cannot run, another may; at worst the call stays.
            get_logger("relax.fold").debug("evaluator failed: %s", error)
    return False


def _static_shape(info: StructInfo) -> tuple[int, ...] | None:
    if not isinstance(info, TensorStructInfo) or info.dims() is None or not info.dtype:
        return None
    dims = [const_int(d) for d in info.dims() or ()]
    return None if any(d is None for d in dims) else tuple(d for d in dims if d is not None)


class _Folder(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not op_name_of(call):
            return call
        if call.op.name == "relax.call_tir":
            folded = self._fold_call_tir(call)
            return call if folded is None else folded
        return self._fold_operator(call)

    def visit_var_(self, op: Any) -> Expr:
        new = super().visit_var_(op)
        # A variable bound to a constant stands for it, so that folding goes on through the program.
        value = self.builder_.lookup_binding(new)
        return value if isinstance(value, Constant) else new

    def visit_dataflow_var_(self, op: Expr) -> Expr:
        return self.visit_var_(op)

    def _fold_call_tir(self, call: Call) -> Expr | None:
        """The tensor that a call on constants gives, or None; calls of several outputs stay."""
        if len(call.args) > 2 or not isinstance(call.args[1], Tuple) or call.args[0] not in self.mod:
            return None
        inputs, (info,) = call.args[1].fields, call.sinfo_args
        func, shape = self.mod[call.args[0]], _static_shape(info)
        if not isinstance(func, PrimFunc) or shape is None or not all(isinstance(a, Constant) for a in inputs):
            return None
        if not inputs and math.prod(shape) > _MAX_FILLED:
            return None
        output = np.empty(shape, numpy_dtype(info.dtype))
        arrays = [np.asarray(a.data.numpy(), order="C") for a in inputs]
        return Constant(output) if evaluate_prim_func(func, arrays, [output]) else None

    def _fold_operator(self, call: Call) -> Expr:
        """An operator of a dataflow block on constants goes through its legalisation."""
        args = [self._shape(a) for a in call.args]
        if any(a is not b for a, b in zip(args, call.args)):
            call = Call(call.op, args, call.attrs, call.sinfo_args, call.span)
        if not self.builder_.current_block_is_dataflow():
            return call
        if call.op.name == "relax.tensor_to_shape":
            known = isinstance(args[0], Constant)
            return ShapeExpr([int(v) for v in args[0].data.numpy()]) if known else call
        if call.op.name == "relax.shape_to_tensor":
            dims = [const_int(v) for v in args[0].values] if isinstance(args[0], ShapeExpr) else [None]
            return call if None in dims else Constant(np.array(dims, "int64"))
        record = op_record_of(call.op)
        if record is None or record.legalize is None or not record.pure or not all(map(_is_known, args)):
            return call
        info = call.struct_info_ or self.builder_.normalize(call).struct_info
        folded = None if _static_shape(info) is None else self._through_legalisation(record.legalize, call)
        return call if folded is None else folded

    def _shape(self, arg: Expr) -> Any:
        """The shape a variable is bound to, for operators to read; other arguments as they are."""
        value = self.builder_.lookup_binding(arg)
        return value if isinstance(value, ShapeExpr) else arg

    def _through_legalisation(self, legalize: Callable[..., Any], call: Call) -> Expr | None:
        from ..relax.block_builder import BlockBuilder

        scratch = BlockBuilder()
        scratch.begin_binding_block()
        if call.struct_info_ is None:
            call = scratch.normalize(call)
        lowered = scratch.normalize(legalize(scratch, call))
        if scratch.end_block().bindings or not op_name_of(lowered):
            return None
        if lowered.op.name != "relax.call_tir":
            return None
        saved, self.mod = self.mod, scratch.get()
        try:
            return self._fold_call_tir(lowered)
        finally:
            self.mod = saved


def _is_known(arg: Expr) -> bool:
    """Whether an argument holds no tensor that only running tells."""
    if isinstance(arg, Tuple):
        return all(_is_known(f) for f in arg.fields)
    return not isinstance(arg.struct_info_, (TensorStructInfo, TupleStructInfo)) or isinstance(arg, Constant)


class FoldConstant(ModuleRewrite):
    """Evaluate ``call_tir`` whose arguments are all constants, and in dataflow blocks operators likewise.

    ::

        lv = R.add(R.const(1.0), R.const(2.0))    ->    gv = R.multiply(x, R.const(3.0))
        gv = R.multiply(x, lv)

    What nobody uses afterwards is removed.
    The compiled evaluator of a backend is used where one is registered in ``EVALUATORS``, else the interpreter.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        folder = _Folder(mod)

        def fold(_: GlobalVar, func: Function) -> Function:
            made: Function = remove_all_unused(folder.visit_expr(func))
            return made

        return map_relax_functions(mod, fold)
