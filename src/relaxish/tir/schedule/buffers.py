"""Making buffers out of buffers."""

from __future__ import annotations

from typing import Any

from ...ir.prim import const
from ...ir.types import PointerType, PrimType
from ..buffer import Buffer
from ..expr import Var
from .walk import vars_in

__all__ = ["compact", "derived_buffer", "with_scope"]


def derived_buffer(buffer: Buffer, name: str, scope: str | None = None, **changes: Any) -> Buffer:
    """A fresh buffer like ``buffer`` with another name and perhaps scope, shape or dtype."""
    dtype = changes.get("dtype", buffer.dtype)
    scope = buffer.scope() if scope is None else scope
    data = Var(name, PointerType(PrimType(dtype), "" if scope == "global" and _plain_scope(buffer) else scope))
    return buffer.with_fields(data=data, name=name, **changes)


def _plain_scope(buffer: Buffer) -> bool:
    annotation = buffer.data.type_annotation
    return isinstance(annotation, PointerType) and annotation.storage_scope == ""


def compact(buffer: Buffer) -> Buffer:
    """A new buffer as memory of its own: the layout that a view takes from what it views does not belong to it."""
    if not vars_in((*buffer.strides, buffer.elem_offset)):
        return buffer
    return buffer.with_fields(strides=(), elem_offset=const(0, buffer.elem_offset.dtype))


def with_scope(buffer: Buffer, scope: str, name: str | None = None) -> Buffer:
    """The buffer in another memory scope, by default named after it."""
    return derived_buffer(buffer, name if name is not None else f"{buffer.name}_{scope}", scope)
