"""Printing of modules and what belongs to them."""

from __future__ import annotations

from functools import partial
from typing import Any
from collections.abc import Mapping

from ...ir.global_info import DummyGlobalInfo, VDevice
from ...ir.module import IRModule
from ...ir.source import SourceName, Span
from ...relax import ExternFunc, Function
from ...target import Target
from ...tir import PrimFunc
from ...support.object_path import ObjectPath
from .doc import AssignDoc, ClassDoc, Doc, DictDoc, ExprDoc, ExprStmtDoc, IdDoc, LiteralDoc, StmtBlockDoc, StmtDoc
from .docsifier import Docsifier, Frame, header, printer_of

__all__: list[str] = []


def _order(item: tuple[Any, Any]) -> tuple[int, str]:
    """Tensor programs first, then external and graph functions by name, ``main`` at the end."""
    gv, func = item
    kinds = (PrimFunc, ExternFunc, Function)
    rank = next((i for i, kind in enumerate(kinds) if isinstance(func, kind)), len(kinds))
    return (len(kinds) + 1 if gv.name_hint == "main" else rank, gv.name_hint)


@printer_of(IRModule)
def _module(mod: IRModule, path: ObjectPath, d: Docsifier) -> Doc:
    functions = sorted(mod.functions.items(), key=_order)
    with Frame(d, "ir") as frame:
        frame.token("ir")
        name = d.define(mod, frame, d.cfg.binding_names[-1] if d.cfg.binding_names else "Module")
        d.module_doc = name
        if mod.attrs is not None and len(mod.attrs):
            shown = d.doc(mod.attrs, path.attr("attrs"))
            frame.stmts.append(ExprStmtDoc(d.prefix("ir", "module_attrs").call(shown)))
        if mod.global_infos:
            d.module_infos = mod.global_infos
            shown = d.doc(mod.global_infos, path.attr("global_infos"))
            frame.stmts.append(ExprStmtDoc(d.prefix("ir", "module_global_infos").call(shown)))
        for gv, _ in functions:
            d.define_as(gv, frame, partial(_member, d, gv.name_hint))
        for gv, func in functions:
            d.cfg.binding_names.append(gv.name_hint)
            try:
                made = d.doc(func, path.attr("functions").map_value(gv))
            finally:
                d.cfg.binding_names.pop()
            match made:
                case StmtBlockDoc():
                    stmt: StmtDoc = made.stmts[-1]
                    stmt.paths = made.paths
                case ExprDoc():
                    stmt = AssignDoc(IdDoc(gv.name_hint), made)
                case _:
                    stmt = made
            frame.stmts.append(stmt)
        return header(d, ClassDoc(name, [d.prefix("ir", "ir_module")], frame.stmts))


def _member(d: Docsifier, name: str) -> ExprDoc:
    """A function of the module by name."""
    return _module_reference(d).attr(name)


def _module_reference(d: Docsifier) -> ExprDoc:
    """What a function calls its module: the class name in tensor functions, the alias in graph functions."""
    if d.tokens[-1] != "relax" or not d.cfg.module_alias:
        return IdDoc(d.module_doc.name)
    frame = next((f for f in d.frames if f.kind == "relax" and f.is_func), None)
    if frame is not None and not frame.alias_printed:
        frame.alias_printed = True
        frame.stmts.append(AssignDoc(IdDoc(d.cfg.module_alias), IdDoc(d.module_doc.name)))
    return IdDoc(d.cfg.module_alias)


@printer_of(DummyGlobalInfo)
def _dummy(node: DummyGlobalInfo, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("ir", "dummy_global_info").call()


@printer_of(VDevice)
def _vdevice(node: VDevice, path: ObjectPath, d: Docsifier) -> Doc:
    target = node.target
    shown = d.doc(_target_dict(target), path.attr("target")) if target is not None else DictDoc({})
    return d.prefix("ir", "vdevice").call(
        shown, LiteralDoc(node.vdevice_id, path.attr("vdevice_id")), LiteralDoc(node.memory_scope, path.attr("scope"))
    )


def _target_dict(target: Target | str) -> Mapping[str, Any] | str:
    return target.export() if hasattr(target, "export") else str(target)


@printer_of(Target)
def _target(node: Target, path: ObjectPath, d: Docsifier) -> Doc:
    """``T.target({...})``"""
    return d.prefix("tir", "target").call(d.doc(_target_dict(node), path))


@printer_of(Span)
def _span(node: Span, path: ObjectPath, d: Docsifier) -> Doc:
    numbers = (node.line, node.end_line, node.column, node.end_column)
    return d.prefix("ir", "Span").call(LiteralDoc(node.source_name.name), *[LiteralDoc(n) for n in numbers])


@printer_of(SourceName)
def _source_name(node: SourceName, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("ir", "SourceName").call(LiteralDoc(node.name))
