"""What the lowering rules of several operators share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..relax.expr import Expr, Tuple, TupleGetItem, Var

__all__ = ["te_call", "tuple_fields"]


def te_call(builder: Any, name: str, compute: Callable[..., Any], *args: Any, **kwargs: Any) -> Expr:
    """The ``call_tir`` of a TE function, whose loops go into a function called ``name``."""
    made: Expr = builder.call_te(compute, *args, primfunc_name_hint=name, **kwargs)
    return made


def tuple_fields(builder: Any, value: Expr) -> list[Expr]:
    """The elements of a tuple: as they were written where that is known, else taken out one by one."""
    count = len(value.struct_info.fields)
    while isinstance(value, Var):
        bound = builder.lookup_binding(value)
        if not isinstance(bound, (Tuple, Var)):
            break
        value = bound
    if isinstance(value, Tuple):
        return list(value.fields)
    return [builder.emit(TupleGetItem(value, i)) for i in range(count)]
