"""A-normal form and struct-info inference, used by the BlockBuilder on everything it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ir.expr import GlobalVar
from ..ir.op import Op
from ..ir.types import PrimType
from ..support.errors import RelaxishError
from ..tir.analysis import is_pure_function
from ..tir.function import _STRUCT_INFO_HOOK
from .analysis.struct_info import derive_call_ret_struct_info, struct_info_lca
from .expr import (
    BindingBlock,
    Call,
    DataflowBlock,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    is_leaf,
)
from .op_table import op_record_of
from .struct_info import FuncStructInfo, PrimStructInfo, StructInfo, TensorStructInfo, TupleStructInfo

if TYPE_CHECKING:
    from .block_builder import BlockBuilder

__all__ = ["infer_call", "normalize", "prim_func_struct_info"]


def normalize(builder: BlockBuilder, expr: Any) -> Any:
    """The expression in A-normal form, with struct info; side computations go to the builder's current block."""
    kind = type(expr)
    if kind is Call:
        return _call(builder, expr)
    if isinstance(expr, Tuple):
        return _tuple(builder, expr)
    if isinstance(expr, TupleGetItem):
        return _tuple_get_item(builder, expr)
    if isinstance(expr, Function):
        return _function(builder, expr)
    if isinstance(expr, SeqExpr):
        return expr if expr.struct_info_ is not None else _seq(builder, expr)
    if isinstance(expr, If):
        return expr if expr.struct_info_ is not None else _if(builder, expr)
    if isinstance(expr, GlobalVar) and expr.struct_info_ is None:
        builder.fill_global_var(expr)
    return expr


def _argument(builder: BlockBuilder, arg: Any) -> Any:
    """An argument as a leaf: whatever computes is bound to a variable first."""
    if isinstance(arg, Tuple):
        return _tuple(builder, arg)
    if is_leaf(arg):
        if isinstance(arg, GlobalVar) and arg.struct_info_ is None:
            builder.fill_global_var(arg)
        return arg
    known = builder.bound_argument(arg)
    if known is not None:
        return known
    new = normalize(builder, arg)
    if is_leaf(new) or not builder.in_block():
        return new
    return builder.bind_argument(arg, new)


def _tuple(builder: BlockBuilder, expr: Tuple) -> Tuple:
    fields = [_argument(builder, f) for f in expr.fields]
    if all(a is b for a, b in zip(fields, expr.fields)):
        if expr.struct_info_ is None and all(f.struct_info_ is not None for f in fields):
            expr.struct_info_ = TupleStructInfo([f.struct_info_ for f in fields])
        return expr
    return Tuple(fields, expr.span)


def _tuple_get_item(builder: BlockBuilder, expr: TupleGetItem) -> TupleGetItem:
    value = _argument(builder, expr.tuple_value)
    if value is not expr.tuple_value:
        return TupleGetItem(value, expr.index, expr.span)
    if expr.struct_info_ is None:
        made = TupleGetItem(value, expr.index, expr.span)
        if made.struct_info_ is None:
            from .struct_info import ObjectStructInfo

            made.struct_info_ = ObjectStructInfo()
        expr.struct_info_ = made.struct_info_
    return expr


def _call(builder: BlockBuilder, expr: Call) -> Any:
    callee = expr.op
    if type(callee) is not Op:
        callee = _argument(builder, callee) if not isinstance(callee, Function) else normalize(builder, callee)
        if isinstance(callee, Function) and builder.in_block():
            callee = builder.bind_value(callee)
    args = None
    for index, arg in enumerate(expr.args):
        new = arg if isinstance(arg, Var) else _argument(builder, arg)
        if args is None and new is not arg:
            args = list(expr.args[:index])
        if args is not None:
            args.append(new)
    if callee is not expr.op or args is not None:
        new_call = Call(callee, expr.args if args is None else args, expr.attrs, expr.sinfo_args, expr.span)
        new_call.struct_info_ = expr.struct_info_ if callee is expr.op else None
        expr = new_call
    if expr.struct_info_ is None:
        expr.struct_info_ = infer_call(builder, expr)
    record = op_record_of(expr.op)
    if record is not None and record.normalize is not None:
        changed = record.normalize(builder, expr)
        if changed is not expr:
            return normalize(builder, changed)
    return expr


def infer_call(builder: BlockBuilder, call: Call) -> StructInfo:
    """Struct info of a call's result. Raises RelaxishError (or what the operator raises) on bad arguments."""
    if type(call.op) is Op:
        record = op_record_of(call.op)
        if record is None:
            raise RelaxishError(f"operator {call.op.name} has no struct-info inference")
        return record.infer(call, builder)
    info = call.op.struct_info_
    if not isinstance(info, FuncStructInfo):
        from .struct_info import ObjectStructInfo

        if isinstance(info, ObjectStructInfo):
            return ObjectStructInfo()
        raise RelaxishError(f"only functions can be called, but the callee {call.op} has struct info {info}")
    return derive_call_ret_struct_info(info, call, builder)


def _if(builder: BlockBuilder, expr: If) -> If:
    cond = _argument(builder, expr.cond)
    true_branch = _branch(builder, expr.true_branch)
    false_branch = _branch(builder, expr.false_branch)
    if cond is not expr.cond or true_branch is not expr.true_branch or false_branch is not expr.false_branch:
        expr = If(cond, true_branch, false_branch, expr.span)
    if true_branch.struct_info_ is not None and false_branch.struct_info_ is not None:
        expr.struct_info_ = struct_info_lca(true_branch.struct_info_, false_branch.struct_info_)
    return expr


def _branch(builder: BlockBuilder, branch: SeqExpr) -> SeqExpr:
    if branch.struct_info_ is not None:
        return branch
    builder.begin_inner_scope()
    result = _seq(builder, branch)
    builder.end_scope()
    return result


def _function(builder: BlockBuilder, func: Function) -> Function:
    if func.body is None or func.body.struct_info_ is not None:
        return func
    builder.begin_scope(func.params)
    body = _seq(builder, func.body)
    builder.end_scope()
    if body is func.body and func.ret_struct_info is body.struct_info_:
        return func
    return Function(func.params, body, func.ret_struct_info, func.is_pure, func.attrs, func.span)


def _seq(builder: BlockBuilder, expr: SeqExpr) -> SeqExpr:
    """Normalise block by block; the struct info of the result is what is well defined at the end of the scope."""
    blocks: list[BindingBlock] = []
    changed = False
    for block in expr.blocks:
        made = _block(builder, block)
        changed = changed or len(made) != 1 or made[0] is not block
        blocks.extend(b for b in made if b.bindings)
    builder.begin_binding_block()
    body = normalize(builder, expr.body)
    while isinstance(body, SeqExpr):
        for inner in body.blocks:
            builder.splice_block(inner)
        body = body.body
    if not is_leaf(body):
        body = builder.bind_value(body)
    blocks.extend(b for b in builder.end_block_parts() if b.bindings)
    merged = _merge(blocks)
    changed = changed or len(merged) != len(expr.blocks) or any(a is not b for a, b in zip(merged, expr.blocks))
    if changed or body is not expr.body:
        expr = SeqExpr(merged, body, expr.span)
    if body.struct_info_ is not None:
        expr.struct_info_ = builder.erase_for_scope(body.struct_info_)
    return expr


def _merge(blocks: list[BindingBlock]) -> list[BindingBlock]:
    """Adjacent ordinary blocks become one; so do adjacent dataflow blocks."""
    out: list[BindingBlock] = []
    for block in blocks:
        if out and type(out[-1]) is type(block) and not isinstance(block, DataflowBlock):
            out[-1] = BindingBlock((*out[-1].bindings, *block.bindings), out[-1].span)
        else:
            out.append(block)
    return out


def _is_normal_binding(binding: Any) -> bool:
    """Cheap test for a binding that needs nothing done."""
    value = binding.value
    if binding.var.struct_info_ is None or value.struct_info_ is None:
        return False
    if isinstance(binding, MatchCast):
        return is_leaf(value)
    if type(value) is Call:
        if not isinstance(value.op, (Op, Var, GlobalVar)) and isinstance(value.op, Function):
            return False
        record = op_record_of(value.op)
        if record is not None and record.normalize is not None and record.normalize(None, value) is not value:  # type: ignore[arg-type]
            return False
        return all(_is_normal_leaf(a) for a in value.args)
    if isinstance(value, Tuple):
        return all(_is_normal_leaf(f) for f in value.fields)
    if isinstance(value, TupleGetItem):
        return is_leaf(value.tuple_value)
    if isinstance(value, Function):
        return value.body is None or value.body.struct_info_ is not None
    return not isinstance(value, SeqExpr)


def _is_normal_leaf(arg: Any) -> bool:
    if isinstance(arg, Var):
        return True
    if isinstance(arg, Tuple):
        return arg.struct_info_ is not None and all(_is_normal_leaf(f) for f in arg.fields)
    return is_leaf(arg) and arg.struct_info_ is not None or isinstance(arg, GlobalVar)


def _block(builder: BlockBuilder, block: BindingBlock) -> list[BindingBlock]:
    if all(_is_normal_binding(b) for b in block.bindings):
        for binding in block.bindings:
            builder.note_binding(binding)
        return [block]
    if isinstance(block, DataflowBlock):
        builder.begin_dataflow_block()
    else:
        builder.begin_binding_block()
    for binding in block.bindings:
        _binding(builder, binding)
    parts = builder.end_block_parts()
    if len(parts) == 1 and len(parts[0].bindings) == len(block.bindings):
        if all(a is b for a, b in zip(parts[0].bindings, block.bindings)):
            return [block]
    return parts


def _binding(builder: BlockBuilder, binding: Any) -> None:
    value = normalize(builder, binding.value)
    while isinstance(value, SeqExpr):
        for inner in value.blocks:
            builder.splice_block(inner)
        value = value.body
    if isinstance(binding, MatchCast):
        value = builder.bind_value(value) if not is_leaf(value) else value
        if binding.var.struct_info_ is None:
            object.__setattr__(binding.var, "struct_info_", binding.struct_info)
        if value is not binding.value:
            binding = MatchCast(binding.var, value, binding.struct_info, binding.span)
    else:
        if binding.var.struct_info_ is None and value.struct_info_ is not None:
            # Normalisation fills what the program left open; the variable stays the same object.
            object.__setattr__(binding.var, "struct_info_", value.struct_info_)
        if value is not binding.value:
            binding = VarBinding(binding.var, value, binding.span)
    builder.emit_normalized(binding)


def prim_func_struct_info(func: Any) -> FuncStructInfo:
    """The signature of a loop-level function as graph code sees it: tensors and scalars in, at most a scalar out."""
    infos: list[StructInfo] = []
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is not None:
            infos.append(TensorStructInfo([_int64(d) for d in buffer.shape], buffer.dtype))
        elif param.dtype == "handle":
            from .struct_info import ObjectStructInfo

            infos.append(ObjectStructInfo())
        else:
            infos.append(PrimStructInfo(value=param))
    result = func.ret_type
    scalar = isinstance(result, PrimType) and result.dtype != "void"
    return FuncStructInfo(
        infos, PrimStructInfo(result.dtype) if scalar else TupleStructInfo(()), purity=is_pure_function(func)
    )


_STRUCT_INFO_HOOK[0] = prim_func_struct_info


def _int64(dim: Any) -> Any:
    if dim.dtype == "int64":
        return dim
    from ..ir.prim import Cast, IntImm
    from ..ir.prim import Var as TirVar

    if isinstance(dim, IntImm):
        return IntImm("int64", dim.value)
    if isinstance(dim, TirVar):
        return TirVar(dim.name, "int64")
    return Cast("int64", dim)
