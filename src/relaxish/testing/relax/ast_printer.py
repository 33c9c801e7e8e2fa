"""dump_ast: a graph program as the tree of its nodes, field by field.

>>> from relaxish import relax
>>> print(dump_ast(relax.Tuple([relax.PrimValue(1), relax.StringImm("a")]), include_struct_info_annotations=False))
Tuple(fields=[
    PrimValue(value=PrimExpr(value=`T.int64(1)`)),
    StringImm(value="a")
])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...ir.expr import GlobalVar, PrimExpr
from ...ir.op import Op
from ...ir.types import PrimType
from ...relax import expr as rx
from ...relax import struct_info as si
from ...relax import ty
from ...relax.expr import Expr, Function
from ...relax.struct_info import FuncStructInfo, ShapeStructInfo, TensorStructInfo
from ...relax.ty import DynTensorType

__all__ = ["ASTPrinter", "dump_ast"]


def _quoted(text: str) -> str:
    return f'"{text}"'


class ASTPrinter:
    """Renders nodes as ``Name(field=value)``; several fields or members go on lines of their own."""

    def __init__(
        self,
        indent_str: str = "    ",
        include_struct_info_annotations: bool = True,
        include_type_annotations: bool = False,
        include_call_attrs: bool = True,
    ) -> None:
        self.indent_str = indent_str
        self.with_struct_info = include_struct_info_annotations
        self.with_types = include_type_annotations
        self.with_call_attrs = include_call_attrs

    def group(self, members: Iterable[str], start: str = "[", end: str = "]", newline: bool = False) -> str:
        """Members between brackets: one stays on the line unless ``newline``."""
        items = list(members)
        if not items or (len(items) == 1 and not newline):
            return f"{start}{''.join(items)}{end}"
        lines = ",\n".join("\n".join(self.indent_str + line for line in item.split("\n")) for item in items)
        return f"{start}\n{lines}\n{end}"

    def node(self, kind: str, /, **fields: str) -> str:
        """A node by name and rendered fields."""
        return self.fields(kind, fields)

    def fields(self, kind: str, fields: dict[str, str], newline: bool = False) -> str:
        """:meth:`node` with the fields as a dict."""
        return self.group((f"{key}={value}" for key, value in fields.items()), f"{kind}(", ")", newline)

    def all(self, items: Iterable[Any], newline: bool = False) -> str:
        """A list of nodes."""
        return self.group((self.visit(i) for i in items), newline=newline)

    def expression(self, node: Expr, kind: str, /, **fields: str) -> str:
        """A graph expression: its fields and, where asked for, struct info and type."""
        if node.struct_info_ is not None and self.with_struct_info:
            fields["struct_info"] = self.visit(node.struct_info_)
        if node.struct_info_ is not None and self.with_types:
            fields["checked_type_"] = self.visit(node.checked_type)
        # A tensor's elements take lines of their own, a scalar stays where it is.
        newline = isinstance(node, rx.Constant) and len(node.data.shape) > 0
        return self.fields(kind, fields, newline)

    def visit(self, node: Any) -> str:
        """Any node as text. Raises ValueError for what is no part of a graph program."""
        for kind in type(node).__mro__:
            rule = _RULES.get(kind)
            if rule is not None:
                return rule(self, node)
        raise ValueError(f"Invalid node {node} ({type(node)})")

    visit_expr = visit
    visit_type_ = visit
    visit_struct_info_ = visit
    visit_prim_expr_ = visit
    visit_binding_ = visit
    visit_binding_block_ = visit


def _function(p: ASTPrinter, f: Function) -> str:
    fields = {
        "params": p.all(f.params),
        "body": p.visit(f.body),
        "ret_struct_info": p.visit(f.ret_struct_info),
        "is_pure": str(1 if f.is_pure else 0),
    }
    if f.attrs:
        pairs = (f"{_quoted(key)}: {_quoted(getattr(v, 'value', v))}" for key, v in f.attrs.items())
        fields["attrs"] = p.group(pairs, "{", "}")
    return p.expression(f, "Function", **fields)


def _attribute(value: PrimExpr | Sequence[PrimExpr]) -> str:
    match value:
        case list() | tuple():
            return f"[{', '.join(map(_attribute, value))}]"
        case str():
            return _quoted(value)
    return str(value)


def _call(p: ASTPrinter, c: Any) -> str:
    fields = {"op": p.visit(c.op), "args": p.all(c.args)}
    if c.sinfo_args:
        fields["sinfo_args"] = p.all(c.sinfo_args)
    if c.attrs and p.with_call_attrs:
        pairs = (f"{_quoted(k)}: {_attribute(v)}" for k, v in c.attrs.items())
        fields["attrs"] = p.group(pairs, "{", "}")
    return p.expression(c, "Call", **fields)


def _tensor_info(p: ASTPrinter, s: TensorStructInfo) -> str:
    fields = {"dtype": str(s.dtype)}
    fields.update({"shape": p.visit(s.shape)} if s.shape is not None else {"ndim": str(s.ndim)})
    return p.node("TensorStructInfo", **fields)


def _shape_info(p: ASTPrinter, s: ShapeStructInfo) -> str:
    fields = {"ndim": str(s.ndim)}
    if s.values is not None:
        fields["values"] = p.all(s.values)
    return p.node("ShapeStructInfo", **fields)


def _func_info(p: ASTPrinter, s: FuncStructInfo) -> str:
    fields = {} if s.params is None else {"params": p.all(s.params)}
    return p.node("FuncStructInfo", **fields, ret=p.visit(s.ret), purity=str(bool(s.purity)))


def _tensor_type(p: ASTPrinter, t: DynTensorType) -> str:
    fields = {"ndim": str(t.ndim)}
    if t.dtype:
        fields["dtype"] = str(t.dtype)
    return p.node("DynTensorType", **fields)


def _match_cast(p: ASTPrinter, b: Any) -> str:
    return p.node("MatchCast", var=p.visit(b.var), value=p.visit(b.value), struct_info=p.visit(b.struct_info))


def _named(kind: str) -> Callable[[ASTPrinter, Any], str]:
    return lambda p, v: p.expression(v, kind, name_hint=_quoted(v.name_hint))


def _if(p: ASTPrinter, e: Any) -> str:
    parts = {key: p.visit(getattr(e, key)) for key in ("cond", "true_branch", "false_branch")}
    return p.expression(e, "If", **parts)


_RULES: dict[type, Callable[[ASTPrinter, Any], str]] = {
    rx.Var: _named("Var"),
    rx.DataflowVar: _named("DataflowVar"),
    GlobalVar: _named("GlobalVar"),
    rx.Constant: lambda p, c: p.expression(c, "Constant", data=str(c.data.numpy())),
    rx.Tuple: lambda p, t: p.expression(t, "Tuple", fields=p.all(t.fields)),
    rx.ShapeExpr: lambda p, s: p.expression(s, "ShapeExpr", values=p.all(s.values)),
    rx.ExternFunc: lambda p, f: p.node("ExternFunc", global_symbol=_quoted(f.global_symbol)),
    rx.Function: _function,
    rx.Call: _call,
    rx.SeqExpr: lambda p, s: p.expression(s, "SeqExpr", blocks=p.all(s.blocks), body=p.visit(s.body)),
    rx.If: _if,
    rx.PrimValue: lambda p, v: p.expression(v, "PrimValue", value=p.visit(v.value)),
    rx.StringImm: lambda p, s: p.expression(s, "StringImm", value=_quoted(s.value)),
    rx.DataTypeImm: lambda p, d: p.expression(d, "DataTypeImm", value=str(d.value)),
    rx.TupleGetItem: lambda p, t: p.expression(
        t, "TupleGetItem", tuple_value=p.visit(t.tuple_value), index=str(t.index)
    ),
    Op: lambda p, o: p.node("Op", name=_quoted(o.name)),
    PrimExpr: lambda p, e: p.node("PrimExpr", value=f"`{e}`"),
    rx.BindingBlock: lambda p, b: p.node("BindingBlock", bindings=p.all(b.bindings, newline=True)),
    rx.DataflowBlock: lambda p, b: p.node("DataflowBlock", bindings=p.all(b.bindings, newline=True)),
    rx.VarBinding: lambda p, b: p.node("VarBinding", var=p.visit(b.var), value=p.visit(b.value)),
    rx.MatchCast: _match_cast,
    si.ObjectStructInfo: lambda p, s: p.node("ObjectStructInfo"),
    si.PrimStructInfo: lambda p, s: p.node("PrimStructInfo", dtype=str(s.dtype)),
    si.ShapeStructInfo: _shape_info,
    si.TensorStructInfo: _tensor_info,
    si.TupleStructInfo: lambda p, s: p.node("TupleStructInfo", fields=p.all(s.fields)),
    si.FuncStructInfo: _func_info,
    ty.ObjectType: lambda p, t: p.node("ObjectType"),
    ty.ShapeType: lambda p, t: p.node("ShapeType", ndim=str(t.ndim)),
    ty.PackedFuncType: lambda p, t: p.node("PackedFuncType"),
    ty.DynTensorType: _tensor_type,
    ty.TupleType: lambda p, t: p.node("TupleType", fields=p.all(t.fields)),
    ty.FuncType: lambda p, t: p.node("FuncType", arg_types=p.all(t.arg_types), ret_type=p.visit(t.ret_type)),
    PrimType: lambda p, t: p.node("PrimType", dtype=str(t.dtype)),
}


def dump_ast(
    exp: Any,
    indent_str: str = "    ",
    include_struct_info_annotations: bool = True,
    include_type_annotations: bool = False,
    include_call_attrs: bool = True,
) -> str:
    """The tree of a graph expression as text; struct infos, legacy types and attributes of calls can be left out."""
    printer = ASTPrinter(indent_str, include_struct_info_annotations, include_type_annotations, include_call_attrs)
    return printer.visit(exp)
