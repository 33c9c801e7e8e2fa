"""Parsing of tensor functions."""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from .... import tir
from ....ir import dtype as dt
from ....ir.expr import ExprLike, GlobalVar, PrimExpr, as_expr
from ....ir.node import Node
from ....ir.prim import IterVar
from ....ir.types import PrimType, TupleType, Type
from ....tir.buffer import Buffer
from ...ir_builder import ir as I  # noqa: E812
from ...ir_builder import tir as T
from ...ir_builder.base import IRBuilder, IRBuilderFrame
from ...ir_builder.tir.frame import BlockFrame, ForFrame
from ..core import dispatch
from ..core.parser import Parser, decorator_option
from ..core.evaluator import slices_as_vectors

__all__: list[str] = []


# Operators on expressions that Python's own protocol cannot express, or that script keeps unfolded.


def _literal(value: ExprLike, other: ExprLike | None) -> PrimExpr:
    """A Python number in the type of the other operand."""
    match value:
        case IterVar():
            return value.var
        case PrimExpr():
            return value
        case bool():
            return tir.IntImm("bool", value)
    if isinstance(other, (PrimExpr, IterVar)):
        element = dt.element_of(other.dtype)
        match value:
            case int() if dt.is_int(element) or dt.is_uint(element):
                return tir.IntImm(element, value)
            case int() | float() if dt.is_float(element):
                return tir.FloatImm(element, float(value))
    return as_expr(value)


def _register(node_class: type, apply: Callable[..., Any]) -> None:
    for operand_type in (PrimExpr, IterVar):
        for index in (0, 1):
            dispatch.register_op(operand_type, node_class, index)(apply)


def _comparison(node_class: type, make: type, function: Callable[..., Any]) -> None:
    def apply(a: ExprLike, b: ExprLike) -> object:
        if not isinstance(a, (PrimExpr, IterVar, int, float)) or not isinstance(b, (PrimExpr, IterVar, int, float)):
            return function(a, b)
        left, right = _literal(a, b), _literal(b, a)
        m, n = dt.lanes(left.dtype), dt.lanes(right.dtype)
        if m != n:
            if m == 1:
                left = tir.Broadcast(left, n)
            elif n == 1:
                right = tir.Broadcast(right, m)
            else:
                raise TypeError("do not know how to deal with it.")
        if left.dtype != right.dtype:
            return function(left, right)
        return make(left, right)

    _register(node_class, apply)


_comparison(ast.Eq, tir.EQ, lambda a, b: a == b)
_comparison(ast.NotEq, tir.NE, lambda a, b: a != b)
_comparison(ast.Lt, tir.LT, lambda a, b: a < b)
_comparison(ast.LtE, tir.LE, lambda a, b: a <= b)
_comparison(ast.Gt, tir.GT, lambda a, b: a > b)
_comparison(ast.GtE, tir.GE, lambda a, b: a >= b)


def _logical(node_class: type, make: type, elementwise: Callable[..., Any]) -> None:
    def apply(a: PrimExpr, b: PrimExpr) -> object:
        left, right = _literal(a, None), _literal(b, None)
        if dt.lanes(left.dtype) > 1 or dt.lanes(right.dtype) > 1:
            return elementwise(left, right)
        return make(left, right)

    _register(node_class, apply)


_logical(ast.And, tir.And, operator.and_)
_logical(ast.Or, tir.Or, operator.or_)
dispatch.register_op(PrimExpr, ast.Not, 0)(lambda a: tir.Not(a))
dispatch.register_op(PrimExpr, ast.IfExp, 0)(lambda test, a, b: tir.if_then_else(test, a, b))


# Binding of names.


def _enter(value: IRBuilderFrame) -> Buffer | PrimExpr | None:
    """Open a frame that lasts until the scope around is left."""
    value.add_callback(lambda: value.__exit__(None, None, None))
    return value.__enter__()


def bind_with(parser: Parser, node: ast.Name, name: str, value: BlockFrame | PrimExpr) -> object:
    """``with ... as name``"""
    match value:
        case list() | tuple():
            for i, item in enumerate(value):
                bind_with(parser, node, f"{name}_{i}", item)
            return value
        case tir.Buffer() | tir.Var():
            IRBuilder.name(name, value)
            return value
    raise TypeError(f"Do not know how to bind type: {type(value).__name__} in with statement")


def bind_for(parser: Parser, node: ast.Name, name: str, value: PrimExpr) -> object:
    """``for name in ...``"""
    match value:
        case list() | tuple():
            for i, item in enumerate(value):
                bind_for(parser, node, f"{name}_{i}", item)
            return value
        case tir.Var():
            IRBuilder.name(name, value)
            return value
    raise TypeError(f"Do not know how to bind type: {type(value).__name__} in for statement")


# What takes an assignment to a name that means something already: told the meaning and the value, says whether it did.
ASSIGNED: list[Callable[[Any, Any], bool]] = []


def bind_assign(parser: Parser, node: ast.Name, name: str, value: Any) -> object:
    """``name = ...``"""
    if ASSIGNED:
        known = parser.var_table.name2value.get(name)
        if known and any(take(known[-1], value) for take in ASSIGNED):
            return known[-1]
    match value:
        case T.meta_var():
            return value.value
        case list() | tuple():
            for i, item in enumerate(value):
                bind_assign(parser, node, f"{name}_{i}", item)
            return value
        case IRBuilderFrame():
            result = _enter(value)
            IRBuilder.name(name, result)
            return result
    if isinstance(value, (tir.Buffer, IterVar)) or (isinstance(value, tir.Var) and not parser.var_table.exist(value)):
        IRBuilder.name(name, value)
        return value
    if isinstance(value, Node) and not isinstance(value, PrimExpr):
        return value
    frame = T.LetStmt(as_expr(value))
    var = frame.var
    IRBuilder.name(name, var)
    _enter(frame)
    return var


# Statements.


@dispatch.register("tir", "For")
def _for(parser: Parser, node: ast.For) -> None:
    frame = parser.eval_expr(node.iter)
    match frame:
        case ForFrame():
            with parser.var_table.with_frame(), frame as names:
                parser.eval_assign(node.target, names, bind_for)
                parser.visit_body(node.body)
            return
        case T.meta_var():
            frame = list(frame.value)
    if not isinstance(frame, (list, tuple)):
        raise parser.error(
            node.iter,
            "Expect the for loop to be one of the following: range, T.serial, T.grid, T.parallel, T.vectorized, "
            "T.unroll, T.thread_binding",
        )
    # A Python sequence is known while parsing: the body is parsed once for each of its elements.
    for item in frame:
        with parser.var_table.with_frame():
            parser.eval_assign(node.target, item, lambda _p, _n, _name, value: value)
            parser.visit_body(node.body)


@dispatch.register("tir", "While")
def _while(parser: Parser, node: ast.While) -> None:
    with parser.var_table.with_frame():
        cond = parser.eval_expr(node.test)
        with T.While(cond):
            parser.visit_body(node.body)


@dispatch.register("tir", "Assign")
def _assign(parser: Parser, node: ast.Assign) -> None:
    if len(node.targets) != 1:
        raise parser.error(node, "Consequential assignments like 'a = b = c' are not supported.")
    target = node.targets[0]
    slices_as_vectors((node.value,))
    value = parser.eval_expr(node.value)
    if isinstance(target, ast.Subscript):
        _store(parser, target, value)
    else:
        parser.eval_assign(target, value, bind_assign)


def _store(parser: Parser, target: ast.Subscript, value: ExprLike) -> None:
    if isinstance(target.slice, ast.Tuple):
        indices: Any = [parser.eval_expr(i) for i in target.slice.elts]
    else:
        indices = parser.eval_expr(target.slice)
    buffer = parser.guard(target.value, lambda: parser.evaluator.indexed(target.value))
    if not isinstance(buffer, tir.Buffer):
        raise parser.error(target.value, f"cannot store into a {type(buffer).__name__}, only into buffers")
    parser.guard(target, lambda: T.buffer_store(buffer, value, indices))


@dispatch.register("tir", "AugAssign")
def _aug_assign(parser: Parser, node: ast.AugAssign) -> None:
    target: Any = node.target
    slices_as_vectors((target, node.value))
    left = parser.eval_expr(target)
    right = parser.eval_expr(node.value)
    value = parser.guard(node, lambda: parser.evaluator.binary(type(node.op), left, right))
    if isinstance(target, ast.Subscript):
        _store(parser, target, value)
    else:
        parser.eval_assign(target, value, bind_assign)


def annotation_var(annotation: object) -> object:
    """The variable an annotation asks for."""
    if callable(annotation) and not isinstance(annotation, Node):
        annotation = annotation()
    if isinstance(annotation, Type):
        return tir.Var("", annotation)
    return annotation


@dispatch.register("tir", "AnnAssign")
def _ann_assign(parser: Parser, node: ast.AnnAssign) -> None:
    if node.value is None:
        raise parser.error(node, "An annotated assignment needs a value")
    value = parser.eval_expr(node.value)
    var = annotation_var(parser.eval_expr(node.annotation))
    if not isinstance(var, tir.Var):
        raise parser.error(node.annotation, "Annotation should be Var")
    parser.eval_assign(node.target, var, bind_assign)
    _enter(T.LetStmt(as_expr(value) if not isinstance(value, (int, float)) else _literal(value, var), var=var))


@dispatch.register("tir", "With")
def _with(parser: Parser, node: ast.With) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(parser.var_table.with_frame())
        for item in node.items:
            frame = parser.eval_expr(item.context_expr)
            if not isinstance(frame, IRBuilderFrame):
                raise parser.error(item.context_expr, "Invalid context expression in the with-statement.")
            result = stack.enter_context(frame)
            if item.optional_vars is not None:
                parser.eval_assign(item.optional_vars, result, bind_with)
        parser.visit_body(node.body)


@dispatch.register("tir", "Expr")
def _expr(parser: Parser, node: ast.Expr) -> None:
    value = parser.eval_expr(node.value)
    if value is None or isinstance(value, str):
        return
    match value:
        case IRBuilderFrame():
            _enter(value)
        case PrimExpr():
            T.evaluate(value)
        case bool():
            T.evaluate(tir.IntImm("bool", value))
        case int() | float():
            T.evaluate(as_expr(value))
        case tir.BufferStore():
            T.frame.add_to_parent(value)
        case _ if hasattr(value, "op") and isinstance(value.op, GlobalVar) and (not value.args):
            # A call without arguments looks the same at both levels; here it is a tensor-level one.
            T.evaluate(tir.Call("void", value.op, ()))
        case _:
            raise parser.error(node, f"Parsing resulted in unexpected type {type(value).__name__}")


@dispatch.register("tir", "If")
def _if(parser: Parser, node: ast.If) -> None:
    with parser.var_table.with_frame():
        cond = parser.eval_expr(node.test)
        match cond:
            case bool():
                with parser.var_table.with_frame():
                    parser.visit_body(node.body if cond else node.orelse)
            case PrimExpr():
                with T.If(cond):
                    with T.Then(), parser.var_table.with_frame():
                        parser.visit_body(node.body)
                    if node.orelse:
                        with T.Else(), parser.var_table.with_frame():
                            parser.visit_body(node.orelse)
            case _:
                raise parser.error(node.test, f"If condition must be a boolean expression, but got {cond}")


@dispatch.register("tir", "Assert")
def _assert(parser: Parser, node: ast.Assert) -> None:
    cond = parser.eval_expr(node.test)
    message = parser.eval_expr(node.msg) if node.msg is not None else ""
    _enter(T.Assert(cond, message))


@dispatch.register("tir", "Return")
def _return(parser: Parser, node: ast.Return) -> None:
    value = parser.eval_expr(node.value) if node.value is not None else None
    if value is None:
        raise parser.error(node, "Expression to be returned must be a PrimExpr")
    T.evaluate(tir.ret(as_expr(value)))


@dispatch.register("tir", "Pass")
def _pass(parser: Parser, node: ast.Pass) -> None:
    return None


@dispatch.register("tir", "Break", "Continue")
def _jump(parser: Parser, node: ast.Break | ast.Continue) -> None:
    raise parser.error(node, f"{type(node).__name__.lower()} is not supported in tensor functions")


# Functions.


def return_type(value: Any) -> Type:
    """The type a return annotation names."""
    if value is None:
        return TupleType(())
    if callable(value) and not isinstance(value, Node):
        value = PrimType(value().dtype)
    if isinstance(value, tir.Var):
        value = value.type_annotation
    return value


def _argument(parser: Parser, arg: ast.arg, given: dict[str, Any]) -> Buffer | PrimExpr:
    if arg.annotation is None:
        raise parser.error(arg, "Type annotation required for function parameters.")
    try:
        found = parser.eval_expr(arg.annotation)
    except Exception:
        found = given.get(arg.arg)
        if found is None or isinstance(found, str):
            raise
    if callable(found) and not isinstance(found, Node):
        found = parser.guard(arg.annotation, found)
    if not isinstance(found, (tir.Var, tir.Buffer)):
        raise parser.error(arg.annotation, f"a parameter is a buffer or a scalar, not a {type(found).__name__}")
    return found


def _fresh(param: Buffer | PrimExpr) -> Buffer | PrimExpr:
    """Annotations made once and shared by several functions must not share variables."""
    if isinstance(param, tir.Var):
        return type(param)("", param.type_annotation or param.dtype)
    return param


@dispatch.register("tir", "FunctionDef")
def _function(parser: Parser, node: ast.FunctionDef) -> None:
    given = parser.function_annotations.get(node.name, {})
    private = bool(decorator_option(parser, node, "private", False))
    with parser.var_table.with_frame(), parser.with_dispatch_token("tir"):
        parser.var_table.add("range", T.serial)
        with T.prim_func(is_private=private):
            T.func_name(node.name)
            if node.returns is not None:
                T.func_ret(return_type(parser.eval_expr(node.returns)))
            if node.args.vararg or node.args.kwarg or node.args.kwonlyargs or node.args.posonlyargs:
                raise parser.error(node, "tensor functions take plain positional parameters only")
            for arg in node.args.args:
                found = _argument(parser, arg, given)
                if parser.var_table.exist(found):
                    found = _fresh(found)
                param = parser.guard(arg, partial(T.arg, arg.arg, found))
                parser.var_table.add(arg.arg, param)
            parser.visit_body(node.body)


@dispatch.register("tir", "tvm_declare_function")
def _declare(parser: Parser, node: ast.FunctionDef) -> GlobalVar:
    ret = return_type(parser.eval_expr(node.returns)) if node.returns is not None else None
    given = parser.function_annotations.get(node.name, {})
    with parser.var_table.with_frame():
        params: list[Any] = []
        for arg in node.args.args:
            found = _argument(parser, arg, given)
            params.append(tir.Var(arg.arg, "handle") if isinstance(found, tir.Buffer) else _fresh(found))
            # Shapes of later parameters may name earlier ones.
            parser.var_table.add(arg.arg, found)
    signature = tir.PrimFunc(params, tir.Evaluate(0), ret_type=ret)
    return I.decl_function(node.name, signature)
