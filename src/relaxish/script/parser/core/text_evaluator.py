"""Evaluation of expressions in script that is *text*, which may come from anywhere.

A decorated function is its author's own code, and its expressions may do what Python may do. Text is data: it may name
what scripts are made of (``T``, ``R``, ``I``, node classes), the values its caller handed over, and a few functions of
Python's; it may read public attributes of nodes and of plain values; it may call what it can name. It cannot import,
reach the innards of functions, classes or modules, format strings, make functions other than for an argument, or ask
for numbers and sequences beyond limits.
"""

from __future__ import annotations

import ast
import functools
import importlib
import itertools
import sys
from collections.abc import Callable, Sized
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NoReturn, TypeVar

import numpy as np

from ....ir.node import Node, NodeMeta
from ....support.entry_points import load
from ....support.errors import DiagnosticError
from .evaluator import Evaluator

__all__ = ["TEXT_BUILTINS", "TextEvaluator", "check_text"]

_T = TypeVar("_T")
_LONGEST_TEXT = 1 << 26
_LONGEST = 1_000_000
_MOST_BITS = 1 << 14


def _limited(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of Python's for arguments that are not absurdly long."""

    def call(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            _check_size(value)
        if len(args) == 1 and function not in (abs, round) and not hasattr(type(args[0]), "__len__"):
            raise TypeError(f"{function.__name__} of a {type(args[0]).__name__} is not allowed in script text")
        return function(*args, **kwargs)

    call.__name__ = function.__name__
    return call


# All that text sees of Python's own names.
TEXT_BUILTINS: dict[str, Any] = {
    **{f.__name__: f for f in (bool, float, int, len, range, slice, str)},
    **{f.__name__: _limited(f) for f in (abs, dict, list, max, min, round, tuple)},
}
_TYPES = {bool, float, int, str, range, slice}
# Attributes of plain values. Nodes, and what else this package defines, show all that is public.
_PLAIN: dict[type, frozenset[str]] = {
    str: frozenset({"lower", "upper", "strip", "startswith", "endswith", "replace", "join", "split"}),
    dict: frozenset({"get", "items", "keys", "values"}),
    tuple: frozenset({"index", "count"}),
    list: frozenset({"index", "count"}),
    np.ndarray: frozenset({"shape", "dtype", "ndim", "size", "T", "astype", "reshape", "item", "tolist"}),
    np.generic: frozenset({"shape", "dtype", "ndim", "size", "astype", "item", "tolist"}),
}
# Modules whose functions make expressions and do nothing else.
_EXPRESSIONS = frozenset({"relaxish.ir.prim", "relaxish.ir.primops", "relaxish.tir.op"})
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType)
# Script functions that work on Python source or on Python functions, of which text has none.
_NOT_FOR_TEXT = frozenset({"macro", "inline", "rewriter", "pyfunc"})
_OP_NAMESPACES = frozenset({"base", "builtin", "ccl", "distributed", "grad", "image", "inspect", "memory", "nn", "vm"})
_OP_FAMILIES = (
    "base", "binary", "create", "datatype", "gather", "index", "linear_algebra", "manipulate", "mask", "qdq", "sampling",
    "search", "set", "sorting", "statistical", "ternary", "unary",
)  # fmt: skip
_NAMESPACES = frozenset(
    f"relaxish.script.{part}{kind}" for part in ("", "parser.", "ir_builder.") for kind in ("ir", "relax", "tir")
)
# What of the package's own modules text may name, besides node classes.
_PACKAGE = {
    "relaxish": frozenset({"ir", "relax", "script", "tir"}),
    "relaxish.ir": frozenset({"load_json"}),
    "relaxish.script": frozenset({"ir", "relax", "tir"}),
}


def check_text(text: str) -> None:
    """Raise DiagnosticError for a text too long to be a program."""
    if len(text) > _LONGEST_TEXT:
        raise DiagnosticError(f"a script of {len(text)} characters is longer than the {_LONGEST_TEXT} allowed")


def _check_size(value: _T) -> _T:
    """``value``. Raises ValueError if it is a number or a sequence beyond the limits."""
    match value:
        case int():
            if value.bit_length() > _MOST_BITS:
                raise ValueError(f"an integer of {value.bit_length()} bits is beyond the limit of {_MOST_BITS}")
        case str() | bytes() | list() | tuple() | dict() | set() | range() if _length(value) > _LONGEST:
            raise ValueError(f"a {type(value).__name__} of {_length(value)} items is beyond the limit of {_LONGEST}")
    return value


def _length(value: Sized) -> int:
    try:
        return len(value)
    except OverflowError:
        return sys.maxsize


class TextEvaluator(Evaluator):
    """Evaluates expressions of text; whatever is not allowed is a located error."""

    def eval_Name(self, node: ast.Name) -> Any:
        try:
            return self.names(node.id)
        except KeyError:
            pass
        if node.id in TEXT_BUILTINS:
            return TEXT_BUILTINS[node.id]
        raise self.fail(node, f"Undefined variable: {node.id}")

    def nested(self, given: dict[str, Any]) -> Evaluator:
        names = self.names
        return TextEvaluator(lambda name: given[name] if name in given else names(name), self.fail, self.note)

    # -- attributes

    def eval_Attribute(self, node: ast.Attribute) -> Any:
        owner, name = self.eval(node.value), node.attr
        if not _may_read(owner, name):
            kind = owner.__name__ if isinstance(owner, ModuleType) else type(owner).__name__
            raise self.fail(node, f"script text may not read the attribute {name!r} of a {kind}")
        value = getattr(owner, name)
        if isinstance(value, ModuleType) and not _is_namespace(owner, name, value):
            raise self.fail(node, f"script text may not use the module {value.__name__}")
        return value

    # -- calls and functions

    def eval_Call(self, node: ast.Call) -> Any:
        for argument in [*node.args, *(k.value for k in node.keywords)]:
            if isinstance(argument, ast.Lambda):
                self._check_lambda(argument)
        return super().eval_Call(node)

    def call(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call what text may call: no decorators, which take Python functions, and of Python's classes but a few."""
        if hasattr(type(function), "dispatch_token") or "dispatch_token" in getattr(function, "__dict__", {}):
            raise TypeError("a decorator can only stand before a definition")
        if isinstance(function, type) and function.__module__ in sys.stdlib_module_names and function not in _TYPES:
            raise TypeError(f"script text may not make a {function.__name__}")
        return super().call(function, args, kwargs)

    def _check_lambda(self, node: ast.Lambda) -> None:
        args = node.args
        if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs or args.defaults:
            raise self.fail(node, "a lambda in script text takes plain arguments only")
        node.as_argument = True  # type: ignore[attr-defined]

    def eval_Lambda(self, node: ast.Lambda) -> Callable[..., Any]:
        if not getattr(node, "as_argument", False):
            raise self.fail(node, "script text may have a lambda as the argument of a call only")
        return super().eval_Lambda(node)

    def _refuse(self, node: ast.AST) -> NoReturn:
        raise self.fail(node, f"{type(node).__name__} expressions are not allowed in script text")

    eval_ListComp = eval_SetComp = eval_DictComp = eval_GeneratorExp = _refuse
    eval_JoinedStr = eval_FormattedValue = _refuse

    # -- sizes

    def _items(self, nodes: list[Any]) -> list[Any]:
        out: list[Any] = []
        for item in nodes:
            if not isinstance(item, ast.Starred):
                out.append(self.eval(item))
                continue
            value = self.eval(item.value)
            if not hasattr(type(value), "__len__") or _length(value) > _LONGEST:
                raise self.fail(item, f"script text may not unpack this {type(value).__name__}")
            out.extend(itertools.islice(value, _LONGEST))
            _check_size(out)
        return out

    def binary(self, kind: type, left: Any, right: Any) -> Any:
        if isinstance(left, (str, bytes)) and kind is ast.Mod:
            raise TypeError("script text may not format strings")
        if isinstance(left, int) and isinstance(right, int):
            bits = max(left.bit_length(), 1)
            if (kind is ast.Pow and bits * max(right, 1) > _MOST_BITS) or (kind is ast.LShift and right > _MOST_BITS):
                raise ValueError(f"the result has more than the {_MOST_BITS} bits allowed")
        elif kind is ast.Mult:
            for sequence, times in ((left, right), (right, left)):
                if isinstance(sequence, (str, bytes, list, tuple)) and isinstance(times, int):
                    if len(sequence) * times > _LONGEST:
                        raise ValueError(f"the result has more than the {_LONGEST} items allowed")
        return _check_size(super().binary(kind, left, right))


def _may_read(owner: object, name: str) -> bool:
    """Whether text may read an attribute."""
    if name.startswith("_") or name in _NOT_FOR_TEXT:
        return False
    match owner:
        case ModuleType():
            return _may_read_module(owner, name)
        case type():
            return str(owner.__module__).startswith("relaxish.") and name in _public_of_class(owner)
    if isinstance(owner, _FUNCTIONS):
        return False
    for kind, allowed in _PLAIN.items():
        if isinstance(owner, kind):
            return name in allowed
    inner = getattr(owner, "_module", None)
    if type(owner).__name__ == "_OpNamespace" and isinstance(inner, ModuleType):
        return name in getattr(inner, "__all__", ())
    where = str(type(owner).__module__).partition(".")[0]
    return isinstance(owner, Node) or where == "relaxish" or where not in sys.stdlib_module_names


def _public_of_class(owner: type) -> set[str]:
    return {name for base in owner.__mro__ if base is not object for name in vars(base)}


def _may_read_module(owner: ModuleType, name: str) -> bool:
    where = owner.__name__
    if where.partition(".")[0] != "relaxish":
        return True  # handed over by the caller: public names, but no other modules
    if where in _NAMESPACES:
        return _in_namespace(owner, name)
    if name in _PACKAGE.get(where, ()):
        return True
    if where not in ("relaxish.ir", "relaxish.tir", "relaxish.relax"):
        return False
    found = getattr(owner, name, None)
    return isinstance(found, NodeMeta) or (
        isinstance(found, FunctionType) and found.__module__ in _EXPRESSIONS and not hasattr(found, "dispatch_token")
    )


def _in_namespace(owner: ModuleType, name: str) -> bool:
    """Whether ``T``, ``R`` or ``I`` offers a name to scripts."""
    kind = owner.__name__.rpartition(".")[2]
    builder = sys.modules[f"relaxish.script.ir_builder.{kind}"]
    if name in getattr(owner, "__all__", ()) or name in getattr(builder, "__all__", ()):
        return True
    if kind != "relax":
        return False
    return name in _OP_NAMESPACES or name in _operators()


@functools.lru_cache(maxsize=1)
def _operators() -> frozenset[str]:
    """Names of the operators that ``R`` itself offers."""
    families = [importlib.import_module(f"{load('operators').__name__}.{family}") for family in _OP_FAMILIES]
    return frozenset(name for family in families for name in family.__all__)


def _is_namespace(owner: object, name: str, value: ModuleType) -> bool:
    """Whether a module that text has reached is one it may go on from."""
    if not isinstance(owner, ModuleType):
        return False
    if owner.__name__ in _PACKAGE:
        return name in _PACKAGE[owner.__name__]
    return value.__name__.startswith(f"{owner.__name__}.") and not owner.__name__.startswith("relaxish")
