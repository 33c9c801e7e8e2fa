"""``T``: what tensor programs are written with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, overload

from ....ir.expr import ExprLike, PrimExpr
from ....ir.prim import Var
from ....tir import PrimFunc
from ....tir.buffer import Buffer as BufferOf
from ...ir_builder import tir as _builder
from ...ir_builder.tir import *  # noqa: F403
from ...ir_builder.tir.scalars import SCALARS, ptr
from ...ir_builder.tir.stmt import buffer as _buffer
from ..core.entry import parse
from ..core.macro import ScriptMacro
from ..core.parser import Parser
from ..core.utils import capture, in_module_class

__all__ = [*_builder.__all__, "Buffer", "Ptr", "bool", "inline", "macro", "prim_func"]


@overload  # type: ignore[no-redef]
def prim_func(func: Callable[..., Any], private: bool = False, check_well_formed: bool = True) -> PrimFunc: ...
@overload
def prim_func(
    func: None = None, private: bool = False, check_well_formed: bool = True
) -> Callable[[Callable[..., Any]], PrimFunc]: ...
def prim_func(
    func: Callable[..., Any] | None = None, private: bool = False, check_well_formed: bool = True
) -> PrimFunc | Callable[..., Any]:
    """Turn a Python function into a PrimFunc.

    >>> from relaxish.script import tir as T
    >>> @T.prim_func
    ... def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    ...     for i in range(4):
    ...         B[i] = A[i] * T.float32(2)
    >>> len(double.params)
    2
    """
    if func is not None:
        return _decorate(func, check_well_formed)

    def decorator(inner: Callable[..., Any]) -> PrimFunc | Callable[..., Any]:
        return _decorate(inner, check_well_formed)

    decorator.dispatch_token = "tir"  # type: ignore[attr-defined]
    return decorator


def _decorate(func: Callable[..., Any], check_well_formed: bool) -> PrimFunc | Callable[..., Any]:
    if not inspect.isfunction(func):
        raise TypeError(f"Expect a function, but got: {func}")
    if in_module_class(3):
        # The module decorator around parses the whole class.
        return func
    return parse(func, capture(func, 3), check_well_formed=check_well_formed)


prim_func.dispatch_token = "tir"  # type: ignore[attr-defined]


class TIRMacro(ScriptMacro):
    """A macro of tensor statements."""

    def parse_body(self, parser: Parser) -> None:
        with parser.with_dispatch_token("tir"):
            parser.visit_body(self.definition().body)


@overload
def macro(function: Callable[..., Any], /, *, hygienic: bool = True) -> TIRMacro: ...
@overload
def macro(*, hygienic: bool = True) -> Callable[[Callable[..., Any]], TIRMacro]: ...
def macro(*args: Any, hygienic: bool = True) -> TIRMacro | Callable[..., TIRMacro]:
    """A function whose body is parsed where it is called; see :class:`TIRMacro`."""

    def make(func: Callable[..., Any]) -> TIRMacro:
        return TIRMacro(func, capture(func, 2), hygienic)

    if not args:
        return make
    if len(args) == 1 and callable(args[0]):
        return TIRMacro(args[0], capture(args[0], 2), hygienic)
    raise ValueError("Invalid use of T.macro. Usage: @T.macro, @T.macro(), @T.macro(hygienic=[True|False])")


macro.dispatch_token = "tir.macro"  # type: ignore[attr-defined]
inline = macro


class _BufferProxy:
    """``T.Buffer((m, n), "float32")`` as annotation and as expression."""

    def __call__(
        self,
        shape: PrimExpr | Sequence[ExprLike] | None = None,
        dtype: str = "float32",
        data: Var | None = None,
        strides: Sequence[ExprLike] | None = None,
        elem_offset: ExprLike | None = None,
        scope: str = "global",
        align: int = 0,
        offset_factor: int = 0,
        buffer_type: str = "",
        axis_separators: Sequence[int] | None = None,
    ) -> BufferOf:
        if shape is None:
            raise TypeError("T.Buffer needs a shape")
        return _buffer(
            shape, dtype, data, strides, elem_offset, scope, align, offset_factor, buffer_type, axis_separators
        )

    __iter__ = None  # by index it would not end

    def __getitem__(self, keys: Any) -> BufferOf:
        if not isinstance(keys, tuple):
            return self(keys)
        if len(keys) >= 2 and not isinstance(keys[1], str):
            return self(keys)
        return self(*keys)


class _PtrProxy:
    """``T.Ptr("float32", "shared")``"""

    def __call__(self, dtype: str | Callable[..., Any], storage_scope: str = "global") -> Var:
        return ptr(dtype().dtype if callable(dtype) else dtype, storage_scope)

    __iter__ = None  # by index it would not end

    def __getitem__(self, keys: Any) -> Var:
        return self(*keys) if isinstance(keys, tuple) else self(keys)


Buffer = _BufferProxy()
Ptr = _PtrProxy()


globals()["bool"] = SCALARS["bool"]
