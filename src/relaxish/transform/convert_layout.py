"""ConvertLayout: operators get the layouts a user asks for, and those spread through the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.module import IRModule
from ..op.kinds import can_block
from ..op.manipulate import layout_transform, permute_dims
from ..relax.expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    MatchCast,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..relax.expr_functor import PyExprMutator
from ..relax.layout import LayoutDecision, LayoutMap, initial_layout, initial_nlayout, is_nested_tensor
from ..relax.op_table import op_record_of
from ..relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from ..relax.utils import field_at
from ..tir import BijectiveLayout, IndexMap, Layout
from .base import map_relax_functions, remapped_leaves
from ..ir.declared_pass import ModuleRewrite

__all__ = ["ConvertLayout"]


def _has_unknown_rank(args: Sequence[Any]) -> bool:
    def unknown(info: StructInfo) -> bool:
        if isinstance(info, TupleStructInfo):
            return any(unknown(f) for f in info.fields)
        return isinstance(info, TensorStructInfo) and info.ndim == -1

    return any(unknown(arg.struct_info_) for arg in args)


def _can_say(info: StructInfo, layout: Any) -> bool:
    """Whether the dimensions of a struct info can be written in a layout; always so in the first one."""
    if isinstance(info, TupleStructInfo):
        return all(_can_say(f, part) for f, part in zip(info.fields, layout, strict=True))
    if layout is None or layout.is_unknown_dim or layout.is_initial:
        return True
    dims = info.dims() if isinstance(info, TensorStructInfo) and info.ndim == layout.ndim else None
    return dims is not None and (
        len(layout.name) == layout.ndim or can_block(initial_layout(layout.ndim), layout.name, dims)
    )


def _relayout(info: StructInfo, layout: Any) -> StructInfo:
    """A struct info in another layout, whose axes move and are split."""
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo([_relayout(f, part) for f, part in zip(info.fields, layout)])
    if not isinstance(info, TensorStructInfo) or info.dims() is None or layout.is_initial:
        return info
    dims = list(info.dims() or ())
    if len(layout.name) != layout.ndim:
        dims = list(BijectiveLayout(Layout(initial_layout(layout.ndim)), layout.layout).forward_shape(dims))
    else:
        dims = [dims[ord(c) - ord("A")] for c in layout.name]
    return TensorStructInfo(dims, info.dtype, info.vdevice)


class _Converter(PyExprMutator):
    def __init__(self, desired: Mapping[str, Sequence[str]]) -> None:
        super().__init__()
        self.desired = desired
        self.layouts = LayoutMap()
        self.inside = False

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        saved, self.inside = self.inside, True
        new = super().visit_dataflow_block_(block)
        self.inside = saved
        return new

    def _rewrite(
        self,
        expr: Expr,
        have: Any,
        want: Any,
    ) -> Expr:
        """``expr``, laid out as ``have``, in the layout ``want``."""
        if have is None or want is None or have == want:
            return expr
        if isinstance(want, tuple):
            fields = []
            for index, (one, other) in enumerate(zip(have, want)):
                item = field_at(expr, index)
                fields.append(self._rewrite(item, one, other))
            return Tuple(fields)
        assert isinstance(have, LayoutDecision) and isinstance(want, LayoutDecision)
        if not have.name or have.is_unknown_dim or want.is_unknown_dim:
            return expr
        if len(have.name) == have.ndim and len(want.name) == want.ndim:
            return permute_dims(expr, [have.name.index(c) for c in want.name])
        return layout_transform(expr, _index_map(have.name, want.name))

    def _as(self, expr: Expr, want: LayoutDecision | Sequence[LayoutDecision]) -> Expr:
        return self._rewrite(remapped_leaves(self, expr), self.layouts.of(expr), want)

    def visit_var_(self, op: Var) -> Expr:
        if not self.inside or not is_nested_tensor(op):
            return super().visit_var_(op)
        return self._as(op, initial_nlayout(op))

    def visit_binding(self, binding: Binding) -> None:
        super().visit_binding(binding)
        if binding.var not in self.layouts:
            self.layouts[binding.var] = initial_nlayout(binding.var)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        if not self.inside:
            super().visit_var_binding_(binding)
        elif isinstance(value, Call):
            self._call(binding, value)
        elif isinstance(value, Tuple):
            self._tuple(binding, value)
        elif isinstance(value, TupleGetItem):
            self._field(binding, value)
        else:
            super().visit_var_binding_(binding)

    def _call(self, binding: VarBinding, call: Call) -> None:
        var = binding.var
        rule = getattr(op_record_of(call.op), "layout", None)
        found = None
        if rule is not None and not _has_unknown_rank(call.args):
            found = rule(call, self.desired, self.layouts)
        if found is None or (not is_nested_tensor(var) and not var.is_dataflow):
            args = [self._as(a, initial_nlayout(a)) if is_nested_tensor(a) else a for a in call.args]
            self._emit(binding, self._rebuilt(call, args, {}))
            self.layouts[var] = initial_nlayout(var)
            return
        wanted = list(found.input_layouts)
        args = [
            self._as(a, wanted[i]) if i < len(wanted) and is_nested_tensor(a) else a for i, a in enumerate(call.args)
        ]
        for index, arg in found.new_args.items():
            args[index] = arg
        new: Expr = self._rebuilt(call, args, found.new_attrs)
        (layout,) = found.output_layouts
        start = initial_nlayout(var)
        if not var.is_dataflow:
            if layout != start:
                new = self._rewrite(self.builder_.emit(new), layout, start)
            layout = start
        self._emit(binding, new)
        self.layouts[var] = layout

    @staticmethod
    def _rebuilt(call: Call, args: Sequence[Any], changes: Mapping[str, Any]) -> Call:
        attrs = call.attrs
        changed = {k: v for k, v in changes.items() if attrs[k] != v}
        if changed:
            attrs = attrs.with_fields(values={**attrs.values, **changed})
        elif all(a is b for a, b in zip(args, call.args)):
            return call
        return Call(call.op, args, attrs, call.sinfo_args, call.span)

    def _emit(self, binding: VarBinding, value: Expr) -> None:
        self.reemit_binding(binding, self.builder_.normalize(value))

    def _tuple(self, binding: VarBinding, value: Tuple) -> None:
        keep = binding.var.is_dataflow
        layouts = tuple(self.layouts.of(f) if keep else initial_nlayout(f) for f in value.fields)
        fields = [self._as(f, part) if is_nested_tensor(f) else f for f, part in zip(value.fields, layouts)]
        same = all(a is b for a, b in zip(fields, value.fields))
        self._emit(binding, value if same else Tuple(fields, value.span))
        self.layouts[binding.var] = layouts

    def _field(self, binding: VarBinding, value: TupleGetItem) -> None:
        keep = binding.var.is_dataflow
        layout = self.layouts.of(value.tuple_value) if keep else initial_nlayout(value.tuple_value)
        source = self._as(value.tuple_value, layout) if is_nested_tensor(value.tuple_value) else value.tuple_value
        self._emit(binding, value if source is value.tuple_value else TupleGetItem(source, value.index, value.span))
        self.layouts[binding.var] = layout[value.index] if isinstance(layout, tuple) else initial_nlayout(binding.var)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        if not self.inside or not binding.var.is_dataflow or not is_nested_tensor(binding.value):
            super().visit_match_cast_(binding)
            return
        layout = self.layouts.of(binding.value)
        if not _can_say(binding.struct_info, layout):
            layout = initial_nlayout(binding.value)
        value = self._as(binding.value, layout)
        if self.layouts.of(binding.value) != layout:
            value = self.builder_.emit(value)
        info = _relayout(binding.struct_info.map(self.visit_prim_expr, self._shape_var), layout)
        if value is binding.value and info is binding.struct_info:
            self.builder_.emit_normalized(binding)
        else:
            var = self.with_struct_info(binding.var, info)
            if var is not binding.var:
                self.var_remap_[binding.var] = var
            self.builder_.emit_normalized(MatchCast(var, value, info, binding.span))
        unchanged = layout == initial_nlayout(binding.value)
        self.layouts[binding.var] = initial_nlayout(binding.var) if unchanged else layout


def _index_map(have: str, want: str) -> IndexMap:
    """How elements move between layouts with split axes (``ABCD`` to ``ABCD4b``), as an index map."""
    from ..tir import Var as TirVar

    axes = [c for c in have if c.isalpha()]
    indices = [TirVar(f"i{k}", "int32") for k in range(len(axes))]
    return IndexMap(indices, list(BijectiveLayout(Layout(have), Layout(want)).forward_index(indices)), None)


class ConvertLayout(ModuleRewrite):
    """Bring operators in dataflow blocks into the layouts asked for.

    ``ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})``::

        gv = R.nn.conv2d(x, w)    ->    lv = R.permute_dims(x, axes=[0, 2, 3, 1])
                                        lv1 = R.permute_dims(w, axes=[0, 2, 3, 1])
                                        lv2 = R.nn.conv2d(lv, lv1, data_layout="NHWC", kernel_layout="OHWI", ...)
                                        gv = R.permute_dims(lv2, axes=[0, 3, 1, 2])

    Operators that do not care take whatever layout their inputs have; outputs of a block and operators without a
    layout rule get the first layout back.
    """

    desired_layouts: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        self._settle(desired_layouts={k: [str(x) for x in layouts] for k, layouts in self.desired_layouts.items()})

    def rewrite(self, mod: IRModule) -> IRModule:
        return map_relax_functions(mod, lambda _, func: _Converter(self.desired_layouts).visit_expr(func))
