"""Evaluation of Python expressions over the syntax tree, with operators that a dialect may take over."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable
from typing import Any

from ...support.errors import DiagnosticError

__all__ = ["Evaluator", "OVERLOADS", "register_op"]

# (syntax node class, operand class) -> function; consulted for either operand before Python's own operator.
OVERLOADS: dict[tuple[type, type], Callable[..., Any]] = {}

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.MatMult: operator.matmul,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_UNARY: dict[type, Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}


def register_op(node_class: type, operand_class: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a dialect define an operator for operands of a class."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        OVERLOADS[(node_class, operand_class)] = function
        return function

    return register


def find_overload(node_class: type, *operands: Any) -> Callable[..., Any] | None:
    """The dialect's operator for these operands, if any."""
    for operand in operands:
        for base in type(operand).__mro__:
            found = OVERLOADS.get((node_class, base))
            if found is not None:
                return found
    return None


class Evaluator:
    """Evaluates one expression under given names.

    ``note`` receives every evaluated syntax node with its value (the parser attaches source positions so);
    ``fail`` turns an exception at a node into a located error.
    """

    def __init__(
        self,
        names: Callable[[str], Any],
        fail: Callable[[Any, Any], DiagnosticError],
        note: Callable[[Any, Any], None],
        call: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        self.names = names
        self.fail = fail
        self.note = note

    def eval(self, node: Any) -> Any:
        """The value of an expression. Raises DiagnosticError."""
        method = getattr(self, f"eval_{type(node).__name__}", None)
        if method is None:
            raise self.fail(node, f"{type(node).__name__} expressions are not supported")
        try:
            value = method(node)
        except DiagnosticError:
            raise
        except Exception as error:
            raise self.fail(node, error) from error
        self.note(node, value)
        return value

    def eval_Constant(self, node: ast.Constant) -> Any:  # noqa: N802
        return node.value

    def eval_Name(self, node: ast.Name) -> Any:  # noqa: N802
        try:
            return self.names(node.id)
        except KeyError:
            pass
        if hasattr(builtins, node.id):
            return getattr(builtins, node.id)
        raise self.fail(node, f"Undefined variable: {node.id}")

    def eval_Attribute(self, node: ast.Attribute) -> Any:  # noqa: N802
        return getattr(self.eval(node.value), node.attr)

    def eval_Subscript(self, node: ast.Subscript) -> Any:  # noqa: N802
        return self.eval(node.value)[self.eval(node.slice)]

    def eval_Slice(self, node: ast.Slice) -> Any:  # noqa: N802
        parts = [None if p is None else self.eval(p) for p in (node.lower, node.upper, node.step)]
        return slice(*parts)

    def _items(self, nodes: list[Any]) -> list[Any]:
        out: list[Any] = []
        for item in nodes:
            if isinstance(item, ast.Starred):
                out.extend(self.eval(item.value))
            else:
                out.append(self.eval(item))
        return out

    def eval_Tuple(self, node: ast.Tuple) -> Any:  # noqa: N802
        return tuple(self._items(node.elts))

    def eval_List(self, node: ast.List) -> Any:  # noqa: N802
        return self._items(node.elts)

    def eval_Set(self, node: ast.Set) -> Any:  # noqa: N802
        return set(self._items(node.elts))

    def eval_Dict(self, node: ast.Dict) -> Any:  # noqa: N802
        out: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values):
            if key is None:
                out.update(self.eval(value))
            else:
                out[self.eval(key)] = self.eval(value)
        return out

    def eval_Call(self, node: ast.Call) -> Any:  # noqa: N802
        function = self.eval(node.func)
        args = self._items(node.args)
        kwargs: dict[str, Any] = {}
        for item in node.keywords:
            if item.arg is None:
                kwargs.update(self.eval(item.value))
            else:
                kwargs[item.arg] = self.eval(item.value)
        return function(*args, **kwargs)

    def eval_BinOp(self, node: ast.BinOp) -> Any:  # noqa: N802
        return self.binary(type(node.op), self.eval(node.left), self.eval(node.right))

    def binary(self, kind: type, left: Any, right: Any) -> Any:
        """Apply a binary or comparison operator."""
        overload = find_overload(kind, left, right)
        return overload(left, right) if overload is not None else _BINARY[kind](left, right)

    def eval_UnaryOp(self, node: ast.UnaryOp) -> Any:  # noqa: N802
        value = self.eval(node.operand)
        overload = find_overload(type(node.op), value)
        return overload(value) if overload is not None else _UNARY[type(node.op)](value)

    def eval_Compare(self, node: ast.Compare) -> Any:  # noqa: N802
        left = self.eval(node.left)
        result: Any = None
        for op, item in zip(node.ops, node.comparators):
            right = self.eval(item)
            one = self.binary(type(op), left, right)
            result = one if result is None else self.logical(ast.And, result, one)
            left = right
        return result

    def logical(self, kind: type, left: Any, right: Any) -> Any:
        """``and``/``or`` of two values."""
        overload = find_overload(kind, left, right)
        if overload is not None:
            return overload(left, right)
        return (left and right) if kind is ast.And else (left or right)

    def eval_BoolOp(self, node: ast.BoolOp) -> Any:  # noqa: N802
        kind = type(node.op)
        result = self.eval(node.values[0])
        for item in node.values[1:]:
            if isinstance(result, (bool, int)) and find_overload(kind, result) is None:
                # A Python condition decides what is evaluated at all.
                if bool(result) is (kind is ast.Or):
                    return result
            result = self.logical(kind, result, self.eval(item))
        return result

    def eval_IfExp(self, node: ast.IfExp) -> Any:  # noqa: N802
        test = self.eval(node.test)
        overload = find_overload(ast.IfExp, test)
        if overload is not None:
            return overload(test, self.eval(node.body), self.eval(node.orelse))
        return self.eval(node.body) if test else self.eval(node.orelse)

    def eval_Lambda(self, node: ast.Lambda) -> Any:  # noqa: N802
        outer = self
        params = [a.arg for a in node.args.args]

        def body(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip(params, args), **kwargs)
            if node.args.vararg is not None:
                given[node.args.vararg.arg] = args[len(params) :]
            return outer.nested(given).eval(node.body)

        return _with_signature(body, node.args)

    def nested(self, given: dict[str, Any]) -> Evaluator:
        """An evaluator that knows more names."""
        names = self.names

        def lookup(name: str) -> Any:
            return given[name] if name in given else names(name)

        return Evaluator(lookup, self.fail, self.note)

    def _comprehension(self, node: Any, emit: Callable[[Evaluator], None]) -> None:
        def run(level: int, scope: Evaluator) -> None:
            if level == len(node.generators):
                emit(scope)
                return
            generator = node.generators[level]
            for item in scope.eval(generator.iter):
                given: dict[str, Any] = {}
                _destructure(generator.target, item, given)
                inner = scope.nested(given)
                if all(inner.eval(cond) for cond in generator.ifs):
                    run(level + 1, inner)

        run(0, self)

    def eval_ListComp(self, node: ast.ListComp) -> Any:  # noqa: N802
        out: list[Any] = []
        self._comprehension(node, lambda scope: out.append(scope.eval(node.elt)))
        return out

    def eval_GeneratorExp(self, node: ast.GeneratorExp) -> Any:  # noqa: N802
        out: list[Any] = []
        self._comprehension(node, lambda scope: out.append(scope.eval(node.elt)))
        return iter(out)

    def eval_SetComp(self, node: ast.SetComp) -> Any:  # noqa: N802
        out: set[Any] = set()
        self._comprehension(node, lambda scope: out.add(scope.eval(node.elt)))
        return out

    def eval_DictComp(self, node: ast.DictComp) -> Any:  # noqa: N802
        out: dict[Any, Any] = {}

        def emit(scope: Evaluator) -> None:
            out[scope.eval(node.key)] = scope.eval(node.value)

        self._comprehension(node, emit)
        return out

    def eval_JoinedStr(self, node: ast.JoinedStr) -> Any:  # noqa: N802
        return "".join(str(self.eval(v)) for v in node.values)

    def eval_FormattedValue(self, node: ast.FormattedValue) -> Any:  # noqa: N802
        value = self.eval(node.value)
        if node.conversion == ord("r"):
            value = repr(value)
        spec = self.eval(node.format_spec) if node.format_spec is not None else ""
        return format(value, spec)

    def eval_Starred(self, node: ast.Starred) -> Any:  # noqa: N802
        raise self.fail(node, "starred expression is not allowed here")


def _with_signature(function: Any, args: ast.arguments) -> Any:
    """Give an evaluated lambda its own parameters, for callers that inspect them."""
    import inspect

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    params = [inspect.Parameter(a.arg, kind) for a in args.args]
    if args.vararg is not None:
        params.append(inspect.Parameter(args.vararg.arg, inspect.Parameter.VAR_POSITIONAL))
    function.__signature__ = inspect.Signature(params)
    return function


def _destructure(target: Any, value: Any, given: dict[str, Any]) -> None:
    if isinstance(target, ast.Name):
        given[target.id] = value
    elif isinstance(target, (ast.Tuple, ast.List)):
        for item, one in zip(target.elts, value):
            _destructure(item, one, given)
