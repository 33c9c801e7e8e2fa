"""Printing of graph functions: bindings, blocks and the functions themselves."""

from __future__ import annotations


from ... import relax
from ...ir.expr import BaseFunc
from ...ir.op import Op
from ...ir.structural import structural_equal
from ...relax.expr import (
    BindingBlock,
    DataflowBlock,
    Expr,
    ExternFunc,
    SeqExpr,
    VarBinding,
)
from ...relax.struct_info import FuncStructInfo, StructInfo
from ...support.errors import RelaxishError
from ...support.object_path import ObjectPath
from . import relax_dist, relax_expr, relax_sinfo  # noqa: F401
from .doc import (
    AssignDoc, Doc, ExprDoc, ExprStmtDoc, FunctionDoc, IdDoc, IfDoc, LiteralDoc, ReturnDoc, ScopeDoc, StmtBlockDoc,
    StmtDoc,
)  # fmt: skip
from .docsifier import Docsifier, Frame, header, printer_of
from .relax_expr import define_relax_var
from .tir_func import function_name, show_attrs

__all__: list[str] = []


def _inferred(value: Expr) -> StructInfo | None:
    """What a binding's value says its struct info is, or None."""
    match value:
        case relax.Call():
            if isinstance(value.op, Op):
                record = relax.op_table.op_record_of(value.op)
                if record is None:
                    return None
                try:
                    return record.infer(value, relax.BlockBuilder())
                except (
                    RelaxishError,
                    ValueError,
                    TypeError,
                    LookupError,
                    AttributeError,
                ):  # ill-formed calls are printed as well
                    return None
            return None
        case relax.Tuple():
            if all(f.struct_info_ is not None for f in value.fields):
                return relax.TupleStructInfo([f.struct_info_ for f in value.fields])
            return None
        case relax.TupleGetItem():
            info = value.tuple_value.struct_info_
            if isinstance(info, relax.TupleStructInfo) and value.index < len(info.fields):
                return info.fields[value.index]
            return None
        case relax.Var():
            return value.struct_info_
    return None


def sinfo_annotation(var: relax.Var, path: ObjectPath, d: Docsifier, value: Expr | None) -> ExprDoc | None:
    """The annotation of a variable, or None where the value already says it."""
    if var.struct_info_ is None:
        return None
    hide = not d.cfg.show_all_struct_info
    if isinstance(value, relax.Call) and isinstance(value.op, Op):
        hide = hide or value.op.name in ("relax.call_tir", "relax.call_dps_packed")
    if hide and value is not None:
        inferred = _inferred(value)
        if inferred is not None and structural_equal(inferred, var.struct_info_):
            return None
    shown: ExprDoc = d.doc(var.struct_info_, path.attr("struct_info_"))
    return shown


def _seq(node: Expr, path: ObjectPath, d: Docsifier, returns: bool) -> list[StmtDoc]:
    with Frame(d, "relax") as frame:
        body = node
        if isinstance(node, relax.SeqExpr):
            for i, block in enumerate(node.blocks):
                made = d.doc(block, path.attr("blocks").array_index(i))
                frame.stmts.extend(made.stmts if isinstance(made, StmtBlockDoc) else [made])
            body, path = node.body, path.attr("body")
            if not returns and _ends_with_statement(node, d):
                return frame.stmts
        shown = d.doc(body, path)
        frame.stmts.append(ReturnDoc(shown) if returns else ExprStmtDoc(shown))
        return frame.stmts


def _ends_with_statement(seq: SeqExpr, d: Docsifier) -> bool:
    """Whether the value of a sequence is the nothing that its last call gives, printed as a statement without a name."""
    last = seq.blocks[-1].bindings[-1] if seq.blocks and seq.blocks[-1].bindings else None
    return isinstance(last, relax.VarBinding) and last.var is seq.body and _is_statement(last, d)


def _is_statement(binding: VarBinding, d: Docsifier) -> bool:
    """Whether a binding is printed as a call for its effects alone: the parser binds it to an unnamed variable again."""
    value = binding.value
    if isinstance(value, relax.If):
        plain = all(_ends_with_statement(branch, d) for branch in (value.true_branch, value.false_branch))
    else:
        plain = _is_void(value) and not isinstance(value, BaseFunc)
    return bool(d.cfg.syntax_sugar and plain and _is_void(binding.var))


@printer_of(relax.SeqExpr)
def _seq_expr(node: SeqExpr, path: ObjectPath, d: Docsifier) -> Doc:
    return StmtBlockDoc(_seq(node, path, d, False))


def _if_doc(node: relax.If, path: ObjectPath, d: Docsifier, var: ExprDoc | None, ann: ExprDoc | None) -> IfDoc:
    cond = d.doc(node.cond, path.attr("cond"))
    branches = [
        _seq(node.true_branch, path.attr("true_branch"), d, False),
        _seq(node.false_branch, path.attr("false_branch"), d, False),
    ]
    if var is not None and not all(_ends_with_statement(b, d) for b in (node.true_branch, node.false_branch)):
        for stmts in branches:
            last = stmts[-1]
            if isinstance(last, ExprStmtDoc):  # else a conditional that gives nothing
                stmts[-1] = AssignDoc(var, last.expr, ann)
    return IfDoc(cond, branches[0], branches[1])


@printer_of(relax.If)
def _if(node: relax.If, path: ObjectPath, d: Docsifier) -> Doc:
    return _if_doc(node, path, d, None, None)


@printer_of(relax.MatchCast)
def _match_cast(node: relax.MatchCast, path: ObjectPath, d: Docsifier) -> Doc:
    ann = None
    if d.cfg.show_all_struct_info:
        ann = sinfo_annotation(node.var, path.attr("var"), d, node.value)
    rhs = d.prefix("relax", "match_cast").call(
        d.doc(node.value, path.attr("value")), d.doc(node.struct_info, path.attr("struct_info"))
    )
    return AssignDoc(define_relax_var(node.var, d.frames[-1], d), rhs, ann)


@printer_of(relax.VarBinding)
def _var_binding(node: relax.VarBinding, path: ObjectPath, d: Docsifier) -> Doc:
    value, where = node.value, path.attr("value")
    match value:
        case relax.If():
            ann = sinfo_annotation(node.var, path.attr("var"), d, value)
            lhs = define_relax_var(node.var, d.frames[-1], d)
            return _if_doc(value, where, d, lhs, ann)
        case BaseFunc() if not isinstance(value, relax.ExternFunc):
            lhs = define_relax_var(node.var, d.frames[-1], d)
            assert isinstance(lhs, IdDoc)
            d.cfg.binding_names.append(lhs.name)
            try:
                made: Doc = d.doc(value, where)
            finally:
                d.cfg.binding_names.pop()
            return made
    rhs = d.doc(value, where)
    if _is_statement(node, d):
        return ExprStmtDoc(rhs)
    ann = sinfo_annotation(node.var, path.attr("var"), d, value)
    lhs = define_relax_var(node.var, d.frames[-1], d)
    return AssignDoc(lhs, rhs, ann)


def _is_void(expr: Expr) -> bool:
    """Whether an expression is known to be the empty tuple."""
    info = expr.struct_info_
    return isinstance(info, relax.TupleStructInfo) and not info.fields


def _bindings(node: BindingBlock, path: ObjectPath, d: Docsifier, outputs: list[ExprDoc] | None) -> list[StmtDoc]:
    stmts: list[StmtDoc] = []
    for i, binding in enumerate(node.bindings):
        where = path.attr("bindings").array_index(i)
        made = d.doc(binding, where)
        stmts.extend(made.stmts if isinstance(made, StmtBlockDoc) else [made])
        if outputs is not None and not isinstance(binding.var, relax.DataflowVar):
            outputs.append(d.doc(binding.var, where.attr("var")))
    return stmts


@printer_of(relax.BindingBlock)
def _binding_block(node: BindingBlock, path: ObjectPath, d: Docsifier) -> Doc:
    return StmtBlockDoc(_bindings(node, path, d, None))


@printer_of(relax.DataflowBlock)
def _dataflow_block(node: DataflowBlock, path: ObjectPath, d: Docsifier) -> Doc:
    outputs: list[ExprDoc] = []
    stmts = _bindings(node, path, d, outputs)
    stmts.append(ExprStmtDoc(d.prefix("relax", "output").call(*outputs)))
    return ScopeDoc(None, d.prefix("relax", "dataflow").call(), stmts)


def _at_top_level(d: Docsifier) -> bool:
    if len(d.frames) < 2:
        return False
    return len(d.frames) == (2 if d.frames[0].kind == "relax" else 3)


@printer_of(relax.Function)
def _function(node: relax.Function, path: ObjectPath, d: Docsifier) -> Doc:
    with Frame(d, "relax", is_func=True) as frame:
        name = function_name(node, d)
        frame.token("relax")
        frame.func_vars = set()
        ret = None
        if node.ret_struct_info is not None:
            ret = d.doc(node.ret_struct_info, path.attr("ret_struct_info"))
        params: list[AssignDoc] = []
        for i, param in enumerate(node.params):
            where = path.attr("params").array_index(i)
            lhs = define_relax_var(param, frame, d)
            ann = sinfo_annotation(param, where, d, None)
            params.append(AssignDoc(lhs, None, LiteralDoc(None) if ann is None else ann))
        frame.func_vars = None
        top = _at_top_level(d)
        attrs = show_attrs(node, name, "relax", path, d, hide_symbol=top)
        if attrs is not None:
            frame.stmts.append(attrs)
        options: dict[str, ExprDoc] = {}
        if not node.is_pure:
            options["pure"] = LiteralDoc(False)
        if top and node.get_attr("global_symbol") is None:
            options["private"] = LiteralDoc(True)
        decorator: ExprDoc = d.prefix("relax", "function")
        if options:
            decorator = decorator.call(**options)
        body = _seq(node.body, path.attr("body"), d, True)
        frame.stmts.extend(body)
        return header(d, FunctionDoc(IdDoc(name), params, [decorator], ret, frame.stmts))


@printer_of(relax.ExternFunc)
def _extern(node: ExternFunc, path: ObjectPath, d: Docsifier) -> Doc:
    args: list[ExprDoc] = [LiteralDoc(node.global_symbol, path.attr("global_symbol"))]
    info = node.struct_info_
    if isinstance(info, relax.FuncStructInfo) and _says_something(info):
        args.append(d.doc(info, path.attr("struct_info_")))
    return d.prefix("relax", "ExternFunc").call(*args)


def _says_something(info: FuncStructInfo) -> bool:
    """Whether an external function's struct info is more than what parsing its name gives."""
    plain = relax.ExternFunc("f").struct_info_
    return not structural_equal(plain, info)
