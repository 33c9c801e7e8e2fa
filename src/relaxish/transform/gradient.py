"""Gradient: reverse-mode differentiation of a function into ``<name>_adjoint``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir import dtype as dtypes
from ..ir.module import IRModule
from ..ir.op import Op, op_name_of
from ..op.binary import add
from ..op.create import ones, zeros
from ..relax.analysis.cleanup import remove_all_unused
from ..relax.block_builder import BlockBuilder
from ..relax.copying import copy_with_new_vars
from ..relax.expr import (
    Binding,
    Call,
    Constant,
    DataflowBlock,
    Expr,
    Function,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    is_call_of,
)
from ..relax.expr_functor import PyExprMutator
from ..relax.op_table import op_record_of
from ..relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from ..relax.utils import field_at
from ..runtime.registry import get_global_func
from ..support.errors import InternalError
from .checkpoints import CheckpointCollector, Recomputer
from .gradient_simplifier import simplify_gradient
from ..ir.declared_pass import ModuleRewrite

__all__ = ["TE_GRADIENT_PREFIX", "Gradient"]

#: Gradients of ``call_tir_with_grad`` are global functions under this prefix.
TE_GRADIENT_PREFIX = "tvm.relax.te_grad._register."


def _is_none(partial: Expr) -> bool:
    """Whether a gradient rule says that an argument has no gradient."""
    return is_call_of(partial, "relax.grad.no_grad", "relax.null_value")


def _zeros(info: StructInfo) -> Expr:
    if isinstance(info, TupleStructInfo):
        return Tuple([_zeros(f) for f in info.fields])
    if not isinstance(info, TensorStructInfo):
        raise InternalError(f"there is no zero gradient of struct info {info}")
    return zeros(info.shape, info.dtype)


def _item(value: Expr, index: int) -> Expr:
    return field_at(value, index)


def _sum(builder: BlockBuilder, lhs: Expr, rhs: Expr) -> Expr:
    """The sum of two adjoints, field by field."""
    info = lhs.struct_info_ if lhs.struct_info_ is not None else builder.normalize(lhs).struct_info
    if isinstance(info, TupleStructInfo):
        return Tuple([_sum(builder, _item(lhs, i), _item(rhs, i)) for i in range(len(info.fields))])
    return add(lhs, rhs)


class _Backward:
    """Emits the adjoints of one dataflow block's values, last first."""

    def __init__(self, builder: BlockBuilder, recompute: Recomputer) -> None:
        self.builder = builder
        self.recompute = recompute
        self.adjoints: dict[Var, Var] = {}

    def run(self, block: DataflowBlock, target: Var, wanted: Sequence[Var], result: Expr) -> Tuple:
        """Everything up to the pair of the original result and the tuple of adjoints."""
        info = target.struct_info
        self.update(target, ones(info.shape, info.dtype))
        for binding in reversed(block.bindings):
            self.binding(binding)
        outputs = []
        for var in wanted:
            if var not in self.adjoints:
                self.update(var, _zeros(var.struct_info))
            outputs.append(self.builder.emit_output(self.adjoints[var], f"{var.name_hint}_adjoint_out"))
        return Tuple([result, Tuple(outputs)])

    def binding(self, binding: Binding) -> None:
        if not isinstance(binding, VarBinding):
            raise InternalError("Gradient supports bindings of variables only, not match_cast")
        if binding.var not in self.adjoints:
            return  # nothing of the target depends on it
        value, adjoint = binding.value, self.adjoints[binding.var]
        match value:
            case Call():
                self.call(binding.var, value, adjoint)
            case Tuple() | Var():
                self.update(value, adjoint)
            case TupleGetItem():
                self.field(value, adjoint)
            case _ if not isinstance(value, Constant):
                raise InternalError(f"Gradient does not support a bound value of kind {type(value).__name__}")

    def call(self, var: Var, call: Call, adjoint: Var) -> None:
        if not op_name_of(call):
            return
        new_var, new_call = self.recompute.binding(var, call)
        name = call.op.name
        if name == "relax.call_tir":
            raise InternalError(
                "Differentiation of call_tir op without registering corresponding gradient function is not supported yet."
            )
        if name == "relax.call_tir_with_grad":
            self.tensor_program(new_var, new_call, adjoint)
            return
        record = op_record_of(call.op)
        rule = call.op.get_attr("FPrimalGradient") or (record.gradient if record is not None else None)
        if rule is None:
            raise InternalError(f"the operator {name} has no gradient")
        partials = rule(new_var, new_call, adjoint, self.builder)
        if len(partials) != len(call.args):
            raise InternalError(f"the gradient of {name} gives {len(partials)} values for {len(call.args)} arguments")
        for arg, partial in zip(call.args, partials):
            if not _is_none(partial):
                self.update(arg, partial)

    def tensor_program(self, var: Var, call: Call, adjoint: Var) -> None:
        name = str(call.attrs["te_grad_name"])
        rule = get_global_func(TE_GRADIENT_PREFIX + name, True)
        if rule is None:
            raise InternalError(f"TIR gradient function {name} is not registered")
        partials = rule(var, call, adjoint, self.builder)
        args = call.args[1].fields
        if not isinstance(partials.struct_info, TupleStructInfo):
            self.update(args[0], partials)
            return
        for index, arg in enumerate(args):
            self.update(arg, TupleGetItem(partials, index))

    def field(self, value: TupleGetItem, adjoint: Var) -> None:
        source = value.tuple_value
        info = source.struct_info
        if source in self.adjoints:
            known = self.adjoints[source]
            fields = [_item(known, i) for i in range(len(info.fields))]
            fields[value.index] = _sum(self.builder, fields[value.index], adjoint)
        else:
            fields = [_zeros(f) for f in info.fields]
            fields[value.index] = adjoint
        self.emit(source, Tuple(fields))

    def update(self, expr: Expr, partial: Expr) -> None:
        """Add ``partial`` to the adjoint of an expression."""
        match expr:
            case Tuple():
                for index, item in enumerate(expr.fields):
                    self.update(item, _item(partial, index))
            case Var():
                partial = self.builder.normalize(partial)
                if expr in self.adjoints:
                    partial = _sum(self.builder, self.adjoints[expr], partial)
                self.emit(expr, partial)
            case _ if not isinstance(expr, (Constant, ShapeExpr, PrimValue)):
                raise InternalError(f"Gradient does not support an argument of kind {type(expr).__name__}")

    def emit(self, var: Var, adjoint: Expr) -> None:
        self.adjoints[var] = self.builder.emit(adjoint, f"{var.name_hint}_adjoint")


class _DropTeGradient(PyExprMutator):
    """``call_tir_with_grad`` is ``call_tir`` once differentiation is done."""

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not is_call_of(call, "relax.call_tir_with_grad"):
            return call
        return Call(Op.get("relax.call_tir"), call.args, None, call.sinfo_args, call.span)


def _is_float(info: StructInfo) -> bool:
    if isinstance(info, TupleStructInfo):
        return all(_is_float(f) for f in info.fields)
    return isinstance(info, TensorStructInfo) and dtypes.is_float(info.dtype)


def _check_wanted(wanted: Sequence[Var], known: Mapping[Var, Var], name: str) -> None:
    seen: set[Var] = set()
    for var in wanted:
        if var not in known:
            raise InternalError(f"There is no Var named {var.name_hint} in the function {name}")
        if var in seen:
            raise InternalError(f"Var {var.name_hint} appears more than once")
        seen.add(var)
        if not _is_float(var.struct_info):
            raise InternalError(
                "Only Tensors of floating point dtype or Tuples of float Tensors can require gradients, but the "
                f"StructInfo of Var {var.name_hint} is {var.struct_info}"
            )


def _target_of(func: Function, index: int) -> Var:
    """The returned value to differentiate: a float scalar."""
    blocks, result = func.body.blocks, func.body.body
    if len(blocks) != 1 or not blocks[0].is_dataflow:
        raise InternalError("Gradient supports functions of exactly one dataflow block only")
    match result:
        case Var():
            if index != 0:
                raise InternalError(
                    "When the function has only one return value, target_index can only be 0. "
                    f"But the target_index specified is {index}"
                )
            target: Any = result
        case Tuple():
            if not 0 <= index < len(result.fields):
                raise InternalError(
                    "target_index should be smaller than the number of return values. But the specified target_index is "
                    f"{index}, and the number of return values is {len(result.fields)}"
                )
            target = result.fields[index]
            if not isinstance(target, Var):
                raise InternalError(f"Target must be a Var, but the specified target is {target}")
        case _:
            raise InternalError(f"The return value of the function must be Var or Tuple, but it is {result}")
    info = target.struct_info
    if not isinstance(info, TensorStructInfo) or not _is_float(info) or info.ndim != 0:
        raise InternalError(
            f"The differentiation target must be a float scalar (0-dim Tensor), but the StructInfo of the given target "
            f"{target.name_hint} is {info}"
        )
    made: Var = target
    return made


def _adjoint(
    builder: BlockBuilder, name: str, original: Function, require_grads: Sequence[Var] | None, index: int
) -> Function:
    if not isinstance(original, Function):
        raise InternalError(f"{name} is not a Relax Function")
    func = copy_with_new_vars(original)
    copies = dict(zip(_variables(original), _variables(func)))
    wanted = list(original.params) if require_grads is None else list(require_grads)
    if require_grads is not None:
        _check_wanted(wanted, copies, name)
    collector = CheckpointCollector()
    func = collector.run(func)
    target = _target_of(func, index)
    (block,) = func.body.blocks
    assert block.is_dataflow
    for binding in (b for block in original.body.blocks for b in block.bindings):
        builder.get_unique_name(binding.var.name_hint)
    builder.begin_scope(func.params)
    builder.begin_dataflow_block()
    for binding in block.bindings:
        builder.emit_normalized(binding)
    recompute = Recomputer(builder, func.params, block, collector.kept)
    sources = [collector.source_of(copies[v]) for v in wanted]
    result = _Backward(builder, recompute).run(block, target, sources, func.body.body)
    body = builder.normalize(SeqExpr([builder.end_block()], result))
    builder.end_scope()
    made: Function = _DropTeGradient().visit_expr(
        Function(func.params, body, None, func.is_pure, func.attrs, func.span)
    )
    made = simplify_gradient(remove_all_unused(made))
    return made.with_attr("global_symbol", f"{name}_adjoint")


def _variables(func: Function) -> list[Var]:
    """Parameters and bound variables, in order."""
    return [*func.params, *(b.var for block in func.body.blocks for b in block.bindings)]


def _run(mod: IRModule, name: str, require_grads: Sequence[Var] | None, index: int) -> IRModule:
    builder = BlockBuilder(mod)
    adjoint = _adjoint(builder, name, mod[name], require_grads, index)
    out = builder.get()
    if f"{name}_adjoint" in out:
        builder.add_func(adjoint, f"{name}_adjoint")
        return builder.get()
    out[f"{name}_adjoint"] = adjoint
    return out


class Gradient(ModuleRewrite):
    """Differentiate a function whose result (number ``target_index``) is a float scalar.

    ::

        def main(x):                  def main_adjoint(x):
            gv = R.sum(x)     ->          gv = R.sum(x)
            return gv                     gv_adjoint = R.ones(R.shape([]), "float32")
                                          x_adjoint = R.broadcast_to(gv_adjoint, R.shape([3, 3]))
                                          x_adjoint_out = x_adjoint
                                          return (gv, (x_adjoint_out,))

    ``require_grads`` lists the variables to differentiate by, all parameters by default.  Values between
    ``R.grad.start_checkpoint`` and ``R.grad.end_checkpoint`` are computed again instead of kept.
    Raises InternalError for what cannot be differentiated.
    """

    func_name: str
    require_grads: Var | Sequence[Var] | None = None
    target_index: int = 0

    def rewrite(self, mod: IRModule) -> IRModule:
        wanted = [self.require_grads] if isinstance(self.require_grads, Var) else self.require_grads
        return _run(mod, self.func_name, wanted, self.target_index)
