"""Reading the text form of traces, by walking its syntax tree: nothing but schedule calls is ever executed."""

from __future__ import annotations

from collections.abc import Callable
import ast
import functools
import inspect
import operator
from typing import TYPE_CHECKING, Any

from ...ir.prim import BinaryOp
from .. import expr
from .instruction import kind_table

if TYPE_CHECKING:
    from .protocol import Schedule

__all__ = ["apply_text", "evaluate_expr"]

_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}

_COMPARE: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: expr.EQ,
    ast.NotEq: expr.NE,
}
_LOGIC: dict[type[ast.boolop], Callable[..., Any]] = {ast.And: expr.And, ast.Or: expr.Or}


def _fail(node: ast.AST, why: str) -> ValueError:
    return ValueError(f"trace text, line {getattr(node, 'lineno', '?')}: {why}: {ast.unparse(node)}")


def _lambda(node: ast.Lambda) -> Callable[..., Any]:
    args = node.args
    plain_names = [a.arg for a in args.args]
    if args.vararg or args.kwarg or args.kwonlyargs or args.defaults:
        raise _fail(node, "an index map takes plain arguments only")

    def function(*values: Any) -> Any:
        return _evaluate(node.body, dict(zip(plain_names, values, strict=True)))

    # The arity of an index map is read off the signature.
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in plain_names])
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _evaluate(node: ast.expr, env: dict[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            if node.id not in env:
                raise _fail(node, "unknown name")
            return env[node.id]
        case ast.List() | ast.Tuple():
            items = [_evaluate(x, env) for x in node.elts]
            return items if isinstance(node, ast.List) else tuple(items)
        case ast.Dict():
            return {
                _evaluate(k, env): _evaluate(v, env)
                for k, v in zip(node.keys, node.values, strict=True)
                if k is not None
            }
        case ast.UnaryOp() if isinstance(node.op, ast.USub):
            return -_evaluate(node.operand, env)
        case ast.UnaryOp() if isinstance(node.op, ast.Not):
            return expr.Not(_evaluate(node.operand, env))
        case ast.BoolOp():
            return functools.reduce(_LOGIC[type(node.op)], [_evaluate(x, env) for x in node.values])
        case ast.BinOp() if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](_evaluate(node.left, env), _evaluate(node.right, env))
        case ast.Compare() if len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
            return _COMPARE[type(node.ops[0])](_evaluate(node.left, env), _evaluate(node.comparators[0], env))
        case ast.Lambda():
            return _lambda(node)
        case ast.Call():
            return _call(node, env)
        case ast.Attribute():
            from ..index_map import IndexMap

            if node.attr == "AXIS_SEPARATOR":
                return IndexMap.AXIS_SEPARATOR
    raise _fail(node, "not allowed in a trace")


_DTYPES = frozenset(
    f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64) if (kind, bits) != ("float", 8)
) | {"bool", "bfloat16"}
_FUNCTIONS = (
    "min", "max", "floordiv", "floormod", "truncdiv", "truncmod", "if_then_else", "undef", "all", "any", "vscale",
)  # fmt: skip
# Nodes print by name where their operator would fold or rearrange them.
_NODES = (
    "Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod", "Min", "Max", "EQ", "NE", "LT", "LE", "GT", "GE", "And",
    "Or", "Not", "Select",
)  # fmt: skip


def _call(node: ast.Call, env: dict[str, Any]) -> Any:
    from .. import op

    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    args = [_evaluate(x, env) for x in node.args]
    if name in _DTYPES:
        from ...ir.prim import const

        return const(args[0], name)
    if name in _FUNCTIONS:
        return getattr(op, name)(*args)
    if name in _NODES:
        return getattr(expr, name)(*args)
    if name == "Cast":
        return args[1].astype(args[0])
    raise _fail(node, "this call is not allowed in a trace")


def evaluate_expr(text: str, env: dict[str, Any]) -> BinaryOp:
    """A scalar expression over the names in ``env``."""
    return _evaluate(ast.parse(text, mode="eval").body, env)


def _methods() -> set[str]:
    """The methods of a schedule that instructions are made by."""
    return {kind.method for kind in kind_table().values()}


def _apply_call(node: ast.expr, env: dict[str, Any], sch: Schedule) -> Any:
    if not (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "sch"
        and not node.func.attr.startswith("_")
    ):
        raise _fail(node, "a trace consists of calls of schedule methods")
    method = getattr(sch, node.func.attr, None) if node.func.attr in _methods() else None
    if method is None:
        raise _fail(node, "there is no such schedule primitive")
    args = [_evaluate(x, env) for x in node.args]
    kwargs = {k.arg: _evaluate(k.value, env) for k in node.keywords if k.arg is not None}
    return method(*args, **kwargs)


def _statements(text: str) -> list[ast.stmt]:
    lines = text.strip("\n")
    tree = ast.parse(lines)
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.FunctionDef):
        return tree.body[0].body
    return tree.body


def apply_text(text: str, sch: Schedule) -> None:
    """Replay trace text (bare lines or the printed function) on ``sch``."""
    import textwrap

    env: dict[str, Any] = {}
    for stmt in _statements(textwrap.dedent(text)):
        match stmt:
            case ast.Pass():
                continue
            case ast.Expr():
                _apply_call(stmt.value, env, sch)
                continue
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            raise _fail(stmt, "not allowed in a trace")
        result = _apply_call(stmt.value, env, sch)
        target = stmt.targets[0]
        match target:
            case ast.Name():
                env[target.id] = result[0] if isinstance(result, list) and len(result) == 1 else result
            case ast.Tuple() | ast.List():
                for name, value in zip(target.elts, result, strict=True):
                    env[name.id] = value  # type: ignore[attr-defined]
