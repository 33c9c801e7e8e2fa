"""Operators that call what the user brings: tensor expressions, PrimFuncs, packed functions, debug hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ... import op as _op
from ... import relax, tir
from ...relax.expr import Expr
from ...relax.struct_info import StructInfo
from ...support.sequences import as_list
from ...tir import PrimFunc
from .core import Object, Tensor, wrap_nested

__all__ = ["debug_func", "extern", "print_", "tensor_expr_op", "tensor_ir_inplace_op", "tensor_ir_op"]


#: An argument of a loop program: a tensor, or a symbolic integer passed beside the tensors.
Argument = Tensor | Object | tir.Var | tir.IntImm | int
#: An argument of a packed function.
PackedArgument = Tensor | Object | relax.Expr | tir.PrimExpr | float | str | Sequence[Any]
#: A tensor, or (nested) sequences of tensors.
Nested = Tensor | Object | Sequence[Any]


def _builder(what: str) -> relax.BlockBuilder:
    current = relax.BlockBuilder.current()
    if current is None:
        raise RuntimeError(f"{what} runs while a module is exported: it needs an active BlockBuilder")
    return current


def tensor_expr_op(
    tensor_expr_func: Callable[..., Any],
    name_hint: str,
    args: Sequence[Any],
    *,
    attrs: dict[str, Any] | None = None,
) -> Any:
    """A tensor-expression function as an operator."""
    exprs = [a._expr if isinstance(a, (Tensor, Object)) else a for a in args]
    builder = _builder("tensor_expr_op")
    made = builder.emit_te(tensor_expr_func, *exprs, primfunc_name_hint=name_hint, primfunc_attrs=attrs)
    return wrap_nested(made, name_hint)


def _split_args(name: str, args: Argument | Sequence[Argument]) -> tuple[list[Expr], relax.ShapeExpr | None]:
    """Tensors, and the symbolic integers passed beside them (None if there are none)."""
    tensors: list[Any] = []
    scalars: list[Any] = []
    for arg in as_list(args):
        match arg:
            case Tensor() | Object():
                tensors.append(arg._expr)
            case tir.Var() | tir.IntImm() | int():
                scalars.append(arg)
            case _:
                raise TypeError(f"Unsupported type: {name} expects Tensors or tir.Vars, but got {type(arg).__name__}")
    return tensors, relax.ShapeExpr(scalars) if scalars else None


def _outputs(out: Tensor | Sequence[Tensor]) -> list[StructInfo]:
    return [o._expr.struct_info for o in ([out] if isinstance(out, Tensor) else out)]


def tensor_ir_op(
    func: PrimFunc, name_hint: str, args: Argument | Sequence[Argument], out: Tensor | Sequence[Tensor]
) -> Any:
    """A PrimFunc as an operator: it reads ``args`` and writes tensors like ``out`` (one, or a list of them)."""
    tensors, scalars = _split_args("tensor_ir_op", args)
    builder = _builder("tensor_ir_op")
    function = builder.add_func(func, name_hint)
    return wrap_nested(builder.emit(_op.call_tir(function, tensors, _outputs(out), tir_vars=scalars)), name_hint)


def tensor_ir_inplace_op(
    func: PrimFunc,
    name_hint: str,
    args: Argument | Sequence[Argument],
    inplace_indices: int | list[int],
    out: Tensor | Sequence[Tensor],
) -> Any:
    """As :func:`tensor_ir_op`; the outputs overwrite the arguments at ``inplace_indices``."""
    tensors, scalars = _split_args("tensor_ir_inplace_op", args)
    builder = _builder("tensor_ir_inplace_op")
    function = builder.add_func(func, name_hint)
    call = _op.call_tir_inplace(function, tensors, inplace_indices, _outputs(out), tir_vars=scalars)
    return wrap_nested(builder.emit(call), name_hint)


def to_packed_argument(arg: PackedArgument) -> Expr:
    """An argument of a packed function as an expression. Raises TypeError for what cannot be one."""
    match arg:
        case Tensor() | Object():
            return arg._expr
        case relax.Expr():
            return arg
        case int():
            return relax.PrimValue(tir.IntImm("int64", arg))
        case float():
            return relax.PrimValue(tir.FloatImm("float64", arg))
        case str():
            return relax.StringImm(arg)
        case tir.PrimExpr():
            return relax.PrimValue(arg)
        case list() | tuple():
            return relax.Tuple([to_packed_argument(a) for a in arg])
    raise TypeError(f"Unsupported input type: {type(arg).__name__}")


def struct_info_of(out: Nested) -> StructInfo:
    """The struct info of a tensor, or of a (nested) sequence of them."""
    if isinstance(out, Sequence):
        return relax.TupleStructInfo([struct_info_of(o) for o in out])
    return out._expr.struct_info


def extern(name: str, args: Sequence[Any], out: Nested) -> Any:
    """A registered packed function, called in destination-passing style: it gets ``args``, then tensors like ``out``."""
    return wrap_nested(_op.call_dps_packed(name, to_packed_argument(list(args)), struct_info_of(out)), name)


def debug_func(name: str, *args: Any, _line_info: str | None = None) -> None:
    """Call the packed function ``name`` with ``(line, *args)`` each time the model comes by here.

    Raises RuntimeError unless the module is exported with ``debug=True``.
    """
    from .exporter import Exporter

    effect = Exporter.current().io_effect
    if effect is None:
        raise RuntimeError("Debugging is only supported when debug flag is on.")
    line = _line_info or _caller()
    values = [to_packed_argument(a) for a in args]
    call = _op.call_pure_packed(
        "vm.builtin.invoke_debug_func",
        effect.effect,
        relax.StringImm(name),
        relax.StringImm(line),
        *values,
        sinfo_args=[relax.ObjectStructInfo()],
    )
    effect.effect = _builder("debug_func").emit(call, effect.effect.name_hint)


def print_(tensor: Tensor) -> None:
    """Print a tensor each time the model comes by here; for modules exported with ``debug=True``."""
    debug_func("vm.builtin.debug_print", tensor, _line_info=_caller())


def _caller() -> str:
    """File and line of whoever called the function that asks."""
    frame = inspect.currentframe()
    for _ in range(2):
        assert frame is not None
        frame = frame.f_back
    assert frame is not None
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
