"""Scalar constructors of ``T``: ``T.int32``, ``T.float16x8``, ``T.handle`` and other ways to make variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import tir
from ....ir.expr import ExprLike, PrimExpr
from ....ir.prim import Var
from ....ir.primops import cast as _cast
from ....ir.types import PointerType, PrimType, Type

__all__ = ["SCALARS", "handle", "ptr", "var", "void"]


def _constructor(name: str, dtype: str) -> Callable[..., Any]:
    def build(expr: ExprLike | None = None, *, is_size_var: bool = False) -> PrimExpr:
        match expr:
            case None:
                return (tir.SizeVar if is_size_var else tir.Var)("", dtype)
            case str():
                if expr not in ("inf", "-inf", "nan", "-nan"):
                    raise ValueError(f"T.{name} takes a number, an expression, 'inf', '-inf' or 'nan', not {expr!r}")
                return tir.FloatImm(dtype, float(expr.removeprefix("-nan") or "nan"))
            case float() | int() if dtype.startswith(("float", "bfloat")) and "x" not in dtype:
                return tir.FloatImm(dtype, float(expr))
        return _cast(dtype, expr)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"A {dtype} variable, or ``expr`` as {dtype}."
    build.dtype = dtype  # type: ignore[attr-defined]
    return build


def _names() -> dict[str, str]:
    found: dict[str, str] = {}
    for kind, widths in (("int", (8, 16, 32, 64)), ("uint", (8, 16, 32, 64)), ("float", (16, 32, 64))):
        for bits in widths:
            found[f"{kind}{bits}"] = f"{kind}{bits}"
    for kind in ("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
                 "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn",
                 "float4_e2m1fn"):  # fmt: skip
        found[kind] = kind
    for base in list(found):
        for lanes in (2, 4, 8, 16, 32, 64):
            found[f"{base}x{lanes}"] = f"{base}x{lanes}"
    found["bool"] = found["boolean"] = "bool"
    for bits in (1, 4):
        found[f"int{bits}"] = f"int{bits}"
        found[f"uint{bits}"] = f"uint{bits}"
    return found


SCALARS: dict[str, Callable[..., Any]] = {}
for _name, _dtype in _names().items():
    SCALARS[_name] = _constructor(_name, _dtype)


def handle(
    dtype: str | Type | Callable[..., Any] | None = None, storage_scope: str = "global", *, is_size_var: bool = False
) -> Var:
    """A pointer variable; without ``dtype``, one to something unknown."""
    make = tir.SizeVar if is_size_var else tir.Var
    if dtype is None and storage_scope == "global":
        return make("", PrimType("handle"))
    if dtype is None:
        dtype = "void"
    if isinstance(dtype, Type):
        element = dtype
    else:
        element = PrimType(dtype if isinstance(dtype, str) else dtype().dtype)
    return make("", PointerType(element, storage_scope))


def ptr(dtype: str, storage_scope: str = "global", is_size_var: bool = False) -> Var:
    """A pointer variable to elements of ``dtype``."""
    return handle(dtype, storage_scope, is_size_var=is_size_var)


def void(expr: ExprLike | None = None, *, is_size_var: bool = False) -> PrimExpr:
    """A variable of no value, or ``expr`` as one."""
    return tir.Var("", "void") if expr is None else _cast("void", expr)


def var(dtype: str, name: str = "") -> Var:
    """A variable."""
    return tir.Var(name, dtype)
