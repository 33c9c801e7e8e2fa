"""FoldConstant: ``call_tir`` on constants is evaluated at compile time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.dtype import numpy_dtype
from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.transform import Pass
from ..relax.expr import Call, Constant, Function, ShapeExpr, Tuple, TupleGetItem
from ..relax.expr_functor import PyExprMutator
from ..relax.op_table import op_record_of
from ..relax.scalars import const_int
from ..relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from ..support.errors import RelaxishError
from ..support.log import get_logger
from ..tir import PrimFunc
from .base import as_module_pass, map_relax_functions

__all__ = ["EVALUATORS", "FoldConstant", "evaluate_prim_func"]

# Functions ``(PrimFunc, inputs, outputs) -> bool`` tried in order; a backend puts its compiled one first.
EVALUATORS: list[Callable[[PrimFunc, Sequence[Any], Sequence[Any]], bool]] = []

# Folding something larger than this many output elements is left to run time unless the input is as large.
_MAX_GROWTH = 1024


def _interpret(func: PrimFunc, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    from ..interp import run_prim_func

    run_prim_func(func, [*inputs, *outputs])
    return True


def evaluate_prim_func(func: PrimFunc, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Run a PrimFunc on NumPy arrays, writing ``outputs``; False if nobody could."""
    for evaluator in (*EVALUATORS, _interpret):
        try:
            if evaluator(func, inputs, outputs):
                return True
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
        self.cache: dict[Any, Any] = {}

    def visit_call_(self, op: Call) -> Any:
        call = super().visit_call_(op)
        if not isinstance(call.op, Op):
            return call
        if call.op.name == "relax.call_tir":
            return self._fold_call_tir(call) or call
        return self._fold_operator(call) or call

    def visit_var_(self, op: Any) -> Any:
        new = super().visit_var_(op)
        # A variable bound to a constant stands for it, so that folding goes on through the program.
        value = self.builder_.lookup_binding(new)
        return value if isinstance(value, Constant) else new

    def visit_dataflow_var_(self, op: Any) -> Any:
        return self.visit_var_(op)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> Any:
        new = super().visit_tuple_getitem_(op)
        known = self.builder_.lookup_binding(new.tuple_value) if isinstance(new, TupleGetItem) else None
        if isinstance(known, Tuple) and isinstance(known.fields[new.index], Constant):
            return known.fields[new.index]
        return new

    def _fold_call_tir(self, call: Call) -> Any:
        if len(call.args) > 2 or not isinstance(call.args[1], Tuple):
            return None
        inputs = call.args[1].fields
        if not all(isinstance(a, Constant) for a in inputs):
            return None
        infos = call.sinfo_args[0].fields if isinstance(call.sinfo_args[0], TupleStructInfo) else call.sinfo_args
        shapes = [_static_shape(i) for i in infos]
        if any(s is None for s in shapes) or call.args[0] not in self.mod:
            return None
        func = self.mod[call.args[0]]
        if not isinstance(func, PrimFunc):
            return None
        size = max((int(np.prod(s, dtype=np.int64)) for s in shapes if s is not None), default=0)
        if not inputs and size > _MAX_GROWTH:
            return None
        outputs = [np.empty(s, numpy_dtype(i.dtype)) for s, i in zip(shapes, infos) if s is not None]
        arrays = [np.ascontiguousarray(a.data.numpy()) for a in inputs]
        if not evaluate_prim_func(func, arrays, outputs):
            return None
        made = [Constant(o) for o in outputs]
        return made[0] if not isinstance(call.sinfo_args[0], TupleStructInfo) else Tuple(made)

    def _fold_operator(self, call: Call) -> Any:
        """Operators on constants go through their legalisation or their NumPy reference."""
        if call.op.name == "relax.tensor_to_shape" and isinstance(call.args[0], Constant):
            return ShapeExpr([int(v) for v in call.args[0].data.numpy()])
        if call.op.name == "relax.shape_to_tensor":
            info = call.args[0].struct_info_
            dims = [const_int(v) for v in getattr(info, "values", None) or ()]
            if getattr(info, "values", None) is not None and all(d is not None for d in dims):
                return Constant(np.array(dims, "int64"))
            return None
        tensors = [a for a in call.args if isinstance(getattr(a, "struct_info_", None), (TensorStructInfo, TupleStructInfo))]
        if not tensors or not all(_all_constant(a) for a in tensors):
            return None
        record = op_record_of(call.op)
        if record is None or record.legalize is None or not record.pure:
            return None
        info = call.struct_info_ or self.builder_.normalize(call).struct_info
        if _static_shape(info) is None:
            return None
        return self._through_legalisation(record.legalize, call)

    def _through_legalisation(self, legalize: Any, call: Call) -> Any:
        from ..relax.block_builder import BlockBuilder

        scratch = BlockBuilder()
        scratch.begin_binding_block()
        if call.struct_info_ is None:
            call = scratch.normalize(call)
        lowered = scratch.normalize(legalize(scratch, call))
        if scratch.end_block().bindings or not isinstance(lowered, Call) or not isinstance(lowered.op, Op):
            return None
        if lowered.op.name != "relax.call_tir":
            return None
        saved, self.mod = self.mod, scratch.get()
        try:
            return self._fold_call_tir(lowered)
        finally:
            self.mod = saved


def _all_constant(arg: Any) -> bool:
    if isinstance(arg, Tuple):
        return all(_all_constant(f) for f in arg.fields)
    return isinstance(arg, Constant)


def _run(mod: IRModule) -> IRModule:
    folder = _Folder(mod)

    def fold(_: Any, func: Function) -> Function:
        if func.attrs.get("Primitive") or func.attrs.get("Codegen"):
            return func
        made: Function = folder.visit_expr(func)
        return made

    return map_relax_functions(mod, fold)



def FoldConstant() -> Pass:  # noqa: N802  (public name of the pass)
    """Evaluate ``call_tir`` (and operators) whose tensor arguments are all constants.

    The compiled evaluator of a backend is used where one is registered in ``EVALUATORS``, else the interpreter.
    """
    return as_module_pass(_run, "FoldConstant")
