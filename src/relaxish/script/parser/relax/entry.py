"""``R``: what graph functions are written with."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections import abc
from types import SimpleNamespace
from typing import Any, overload

from ....relax.expr import Function
from ...ir_builder import relax as _builder
from ...ir_builder.relax import *  # noqa: F403
from ...ir_builder.relax import distributed
from ..core.entry import parse
from ..core.macro import ScriptMacro
from ..core.parser import Parser
from ..core.utils import capture, in_module_class
from .struct_info import Callable, DTensor, Object, Prim, Proxy as StructInfoProxy, Shape, Tensor, Tuple

__all__ = [
    *_builder.__all__, "Callable", "DTensor", "Object", "Prim", "Shape", "StructInfoProxy", "Tensor", "Tuple", "dist",
    "function", "macro",
]  # fmt: skip


def function(  # type: ignore[no-redef]
    f: abc.Callable[..., Any] | None = None, pure: bool = True, private: bool = False, check_well_formed: bool = True
) -> Function | abc.Callable[..., Any]:
    """Turn a Python function into a graph function.

    >>> from relaxish.script import relax as R
    >>> @R.function
    ... def main(x: R.Tensor((4,), "float32")):
    ...     y = R.add(x, x)
    ...     return y
    >>> len(main.params)
    1
    """

    def decorate(func: abc.Callable[..., Any], depth: int) -> Function | abc.Callable[..., Any]:
        if not inspect.isfunction(func):
            raise TypeError(f"Expect a function, but got: {func}")
        if in_module_class(depth):
            return func
        return parse(func, capture(func, depth), check_well_formed=check_well_formed)

    if f is not None:
        return decorate(f, 3)

    def decorator(func: abc.Callable[..., Any]) -> Function | abc.Callable[..., Any]:
        return decorate(func, 3)

    decorator.dispatch_token = "relax"  # type: ignore[attr-defined]
    return decorator


function.dispatch_token = "relax"  # type: ignore[attr-defined]


class RelaxMacro(ScriptMacro):
    """A macro of graph statements; it returns the value of its ``return``."""

    def parse_body(self, parser: Parser) -> object:
        definition = self.definition()
        *statements, last = definition.body
        if not isinstance(last, ast.Return) or last.value is None:
            raise parser.error(definition, "the last statement of a macro must return its value")
        with parser.with_dispatch_token("relax"):
            for stmt in statements:
                if isinstance(stmt, ast.Return):
                    raise parser.error(stmt, "'return' should be the last statement")
                parser.visit(stmt)
            return parser.eval_expr(last.value)


@overload
def macro(function: abc.Callable[..., Any], /, *, hygienic: bool = True) -> RelaxMacro: ...
@overload
def macro(*, hygienic: bool = True) -> abc.Callable[..., RelaxMacro]: ...
def macro(*args: Any, hygienic: bool = True) -> RelaxMacro | abc.Callable[..., RelaxMacro]:
    """A function whose body is parsed where it is called."""

    def make(func: abc.Callable[..., Any]) -> RelaxMacro:
        return RelaxMacro(func, capture(func, 2), hygienic)

    if not args:
        return make
    if len(args) == 1 and inspect.isfunction(args[0]):
        return RelaxMacro(args[0], capture(args[0], 2), hygienic)
    raise ValueError("Invalid use of R.macro. Usage: @R.macro, @R.macro(), @R.macro(hygienic=[True|False])")


macro.dispatch_token = "relax.macro"  # type: ignore[attr-defined]


class _Dist(SimpleNamespace):
    """``R.dist``: annotations and operators of distributed programs."""

    DTensor = staticmethod(DTensor)

    def __getattr__(self, name: builtins.str) -> Any:
        found = getattr(distributed, name, None)
        return found if found is not None else getattr(_builder.__getattr__("distributed"), name)


dist = _Dist()
