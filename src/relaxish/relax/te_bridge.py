"""From graph expressions to TE and back: arguments become placeholders, results become ``call_tir``."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..ir.errors import CheckValueError
from ..ir.expr import PrimExpr
from ..ir.global_info import VDevice
from ..ir.node import Node
from ..ir.prim import Var as TirVar
from ..support.errors import InternalError, RelaxishError
from ..support.sequences import as_list
from ..te.tensor import Tensor
from ..tir.functor import substitute
from .expr import Call, Expr, PrimValue, ShapeExpr, Tuple, TupleGetItem, Var
from .scalars import prim_vars
from .struct_info import PrimStructInfo, ShapeStructInfo, TensorStructInfo, TupleStructInfo

if TYPE_CHECKING:
    from .block_builder import BlockBuilder

__all__ = ["call_te", "call_te_with_grad", "gen_call_tir_inputs", "te_tensor"]


def te_tensor(value: Expr, tir_var_map: Mapping[Any, Any], name: str = "rxplaceholder") -> Tensor:
    """A TE placeholder like ``value``, with symbolic dimensions renamed by ``tir_var_map``.

    Raises ValueError if the shape is not known.
    """
    from ..te import placeholder

    info = value.struct_info
    if not isinstance(info, TensorStructInfo):
        raise InternalError(f"Value must be a tensor, but has struct info {info}")
    if not isinstance(info.shape, ShapeExpr):
        raise CheckValueError(
            f"{value} does not have a known symbolic shape, please consider use match_cast to constrain the shape "
            "before passing into te_tensor"
        )
    if not info.dtype:
        raise RelaxishError("TE needs a tensor of known dtype")
    return placeholder([substitute(d, tir_var_map) for d in info.shape.values], info.dtype, name=name)


class _Converter:
    """Turns arguments into TE ones, collecting what the PrimFunc and the call need."""

    def __init__(self) -> None:
        self.renamed: dict[TirVar, TirVar] = {}
        self.call_args: list[Any] = []
        self.func_args: list[Any] = []
        self.extra: list[PrimExpr] = []

    def fresh(self, expr: PrimExpr) -> None:
        """Rename every symbolic variable of ``expr``: the PrimFunc shares none with the graph."""
        for var in prim_vars(expr):
            if var not in self.renamed:
                self.renamed[var] = TirVar(var.name, var.dtype)

    def _name(self, arg: Expr, letters: str, kind: str) -> str:
        count = len(self.func_args)
        if isinstance(arg, Var):
            return arg.name_hint
        return letters[count] if count < len(letters) else f"{kind}_input_{count}"

    def convert(self, arg: Any) -> object:
        """One argument, however nested."""
        match arg:
            case PrimExpr():
                self.fresh(arg)
                made = substitute(arg, self.renamed)
                self.extra.append(made)
                return made
            case Expr() if not isinstance(arg, TirVar):
                return self._expr(arg)
            case list():
                return [self.convert(a) for a in arg]
            case tuple():
                return tuple(self.convert(a) for a in arg)
            case dict():
                if not all(isinstance(k, str) for k in arg):
                    raise AssertionError("emit_te only supports dict with string as the key currently")
                return {k: self.convert(v) for k, v in arg.items()}
        if arg is None or isinstance(arg, (int, float, str, bool, Node)) or callable(arg):
            return arg
        raise TypeError(f"not supported type in emit_te: {type(arg)}")

    def _expr(self, arg: Expr) -> object:
        info = arg.struct_info
        match info:
            case TensorStructInfo():
                if not isinstance(info.shape, ShapeExpr):
                    raise AssertionError(
                        f"emit_te now only supports Tensor that has ShapeExpr shape, not {arg} of {info}"
                    )
                for dim in info.shape.values:
                    self.fresh(dim)
                tensor = te_tensor(arg, self.renamed, self._name(arg, string.ascii_uppercase, "tensor"))
                self.call_args.append(arg)
                self.func_args.append(tensor)
                return tensor
            case ShapeStructInfo():
                if not isinstance(arg, ShapeExpr):
                    raise AssertionError("For Expr having ShapeStructInfo, emit_te now only supports ShapeExpr")
                return [self.convert(v) for v in arg.values]
            case PrimStructInfo():
                if isinstance(arg, PrimValue):
                    return self.convert(arg.value)
                scalar = TirVar(self._name(arg, string.ascii_lowercase, "scalar"), info.dtype)
                self.call_args.append(arg)
                self.func_args.append(scalar)
                return scalar
            case TupleStructInfo():
                fields = (
                    arg.fields if isinstance(arg, Tuple) else [TupleGetItem(arg, i) for i in range(len(info.fields))]
                )
                return [self.convert(f) for f in fields]
        if hasattr(arg, "value"):
            return arg.value
        raise TypeError(f"not supported type in emit_te: an expression with struct info {info}")


def _unbound(tensors: list[Any], extra: list[PrimExpr]) -> list[TirVar]:
    """Symbolic variables used in the computation that no tensor shape or scalar parameter binds."""
    bound: set[TirVar] = set()
    used: dict[TirVar, None] = {}
    for expr in extra:
        used.update(dict.fromkeys(prim_vars(expr)))
    for item in tensors:
        if isinstance(item, PrimExpr):
            if isinstance(item, TirVar):
                bound.add(item)
            used.update(dict.fromkeys(prim_vars(item)))
            continue
        for dim in item.shape:
            if isinstance(dim, TirVar):
                bound.add(dim)
            if isinstance(dim, PrimExpr):
                used.update(dict.fromkeys(prim_vars(dim)))
    return [v for v in used if v not in bound]


def _vdevice(arg: object) -> VDevice | None:
    """The device that the first argument which has one is on."""
    match arg:
        case list() | tuple():
            return next((found for item in arg if (found := _vdevice(item)) is not None), None)
        case dict():
            return _vdevice(list(arg.values()))
    info = getattr(arg, "struct_info_", None)
    return info.vdevice if isinstance(info, TensorStructInfo) else None


def gen_call_tir_inputs(func: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, list[Any], Any, Any]:
    """Run a TE function on graph arguments; returns ``(PrimFunc, call_tir args, out_sinfo, tir_vars)``.

    Raises AssertionError for arguments or results that are no tensors of known shape.
    """
    from ..te import Tensor, create_prim_func

    attrs = kwargs.pop("primfunc_attrs", None)
    custom_out = kwargs.pop("sinfo_args", None) or []
    converter = _Converter()
    te_args = [converter.convert(a) for a in args]
    te_kwargs = {k: converter.convert(v) for k, v in kwargs.items()}
    outputs = func(*te_args, **te_kwargs)
    outs = as_list(outputs)
    if not all(isinstance(out, Tensor) for out in outs):
        raise AssertionError("only support te.tensor or tuple/list/Array of te.tensor as function output")
    unbound = _unbound([*converter.func_args, *outs], converter.extra)
    prim_func = create_prim_func([*converter.func_args, *outs, *unbound], "int64")
    if attrs:
        prim_func = prim_func.with_attr(dict(attrs))
    prim_func = prim_func.without_attr("global_symbol")
    original = {new: old for old, new in converter.renamed.items()}
    vdevice = _vdevice(args)
    infos: Any = [TensorStructInfo([_dim(d, original) for d in out.shape], out.dtype, vdevice) for out in outs]
    if len(custom_out) == 1:
        infos = custom_out[0]
    tir_vars = ShapeExpr([_dim(v, original) for v in unbound]) if unbound else None
    return prim_func, converter.call_args, infos, tir_vars


def _dim(value: PrimExpr | int, original: Mapping[TirVar, TirVar]) -> PrimExpr | int:
    return value if isinstance(value, int) else substitute(value, original)


def _prepare(
    builder: BlockBuilder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    kwargs = dict(kwargs)
    name = kwargs.pop("primfunc_name_hint", None) or getattr(func, "__name__", "te_func")
    prim_func, call_args, out_sinfo, tir_vars = gen_call_tir_inputs(func, *args, **kwargs)
    return builder.add_func(prim_func, name), call_args, out_sinfo, tir_vars


def call_te(builder: BlockBuilder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
    """The call_tir of a TE function, not yet bound."""
    from .call_forms import call_tir

    return call_tir(*_prepare(builder, func, args, kwargs))


def call_te_with_grad(
    builder: BlockBuilder,
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    te_grad_name: str,
    te_grad_kwargs: dict[str, Any] | None,
) -> Call:
    """The call_tir_with_grad of a TE function, not yet bound."""
    from .call_forms import call_tir_with_grad

    gvar, call_args, out_sinfo, tir_vars = _prepare(builder, func, args, kwargs)
    return call_tir_with_grad(gvar, call_args, out_sinfo, te_grad_name, te_grad_kwargs, tir_vars)
