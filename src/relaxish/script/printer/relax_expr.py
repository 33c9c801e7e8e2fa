"""Printing of graph expressions."""

from __future__ import annotations


from ... import relax, tir
from ...ir.attrs import Attrs, DictAttrs
from ...ir.op import Op, op_name_of
from ...relax.expr import Call, Constant, DataTypeImm, Expr, StringImm, Var
from ...relax.struct_info import StructInfo
from ...runtime.arrays.ndarray import NDArray
from ...support.object_path import ObjectPath
from .doc import AssignDoc, Doc, ExprDoc, IdDoc, ListDoc, LiteralDoc, TupleDoc
from .docsifier import Docsifier, Frame, printer_of
from .relax_sinfo import vdevice_text

__all__ = ["define_relax_var"]


def define_relax_var(var: Var, frame: Frame, d: Docsifier) -> ExprDoc:
    """Name a graph variable in a frame."""
    known = d.var_doc(var)
    if known is not None:
        return known
    return d.define(var, frame, var.name_hint or "v")


@printer_of(relax.Var, relax.DataflowVar)
def _var(node: relax.Var | relax.DataflowVar, path: ObjectPath, d: Docsifier) -> Doc:
    if not d.is_defined(node):
        frame = d.frames[-1]
        ann = d.doc(node.struct_info_, path.attr("struct_info_"))
        frame.stmts.append(AssignDoc(define_relax_var(node, frame, d), None, ann))
    found = d.var_doc(node)
    assert found is not None
    return found


@printer_of(relax.PrimValue)
def _prim_value(node: relax.PrimValue, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("relax", "prim_value").call(d.doc(node.value, path.attr("value")))


@printer_of(relax.StringImm)
def _string(node: StringImm, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("relax", "str").call(LiteralDoc(node.value, path.attr("value")))


@printer_of(relax.DataTypeImm)
def _dtype(node: DataTypeImm, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("relax", "dtype").call(LiteralDoc(node.value, path.attr("value")))


@printer_of(relax.Tuple)
def _tuple(node: relax.Tuple, path: ObjectPath, d: Docsifier) -> Doc:
    if not node.fields:
        return d.prefix("relax", "tuple").call()
    return TupleDoc([d.doc(f, path.attr("fields").array_index(i)) for i, f in enumerate(node.fields)])


@printer_of(relax.TupleGetItem)
def _get_item(node: relax.TupleGetItem, path: ObjectPath, d: Docsifier) -> Doc:
    value = d.doc(node.tuple_value, path.attr("tuple_value"))
    made: Doc = value[LiteralDoc(node.index, path.attr("index"))]
    return made


@printer_of(relax.ShapeExpr)
def _shape(node: relax.ShapeExpr, path: ObjectPath, d: Docsifier) -> Doc:
    values = [d.doc(v, path.attr("values").array_index(i)) for i, v in enumerate(node.values)]
    return d.prefix("relax", "shape").call(ListDoc(values))


def _scalar(data: NDArray) -> float | None:
    """The value of a scalar constant as a Python number, or None for arrays."""
    import numpy as np

    array = np.asarray(data.numpy() if hasattr(data, "numpy") else data)
    if array.ndim != 0:
        return None
    value = array.item() if array.dtype.kind in "biuf" else float(array.astype("float64"))
    return value


@printer_of(relax.Constant)
def _constant(node: Constant, path: ObjectPath, d: Docsifier) -> Doc:
    value = _scalar(node.data)
    if value is not None:
        if _is_distributed(node.struct_info_):
            info = d.doc(node.struct_info_, path.attr("struct_info_"))
            return d.prefix("relax", "dist.const").call(LiteralDoc(value, path.attr("data")), info)
        dtype = node.struct_info_.dtype if node.struct_info_ is not None else str(node.data.dtype)
        return d.prefix("relax", "const").call(LiteralDoc(value, path.attr("data")), LiteralDoc(dtype))
    return d.add_metadata(node)


def _callee(node: Expr, path: ObjectPath, d: Docsifier) -> ExprDoc:
    if isinstance(node, relax.ExternFunc):
        return LiteralDoc(node.global_symbol, path)
    shown: ExprDoc = d.doc(node, path)
    return shown


_CALL_TIR = {
    "relax.call_tir", "relax.call_tir_inplace", "relax.call_tir_with_grad", "relax.dist.call_tir_local_view",
    "relax.call_dps_packed",
}  # fmt: skip


def _is_call_tir(node: Call) -> bool:
    """Whether a call has what ``R.call_tir`` and its kin are printed from; ill-formed ones are printed as any other."""
    return op_name_of(node) in _CALL_TIR and len(node.args) in (2, 3) and len(node.sinfo_args) == 1


def _call_tir(node: relax.Call, path: ObjectPath, d: Docsifier) -> ExprDoc:
    name = node.op.name.removeprefix("relax.")
    where = path.attr("args")
    args = [_callee(node.args[0], where.array_index(0), d), d.doc(node.args[1], where.array_index(1))]
    kwargs: dict[str, ExprDoc] = {}
    info = node.sinfo_args[0]
    info_path = path.attr("sinfo_args").array_index(0)
    if isinstance(info, relax.TupleStructInfo):
        fields = [d.doc(f, info_path.attr("fields").array_index(i)) for i, f in enumerate(info.fields)]
        kwargs["out_sinfo"] = ListDoc(fields)
    else:
        kwargs["out_sinfo"] = d.doc(info, info_path)
    if name == "call_tir" and any(_is_distributed(i) for i in (info, *getattr(info, "fields", ()))):
        name = "dist.call_tir"
    if name == "call_tir_inplace":
        kwargs["inplace_indices"] = ListDoc([LiteralDoc(int(i)) for i in node.attrs["inplace_indices"]])
    if name == "call_tir_with_grad":
        kwargs["te_grad_name"] = LiteralDoc(str(node.attrs["te_grad_name"]))
        grad_kwargs = node.attrs.get("te_grad_kwargs")
        if grad_kwargs:
            kwargs["te_grad_kwargs"] = d.doc(grad_kwargs, path.attr("attrs"))
    if len(node.args) == 3 and name not in ("call_tir_with_grad", "call_dps_packed"):
        kwargs["tir_vars"] = d.doc(node.args[2], where.array_index(2))
    return d.prefix("relax", name).call(*args, **kwargs)


def _is_distributed(info: StructInfo) -> bool:
    return type(info).__name__ == "DTensorStructInfo"


def _formatted(node: relax.Call, path: ObjectPath, d: Docsifier) -> ExprDoc:
    """``R.print`` and ``R.assert_op``: the format string moves to a keyword."""
    name = node.op.name.removeprefix("relax.")
    where = path.attr("args")
    shown = [d.doc(a, where.array_index(i)) for i, a in enumerate(node.args)]
    text = shown.pop(1 if name == "assert_op" else 0)
    return d.prefix("relax", name).call(*shown, format=text)


def _attr_value(value: object, path: ObjectPath, d: Docsifier) -> ExprDoc:
    if value is None or isinstance(value, (bool, int, float, str)):
        return LiteralDoc(value, path)
    shown: ExprDoc = d.doc(value, path)
    return shown


# Attributes that hold an optional constant of the IR rather than a plain number.
_FLOAT_CONSTANTS = {"relax.attrs.AttentionAttrs": "scale"}


def _attr_pairs(attrs: DictAttrs | None, path: ObjectPath, d: Docsifier) -> list[tuple[str, ExprDoc]]:
    if attrs is None:
        return []
    if isinstance(attrs, Attrs):
        items = list(attrs.items())
        if getattr(attrs, "type_name", "DictAttrs") == "DictAttrs":
            items.sort()
    else:
        items = [(f, getattr(attrs, f)) for f in type(attrs)._fields if f != "span"]
    typed = _FLOAT_CONSTANTS.get(getattr(attrs, "type_name", ""))
    items = [(k, tir.FloatImm("float32", v) if k == typed and isinstance(v, float) else v) for k, v in items]
    # An unset type is written ``void``, as everywhere in script.
    items = [(k, "void" if v == "" and k.endswith("dtype") else v) for k, v in items]
    return [(k, _attr_value(v, path.attr(k), d)) for k, v in items]


def _hint_on_device(node: Call, path: ObjectPath, d: Docsifier) -> ExprDoc:
    value = d.doc(node.args[0], path.attr("args").array_index(0))
    device, where = node.attrs["dst_vdevice"], path.attr("attrs")
    shown = d.prefix("relax", "device").call(
        dev_type=LiteralDoc(device.target.get_target_device_type(), where.attr("dev_type")),
        dev_id=LiteralDoc(device.vdevice_id, where.attr("dev_id")),
    )
    return d.prefix("relax", "hint_on_device").call(value, shown)


@printer_of(relax.Call)
def _call(node: relax.Call, path: ObjectPath, d: Docsifier) -> Doc:
    if isinstance(node.op, Op):
        name = node.op.name
        if _is_call_tir(node):
            return _call_tir(node, path, d)
        if name in ("relax.print", "relax.assert_op") and _has_format(node, name):
            return _formatted(node, path, d)
        if name == "relax.hint_on_device":
            return _hint_on_device(node, path, d)
        if name == "relax.to_vdevice":
            value = d.doc(node.args[0], path.attr("args").array_index(0))
            target = LiteralDoc(vdevice_text(node.attrs["dst_vdevice"], d), path.attr("attrs"))
            return d.prefix("relax", "to_vdevice").call(value, dst_vdevice=target)
    args: list[ExprDoc] = []
    prefix: ExprDoc
    match node.op:
        case relax.ExternFunc():
            prefix = d.prefix("relax", "call_packed")
            args.append(LiteralDoc(node.op.global_symbol, path.attr("op").attr("global_symbol")))
        case Op():
            name = node.op.name
            prefix = d.prefix("relax", name[6:]) if name.startswith("relax.") else IdDoc(name)
        case _:
            prefix = d.doc(node.op, path.attr("op"))
    where = path.attr("args")
    for i, arg in enumerate(node.args):
        show = _callee if i == 0 else lambda a, p, dd: dd.doc(a, p)
        args.append(show(arg, where.array_index(i), d))
    pairs = _attr_pairs(node.attrs, path.attr("attrs"), d)
    if node.attrs is not None and isinstance(node.op, relax.ExternFunc) and pairs:
        pairs.insert(0, ("attrs_type_key", LiteralDoc(getattr(node.attrs, "type_name", "DictAttrs"))))
    if node.sinfo_args:
        infos = [d.doc(s, path.attr("sinfo_args").array_index(i)) for i, s in enumerate(node.sinfo_args)]
        pairs.append(("sinfo_args", TupleDoc(infos)))
    return prefix.call(*args, **dict(pairs))


def _has_format(node: Call, name: str) -> bool:
    index = 1 if name == "relax.assert_op" else 0
    return len(node.args) > index and isinstance(node.args[index], relax.StringImm)
