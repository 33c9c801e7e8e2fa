"""Printing of struct info."""

from __future__ import annotations


from ... import relax, tir
from ...ir.expr import PrimExpr
from ...ir.global_info import VDevice
from ...ir.prim import IntImm, Var as TirVar
from ...relax.struct_info import (
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
)
from ...support.object_path import ObjectPath
from .config import PrinterConfig
from .doc import Doc, ExprDoc, ListDoc, LiteralDoc, TupleDoc
from .doc_printer import doc_to_python
from .docsifier import assign, Docsifier, Frame, mentions, printer_of
from .tir_expr import var_creation

__all__ = ["shape_var", "vdevice_text"]


def _relax_frame(d: Docsifier) -> Frame | None:
    """The function being printed, whose symbols are its own, or else the outermost graph-level scope."""
    scopes = [frame for frame in d.frames if frame.kind == "relax"]
    return next((frame for frame in reversed(scopes) if frame.is_func), scopes[0] if scopes else None)


def _tir_var(var: TirVar, path: ObjectPath, d: Docsifier) -> Doc:
    if not d.is_defined(var):
        frame = _relax_frame(d)
        if frame is None:
            raise IndexError("No relax environment is found when printing a TIR var under relax's dispatch token")
        if frame.func_vars is not None:
            frame.func_vars.add(id(var))
        lhs = d.define(var, frame, var.name or "v")
        frame.stmts.append(assign(lhs, var_creation(var, path, d)))
    found = d.var_doc(var)
    assert found is not None
    return found


def _int_imm(node: IntImm, path: ObjectPath, d: Docsifier) -> Doc:
    return LiteralDoc(bool(node.value) if node.dtype == "bool" else node.value, path)


printer_of(tir.Var, tir.SizeVar, token="relax")(_tir_var)
printer_of(tir.IntImm, token="relax")(_int_imm)


def shape_var(expr: PrimExpr, path: ObjectPath, d: Docsifier) -> ExprDoc:
    """A dimension; in a signature, one that mentions the function's own symbols is quoted."""
    shown: ExprDoc = d.doc(expr, path)
    for frame in d.frames:
        if frame.kind == "relax" and frame.func_vars is not None:
            if mentions(expr, frame.func_vars):
                return LiteralDoc(doc_to_python(shown, _plain(d.cfg)), path)
            break
    return shown


def _plain(cfg: PrinterConfig) -> PrinterConfig:
    from .config import PrinterConfig

    return PrinterConfig(indent_spaces=cfg.indent_spaces)


@printer_of(relax.ObjectStructInfo)
def _object(node: ObjectStructInfo, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("relax", "Object")


@printer_of(relax.PrimStructInfo)
def _prim(node: PrimStructInfo, path: ObjectPath, d: Docsifier) -> Doc:
    prefix = d.prefix("relax", "Prim")
    if node.value is not None:
        return prefix.call(value=shape_var(node.value, path.attr("value"), d))
    return prefix.call(LiteralDoc(node.dtype, path.attr("dtype")))


@printer_of(relax.ShapeStructInfo)
def _shape(node: ShapeStructInfo, path: ObjectPath, d: Docsifier) -> Doc:
    prefix = d.prefix("relax", "Shape")
    if node.values is not None:
        values = [shape_var(v, path.attr("values").array_index(i), d) for i, v in enumerate(node.values)]
        return prefix.call(ListDoc(values))
    return prefix.call(ndim=LiteralDoc(node.ndim, path.attr("ndim")))


def vdevice_text(vdevice: VDevice, d: Docsifier) -> str:
    """``kind:index:scope`` of a virtual device, the index counted among those of its kind."""
    kind = vdevice.target.kind.name
    index = 0
    for item in getattr(d, "module_infos", {}).get("vdevice", ()):
        if item is vdevice or item == vdevice:
            break
        if getattr(getattr(item.target, "kind", None), "name", None) == kind:
            index += 1
    return f"{kind}:{index}:{vdevice.memory_scope}"


@printer_of(relax.TensorStructInfo)
def _tensor(node: relax.TensorStructInfo, path: ObjectPath, d: Docsifier) -> Doc:
    args: list[ExprDoc] = []
    kwargs: dict[str, ExprDoc] = {}
    if node.shape is not None:
        where = path.attr("shape")
        if isinstance(node.shape, relax.ShapeExpr):
            values = where.attr("values")
            args.append(TupleDoc([shape_var(v, values.array_index(i), d) for i, v in enumerate(node.shape.values)]))
        else:
            args.append(d.doc(node.shape, where))
    if node.dtype and node.dtype != "void":
        kwargs["dtype"] = LiteralDoc(node.dtype, path.attr("dtype"))
    if node.shape is None and node.ndim != -1:
        kwargs["ndim"] = LiteralDoc(node.ndim, path.attr("ndim"))
    if node.vdevice is not None and node.vdevice.target is not None:
        kwargs["vdevice"] = LiteralDoc(vdevice_text(node.vdevice, d), path.attr("vdevice"))
    prefix = d.prefix("relax", "Tensor")
    if not args and not kwargs:
        return prefix
    return prefix.call(*args, **kwargs)


@printer_of(relax.TupleStructInfo)
def _tuple(node: relax.TupleStructInfo, path: ObjectPath, d: Docsifier) -> Doc:
    prefix = d.prefix("relax", "Tuple")
    if not node.fields:
        return prefix
    return prefix.call(*[d.doc(f, path.attr("fields").array_index(i)) for i, f in enumerate(node.fields)])


@printer_of(relax.FuncStructInfo)
def _func(node: relax.FuncStructInfo, path: ObjectPath, d: Docsifier) -> Doc:
    prefix = d.prefix("relax", "Callable")
    ret = d.doc(node.ret, path.attr("ret"))
    purity = LiteralDoc(bool(node.purity), path.attr("purity"))
    if node.params is None:
        kwargs: dict[str, ExprDoc] = {}
        if not isinstance(node.ret, relax.ObjectStructInfo):
            kwargs["ret"] = ret
        if node.purity:
            kwargs["purity"] = purity
        return prefix.call(**kwargs) if kwargs else prefix
    params = [d.doc(p, path.attr("params").array_index(i)) for i, p in enumerate(node.params)]
    return prefix.call(TupleDoc(params), ret, purity)
