"""Evaluation of Python expressions over the syntax tree, with operators that a dialect may take over."""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ....support.errors import DiagnosticError
from .dispatch import find_op

if TYPE_CHECKING:
    from .parser import Parser

__all__ = ["Evaluator", "ExprEvaluator", "eval_assign", "eval_expr"]

# Calls that take `A[0:4]` as a region; everywhere else it is a vector.
_REGION_CALLS = frozenset(("reads", "writes", "match_buffer", "realize"))
# Class of what a name means -> what the name stands for in an expression, for dialects whose names are variables.
NAMED_VALUES: dict[type, Callable[[Any], Any]] = {}

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


def slices_as_vectors(nodes: Iterable[Any]) -> None:
    """Scope in which operands such as ``A[0:4] + B[0:4]`` are vectors: the slices' steps are made explicit."""
    for node in nodes:
        if not isinstance(node, ast.Subscript):
            continue
        for item in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            if isinstance(item, ast.Slice) and item.step is None and item.lower is not None and item.upper is not None:
                item.step = ast.copy_location(ast.Constant(1), item)


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
    ) -> None:
        self.names = names
        self.fail = fail
        self.note = note

    def eval(self, node: ast.AST) -> Any:
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

    def eval_Constant(self, node: ast.Constant) -> object:
        return node.value

    def eval_Name(self, node: ast.Name) -> Any:
        try:
            value = self.names(node.id)
            as_value = NAMED_VALUES.get(type(value))
            return value if as_value is None else as_value(value)
        except KeyError:
            pass
        if hasattr(builtins, node.id):
            return getattr(builtins, node.id)
        raise self.fail(node, f"Undefined variable: {node.id}")

    def eval_Attribute(self, node: ast.Attribute) -> Any:
        return getattr(self.indexed(node.value), node.attr)

    def eval_Subscript(self, node: ast.Subscript) -> Any:
        return self.indexed(node.value)[self.eval(node.slice)]

    def indexed(self, node: ast.AST) -> Any:
        """Value before ``[...]``: a name means the thing itself there."""
        if isinstance(node, ast.Name):
            try:
                return self.names(node.id)
            except KeyError:
                pass
        return self.eval(node)

    def eval_Slice(self, node: ast.Slice) -> slice:
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

    def eval_Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._items(node.elts))

    def eval_List(self, node: ast.List) -> list[Any]:
        return self._items(node.elts)

    def eval_Set(self, node: ast.Set) -> set[Any]:
        return set(self._items(node.elts))

    def eval_Dict(self, node: ast.Dict) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values):
            if key is None:
                out.update(self.eval(value))
            else:
                out[self.eval(key)] = self.eval(value)
        return out

    def eval_Call(self, node: ast.Call) -> Any:
        function = self.eval(node.func)
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr not in _REGION_CALLS
            and not getattr(function, "takes_regions", False)
        ):
            slices_as_vectors(node.args)
        args = self._items(node.args)
        kwargs: dict[str, Any] = {}
        for item in node.keywords:
            if item.arg is None:
                kwargs.update(self.eval(item.value))
            else:
                kwargs[item.arg] = self.eval(item.value)
        return self.call(function, args, kwargs)

    def call(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function."""
        return function(*args, **kwargs)

    def eval_BinOp(self, node: ast.BinOp) -> Any:
        slices_as_vectors((node.left, node.right))
        return self.binary(type(node.op), self.eval(node.left), self.eval(node.right))

    def binary(self, kind: type, left: Any, right: Any) -> Any:
        """Apply a binary or comparison operator."""
        overload = find_op(kind, left, right)
        return overload(left, right) if overload is not None else _BINARY[kind](left, right)

    def eval_UnaryOp(self, node: ast.UnaryOp) -> Any:
        slices_as_vectors((node.operand,))
        value = self.eval(node.operand)
        overload = find_op(type(node.op), value)
        return overload(value) if overload is not None else _UNARY[type(node.op)](value)

    def eval_Compare(self, node: ast.Compare) -> Any:
        slices_as_vectors((node.left, *node.comparators))
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
        overload = find_op(kind, left, right)
        if overload is not None:
            return overload(left, right)
        return (left and right) if kind is ast.And else (left or right)

    def eval_BoolOp(self, node: ast.BoolOp) -> Any:
        slices_as_vectors(node.values)
        kind = type(node.op)
        result = self.eval(node.values[0])
        for item in node.values[1:]:
            if isinstance(result, (bool, int)) and find_op(kind, result) is None:
                # A Python condition decides what is evaluated at all.
                if bool(result) is (kind is ast.Or):
                    return result
            result = self.logical(kind, result, self.eval(item))
        return result

    def eval_IfExp(self, node: ast.IfExp) -> Any:
        slices_as_vectors((node.test, node.body, node.orelse))
        test = self.eval(node.test)
        overload = find_op(ast.IfExp, test)
        if overload is not None:
            return overload(test, self.eval(node.body), self.eval(node.orelse))
        return self.eval(node.body) if test else self.eval(node.orelse)

    def eval_Lambda(self, node: ast.Lambda) -> Callable[..., Any]:
        signature = self._signature(node.args)

        def body(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return self.nested(bound.arguments).eval(node.body)

        # For callers that inspect the parameters.
        body.__signature__ = signature  # type: ignore[attr-defined]
        return body

    def _signature(self, args: ast.arguments) -> inspect.Signature:
        """The parameters of a lambda, defaults evaluated."""
        kinds = inspect.Parameter
        plain: list[tuple[str, Any]] = [(a.arg, kinds.POSITIONAL_ONLY) for a in args.posonlyargs]
        plain += [(a.arg, kinds.POSITIONAL_OR_KEYWORD) for a in args.args]
        defaults = [kinds.empty] * (len(plain) - len(args.defaults)) + [self.eval(d) for d in args.defaults]
        out = [kinds(name, kind, default=value) for (name, kind), value in zip(plain, defaults)]
        if args.vararg is not None:
            out.append(kinds(args.vararg.arg, kinds.VAR_POSITIONAL))
        for arg, default in zip(args.kwonlyargs, args.kw_defaults):
            value = kinds.empty if default is None else self.eval(default)
            out.append(kinds(arg.arg, kinds.KEYWORD_ONLY, default=value))
        if args.kwarg is not None:
            out.append(kinds(args.kwarg.arg, kinds.VAR_KEYWORD))
        return inspect.Signature(out)

    def nested(self, given: dict[str, Any]) -> Evaluator:
        """An evaluator that knows more names."""
        names = self.names

        def lookup(name: str) -> Any:
            return given[name] if name in given else names(name)

        return Evaluator(lookup, self.fail, self.note)

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, emit: Callable[[Evaluator], None]
    ) -> None:
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

    def eval_ListComp(self, node: ast.ListComp) -> list[Any]:
        out: list[Any] = []
        self._comprehension(node, lambda scope: out.append(scope.eval(node.elt)))
        return out

    def eval_GeneratorExp(self, node: ast.GeneratorExp) -> Iterator[Any]:
        out: list[Any] = []
        self._comprehension(node, lambda scope: out.append(scope.eval(node.elt)))
        return iter(out)

    def eval_SetComp(self, node: ast.SetComp) -> set[Any]:
        out: set[Any] = set()
        self._comprehension(node, lambda scope: out.add(scope.eval(node.elt)))
        return out

    def eval_DictComp(self, node: ast.DictComp) -> dict[Any, Any]:
        out: dict[Any, Any] = {}

        def emit(scope: Evaluator) -> None:
            out[scope.eval(node.key)] = scope.eval(node.value)

        self._comprehension(node, emit)
        return out

    def eval_JoinedStr(self, node: ast.JoinedStr) -> str:
        return "".join(str(self.eval(v)) for v in node.values)

    def eval_FormattedValue(self, node: ast.FormattedValue) -> str:
        value = self.eval(node.value)
        if node.conversion == ord("r"):
            value = repr(value)
        spec = self.eval(node.format_spec) if node.format_spec is not None else ""
        return format(value, spec)

    def eval_Starred(self, node: ast.Starred) -> NoReturn:
        raise self.fail(node, "starred expression is not allowed here")


def _destructure(target: ast.expr, value: Any, given: dict[str, Any]) -> None:
    match target:
        case ast.Name():
            given[target.id] = value
        case ast.Starred():
            _destructure(target.value, value, given)
        case ast.Tuple() | ast.List():
            for item, one in zip(target.elts, unpack(value, target.elts)):
                _destructure(item, one, given)
        case _:
            raise TypeError(f"cannot assign to {type(target).__name__}")


def unpack(value: Iterable[Any], targets: Sequence[ast.expr]) -> list[Any]:
    """A value in as many parts as there are targets; a starred one takes the middle. Raises ValueError."""
    star = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
    # Some things can be asked for items without end.
    values = list(itertools.islice(value, len(targets) + 1 if star is None else 1_000_000))
    if star is None:
        if len(values) > len(targets):
            raise ValueError(f"too many values to unpack (expected {len(targets)})")
        if len(values) < len(targets):
            raise ValueError(f"not enough values to unpack (expected {len(targets)}, got {len(values)})")
        return values
    if len(values) < len(targets) - 1:
        raise ValueError(f"not enough values to unpack (expected at least {len(targets) - 1}, got {len(values)})")
    after = len(targets) - star - 1
    return [*values[:star], values[star : len(values) - after], *values[len(values) - after :]]


class ExprEvaluator:
    """Evaluation of one expression under a table of names."""

    @staticmethod
    def eval(parser: Parser | None, value_table: Mapping[str, Any], node: ast.AST) -> Any:
        """The value of an expression; without a parser, errors are not located.

        >>> ExprEvaluator.eval(None, {"x": 2}, ast.parse("x + 1", mode="eval"))
        3
        """

        def fail(at: ast.AST, problem: str | BaseException) -> DiagnosticError:
            return parser.error(at, problem) if parser is not None else DiagnosticError(str(problem))

        def note(at: ast.AST, value: object) -> None:
            if parser is not None:
                parser.note(at, value)

        body = node.body if isinstance(node, ast.Expression) else node
        return Evaluator(value_table.__getitem__, fail, note).eval(body)


def eval_expr(parser: Parser | None, node: ast.AST, dict_globals: Mapping[str, Any] | None) -> Any:
    """The value of an expression under ``dict_globals``."""
    return ExprEvaluator.eval(parser, dict_globals or {}, node)


def eval_assign(parser: Parser, target: ast.expr, source: object) -> dict[str, Any]:
    """The names that assigning ``source`` to a target defines."""
    given: dict[str, Any] = {}
    try:
        _destructure(target, source, given)
    except (TypeError, ValueError) as problem:
        raise parser.error(target, f"Failed to evaluate assignment: {problem}") from problem
    return given
