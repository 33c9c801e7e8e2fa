"""Shared parts of lowering rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.attrs import Attrs
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, Tuple, TupleGetItem, Var
from ..relax.op_table import Legalize

__all__ = ["by_te", "te_call", "tuple_fields"]


def te_call(builder: BlockBuilder, name: str, compute: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
    """The ``call_tir`` of a TE function, whose loops go into a function called ``name``."""
    return builder.call_te(compute, *args, primfunc_name_hint=name, **kwargs)


def by_te(name: str, compute: Callable[..., Any], read: Callable[[Attrs], Sequence[Any]] | None = None) -> Legalize:
    """The rule by which a call becomes that of ``compute(*operands, *read(attributes))``."""

    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        return te_call(builder, name, compute, *call.args, *(read(call.attrs) if read is not None else ()))

    return legalize


def tuple_fields(builder: BlockBuilder, value: Expr) -> list[Expr]:
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
