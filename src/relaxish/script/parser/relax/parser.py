"""Parsing of graph functions."""

from __future__ import annotations

from collections.abc import Sequence
import ast
import numbers
from functools import partial
from typing import Any, TYPE_CHECKING

from .... import relax, tir
from ....ir.expr import GlobalVar
from ....ir.structural import structural_equal
from ....relax.expr import Expr
from ....relax.struct_info import StructInfo
from ...ir_builder import ir as I  # noqa: E812
from ...ir_builder import relax as R
from ...ir_builder.base import IRBuilder, IRBuilderFrame
from ...ir_builder.relax import MatchCastPair
from ...ir_builder.relax.frame import BlockFrame, FunctionFrame
from ..core import dispatch
from ..core.parser import Parser, decorator_option
from ..ir.parser import ModuleNames
from .struct_info import Proxy, normalize

if TYPE_CHECKING:
    from .struct_info import TensorProxy

__all__: list[str] = []


def _proxy(parser: Parser, node: ast.expr, given: TensorProxy | str | None = None) -> Proxy:
    try:
        found = parser.eval_expr(node)
    except Exception:
        if given is None or isinstance(given, str):
            raise
        found = given
    made: Proxy = parser.guard(node, lambda: normalize(found))
    return made


def _sinfo(parser: Parser, node: ast.expr, given: TensorProxy | str | None = None) -> StructInfo:
    proxy = _proxy(parser, node, given)
    return parser.guard(node, lambda: proxy.as_struct_info(parser.var_table.get()))


def bind_assign(parser: Parser, node: ast.Name, name: str, value: Any, annotation: StructInfo | None = None) -> object:
    """``name = value``"""
    match value:
        case ModuleNames():
            return value
        case tir.Var():
            return _bind_symbol(parser, node, name, value)
        case tir.IntImm() | tir.FloatImm() if annotation is None:
            return value  # a name for a number, such as an attribute of an operator
    if type(value).__name__ == "meta_var":
        return value.value
    if isinstance(value, (tuple, list)):
        value = relax.utils.convert_to_expr(tuple(R.resolve(v) for v in value))
    if isinstance(value, numbers.Number):
        value = R.const(value)
    match value:
        case R.MatchCastPair():
            info = R.resolve(value.struct_info)
            if annotation is not None and not structural_equal(annotation, info):
                raise parser.error(node, "Cannot specify inconsistent annotation for a match cast pair. ")
            var = R.emit_match_cast(value.value, info)
        case tir.PrimExpr():
            var = R.emit(R.prim_value(value), annotation)
        case relax.Expr():
            var = R.emit(value, annotation)
        case _:
            raise parser.error(node, f"Unsupported type {type(value)} in assignment")
    IRBuilder.name(name, var)
    return var


def _bind_symbol(parser: Parser, node: ast.Name, name: str, value: tir.Var) -> tir.Var:
    if value.name and name != value.name:
        raise parser.error(
            node, "Cannot define TIR variables with different names. The LHS of binding should has the same name "
            "provided in RHS.",
        )  # fmt: skip
    known = parser.var_table.name2value.get(name)
    if known:
        previous = known[-1]
        if not isinstance(previous, tir.Var):
            raise parser.error(
                node, "Cannot redefine a non-TIR-variable object to a TIR variable. Please define the TIR variable "
                "with another name.",
            )  # fmt: skip
        if previous.dtype != value.dtype:
            raise parser.error(
                node, "Expected the same dtype for TIR vars "
                f"but got {value.dtype} vs {previous.dtype}",
            )  # fmt: skip
        return previous
    IRBuilder.name(name, value)
    return value


@dispatch.register("relax", "Assign")
def _assign(parser: Parser, node: ast.Assign) -> None:
    if len(node.targets) != 1:
        raise parser.error(node, "Consequential assignments like 'a = b = c' are not supported.")
    target = node.targets[0]
    value = parser.eval_expr(node.value)
    if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, relax.Expr):
        value = _projections(parser, target, value)
    parser.eval_assign(target, value, bind_assign, allow_shadowing=True)


def _projections(parser: Parser, target: ast.Tuple | ast.List, value: Expr) -> list[Expr]:
    """The fields of a tuple-valued expression, computed once."""
    if isinstance(value, relax.Tuple):
        return list(value.fields)
    var = value if isinstance(value, relax.Var) else R.emit(value)
    info = var.struct_info_
    count = len(info.fields) if isinstance(info, relax.TupleStructInfo) else len(target.elts)
    return [relax.TupleGetItem(var, i) for i in range(count)]


@dispatch.register("relax", "AnnAssign")
def _ann_assign(parser: Parser, node: ast.AnnAssign) -> None:
    if node.value is None:
        raise parser.error(node, "An annotated assignment needs a value")
    value = parser.eval_expr(node.value)
    annotation = _sinfo(parser, node.annotation)

    def bind(p: Parser, n: ast.Name, name: str, v: Expr | MatchCastPair | Sequence[Expr]) -> object:
        return bind_assign(p, n, name, v, annotation)

    parser.eval_assign(node.target, value, bind, allow_shadowing=True)


@dispatch.register("relax", "With")
def _with(parser: Parser, node: ast.With) -> None:
    if len(node.items) != 1:
        raise parser.error(node, "Only one item is allowed.")
    item = node.items[0]
    if item.optional_vars is not None:
        raise parser.error(item.context_expr, "Relax syntax doesn't allow binding expressions in `with` to variables")
    frame = parser.eval_expr(item.context_expr)
    if not isinstance(frame, IRBuilderFrame):
        raise parser.error(item.context_expr, "Invalid context expression in the with-statement.")
    is_dataflow = isinstance(frame, BlockFrame) and frame.is_dataflow
    with parser.var_table.with_frame():
        with frame:
            if is_dataflow and not (node.body and _is_output(node.body[-1])):
                pass
            parser.visit_body(node.body)
    if isinstance(frame, BlockFrame):
        for var in frame.output_vars:
            parser.var_table.add(var.name_hint, var, allow_shadowing=True)


def _is_output(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


@dispatch.register("relax", "Return")
def _return(parser: Parser, node: ast.Return) -> None:
    value = parser.eval_expr(node.value) if node.value is not None else relax.Tuple([])
    if value is None:
        value = relax.Tuple([])
    R.func_ret_value(R.resolve(value))


@dispatch.register("relax", "If")
def _if(parser: Parser, node: ast.If) -> None:
    if not node.orelse:
        raise parser.error(node, "Else statements are required for relax dataflow if.")
    cond = parser.eval_expr(node.test)
    if isinstance(cond, bool):
        parser.visit_body(node.body if cond else node.orelse)
        return
    with R.If(relax.utils.convert_to_expr(cond)) as frame:
        with parser.var_table.with_frame():
            with R.Then():
                parser.visit_body(node.body)
        with parser.var_table.with_frame():
            with R.Else():
                parser.visit_body(node.orelse)
    parser.var_table.add(frame.var_name, frame.var, allow_shadowing=True)


@dispatch.register("relax", "Expr")
def _expr(parser: Parser, node: ast.Expr) -> None:
    value = parser.eval_expr(node.value)
    if value is None or isinstance(value, str):
        return
    if not isinstance(value, relax.Expr):
        raise parser.error(node, f"Unsupported Expr stmt type {value}.")
    var = R.emit(value)
    IRBuilder.name("_", var)
    info = var.struct_info_
    if not (isinstance(info, relax.TupleStructInfo) and not info.fields):
        raise parser.error(
            node, f"Non-void relax expressions must be bound to a variable, but expression of type {info} was used "
            "as a statement.",
        )  # fmt: skip


@dispatch.register("relax", "Pass")
def _pass(parser: Parser, node: ast.Pass) -> None:
    return None


@dispatch.register("relax", "For", "While", "Assert", "AugAssign", "Break", "Continue")
def _unsupported(parser: Parser, node: ast.For) -> None:
    raise parser.error(node, f"{type(node).__name__} is not supported in graph functions")


# Functions.


def _define_symbols(parser: Parser, node: ast.FunctionDef, proxies: list[Proxy]) -> None:
    """Bind the quoted names of the parameters' annotations; ``n = T.int64()`` in the body says which they are."""
    symbols: dict[str, Any] = {}
    for proxy in proxies:
        for name in sorted(proxy.symbols()):
            symbols.setdefault(name, tir.Var(name, "int64"))
    for stmt in node.body:
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            continue
        targets = stmt.targets[0].elts if isinstance(stmt.targets[0], ast.Tuple) else [stmt.targets[0]]
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        if len(names) != len(targets) or not all(n in symbols for n in names):
            continue
        value = parser.eval_expr(stmt.value)
        values = list(value) if isinstance(value, (tuple, list)) else [value]
        for name, item in zip(names, values):
            if isinstance(item, tir.Var):
                IRBuilder.name(name, item)
                symbols[name] = item
    for name, var in symbols.items():
        parser.var_table.add(name, var)


def _signature(parser: Parser, node: ast.FunctionDef) -> tuple[list[tuple[str, Any]], Any]:
    given = parser.function_annotations.get(node.name, {})
    proxies = []
    for arg in node.args.args:
        if arg.annotation is None:
            raise parser.error(arg, "Type annotation is required for function parameters.")
        proxies.append(_proxy(parser, arg.annotation, given.get(arg.arg)))
    _define_symbols(parser, node, proxies)
    names = parser.var_table.get()
    params = []
    for arg, proxy in zip(node.args.args, proxies):
        info = parser.guard(arg, partial(proxy.as_struct_info, names))
        params.append((arg.arg, info))
    ret = None
    if node.returns is not None:
        ret = _sinfo(parser, node.returns, given.get("return"))
    return params, ret


def _parse_function(parser: Parser, node: ast.FunctionDef, pure: bool, private: bool, symbols: list[Any]) -> None:
    saved, parser.inside_function = parser.inside_function, True
    try:
        with parser.var_table.with_frame(), parser.with_dispatch_token("relax"):
            frame = R.function(is_pure=pure, is_private=private)
            frame.outer_symbols = symbols
            with frame:
                R.func_name(node.name)
                params, ret = _signature(parser, node)
                if ret is not None:
                    R.func_ret_struct_info(ret)
                for arg, (name, info) in zip(node.args.args, params):
                    var = R.arg(name, info)
                    var.span = parser.source.span(arg)
                    parser.var_table.add(name, var, allow_shadowing=True)
                for item in node.body:
                    if isinstance(item, ast.FunctionDef) and parser.get_dispatch_token(item) == "tir":
                        raise parser.error(item, "inline prim_func is disallowed in Relax IR")
                parser.visit_body(node.body)
    finally:
        parser.inside_function = saved


@dispatch.register("relax", "FunctionDef")
def _function(parser: Parser, node: ast.FunctionDef) -> None:
    pure = bool(decorator_option(parser, node, "pure", True))
    if parser.inside_function:
        _local_function(parser, node, pure)
        return
    private = bool(decorator_option(parser, node, "private", False))
    _parse_function(parser, node, pure, private, [])


def _local_function(parser: Parser, node: ast.FunctionDef, pure: bool) -> None:
    outer = IRBuilder.current().find(FunctionFrame)
    symbols = _visible_symbols(parser)
    with parser.var_table.with_frame():
        params, ret = _signature(parser, node)
    info: Any = relax.ObjectStructInfo()
    if ret is not None:
        info = relax.FuncStructInfo([p for _, p in params], ret, pure)
    placeholder_type = relax.DataflowVar if _in_dataflow() else relax.Var
    var = placeholder_type(node.name, info)
    parser.var_table.add(node.name, var, allow_shadowing=True)
    with IRBuilder() as builder:
        _parse_function(parser, node, pure, True, symbols)
    func = builder.get()
    if outer is None or ret is None:
        made = R.emit(func)
        IRBuilder.name(node.name, made)
        parser.var_table.add(node.name, made, allow_shadowing=True)
    else:
        R.emit_var_binding(relax.VarBinding(var, func))


def _in_dataflow() -> bool:
    frame = IRBuilder.current().last(BlockFrame)
    return frame is not None and frame.is_dataflow


def _visible_symbols(parser: Parser) -> list[Any]:
    found: list[Any] = []
    for value in parser.var_table.get().values():
        if isinstance(value, tir.Var) and not any(value is f for f in found):
            found.append(value)
    return found


@dispatch.register("relax", "tvm_declare_function")
def _declare(parser: Parser, node: ast.FunctionDef) -> GlobalVar:
    pure = bool(decorator_option(parser, node, "pure", True))
    with parser.var_table.with_frame(), parser.with_dispatch_token("relax"):
        params, ret = _signature(parser, node)
    variables = [relax.Var(name, info) for name, info in params]
    empty = relax.Function.create_empty(variables, ret if ret is not None else relax.ObjectStructInfo(), pure)
    return I.decl_function(node.name, empty)
