"""Small helpers of the graph level: converting Python values, fresh copies, splitting printed text."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..ir.expr import BaseFunc, PrimExpr
from .expr import Expr, Function, PrimValue, ShapeExpr, StringImm, Tuple

__all__ = [
    "args_converter",
    "convert_to_expr",
    "copy_with_new_vars",
    "gen_call_tir_inputs",
    "metadata_partitioner",
]


def convert_to_expr(value: Any) -> Expr:
    """Python values as graph expressions: numbers to PrimValue, text to StringImm, sequences of expressions to Tuple,
    sequences of integers to ShapeExpr.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return PrimValue(value)
    if isinstance(value, (Expr, BaseFunc)):
        return value
    if isinstance(value, (PrimExpr, float, bool)):
        return PrimValue(value)
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, (list, tuple)):
        items = list(value)
        if all(isinstance(v, (int, PrimExpr)) and not isinstance(v, bool) for v in items) and items:
            return ShapeExpr(items)
        if any(isinstance(v, (int, PrimExpr)) for v in items) and not all(_is_convertible(v) for v in items):
            raise TypeError("a sequence must hold only integers (a shape) or only expressions (a tuple)")
        return Tuple([convert_to_expr(v) for v in items])
    if hasattr(value, "__relax_expr__"):
        return value.__relax_expr__()  # type: ignore[no-any-return]
    inner = getattr(value, "_expr", None)
    if isinstance(inner, Expr):
        return inner
    raise TypeError(f"Cannot convert {value!r} of type {type(value).__name__} to a relax expression")


def _is_convertible(value: Any) -> bool:
    return isinstance(value, (Expr, PrimExpr, int, float, str, list, tuple))


class _ArgsConverter:
    """Decorators that convert named arguments of a function to expressions."""

    @staticmethod
    def convert(args_to_expr: list[str], args_to_list_expr: list[str]) -> Callable[[Callable[..., Any]], Any]:
        """Convert the arguments named in the first list to Expr, in the second to lists of Expr."""

        def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
            signature = inspect.signature(func)

            @functools.wraps(func)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                bound = signature.bind(*args, **kwargs)
                for name, value in bound.arguments.items():
                    if name in args_to_expr:
                        bound.arguments[name] = convert_to_expr(value)
                    elif name in args_to_list_expr:
                        bound.arguments[name] = [convert_to_expr(v) for v in value]
                return func(*bound.args, **bound.kwargs)

            return wrapper

        return decorate

    @staticmethod
    def to_expr(*arg_names: str) -> Callable[..., Any]:
        """Convert the named arguments to expressions."""
        return _ArgsConverter.convert(list(arg_names), [])

    @staticmethod
    def to_list_expr(*arg_names: str) -> Callable[..., Any]:
        """Convert the named arguments to lists of expressions."""
        return _ArgsConverter.convert([], list(arg_names))

    @staticmethod
    def auto(func: Callable[..., Any]) -> Callable[..., Any]:
        """Convert by annotation: ``Expr`` or ``List[Expr]``."""
        to_expr: list[str] = []
        to_list: list[str] = []
        for name, parameter in inspect.signature(func).parameters.items():
            text = str(parameter.annotation).replace("typing.", "").split(".")[-1].strip("'>\"")
            whole = str(parameter.annotation)
            if text in ("Expr", "Optional[Expr]") and "ist[" not in whole:
                to_expr.append(name)
            elif "ist[" in whole and "Expr]" in whole:
                to_list.append(name)
        made: Callable[..., Any] = _ArgsConverter.convert(to_expr, to_list)(func)
        return made


args_converter = _ArgsConverter


def copy_with_new_vars(func: Function) -> Function:
    """A copy of the function in which every bound variable, symbolic ones included, is a fresh one."""
    from .copying import copy_with_new_vars as copy

    return copy(func)


def gen_call_tir_inputs(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a TE function on graph arguments: ``(PrimFunc, call_tir args, out_sinfo, tir_vars)``."""
    from .te_bridge import gen_call_tir_inputs as generate

    return generate(func, *args, **kwargs)


def metadata_partitioner(rx_txt: str) -> list[str]:
    """Split printed text into the program and, if there is one, its metadata section."""
    marker = "b'{\\n"
    text = rx_txt.replace("\r\n", "\n")
    for head in ("# Metadata", "metadata = ", marker):
        index = text.find(head)
        if index >= 0:
            return [text[:index], text[index:]]
    return [text]


