"""``R``: what graph functions are written with."""

from __future__ import annotations

import builtins
import inspect
from types import SimpleNamespace
from typing import Any

from .ir_builder import relax as _builder
from .ir_builder.relax import *  # noqa: F403
from .parser import relax as _dialect  # noqa: F401
from .parser.core import Parser
from .parser.entry import capture, in_class_body, parse
from .parser.macro import ScriptMacro
from .parser.relax_sinfo import Callable, DTensor, Object, Prim, Shape, Tensor, Tuple

__all__ = [  # noqa: PLE0604
    *_builder.__all__, "Callable", "DTensor", "Object", "Prim", "Shape", "Tensor", "Tuple", "dist", "function",
    "macro",
]  # fmt: skip


def function(  # type: ignore[no-redef]
    f: Any = None, pure: Any = True, private: Any = False, check_well_formed: Any = True
) -> Any:
    """Turn a Python function into a graph function.

    >>> from relaxish.script import relax as R
    >>> @R.function
    ... def main(x: R.Tensor((4,), "float32")):
    ...     y = R.add(x, x)
    ...     return y
    >>> len(main.params)
    1
    """

    def decorate(func: Any, depth: int) -> Any:
        if not inspect.isfunction(func):
            raise TypeError(f"Expect a function, but got: {func}")
        if in_class_body(depth):
            return func
        return parse(func, capture(func, depth), check_well_formed=check_well_formed)

    if f is not None:
        return decorate(f, 3)

    def decorator(func: Any) -> Any:
        return decorate(func, 3)

    decorator.dispatch_token = "relax"  # type: ignore[attr-defined]
    return decorator


function.dispatch_token = "relax"  # type: ignore[attr-defined]


class RelaxMacro(ScriptMacro):
    """A macro of graph statements; it returns the value of its ``return``."""

    def parse_body(self, parser: Parser) -> Any:
        import ast

        with parser.with_token("relax"):
            for stmt in self.definition().body:
                if isinstance(stmt, ast.Return):
                    return parser.eval(stmt.value) if stmt.value is not None else None
                parser.visit(stmt)
        return None


def macro(*args: Any, hygienic: Any = True) -> Any:
    """A function whose body is parsed where it is called."""

    def make(func: Any) -> RelaxMacro:
        return RelaxMacro(func, capture(func, 3), hygienic)

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
        return getattr(_builder.__getattr__("distributed"), name)


dist = _Dist()


def __getattr__(name: builtins.str) -> Any:
    return getattr(_builder, name)
