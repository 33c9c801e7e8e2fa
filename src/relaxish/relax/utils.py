"""Small helpers of the graph level: converting Python values, fresh copies, splitting printed text."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, TYPE_CHECKING

from ..ir.expr import BaseFunc, PrimExpr
from ..ir.prim import StringImm as PrimStringImm
from ..support.entry_points import lazy_package, names
from .expr import Expr, PrimValue, StringImm, Tuple, TupleGetItem, Var, prim_of

if TYPE_CHECKING:
    from .expr import ArgLike

__all__ = [
    "args_converter",
    "convert_to_expr",
    "field_at",
    "followed",
    *names(__name__),
    "metadata_partitioner",
    "unboxed",
]


def convert_to_expr(value: ArgLike) -> Expr:
    """Python values as graph expressions: numbers are PrimValues, text a StringImm, sequences Tuples.

    Raises TypeError for anything else, and for a ``tir.StringImm``, which may be either a string or a scalar.
    """
    match value:
        case Expr() | BaseFunc():
            return value
        case PrimStringImm():
            raise TypeError(
                "Cannot convert `tir.StringImm` to `relax.Expr` because of ambiguity, which can be either "
                "`relax.StringImm` or `relax.PrimValue`"
            )
        case PrimExpr() | int() | float():
            return PrimValue(prim_of(value))
        case str():
            return StringImm(value)
        case list() | tuple():
            return Tuple([convert_to_expr(v) for v in value])
    if hasattr(value, "__relax_expr__"):
        return value.__relax_expr__()
    inner = getattr(value, "_expr", None)
    if isinstance(inner, Expr):
        return inner
    raise TypeError(f"Cannot convert {value} with type {type(value)} to `relax.Expr`")


def followed(expr: Expr, lookup: Callable[[Var], Expr | None]) -> Expr:
    """End of a chain of bound variables: an expression, or a variable for which ``lookup`` has none."""
    while isinstance(expr, Var):
        bound = lookup(expr)
        if bound is None:
            break
        expr = bound
    return expr


def field_at(value: Expr, index: int) -> Expr:
    """A field of a tuple: as it was written where the tuple is, else taken out of it."""
    return value.fields[index] if isinstance(value, Tuple) else TupleGetItem(value, index)


def unboxed(value: Any) -> Any:
    """The scalar expression that a ``PrimValue`` holds; anything else is itself."""
    return value.value if isinstance(value, PrimValue) else value


class _ArgsConverter:
    """Decorators that convert named arguments of a function to expressions; None stays None.

    A call raises TypeError for an argument that cannot be converted; the decorator itself ValueError for a name that
    is no parameter or that is given twice.
    """

    @staticmethod
    def convert(args_to_expr: Sequence[str], args_to_list_expr: Sequence[str]) -> Callable[[Callable[..., Any]], Any]:
        """Convert the arguments named in the first list to Expr, in the second to lists of Expr."""
        if set(args_to_expr) & set(args_to_list_expr):
            raise ValueError("`args_to_expr` and `args_to_list_expr` should be disjoint.")

        def converted(name: str, value: Any) -> object:
            if value is None or (name not in args_to_expr and name not in args_to_list_expr):
                return value
            single = name in args_to_expr
            try:
                return convert_to_expr(value) if single else [convert_to_expr(item) for item in value]
            except TypeError as problem:
                kind = "Expr" if single else "List[Expr]"
                raise TypeError(
                    f"Argument `{name}` is expected to be converted to `{kind}`, but failed with input value: {value}"
                ) from problem

        def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
            signature = inspect.signature(func)
            for name in (*args_to_expr, *args_to_list_expr):
                if name not in signature.parameters:
                    raise ValueError(f"Argument `{name}` is not found in function signature.")

            @functools.wraps(func)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                for name, parameter in signature.parameters.items():
                    value = bound.arguments[name]
                    if parameter.kind is parameter.VAR_POSITIONAL:
                        bound.arguments[name] = tuple(converted(name, item) for item in value)
                    elif parameter.kind is parameter.VAR_KEYWORD:
                        bound.arguments[name] = {key: converted(name, item) for key, item in value.items()}
                    else:
                        bound.arguments[name] = converted(name, value)
                return func(*bound.args, **bound.kwargs)

            return wrapper

        return decorate

    @staticmethod
    def to_expr(*arg_names: str) -> Callable[..., Any]:
        """Convert the named arguments to expressions."""
        return _ArgsConverter.convert(arg_names, ())

    @staticmethod
    def to_list_expr(*arg_names: str) -> Callable[..., Any]:
        """Convert the named arguments to lists of expressions."""
        return _ArgsConverter.convert((), arg_names)

    @staticmethod
    def auto(func: Callable[..., Any]) -> Callable[..., Any]:
        """Convert by annotation: ``Expr`` or ``List[Expr]``, optional or not."""
        found: tuple[list[str], list[str]] = ([], [])
        hints = typing.get_type_hints(func)
        for name in inspect.signature(func).parameters:
            annotation = _without_none(hints.get(name))
            if annotation is Expr:
                found[0].append(name)
            elif typing.get_origin(annotation) is list and typing.get_args(annotation) == (Expr,):
                found[1].append(name)
        made: Callable[..., Any] = _ArgsConverter.convert(*found)(func)
        return made


args_converter = _ArgsConverter()


def _without_none(annotation: Any) -> object:
    """``X`` of ``Optional[X]`` or ``X | None``; anything else as it is."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else annotation
    return annotation


def metadata_partitioner(rx_txt: str) -> list[str]:
    """Split text that begins with a metadata section into the program and that section.

    The section is what the first braces enclose.  Raises ValueError if there is none.
    """
    depth = 0
    start = -1
    for place, char in enumerate(rx_txt):
        if char == "{":
            start = place if start < 0 else start
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0 and start >= 0:
                return [rx_txt[place + 1 : -1], rx_txt[start : place + 1]]
    raise ValueError("The metadata section was not found.")


__getattr__, __dir__ = lazy_package(globals())  # copies and TE calls have files of their own
