"""Parsing of module classes."""

from __future__ import annotations

import ast
from types import SimpleNamespace

from ...ir_builder import ir as I  # noqa: E812
from ...ir_builder.base import IRBuilder
from ...ir_builder.ir.frame import find_module_frame
from ..core import dispatch
from ..core.parser import Parser

__all__ = ["ModuleNames"]


class ModuleNames(SimpleNamespace):
    """Value of ``Module`` and ``cls`` inside a module: its functions by name."""


@dispatch.register("default", "ClassDef")
def _class(parser: Parser, node: ast.ClassDef) -> None:
    with parser.var_table.with_frame():
        with I.ir_module():
            frame = find_module_frame("I.ir_module")
            names = ModuleNames()
            parser.var_table.add(node.name, names)
            if node.name != "cls":
                parser.var_table.add("cls", names)
            with parser.with_dispatch_token("ir"):
                for item in node.body:
                    if not isinstance(item, ast.FunctionDef):
                        parser.visit(item)
                for name, gv in frame.global_vars.items():
                    setattr(names, name, gv)
                functions = [s for s in node.body if isinstance(s, ast.FunctionDef) and not _is_host(parser, s)]
                for item in functions:
                    declared = parser.visit_function(item, "tvm_declare_function")
                    setattr(names, item.name, declared)
                    parser.var_table.add(item.name, declared)
                for item in functions:
                    IRBuilder.current().span = parser.source.span(item)
                    parser.visit_function(item)


def _is_host(parser: Parser, node: ast.FunctionDef) -> bool:
    """Functions for Python itself (``@I.pyfunc``) stay out of the module."""
    if not node.decorator_list:
        raise parser.error(node, "Function must be decorated")
    decorator = node.decorator_list[-1]
    return isinstance(decorator, ast.Attribute) and decorator.attr == "pyfunc"


@dispatch.register("ir", "Expr")
def _expr(parser: Parser, node: ast.Expr) -> None:
    parser.eval_expr(node.value)


@dispatch.register("ir", "Assign")
def _assign(parser: Parser, node: ast.Assign) -> None:
    if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
        raise parser.error(node, "Consequential assignments like 'a = b = c' are not supported.")
    name = node.targets[0].id
    value = parser.eval_expr(node.value)
    from ....ir.expr import BaseFunc

    if isinstance(value, BaseFunc):
        gv = I.decl_function(name, value)
        I.def_function(name, value)
        parser.var_table.add(name, gv)
    else:
        parser.var_table.add(name, value)


@dispatch.register("ir", "Pass")
def _pass(parser: Parser, node: ast.Pass) -> None:
    return None
