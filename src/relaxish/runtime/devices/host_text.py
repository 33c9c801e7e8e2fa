"""The language of host programs: a subset of Python small enough to be checked before it is compiled.

One function of plain parameters. Statements assign to names, branch, loop over ``range``, return, and call methods of
``rt`` (the runtime). Expressions are arithmetic and comparisons of names, constants and tuples; ``t.ptr``, ``t.device``
and ``t.shape[0]`` of arrays; ``rt.device``; calls of ``rt``'s methods, of ``math``'s functions, of a few named ones, and
of a ``lambda`` on the spot (which is how ``let`` is written). Nothing else can be said.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping
from typing import Any

from ...support.errors import MalformedDataError

__all__ = ["compile_host_text"]

_RUNTIME = frozenset({"launch", "tensor_map", "allocate", "array", "packed", "call", "fail", "misplaced"})
_MATH = frozenset(
    "exp log log2 log10 sqrt sin cos tan tanh atan ceil floor trunc fabs pow fmod".split()
)  # fmt: skip
_FUNCTIONS = ("int", "float", "bool", "min", "max", "range")
_FIELDS = frozenset({"ptr", "device", "shape"})
_OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Div, ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr,
    ast.BitXor, ast.USub, ast.UAdd, ast.Not, ast.Invert, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is,
    ast.IsNot, ast.In, ast.NotIn, ast.And, ast.Or,
)  # fmt: skip
_LONGEST = 1 << 22


class _Checker:
    """Walks the tree; whatever has no rule is refused."""

    def __init__(self, name: str, given: Mapping[str, Any]) -> None:
        self.name = name
        self.functions = {*_FUNCTIONS, *given} - {"math"}

    def refuse(self, node: ast.AST, why: str = "is not allowed") -> MalformedDataError:
        line = getattr(node, "lineno", "?")
        return MalformedDataError(f"host program {self.name}, line {line}: {type(node).__name__} {why}")

    def identifier(self, node: ast.AST, text: str) -> None:
        if text.startswith("__") or text in self.functions or text in ("rt", "math"):
            raise self.refuse(node, f"may not name {text!r}")

    def function(self, tree: ast.Module) -> ast.FunctionDef:
        """The one function of the text."""
        if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
            raise MalformedDataError(f"host program {self.name}: it is not one function")
        found = tree.body[0]
        args = found.args
        plain = not (args.posonlyargs or args.vararg or args.kwonlyargs or args.kwarg or args.defaults)
        if not plain or found.decorator_list or found.returns or any(a.annotation for a in args.args):
            raise self.refuse(found, "has more than plain parameters")
        if [a.arg for a in args.args[:1]] != ["rt"]:
            raise self.refuse(found, "does not take the runtime first")
        for arg in args.args[1:]:
            self.identifier(found, arg.arg)
        self.body(found.body)
        return found

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Pass():
                return
            case ast.Expr():
                self.expr(node.value)
            case ast.Return():
                if node.value is not None:
                    self.expr(node.value)
            case ast.Assign() if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.identifier(node, node.targets[0].id)
                self.expr(node.value)
            case ast.If() | ast.While():
                self.expr(node.test)
                self.body(node.body)
                self.body(node.orelse)
            case ast.For() if isinstance(node.target, ast.Name) and not node.orelse:
                self.identifier(node, node.target.id)
                call = node.iter
                if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"):
                    raise self.refuse(node, "does not loop over a range")
                self.expr(call)
                self.body(node.body)
            case _:
                raise self.refuse(node)

    def expr(self, node: ast.expr) -> None:
        match node:
            case ast.Constant():
                if not isinstance(node.value, bool | int | float | str | None):
                    raise self.refuse(node)
            case ast.Name():
                if node.id.startswith("__") or node.id in ("rt", "math"):
                    raise self.refuse(node, f"may not use {node.id!r} by itself")
            case ast.BinOp() | ast.UnaryOp() | ast.BoolOp() | ast.Compare() | ast.IfExp() | ast.Tuple():
                self.operation(node)
            case ast.Attribute():
                if not isinstance(node.value, ast.Name) or node.attr not in _FIELDS or node.value.id == "math":
                    raise self.refuse(node, f"may not read {node.attr!r}")
                if node.value.id == "rt" and node.attr != "device":
                    raise self.refuse(node, f"may not read {node.attr!r}")
            case ast.Subscript():
                if not isinstance(node.value, ast.Attribute) or node.value.attr != "shape":
                    raise self.refuse(node)
                self.expr(node.value)
                self.expr(node.slice)
            case ast.Call():
                self.call(node)
            case _:
                raise self.refuse(node)

    def operation(self, node: ast.expr) -> None:
        operators = getattr(node, "ops", None) or [getattr(node, "op", None)]
        for operator in operators:
            if operator is not None and not isinstance(operator, _OPERATORS):
                raise self.refuse(node, f"may not be {type(operator).__name__}")
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.expr(child)

    def call(self, node: ast.Call) -> None:
        if node.keywords:
            raise self.refuse(node, "may not have keywords")
        for argument in node.args:
            self.expr(argument)
        function = node.func
        match function:
            case ast.Name() if function.id in self.functions:
                return
            case ast.Lambda():
                args = function.args
                if args.posonlyargs or args.vararg or args.kwonlyargs or args.kwarg or args.defaults:
                    raise self.refuse(node)
                for arg in args.args:
                    self.identifier(node, arg.arg)
                self.expr(function.body)
                return
            case ast.Attribute() if isinstance(function.value, ast.Name):
                if function.attr in {"rt": _RUNTIME, "math": _MATH}.get(function.value.id, frozenset()):
                    return
        raise self.refuse(node, "calls what host programs do not call")


def compile_host_text(name: str, text: str, names: Mapping[str, Any]) -> Callable[..., Any]:
    """The function of a text, which sees ``names`` and a few of Python's own functions.

    Raises MalformedDataError for a text that is not of the language of host programs.
    """
    if len(text) > _LONGEST:
        raise MalformedDataError(f"host program {name}: it is too long")
    try:
        tree = ast.parse(text)
        function = _Checker(name, names).function(tree)
        code = compile(tree, "<host program>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
        if isinstance(err, MalformedDataError):
            raise
        raise MalformedDataError(f"host program {name}: it is not a program ({err or type(err).__name__})") from None
    scope: dict[str, Any] = {"__builtins__": {n: getattr(builtins, n) for n in _FUNCTIONS}, **names}
    exec(code, scope)  # defines the function that was checked
    found: Callable[..., Any] = scope[function.name]
    return found
