"""ToMixedPrecision: heavy operators compute in float16, the rest follows or stays.

Source: Micikevicius et al., "Mixed precision training" (ICLR 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.op import op_name_of
from ..op.datatype import astype
from ..relax.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    Expr,
    Function,
    If,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..relax.expr_functor import PyExprMutator
from ..relax.layout import is_nested_tensor
from ..relax.op_table import op_record_of
from ..relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from ..relax.utils import field_at
from .base import map_relax_functions, remapped_leaves
from ..ir.declared_pass import ModuleRewrite

__all__ = ["ToMixedPrecision"]

_LOW, _HIGH, _OPEN = "float16", "float32", ""
_MAX_LOW = 65504


def _policy(call: Call) -> str | None:
    """``always``, ``follow`` or ``never``; None for what is no operator."""
    if not op_name_of(call):
        return None
    record = op_record_of(call.op)
    return "never" if record is None else record.precision


def _dtypes(info: StructInfo, dtype: str | None = None) -> object:
    """The dtype(s) of a tensor or nested tuple; ``dtype`` throughout if given."""
    if isinstance(info, TupleStructInfo):
        return tuple(_dtypes(f, dtype) for f in info.fields)
    return dtype if dtype is not None else getattr(info, "dtype", None)


class _Demands:
    """Walks a function backwards and finds which variables are wanted in float16 only."""

    def __init__(self) -> None:
        self.of: dict[Var, Any] = {}

    def want(self, expr: Expr, dtype: Any) -> None:
        match expr:
            case Tuple():
                for index, item in enumerate(expr.fields):
                    self.want(item, dtype[index] if isinstance(dtype, tuple) else dtype)
            case Var() if is_nested_tensor(expr):
                new = dtype if isinstance(dtype, tuple) else _dtypes(expr.struct_info_, dtype)
                self.of[expr] = _merge(self.of[expr], new) if expr in self.of else new

    def sequence(self, seq: SeqExpr) -> None:
        self.want(seq.body, _HIGH)
        for block in reversed(seq.blocks):
            # Other blocks keep the dtypes they have.
            for binding in reversed(block.bindings if block.is_dataflow else ()):
                self.binding(binding)

    def binding(self, binding: Binding) -> None:
        value = binding.value
        match value:
            case Call() if isinstance(binding, VarBinding):
                dtype = _LOW if _policy(value) == "always" else _HIGH
                for arg in value.args:
                    self.want(arg, dtype)
            case Tuple():
                self.want(value, self.of.get(binding.var, _OPEN))
            case TupleGetItem():
                info = value.tuple_value.struct_info_
                if isinstance(info, TupleStructInfo):
                    wanted = [_dtypes(f, _OPEN) for f in info.fields]
                    wanted[value.index] = self.of.get(binding.var, _dtypes(info.fields[value.index], _OPEN))
                    self.want(value.tuple_value, tuple(wanted))
            case If():
                self.sequence(value.true_branch)
                self.sequence(value.false_branch)
                self.want(value.cond, _HIGH)
            case Function():
                self.sequence(value.body)
            case _:
                self.want(value, _HIGH)


def _merge(one: Any, other: Any) -> object:
    if isinstance(one, tuple):
        return tuple(map(_merge, one, other))
    if _OPEN in (one, other):
        return other if one == _OPEN else one
    return one if one == other else _HIGH


class _PrecisionRewriter(PyExprMutator):
    def __init__(self, demands: dict[Var, Any], out_dtype: str, low_inputs: Sequence[str]) -> None:
        super().__init__()
        self.demands = demands
        self.out_dtype = out_dtype
        self.low_inputs = set(low_inputs)
        self.params: list[Var] = []
        self.constants: dict[tuple[Constant, str], Constant] = {}
        self.inside = False

    def visit_function_(self, op: Function) -> Expr:
        saved, self.params = self.params, list(op.params)
        for param in op.params:
            info = param.struct_info_
            if param.name_hint in self.low_inputs and isinstance(info, TensorStructInfo):
                low = TensorStructInfo(info.shape, _LOW, info.vdevice, info.ndim)
                self.var_remap_[param] = Var(param.name_hint, low, param.span)
        new = super().visit_function_(op)
        self.params = saved
        return new

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        self.inside = True
        self.builder_.begin_dataflow_block()
        before = {p: self.var_remap_.get(p) for p in self.params}
        for param in self.params:
            self._lower_if_wanted(param)
        for binding in block.bindings:
            self.visit_binding(binding)
            if binding.var.is_dataflow:
                self._lower_if_wanted(binding.var)
        for param, old in before.items():
            if old is not None:
                self.var_remap_[param] = old
            else:
                self.var_remap_.pop(param, None)
        self.inside = False
        new = self.builder_.end_block()
        same = len(new.bindings) == len(block.bindings) and all(a is b for a, b in zip(new.bindings, block.bindings))
        return block if same else new

    def _lower_if_wanted(self, var: Var) -> None:
        """Where every use wants float16, cast once."""
        wanted = self.demands.get(var)
        if wanted is None:
            return
        current = remapped_leaves(self, var)
        rewritten = self._cast(current, _only_low(_dtypes(current.struct_info_), wanted))
        if rewritten is not current:
            self.var_remap_[var] = self.builder_.emit(rewritten)

    def _cast(self, expr: Expr, want: Any) -> Expr:
        """The expression in the dtype(s) wanted; what is neither float16 nor float32 stays."""
        if isinstance(want, tuple):
            if want == _dtypes(expr.struct_info_):
                return expr
            fields = [self._cast(field_at(expr, i), part) for i, part in enumerate(want)]
            return Tuple(fields)
        have = getattr(expr.struct_info_, "dtype", None)
        if have == want or have not in (_LOW, _HIGH):
            return expr
        match expr:
            case Constant(struct_info_=TensorStructInfo() as info):
                return self._converted(expr, info.with_fields(dtype=want))
        return astype(expr, want)

    def _converted(self, constant: Constant, info: TensorStructInfo) -> Constant:
        """A constant of the wanted dtype, made once for all its uses; what float16 cannot hold is infinite, as if cast."""
        key = constant, str(info.dtype)
        if key not in self.constants:
            with np.errstate(over="ignore"):
                self.constants[key] = Constant(constant.data.numpy().astype(info.dtype), info)
        return self.constants[key]

    def visit_var_(self, op: Var) -> Expr:
        current = remapped_leaves(self, op)
        return self._cast(current, _dtypes(op.struct_info_)) if is_nested_tensor(current) else current

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        if self.inside and isinstance(value, Call) and _policy(value) is not None:
            self._call(binding, value)
        elif self.inside and isinstance(value, (Tuple, TupleGetItem)):
            self._structure(binding, value)
        else:
            super().visit_var_binding_(binding)

    def _structure(self, binding: VarBinding, value: Any) -> None:
        if isinstance(value, Tuple):
            new = remapped_leaves(self, value)
        else:
            source = remapped_leaves(self, value.tuple_value)
            new = value if source is value.tuple_value else TupleGetItem(source, value.index, value.span)
        new = self.builder_.normalize(new)
        if not binding.var.is_dataflow and is_nested_tensor(binding.var):
            new = self.builder_.normalize(self._cast_bound(new, _dtypes(binding.var.struct_info_)))
        self.reemit_binding(binding, new)

    def _cast_bound(self, value: Expr, want: Any) -> Any:
        """A computed value in the dtype(s) wanted; it is bound first if it must be cast."""
        if _dtypes(value.struct_info_) == want:
            return value
        return self._cast(value if isinstance(value, Tuple) else self.builder_.emit(value), want)

    def _call(self, binding: VarBinding, call: Call) -> None:
        policy = _policy(call)
        args = [remapped_leaves(self, a) for a in call.args]
        if policy == "never":
            args = [
                self._cast(new, _dtypes(old.struct_info_)) if is_nested_tensor(old) else new
                for new, old in zip(args, call.args)
            ]
            same = all(a is b for a, b in zip(args, call.args))
            new = call if same else Call(call.op, args, call.attrs, call.sinfo_args, call.span)
            self.reemit_binding(binding, self.builder_.normalize(new))
            return
        dtype = _LOW if policy == "always" or all(map(_castable, args)) else _HIGH
        args = [self._cast(a, _dtypes(a.struct_info_, dtype)) if is_nested_tensor(a) else a for a in args]
        new = call
        if not all(a is b for a, b in zip(args, call.args)):
            new = Call(call.op, args, call.attrs, call.sinfo_args, call.span)
        if policy == "always":
            new = self._with_out_dtype(new)
        new = self.builder_.normalize(new)
        if not binding.var.is_dataflow:
            if is_nested_tensor(binding.var):
                new = self.builder_.normalize(self._cast_bound(new, _dtypes(binding.var.struct_info_)))
        elif policy == "always" and is_nested_tensor(new):
            new = self.builder_.normalize(self._cast_bound(new, _dtypes(new.struct_info_, _LOW)))
        self.reemit_binding(binding, new)

    def _with_out_dtype(self, call: Call) -> Call:
        record = op_record_of(call.op)
        assert record is not None
        if record.infer_precision is not None:
            made: Call = record.infer_precision(call, self.out_dtype)
            return made
        attrs = call.attrs
        if attrs is None or "out_dtype" not in attrs or attrs["out_dtype"] == self.out_dtype:
            return call
        attrs = attrs.with_fields(values={**attrs.values, "out_dtype": self.out_dtype})
        return Call(call.op, call.args, attrs, call.sinfo_args, call.span)


def _only_low(have: Any, wanted: Any) -> object:
    if isinstance(have, tuple):
        return tuple(map(_only_low, have, wanted))
    return _LOW if wanted == _LOW else have


_CHECKED = ("float32", "float64", "int8", "int16", "int32", "int64")


def _fits(constant: Constant) -> bool:
    """Whether float16 can hold every element."""
    dtype = constant.struct_info.dtype
    if dtype == _LOW:
        return True
    return dtype in _CHECKED and not bool((np.abs(constant.data.numpy().astype("float64")) > _MAX_LOW).any())


def _castable(arg: Expr) -> bool:
    """Whether an argument lets a following operator compute in float16."""
    if not is_nested_tensor(arg):
        return True
    match arg:
        case Constant():
            return _fits(arg)
        case Tuple():
            return all(_castable(f) for f in arg.fields)
    return getattr(arg.struct_info_, "dtype", None) == _LOW


class ToMixedPrecision(ModuleRewrite):
    """Compute convolutions, matrix products and attention on float16 inputs, giving ``out_dtype``.

    ::

        gv = R.nn.conv2d(x, w)      ->      lv = R.astype(x, "float16")
                                            lv1 = R.astype(w, "float16")
                                            gv = R.nn.conv2d(lv, lv1, out_dtype="float32")

    Within a dataflow block their results are stored as float16.  Operators that follow compute in float16 where all
    their inputs have it, others keep their dtype.  Parameters named in ``fp16_input_names`` become float16 themselves.
    """

    out_dtype: str = "float32"
    fp16_input_names: Sequence[str] | None = None

    def rewrite(self, mod: IRModule) -> IRModule:
        def convert(_: GlobalVar, func: Function) -> Function:
            demands = _Demands()
            demands.sequence(func.body)
            return _PrecisionRewriter(demands.of, self.out_dtype, list(self.fp16_input_names or ())).visit_expr(func)

        return map_relax_functions(mod, convert)
