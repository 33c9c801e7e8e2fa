"""The builder namespace ``R``: statements of graph functions, and every operator by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import builtins
import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .... import relax as _relax
from ....ir.expr import ExprLike, GlobalVar
from ....ir.global_info import VDevice
from ....ir.module import IRModule
from ....relax import ExternFunc, ShapeExpr, TupleGetItem, const
from ....relax.analysis import free_vars
from ....relax.expr import ArgLike, Binding, Expr
from ....relax.struct_info import StructInfoLike
from ....relax.utils import convert_to_expr
from ....runtime.device import Device, device as device_of
from ....support.entry_points import load
from ..attrs import add_func_attrs
from ..base import IRBuilder, Namer
from ..ir import IRModuleFrame, decl_function, def_function, lookup_vdevice
from .distributed import device_mesh
from .frame import BlockFrame, ElseFrame, FunctionFrame, IfFrame, SeqExprFrame, ThenFrame, current_seq, function_frame

if TYPE_CHECKING:
    from ....relax.dpl import PatternMatchingRewriter

__all__ = [
    "BindingBlock", "Else", "ExternFunc", "If", "SeqExpr", "ShapeExpr", "Then", "TupleGetItem", "arg", "call_packed",
    "const", "cpu", "cuda", "dataflow", "device",
    "device_mesh", "dtype", "emit", "emit_match_cast", "emit_te", "emit_var_binding",
    "ext_dev", "func_attr", "func_name", "func_ret_struct_info", "func_ret_value", "function", "gpu", "hexagon",
    "match_cast", "metal", "opencl", "output", "prim_value", "rewriter", "rocm", "shape", "stop_lift_params", "str",
    "to_vdevice", "tuple", "vpi", "vulkan", "webgpu",
]  # fmt: skip


def resolve(value: Any) -> Any:
    """Script-level annotations inside arguments, ``R.Tensor`` or ``R.Tensor(...)``, as the struct info they mean."""
    if getattr(value, "is_annotation", False):
        value = value()
    if hasattr(value, "as_struct_info"):
        return value.as_struct_info({})
    if isinstance(value, list):
        return [resolve(v) for v in value]
    if type(value) is builtins.tuple:
        return builtins.tuple(resolve(v) for v in value)
    return value


def function(is_pure: bool = True, is_private: bool = False) -> FunctionFrame:
    """Open a function."""
    return FunctionFrame(is_pure, is_private)


def arg(name: builtins.str, struct_info: StructInfoLike) -> _relax.Var:
    """Add a parameter."""
    frame = function_frame("R.Arg")
    var = _relax.Var(name, resolve(struct_info))
    frame.add_param(var)
    return var


def func_name(name: builtins.str) -> None:
    """Name the function."""
    frame = function_frame("R.func_name")
    if frame.name is not None:
        raise ValueError(f'Duplicate function name, previous one is: "{frame.name}"')
    frame.name = name


def func_attr(attrs: dict[builtins.str, Any]) -> None:
    """Set the function's attributes."""
    frame = function_frame("R.func_attr")
    add_func_attrs(frame, attrs, "R.func_attr annotation")


def func_ret_struct_info(ret_struct_info: StructInfoLike) -> None:
    """Set what the function returns."""
    frame = function_frame("R.func_ret_struct_info")
    if frame.ret_struct_info is not None:
        raise ValueError(f"Duplicate return struct info, previous one is: {frame.ret_struct_info}")
    frame.ret_struct_info = resolve(ret_struct_info)


def func_ret_value(value: ArgLike) -> None:
    """Set the function's result."""
    frame = function_frame("R.func_ret_value")
    if frame.output is not None:
        raise ValueError(
            "Relax functions do not support multiple return statement.  Please make sure function only has a single "
            "return statement, which appears at the end of function."
        )
    frame.output = frame.builder.normalize(convert_to_expr(value))
    block = IRBuilder.current().last(BlockFrame)
    if block is not None and block.is_dataflow:
        known = {id(v) for v in block.output_vars}
        block.output_vars.extend(
            v for v in free_vars(frame.output) if isinstance(v, _relax.DataflowVar) and id(v) not in known
        )


def dataflow() -> BlockFrame:
    """Open a dataflow block."""
    return BlockFrame(True)


def BindingBlock() -> BlockFrame:
    """Open a plain binding block."""
    return BlockFrame(False)


def SeqExpr() -> SeqExprFrame:
    """Open a sequence of its own; what it computes is its ``output``, set before it is left."""
    return SeqExprFrame()


def output(*vars: Any) -> None:
    """Name the variables of a dataflow block that are used after it."""
    frame = IRBuilder.current().last(BlockFrame)
    if frame is None or not frame.is_dataflow:
        raise ValueError("`R.output` should appear in the end of a dataflow block.")
    if frame.ended:
        raise ValueError("a dataflow block has one `R.output`")
    frame.ended = True
    frame.output_vars = list(vars)


def emit(expr: ArgLike, annotate_struct_info: StructInfoLike | None = None) -> _relax.Var:
    """Bind an expression to a fresh variable."""
    seq = current_seq()
    frame = IRBuilder.current().last(BlockFrame)
    if frame is not None and frame.ended:
        raise ValueError("Cannot emit new binding after the block has been ended: `R.output` must come last")
    expr = convert_to_expr(resolve(expr))
    if annotate_struct_info is not None:
        info = resolve(annotate_struct_info)
        if expr.struct_info_ is None:
            expr.struct_info_ = info
        else:
            from ....relax.analysis import struct_info_base_check

            if int(struct_info_base_check(info, expr.struct_info_)) == 0:
                raise ValueError(
                    f"Invalid annotation. Got rhs value struct info: {expr.struct_info_}, given struct info: {info}"
                )
    var = seq.builder.emit(expr)
    if IRBuilder.current().span is not None and var.span is None:
        var.span = IRBuilder.current().span
    return var


def emit_te(func: Callable[..., Any], *args: Any, **kwargs: Any) -> _relax.Call:
    """A call of the function that a tensor expression makes; the function joins the module."""
    from ....relax.te_bridge import gen_call_tir_inputs

    name = kwargs.pop("primfunc_name_hint", None) or func.__name__
    prim_func, call_args, out, tir_vars = gen_call_tir_inputs(func, *args, **kwargs)
    names = IRBuilder.current().find(IRModuleFrame)
    taken = names.global_vars if names is not None else {}
    unique, i = name, 1
    while unique in taken:
        unique, i = f"{name}_{i}", i + 1
    gv = decl_function(unique, prim_func)
    def_function(unique, prim_func)
    from ....relax.call_forms import call_tir

    return call_tir(gv, call_args, out, tir_vars)


class MatchCastPair:
    """A value and the struct info it is checked against, until the binding is named."""

    def __init__(self, value: Expr, struct_info: StructInfoLike) -> None:
        self.value = value
        self.struct_info = struct_info


def match_cast(value: ArgLike, struct_info: StructInfoLike) -> MatchCastPair:
    """Check a value at run time, defining the symbols in ``struct_info``."""
    if value is None:
        raise ValueError("value of match_cast cannot be None")
    if struct_info is None:
        raise ValueError("struct_info of match_cast cannot be None")
    return MatchCastPair(convert_to_expr(value), struct_info)


def emit_match_cast(value: Expr, struct_info: StructInfoLike) -> _relax.Var:
    """Bind a checked value."""
    return current_seq().builder.match_cast(value, resolve(struct_info))


def emit_var_binding(value: Binding) -> _relax.Var:
    """Append a binding as it is."""
    current_seq().builder.emit_normalized(value)
    return value.var


def If(condition: Expr) -> IfFrame:
    """A choice; ``Then`` and ``Else`` open inside."""
    return IfFrame(condition)


def Then() -> ThenFrame:
    """Branch of a condition that holds."""
    return ThenFrame()


def Else() -> ElseFrame:
    """Branch of a condition that does not hold."""
    return ElseFrame()


def call_packed(
    func: builtins.str | Expr,
    *args: Any,
    sinfo_args: StructInfoLike | Sequence[StructInfoLike] | None = None,
    **kwargs: Any,
) -> _relax.Call:
    """Call a packed function by name; without ``sinfo_args`` its result may be any object."""
    from ....ir.attrs import make_node

    op = ExternFunc(func) if isinstance(func, builtins.str) else func
    infos = resolve(sinfo_args)
    if infos is None:
        infos = _relax.ObjectStructInfo()
    if not isinstance(infos, (list, builtins.tuple)):
        infos = [infos]
    attrs = None
    if kwargs:
        key = kwargs.pop("attrs_type_key", "DictAttrs")
        attrs = make_node(key, **kwargs)
    return _relax.Call(op, [convert_to_expr(a) for a in args], attrs, infos)


def prim_value(value: ExprLike) -> _relax.PrimValue:
    """A scalar as a graph value."""
    return _relax.PrimValue(value)


def shape(values: Sequence[ExprLike]) -> ShapeExpr:
    """A shape as a graph value."""
    return ShapeExpr(values)


def str(value: builtins.str) -> _relax.StringImm:
    """A text as a graph value."""
    return _relax.StringImm(value)


def dtype(value: builtins.str) -> _relax.DataTypeImm:
    """A dtype as a graph value."""
    return _relax.DataTypeImm(value)


def tuple(*fields: Any) -> _relax.Tuple:
    """A tuple as a graph value."""
    if len(fields) == 0:
        return _relax.Tuple([])
    return _relax.Tuple([convert_to_expr(f) for f in fields])


def device(dev_type: Any = None, dev_id: int = 0) -> Device:
    """A device."""
    return device_of(dev_type, dev_id)


def cpu(dev_id: int = 0) -> Device:
    """A CPU device."""
    return device("cpu", dev_id)


def cuda(dev_id: int = 0) -> Device:
    """A CUDA device."""
    return device("cuda", dev_id)


gpu = cuda


def _device_of(kind: builtins.str) -> Callable[..., Device]:
    def make(dev_id: int = 0) -> Device:
        return device(kind, dev_id)

    make.__name__ = kind
    make.__doc__ = f"A {kind} device."
    return make


rocm, metal, opencl, vulkan = (_device_of(k) for k in ("rocm", "metal", "opencl", "vulkan"))
hexagon, webgpu, vpi, ext_dev = (_device_of(k) for k in ("hexagon", "webgpu", "vpi", "ext_dev"))


def to_vdevice(data: Expr, dst_vdevice: VDevice | builtins.str) -> Expr:
    """Copy a tensor to a virtual device, which may be named as ``"cuda:1"``."""
    return load("operators").to_vdevice(data, as_vdevice(dst_vdevice))


def as_vdevice(value: VDevice | builtins.str | None) -> VDevice | None:
    """``"cuda:1"`` as the module's virtual device of that kind and position."""
    if not isinstance(value, builtins.str):
        return value
    kind, _, index = value.partition(":")
    return lookup_vdevice(kind, int(index.split(":")[0]) if index else 0)


def stop_lift_params(x: Expr) -> Expr:
    """Keep what follows of ``x`` from being lifted out of the function."""
    return load("operators").builtin.stop_lift_params(x)


def rewriter(mod: IRModule | type) -> PatternMatchingRewriter:
    """A pattern-matching rewriter from a module class with ``pattern`` and ``replacement``."""
    from ....relax import dpl

    if not isinstance(mod, IRModule):
        from ...parser.core.utils import capture

        module: IRModule = load("script.parse")(mod, capture(mod, 2), check_well_formed=False)
    else:
        module = mod
    return dpl.PatternMatchingRewriter.from_module(module)


class _OpNamespace:
    """Operators of one module, with script annotations in their arguments resolved."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: builtins.str) -> Any:
        return _wrap(getattr(self._module, name))


def _wrap(found: object) -> Any:
    if isinstance(found, ModuleType):
        return _OpNamespace(found)
    if not callable(found) or isinstance(found, type):
        return found

    def call(*args: Any, **kwargs: Any) -> Any:
        values = {k: "" if v == "void" and k.endswith("dtype") else resolve(v) for k, v in kwargs.items()}
        return found(*[resolve(a) for a in args], **values)

    call.__name__ = getattr(found, "__name__", "op")
    call.__doc__ = found.__doc__
    return call


def __getattr__(name: builtins.str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    ops = load("operators")
    found = getattr(ops, name, None)
    if found is None:
        try:
            found = importlib.import_module(f"{ops.__name__}.{name}")
        except ImportError:
            raise AttributeError(f"R has no operator or statement named {name!r}") from None
    return _wrap(found)


_ = (GlobalVar, Namer)
