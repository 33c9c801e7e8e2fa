"""Printing of buffers and their declarations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

from ... import tir
from ...ir.plain import plain_int
from ...ir.expr import PrimExpr
from ...ir.node import Node
from ...support.object_path import ObjectPath
from ...tir.buffer import Buffer
from .doc import AssignDoc, Doc, ExprDoc, IdDoc, ListDoc, LiteralDoc, TupleDoc
from .docsifier import Docsifier, Frame, assign, printer_of
from .tir_expr import buffer_slices, define_var, var_creation

__all__ = ["buffer_annotation", "buffer_decl", "define_buffer", "is_simple_buffer"]

_KEYWORDS = ("data", "strides", "elem_offset", "scope", "align", "offset_factor", "buffer_type", "axis_separators")


def define_buffer(buffer: Buffer, frame: Frame, d: Docsifier) -> IdDoc:
    """Name a buffer in a frame."""
    known = d.var_doc(buffer)
    if isinstance(known, IdDoc):
        return known
    return d.define(buffer, frame, buffer.name or "buffer")


def _uses(value: object, counts: dict[int, int]) -> None:
    stack = [value]
    while stack:
        node = stack.pop()
        match node:
            case tuple() | list():
                stack.extend(node)
            case tir.Var():
                counts[id(node)] = counts.get(id(node), 0) + 1
            case Node():
                stack.extend(node.iter_children())


def has_vars(value: PrimExpr | Sequence[PrimExpr]) -> bool:
    """Whether an expression mentions any variable."""
    counts: dict[int, int] = {}
    _uses(value, counts)
    return bool(counts)


def is_simple_buffer(buffer: Buffer) -> bool:
    """Whether shape and dtype say everything about a buffer, so that ``T.Buffer`` may declare it."""
    if buffer.strides or has_vars(buffer.shape) or has_vars(buffer.elem_offset):
        return False
    if isinstance(buffer.elem_offset, tir.IntImm) and buffer.elem_offset.value != 0:
        return False
    return bool(
        buffer.scope() == "global"
        and buffer.data_alignment == 64
        and buffer.offset_factor == 1
        and buffer.buffer_type == 1
        and not buffer.axis_separators
    )


class _Declaration:
    """Collects the arguments that declare one buffer; free variables get statements before it."""

    def __init__(self, buffer: Buffer, path: ObjectPath, frame: Frame, d: Docsifier, defines_data: bool) -> None:
        self.buffer, self.path, self.frame, self.d = buffer, path, frame, d
        self.defines_data = defines_data
        self.new_vars: list[tuple[ExprDoc, ExprDoc]] = []
        self.counts: dict[int, int] = {}
        _uses(
            (
                buffer.elem_offset,
                buffer.strides,
                buffer.shape,
                buffer.data,
            ),
            self.counts,
        )
        self.kwargs: dict[str, ExprDoc] = {}

    def is_new(self, value: PrimExpr) -> TypeGuard[tir.Var]:
        return isinstance(value, tir.Var) and not self.d.is_defined(value)

    def declare(self, var: tir.Var, path: ObjectPath) -> None:
        lhs = define_var(var, self.frame, self.d)
        lhs.paths.append(path)
        self.new_vars.append((lhs, var_creation(var, path, self.d)))

    def inline(self, var: tir.Var, path: ObjectPath, show: Callable[..., Any]) -> bool:
        """Let a variable that only this declaration mentions be shown through the buffer: ``A.strides[0]``."""
        if self.counts.get(id(var), 0) == 1:
            self.d.define_as(var, self.frame, show)
            return True
        self.declare(var, path)
        return False

    def _buffer_attr(self, name: str) -> ExprDoc:
        shown: ExprDoc = self.d.doc(self.buffer, self.path)
        return shown.attr(name)

    def shape(self) -> None:
        path = self.path.attr("shape")
        docs = []
        for i, extent in enumerate(self.buffer.shape):
            if self.is_new(extent):
                self.declare(extent, path.array_index(i))
            docs.append(self.d.doc(extent, path.array_index(i)))
        made = TupleDoc(docs)
        made.paths.append(path)
        self.kwargs["shape"] = made

    def data(self) -> None:
        buffer, path = self.buffer, self.path.attr("data")
        if not self.is_new(buffer.data):
            self.kwargs["data"] = self.d.doc(buffer.data, path)
        elif self.defines_data:
            self.inline(buffer.data, path, lambda: self._buffer_attr("data"))
        else:
            self.declare(buffer.data, path)
            self.kwargs["data"] = self.d.doc(buffer.data, path)

    def strides(self) -> None:
        path = self.path.attr("strides")
        docs: list[ExprDoc] = []
        for i, stride in enumerate(self.buffer.strides):
            here = path.array_index(i)
            if self.is_new(stride) and self.inline(
                stride, here, lambda i=i: self._buffer_attr("strides")[LiteralDoc(i)]
            ):
                docs.append(LiteralDoc(stride.name, here))
            else:
                docs.append(self.d.doc(stride, here))
        if docs:
            self.kwargs["strides"] = TupleDoc(docs)

    def rest(self) -> None:
        buffer, d = self.buffer, self.d
        path = self.path.attr("elem_offset")
        needs_factor = False
        if isinstance(buffer.elem_offset, tir.IntImm):
            if buffer.elem_offset.value != 0:
                self.kwargs["elem_offset"] = d.doc(buffer.elem_offset, path)
        elif self.is_new(buffer.elem_offset):
            self.inline(buffer.elem_offset, path, lambda: self._buffer_attr("elem_offset"))
            needs_factor = True
        else:
            self.kwargs["elem_offset"] = d.doc(buffer.elem_offset, path)
        if buffer.scope() != "global":
            self.kwargs["scope"] = LiteralDoc(buffer.scope(), self.path.attr("scope"))
        if buffer.data_alignment != 64:
            self.kwargs["align"] = LiteralDoc(buffer.data_alignment, self.path.attr("data_alignment"))
        if needs_factor or buffer.offset_factor != 1:
            self.kwargs["offset_factor"] = LiteralDoc(buffer.offset_factor, self.path.attr("offset_factor"))
        if buffer.buffer_type != 1:
            self.kwargs["buffer_type"] = LiteralDoc("auto", self.path.attr("buffer_type"))
        if buffer.axis_separators:
            self.kwargs["axis_separators"] = ListDoc([LiteralDoc(plain_int(a)) for a in buffer.axis_separators])

    def build(self) -> dict[str, ExprDoc]:
        self.shape()
        if self.buffer.dtype != self.d.cfg.buffer_dtype:
            self.kwargs["dtype"] = LiteralDoc(self.buffer.dtype, self.path.attr("dtype"))
        self.data()
        self.strides()
        self.rest()
        if len(self.new_vars) == 1:
            self.frame.stmts.append(assign(*self.new_vars[0]))
        elif self.new_vars:
            lhs = TupleDoc([v for v, _ in self.new_vars])
            self.frame.stmts.append(AssignDoc(lhs, TupleDoc([c for _, c in self.new_vars])))
        return self.kwargs


def buffer_decl(
    buffer: Buffer, method: str, args: list[ExprDoc], path: ObjectPath, frame: Frame, d: Docsifier,
    defines_data: bool = True,
) -> ExprDoc:  # fmt: skip
    """``T.method(args, shape, dtype, ...)``"""
    found = _Declaration(buffer, path, frame, d, defines_data).build()
    positional = [*args, found["shape"]]
    if "dtype" in found:
        positional.append(found["dtype"])
    return d.prefix("tir", method).call(*positional, **{k: found[k] for k in _KEYWORDS if k in found})


def buffer_annotation(buffer: Buffer, path: ObjectPath, frame: Frame, d: Docsifier) -> ExprDoc:
    """``T.Buffer(shape, dtype)`` of a parameter."""
    found = _Declaration(buffer, path, frame, d, True).build()
    dtype = found.get("dtype") or LiteralDoc(buffer.dtype, path.attr("dtype"))
    return d.prefix("tir", "Buffer").call(found["shape"], dtype)


@printer_of(tir.Buffer)
def _buffer(node: Buffer, path: ObjectPath, d: Docsifier) -> Doc:
    if not d.is_defined(node):
        frame = d.lowest_frame(node)
        if frame is None:
            raise IndexError(f"Buffer is not defined in the environment: {node.name}")
        lhs = define_buffer(node, frame, d)
        rhs = buffer_decl(node, "Buffer", [], path, frame, d)
        frame.stmts.append(assign(lhs, rhs))
    found = d.var_doc(node)
    assert found is not None
    return found


@printer_of(tir.BufferRegion)
def _region(node: tir.BufferRegion, path: ObjectPath, d: Docsifier) -> Doc:
    prefix = d.doc(node.buffer, path.attr("buffer"))
    made: Doc = prefix[buffer_slices(node.region, path.attr("region"), d)]
    return made


@printer_of(tir.MatchBufferRegion)
def _match(node: tir.MatchBufferRegion, path: ObjectPath, d: Docsifier) -> Doc:
    frame = d.frames[-1]
    source = d.doc(node.source, path.attr("source"))
    lhs = define_buffer(node.buffer, frame, d)
    rhs = buffer_decl(node.buffer, "match_buffer", [source], path.attr("buffer"), frame, d)
    return assign(lhs, rhs)
