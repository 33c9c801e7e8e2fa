"""Printing of tensor functions."""

from __future__ import annotations

from typing import Any

from ... import tir
from ...ir.attrs import Attrs, DictAttrs
from ...ir.expr import BaseFunc
from ...ir.node import Node
from ...ir.types import TupleType
from ...support.object_path import ObjectPath
from ...tir.analysis.structure import contains_block
from ...tir.function import PrimFunc
from ...tir.stmt import Block
from .doc import AssignDoc, CommentDoc, Doc, ExprDoc, ExprStmtDoc, FunctionDoc, IdDoc, LiteralDoc
from .docsifier import Docsifier, Frame, assign, header, printer_of
from .tir_buffer import buffer_annotation, buffer_decl, define_buffer, is_simple_buffer
from .tir_expr import define_var
from ...ir.prim import is_one
from .tir_stmt import body_into
from ...ir.plain import plain_str

__all__ = ["function_name", "is_var_or_buffer", "show_attrs"]


def is_var_or_buffer(node: Node) -> bool:
    """Whether free occurrences of a node need a declaration."""
    return isinstance(node, (tir.Var, tir.Buffer))


def function_name(func: BaseFunc, d: Docsifier) -> str:
    """The name a function is printed under."""
    if d.cfg.binding_names:
        return d.cfg.binding_names[-1]
    symbol = func.get_attr("global_symbol")
    return plain_str(symbol) if symbol is not None else "main"


def show_attrs(
    func: BaseFunc, name: str, dialect: str, path: ObjectPath, d: Docsifier, hide_symbol: bool = True
) -> ExprStmtDoc | None:
    """The ``func_attr`` statement, or None; the symbol that equals the name is not shown."""
    attrs = dict(func.attrs.items()) if func.attrs is not None else {}
    symbol = attrs.get("global_symbol")
    if hide_symbol and symbol is not None and plain_str(symbol) == name:
        del attrs["global_symbol"]
    if not attrs:
        return None
    return ExprStmtDoc(d.prefix(dialect, "func_attr").call(d.doc(DictAttrs(attrs), path.attr("attrs"))))


def _count(func: PrimFunc) -> dict[int, int]:
    """How often each variable occurs in a function, its signature included."""
    counts: dict[int, int] = {}
    seen_buffers: set[int] = set()
    stack: list[Any] = [func]
    while stack:
        node = stack.pop()
        match node:
            case tuple() | list():
                stack.extend(node)
            case dict():
                stack.extend(node.keys())
                stack.extend(node.values())
            case tir.Var():
                counts[id(node)] = counts.get(id(node), 0) + 1
            case tir.Buffer():
                if id(node) not in seen_buffers:
                    seen_buffers.add(id(node))
                    stack.extend(node.iter_children())
            case Node():
                stack.extend(node.iter_children())
    return counts


def _implicit_root(func: PrimFunc) -> Block | None:
    """The root block that the parser would put back by itself, or None."""
    realize = func.body
    if not isinstance(realize, tir.BlockRealize) or realize.iter_values or not is_one(realize.predicate):
        return None
    root = realize.block
    if root.annotations or root.match_buffers or root.reads or root.writes or root.init is not None:
        return None
    inner = root.body
    if root.alloc_buffers:
        return root
    if isinstance(inner, tir.BlockRealize):
        return root if inner.block.iter_vars else None
    return root if contains_block(inner) else None


def _parameters(func: tir.PrimFunc, path: ObjectPath, frame: Frame, d: Docsifier) -> tuple[list[AssignDoc], set[int]]:
    args: list[AssignDoc] = []
    inlined: set[int] = set()
    counts = _count(func)
    data_uses: dict[int, int] = {}
    for declared in func.buffer_map.values():
        data_uses[id(declared.data)] = data_uses.get(id(declared.data), 0) + 1
    for i, var in enumerate(func.params):
        where = path.attr("params").array_index(i)
        buffer = func.buffer_map.get(var)
        if d.cfg.syntax_sugar and buffer is not None and counts[id(var)] == 2:
            if is_simple_buffer(buffer) and data_uses[id(buffer.data)] == 1:
                buffer_path = path.attr("buffer_map").map_value(var)
                lhs = define_buffer(buffer, frame, d)
                args.append(AssignDoc(lhs, None, buffer_annotation(buffer, buffer_path, frame, d)))
                inlined.add(id(buffer))
                continue
        kind = d.doc(var.type_annotation, where.attr("type_annotation"))
        args.append(AssignDoc(define_var(var, frame, d), None, kind))
    return args, inlined


@printer_of(tir.PrimFunc)
def _prim_func(func: tir.PrimFunc, path: ObjectPath, d: Docsifier) -> Doc:
    with Frame(d, "tir", func) as frame:
        frame.token("tir")
        name = function_name(func, d)
        d.set_common_prefix(func, is_var_or_buffer)
        args, inlined = _parameters(func, path, frame, d)
        attrs = show_attrs(func, name, "tir", path, d)
        if attrs is not None:
            frame.stmts.append(attrs)
        for i, var in enumerate(func.params):
            buffer = func.buffer_map.get(var)
            if buffer is None or id(buffer) in inlined:
                continue
            where = path.attr("buffer_map").map_value(var)
            lhs = define_buffer(buffer, frame, d)
            rhs = buffer_decl(buffer, "match_buffer", [args[i].lhs], where, frame, d)
            frame.stmts.append(assign(lhs, rhs))
        root = _implicit_root(func) if d.cfg.syntax_sugar else None
        if root is not None:
            block = path.attr("body").attr("block")
            frame.stmts.append(CommentDoc('with T.block("root"):'))
            for i, buffer in enumerate(root.alloc_buffers):
                lhs = define_buffer(buffer, frame, d)
                at = block.attr("alloc_buffers").array_index(i)
                frame.stmts.append(assign(lhs, buffer_decl(buffer, "alloc_buffer", [], at, frame, d)))
            body_into(root.body, block.attr("body"), frame, d)
        else:
            body_into(func.body, path.attr("body"), frame, d)
        ret: ExprDoc | None = None
        if func.ret_type is not None and not (isinstance(func.ret_type, TupleType) and not func.ret_type.fields):
            ret = d.doc(func.ret_type, path.attr("ret_type"))
        decorator: ExprDoc = d.prefix("tir", "prim_func")
        if func.get_attr("global_symbol") is None:
            decorator = decorator.call(private=LiteralDoc(True))
        made = FunctionDoc(IdDoc(name), args, [decorator], ret, frame.stmts)
        return header(d, made)


def _constants(
    value: object,
) -> object:
    """Attribute values with flags as constants of the IR, which is what they are to readers of attributes."""
    match value:
        case bool():
            return tir.IntImm("bool", value)
        case tuple() | list():
            return tuple(_constants(v) for v in value)
        case dict():
            return {k: _constants(v) for k, v in value.items()}
    return value


@printer_of(DictAttrs)
def _dict_attrs(node: DictAttrs, path: ObjectPath, d: Docsifier) -> Doc:
    shown: Doc = d.doc(_constants(dict(node.items())), path.attr("dict"))
    return shown


@printer_of(Attrs)
def _attrs(node: Attrs, path: ObjectPath, d: Docsifier) -> Doc:
    shown: Doc = d.doc(dict(node.items()), path)
    return shown


@printer_of(tir.TensorIntrin)
def _tensor_intrin(node: tir.TensorIntrin, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("tir", "TensorIntrin").call(
        d.doc(node.desc.script(name="desc"), path.attr("desc")), d.doc(node.impl.script(name="impl"), path.attr("impl"))
    )
