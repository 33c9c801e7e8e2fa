"""A-normal form and struct-info inference, used by the BlockBuilder on everything it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ir.expr import GlobalVar, PrimExpr
from ..ir.op import Op
from ..ir.types import PrimType
from ..support.errors import InternalError, RelaxishError
from ..support.sequences import of_kind
from ..tir.analysis import is_pure_function
from ..tir.function import PrimFunc, _STRUCT_INFO_HOOK
from .analysis.struct_info import derive_call_ret_struct_info
from .expr import (
    BindingBlock,
    Call,
    DataflowVar,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    is_leaf,
)
from .op_table import op_record_of
from .struct_info import FuncStructInfo, PrimStructInfo, StructInfo, TensorStructInfo, TupleStructInfo

if TYPE_CHECKING:
    from .expr import Binding, Expr
    from .block_builder import BlockBuilder

__all__ = ["infer_call", "merge_blocks", "normalize", "prim_func_struct_info"]


def normalize(builder: BlockBuilder, expr: Any) -> Any:
    """The expression in A-normal form, with struct info; side computations go to the builder's current block."""
    kind = type(expr)
    if kind is Call:
        return _call(builder, expr)
    match expr:
        case Tuple():
            return _tuple(builder, expr)
        case Var():
            return _variable(expr)
        case TupleGetItem():
            return _tuple_get_item(builder, expr)
        case Function():
            return _function(builder, expr)
        case SeqExpr():
            return expr if _is_done(builder, expr) else _seq(builder, expr)
        case If():
            return expr if _is_done(builder, expr) else _if(builder, expr)
        case GlobalVar() if expr.struct_info_ is None:
            builder.fill_global_var(expr)
    return expr


def _is_done(builder: BlockBuilder, expr: Expr) -> bool:
    """Whether a sequence (or what is made of sequences) is in normal form: those that have struct info are."""
    return builder.trusts_struct_info and expr.struct_info_ is not None


def _variable(var: Var) -> Expr:
    """The variable; one that holds nothing becomes the empty tuple, so that nobody depends on it."""
    info = var.struct_info_
    if info is None:
        raise InternalError(f"Var {var.name_hint} does not have struct info.")
    if type(info) is TupleStructInfo and not info.fields and type(var) is not DataflowVar:
        return Tuple(())
    return var


def _argument(builder: BlockBuilder, arg: Expr) -> Expr:
    """An argument as a leaf: whatever computes is bound to a variable first."""
    match arg:
        case Var():
            return _variable(arg)
        case Tuple():
            return _tuple(builder, arg)
    if is_leaf(arg):
        if isinstance(arg, GlobalVar) and arg.struct_info_ is None:
            builder.fill_global_var(arg)
        return arg
    known = builder.bound_argument(arg)
    if known is not None:
        return known
    new = normalize(builder, arg)
    if is_leaf(new):
        return new
    if not builder.in_block():
        raise InternalError("Cannot normalize non-leaf without a scope")
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
        expr = TupleGetItem(value, expr.index, expr.span)
    if expr.struct_info_ is None:
        info = value.struct_info_
        if not isinstance(info, TupleStructInfo):
            raise InternalError(
                f"The struct info of Tuple must be TupleStructInfo, but expression {value} has struct info {info}"
            )
        expr.struct_info_ = TupleGetItem(value, expr.index).struct_info_
    return expr


def _call(builder: BlockBuilder, expr: Call) -> Expr:
    callee = expr.op
    if type(callee) is not Op:
        callee = _argument(builder, callee) if not isinstance(callee, Function) else normalize(builder, callee)
        if isinstance(callee, Function) and builder.in_block():
            callee = builder.bind_value(callee)
    args = None
    for index, arg in enumerate(expr.args):
        new = _argument(builder, arg)
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
    record = op_record_of(expr.op) if builder.normalizes_operators else None
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
    if expr.struct_info_ is None and true_branch.struct_info_ is not None and false_branch.struct_info_ is not None:
        expr.struct_info_ = true_branch.struct_info_.lca(false_branch.struct_info_)
    return expr


def _branch(builder: BlockBuilder, branch: SeqExpr) -> SeqExpr:
    if _is_done(builder, branch):
        return branch
    builder.begin_inner_scope()
    result = _seq(builder, branch)
    builder.end_scope()
    return result


def _function(builder: BlockBuilder, func: Function) -> Function:
    if func.body is None or _is_done(builder, func.body):
        return func
    builder.begin_scope(func.params)
    body = _seq(builder, func.body)
    builder.end_scope()
    if body is func.body:
        return func
    return Function(func.params, body, func.ret_struct_info, func.is_pure, func.attrs, func.span)


def _seq(builder: BlockBuilder, expr: SeqExpr) -> SeqExpr:
    """Normalise block by block; the struct info of the result is what is well defined at the end of the scope."""
    blocks = [_block(builder, block) for block in expr.blocks]
    # A sequence inside a sequence takes the kind of the block it stands in.
    if builder.in_block() and builder.current_block_is_dataflow():
        builder.begin_dataflow_block()
    else:
        builder.begin_binding_block()
    body = _argument(builder, expr.body)
    blocks.append(builder.end_block())
    merged = merge_blocks([part for block in blocks for part in _flattened(block)])
    same = len(merged) == len(expr.blocks) and all(a is b for a, b in zip(merged, expr.blocks))
    if not same or body is not expr.body:
        expr = SeqExpr(merged, body, expr.span)
    if expr.struct_info_ is None and body.struct_info_ is not None:
        expr.struct_info_ = builder.erase_for_scope(body.struct_info_)
    return expr


def _flattened(block: BindingBlock) -> list[BindingBlock]:
    """The block, split where a sequence is bound: its blocks come in between, its result is what is bound."""
    if not any(isinstance(binding.value, SeqExpr) for binding in block.bindings):
        return [block]
    out: list[BindingBlock] = []
    current: list[Any] = []
    for binding in block.bindings:
        value = binding.value
        if isinstance(value, SeqExpr):
            out.append(type(block)(current))
            current = []
            for inner in value.blocks:
                _check_inside(block, inner, binding.var)
                out.extend(_flattened(inner))
            binding = binding.with_fields(value=value.body)
        current.append(binding)
    out.append(type(block)(current))
    return out


def _check_inside(outer: BindingBlock, inner: BindingBlock, var: Var) -> None:
    """Raise InternalError if an ordinary block, put between parts of a dataflow block, uses variables of those."""
    if not outer.is_dataflow or inner.is_dataflow:
        return
    from .analysis.variables import free_vars

    leaking = [v.name_hint for v in of_kind(free_vars(SeqExpr([inner], Tuple(()))), DataflowVar)]
    if leaking:
        raise InternalError(
            f"Malformed AST: A DataflowVar may only be used within a DataflowBlock.  The variable {var.name_hint} is "
            "defined within a DataflowBlock, but is bound to a SeqExpr that contains non-dataflow BindingBlocks.  These "
            f"non-dataflow BindingBlocks use the DataflowVars {leaking}, which is invalid."
        )


def merge_blocks(blocks: list[BindingBlock]) -> list[BindingBlock]:
    """Adjacent blocks of one kind become one; empty ones go."""
    out: list[BindingBlock] = []
    for block in blocks:
        if not block.bindings:
            continue
        if out and type(out[-1]) is type(block):
            out[-1] = type(block)((*out[-1].bindings, *block.bindings), out[-1].span)
        else:
            out.append(block)
    return out


def _is_normal_binding(builder: BlockBuilder, binding: Binding) -> bool:
    """Cheap test for a binding that needs nothing done."""
    value = binding.value
    if binding.var.struct_info_ is None or value.struct_info_ is None:
        return False
    if type(value) is Call:
        if not isinstance(value.op, (Op, Var, GlobalVar)) and isinstance(value.op, Function):
            return False
        record = op_record_of(value.op) if builder.normalizes_operators else None
        if record is not None and record.normalize is not None and record.normalize(builder, value) is not value:
            return False
        return all(_is_normal_leaf(a) for a in value.args)
    match value:
        case Tuple():
            return all(_is_normal_leaf(f) for f in value.fields)
        case TupleGetItem():
            return is_leaf(value.tuple_value)
        case Function():
            return value.body is None or _is_done(builder, value.body)
        case Var():
            return _variable(value) is value
        case If():
            return _is_done(builder, value)
    return not isinstance(value, SeqExpr)


def _is_normal_leaf(arg: Expr) -> bool:
    match arg:
        case Var():
            return _variable(arg) is arg
        case Tuple():
            return arg.struct_info_ is not None and all(_is_normal_leaf(f) for f in arg.fields)
    return is_leaf(arg) and arg.struct_info_ is not None or isinstance(arg, GlobalVar)


def _block(builder: BlockBuilder, block: BindingBlock) -> BindingBlock:
    if all(_is_normal_binding(builder, b) for b in block.bindings):
        for binding in block.bindings:
            builder.note_binding(binding)
        return block
    if block.is_dataflow:
        builder.begin_dataflow_block()
    else:
        builder.begin_binding_block()
    for binding in block.bindings:
        _binding(builder, binding)
    made = builder.end_block()
    same = len(made.bindings) == len(block.bindings) and all(a is b for a, b in zip(made.bindings, block.bindings))
    return block if same else made


def _binding(builder: BlockBuilder, binding: Binding) -> None:
    value = normalize(builder, binding.value)
    if binding.var.struct_info_ is None:
        known = binding.struct_info if isinstance(binding, MatchCast) else value.struct_info_
        object.__setattr__(binding.var, "struct_info_", known)
    if value is not binding.value:
        binding = binding.with_fields(value=value)
    builder.emit_normalized(binding)


def prim_func_struct_info(func: PrimFunc) -> FuncStructInfo:
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
            infos.append(PrimStructInfo(param.dtype))
    result = func.ret_type
    scalar = result.dtype if isinstance(result, PrimType) and result.dtype != "void" else None
    ret = PrimStructInfo(scalar) if scalar is not None else TupleStructInfo(())
    return FuncStructInfo(infos, ret, purity=is_pure_function(func))


_STRUCT_INFO_HOOK[0] = prim_func_struct_info


def _int64(dim: PrimExpr) -> PrimExpr:
    from ..ir.prim import Cast, IntImm

    if dim.dtype == "int64":
        return dim
    return IntImm("int64", dim.value) if isinstance(dim, IntImm) else Cast("int64", dim)
