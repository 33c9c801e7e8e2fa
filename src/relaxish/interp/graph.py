"""Running graph functions: an environment of arrays, tuples and shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .. import relax, tir
from ..ir import IRModule
from ..ir.evaluate import evaluate
from ..ir.expr import BaseFunc, GlobalVar
from ..ir.op import Op
from ..ir.plain import plain_int
from ..relax.expr import Expr
from ..relax.op_table import Legalize
from ..relax.struct_info import StructInfo
from ..runtime.registry import get_global_func
from ..tir import PrimExpr
from .intrinsics import Array, np_dtype
from .prim_func import run_prim_func

__all__ = ["Bound", "run_relax"]


class _Closure:
    """A function value with the variables around it."""

    def __init__(self, func: relax.Function, env: Env, symbols: Symbols) -> None:
        self.func, self.env, self.symbols = func, env, symbols


#: The value of a graph expression: an array, a scalar, a shape or a tuple, a text, a function, or nothing.
Bound = Array | np.generic | int | float | str | tuple[Any, ...] | Callable[..., Any] | BaseFunc | _Closure | None
Env = dict[relax.Var, Bound]
Symbols = dict[tir.Var, int]


@runtime_checkable
class _OtherArray(Protocol):
    """An array of another library (or this one's), which becomes NumPy's by a method."""

    def numpy(self) -> Array: ...


def _array(value: Bound | _OtherArray) -> Bound:
    return value.numpy() if isinstance(value, _OtherArray) else value


def _items(value: Bound, what: str) -> tuple[Any, ...]:
    """The fields of a tuple or the dimensions of a shape. Raises ValueError for another value."""
    if not isinstance(value, tuple | list | np.ndarray):
        raise ValueError(f"{what}: expected a tuple or a shape, got {type(value).__name__}")
    return tuple(value)


class Interpreter:
    """Runs the functions of one module."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.prims = {gv.name_hint: f for gv, f in mod.functions.items() if isinstance(f, tir.PrimFunc)}

    def function(
        self, func: relax.Function, args: list[Any], env: Env | None = None, symbols: Symbols | None = None
    ) -> Bound:
        """Call a graph function. Raises ValueError where arguments do not fit."""
        if len(args) != len(func.params):
            raise ValueError(f"the function takes {len(func.params)} arguments, got {len(args)}")
        env, symbols = dict(env or {}), dict(symbols or {})
        for param, arg in zip(func.params, args):
            self.match(param.struct_info_, arg, symbols, param.name_hint)
            env[param] = arg
        return self.eval(func.body, env, symbols)

    def match(self, info: StructInfo | None, value: Bound, symbols: Symbols, what: str) -> None:
        """Check a value against struct info, binding symbolic dimensions."""
        match info:
            case relax.TupleStructInfo():
                items = _items(value, what)
                if len(info.fields) != len(items):
                    raise ValueError(f"{what}: expected a tuple of {len(info.fields)}, got {len(items)}")
                for i, (field, item) in enumerate(zip(info.fields, items)):
                    self.match(field, item, symbols, f"{what}[{i}]")
            case relax.TensorStructInfo():
                array = np.asarray(value)
                if info.dtype and array.dtype != np_dtype(info.dtype):
                    raise ValueError(f"{what}: expected dtype {info.dtype}, got {array.dtype}")
                if info.ndim >= 0 and array.ndim != info.ndim:
                    raise ValueError(f"{what}: expected {info.ndim} dimensions, got {array.ndim}")
                if isinstance(info.shape, relax.ShapeExpr):
                    self._dims(info.shape.values, array.shape, symbols, what)
            case relax.ShapeStructInfo() if info.values is not None:
                self._dims(info.values, _items(value, what), symbols, what)
            case relax.PrimStructInfo() if isinstance(info.value, tir.Var):
                symbols.setdefault(info.value, plain_int(value))

    def _dims(self, dims: Sequence[PrimExpr], sizes: Sequence[int], symbols: Symbols, what: str) -> None:
        if len(dims) != len(sizes):
            raise ValueError(f"{what}: expected {len(dims)} dimensions, got {len(sizes)}")
        later = []
        for dim, size in zip(dims, sizes):
            if isinstance(dim, tir.Var) and dim not in symbols:
                symbols[dim] = int(size)
            else:
                later.append((dim, size))
        for dim, size in later:
            expected = self.dim(dim, symbols)
            if expected is not None and expected != int(size):
                raise ValueError(f"{what}: expected dimension {dim} = {expected}, got {size}")

    def dim(self, expr: PrimExpr, symbols: Symbols) -> int | None:
        """The value of a dimension, or None if it mentions unknown symbols."""
        try:
            return int(evaluate(expr, symbols))
        except (KeyError, ValueError):
            return None

    def eval(self, expr: Expr, env: Env, symbols: Symbols) -> Bound:
        """The value of a graph expression."""
        method = getattr(self, f"eval_{type(expr).__name__}", None)
        if method is None:
            raise NotImplementedError(f"the interpreter does not know {type(expr).__name__}")
        return method(expr, env, symbols)

    def eval_Var(self, expr: relax.Var, env: Env, symbols: Symbols) -> Bound:
        return env[expr]

    eval_DataflowVar = eval_Var

    def eval_Constant(self, expr: relax.Constant, env: Env, symbols: Symbols) -> Bound:
        return np.asarray(_array(expr.data))

    def eval_Tuple(self, expr: relax.Tuple, env: Env, symbols: Symbols) -> Bound:
        return tuple(self.eval(f, env, symbols) for f in expr.fields)

    def eval_TupleGetItem(self, expr: relax.TupleGetItem, env: Env, symbols: Symbols) -> Bound:
        fields = self.eval(expr.tuple_value, env, symbols)
        assert isinstance(fields, tuple)
        field: Bound = fields[expr.index]
        return field

    def eval_ShapeExpr(self, expr: relax.ShapeExpr, env: Env, symbols: Symbols) -> Bound:
        return tuple(int(evaluate(v, symbols)) for v in expr.values)

    def eval_PrimValue(self, expr: relax.PrimValue, env: Env, symbols: Symbols) -> Bound:
        return evaluate(expr.value, symbols)

    def eval_StringImm(self, expr: relax.StringImm, env: Env, symbols: Symbols) -> Bound:
        return expr.value

    eval_DataTypeImm = eval_StringImm

    def eval_GlobalVar(self, expr: GlobalVar, env: Env, symbols: Symbols) -> Bound:
        return self.mod[expr]

    def eval_Function(self, expr: relax.Function, env: Env, symbols: Symbols) -> Bound:
        return _Closure(expr, env, symbols)

    def eval_ExternFunc(self, expr: relax.ExternFunc, env: Env, symbols: Symbols) -> Bound:
        return get_global_func(expr.global_symbol)

    def eval_SeqExpr(self, expr: relax.SeqExpr, env: Env, symbols: Symbols) -> Bound:
        for block in expr.blocks:
            for binding in block.bindings:
                value = self.eval(binding.value, env, symbols)
                if isinstance(binding, relax.MatchCast):
                    self.match(binding.struct_info, value, symbols, binding.var.name_hint)
                env[binding.var] = value
        return self.eval(expr.body, env, symbols)

    def eval_If(self, expr: relax.If, env: Env, symbols: Symbols) -> Bound:
        chosen = expr.true_branch if bool(np.asarray(self.eval(expr.cond, env, symbols))) else expr.false_branch
        return self.eval(chosen, dict(env), dict(symbols))

    def eval_Call(self, expr: relax.Call, env: Env, symbols: Symbols) -> Bound:
        op = expr.op
        if isinstance(op, Op):
            return self.operator(expr, env, symbols)
        callee = self.eval(op, env, symbols)
        args = [self.eval(a, env, symbols) for a in expr.args]
        match callee:
            case _Closure():
                inner = dict(callee.env)
                if isinstance(op, relax.Var):
                    inner[op] = callee
                return self.function(callee.func, args, inner, callee.symbols)
            case relax.Function():
                return self.function(callee, args)
        assert callable(callee)
        made: Bound = callee(*args)
        return made

    def operator(self, expr: relax.Call, env: Env, symbols: Symbols) -> Bound:
        """The call of an operator: the call forms here, others by their reference or their legalisation."""
        name = expr.op.name.removeprefix("relax.")
        if name in ("call_tir", "call_tir_inplace", "call_tir_with_grad", "call_dps_packed"):
            return self.call_tir(expr, name, env, symbols)
        if name in ("call_pure_packed", "call_inplace_packed", "invoke_pure_closure", "invoke_closure"):
            inner = relax.Call(expr.args[0], expr.args[1:] if "packed" in name else expr.args[1].fields)
            return self.eval_Call(inner, env, symbols)
        if name == "shape_of":
            return tuple(int(d) for d in np.asarray(self.eval(expr.args[0], env, symbols)).shape)
        if name == "null_value":
            return None
        record = relax.op_table.op_record_of(expr.op)
        if record is not None and record.legalize is not None:
            return self.legalized(record.legalize, expr, env, symbols)
        if record is not None and record.reference is not None:
            args = [self.eval(a, env, symbols) for a in expr.args]
            attrs = dict(expr.attrs.items()) if expr.attrs is not None else {}
            return record.reference(*args, **attrs)
        raise NotImplementedError(f"the interpreter does not know the operator {expr.op.name}")

    def legalized(self, legalize: Legalize, expr: relax.Call, env: Env, symbols: Symbols) -> Bound:
        """Run what an operator legalises to."""
        builder = relax.BlockBuilder()
        builder.begin_scope(())
        builder.begin_binding_block()
        made = legalize(builder, expr)
        blocks = [builder.end_block()]
        if isinstance(made, relax.Call) and made.op is expr.op and made is expr:
            raise NotImplementedError(f"the interpreter cannot run {expr.op.name} with these arguments")
        inner = Interpreter(builder.get())
        inner.prims = {**self.prims, **inner.prims}
        return inner.eval(relax.SeqExpr(blocks, made), dict(env), dict(symbols))

    def call_tir(self, expr: relax.Call, name: str, env: Env, symbols: Symbols) -> Bound:
        """Allocate the outputs and run a tensor function (or packed function) on them."""
        given = self.eval(expr.args[1], env, symbols)
        args: list[Any] = list(given) if isinstance(given, tuple) else [given]
        info = expr.sinfo_args[0]
        infos = list(info.fields) if isinstance(info, relax.TupleStructInfo) else [info]
        outs: list[Any] = []
        fresh: list[Any] = []
        indices = [int(i) for i in expr.attrs["inplace_indices"]] if name == "call_tir_inplace" else [-1] * len(infos)
        one: Any
        for index, one in zip(indices, infos):
            if index >= 0:
                args[index] = np.array(args[index])
                outs.append(args[index])
                continue
            shape = self.eval(one.shape, env, symbols)
            outs.append(np.zeros(shape, dtype=np_dtype(one.dtype)))
            fresh.append(outs[-1])
        extra = _items(self.eval(expr.args[2], env, symbols), name) if len(expr.args) == 3 else ()
        callee = expr.args[0]
        if isinstance(callee, GlobalVar):
            func = self.prims.get(callee.name_hint) or self.mod[callee]
            ordered = [np.asarray(a, order="C") if isinstance(a, np.ndarray) else a for a in args]
            run_prim_func(func, [*ordered, *fresh, *extra], self.prims)
        else:
            packed = self.eval(callee, env, symbols)
            assert callable(packed)
            packed(*args, *fresh)
        return tuple(outs) if isinstance(info, relax.TupleStructInfo) else outs[0]


def run_relax(mod: IRModule, func_name: str, args: list[Any]) -> Bound:
    """Run ``mod[func_name]`` on arrays, tuples of arrays, shapes and scalars."""
    return Interpreter(mod).function(mod[func_name], [_array(a) for a in args])
