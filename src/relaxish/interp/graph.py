"""Running graph functions: an environment of arrays, tuples and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import relax, tir
from ..ir.evaluate import evaluate
from ..ir.expr import GlobalVar
from ..ir.op import Op
from ..runtime.registry import get_global_func
from .intrinsics import np_dtype
from .prim_func import run_prim_func

__all__ = ["run_relax"]


def _array(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") and not isinstance(value, np.ndarray) else value


class _Closure:
    """A function value with the variables around it."""

    def __init__(self, func: Any, env: dict[Any, Any], symbols: dict[Any, int]) -> None:
        self.func, self.env, self.symbols = func, env, symbols


class Interpreter:
    """Runs the functions of one module."""

    def __init__(self, mod: Any) -> None:
        self.mod = mod
        self.prims = {gv.name_hint: f for gv, f in mod.functions.items() if isinstance(f, tir.PrimFunc)}

    def function(self, func: Any, args: list[Any], env: Any = None, symbols: Any = None) -> Any:
        """Call a graph function. Raises ValueError where arguments do not fit."""
        if len(args) != len(func.params):
            raise ValueError(f"the function takes {len(func.params)} arguments, got {len(args)}")
        env, symbols = dict(env or {}), dict(symbols or {})
        for param, arg in zip(func.params, args):
            self.match(param.struct_info_, arg, symbols, param.name_hint)
            env[param] = arg
        return self.eval(func.body, env, symbols)

    def match(self, info: Any, value: Any, symbols: dict[Any, int], what: str) -> None:
        """Check a value against struct info, binding symbolic dimensions."""
        if isinstance(info, relax.TupleStructInfo):
            if len(info.fields) != len(value):
                raise ValueError(f"{what}: expected a tuple of {len(info.fields)}, got {len(value)}")
            for i, (field, item) in enumerate(zip(info.fields, value)):
                self.match(field, item, symbols, f"{what}[{i}]")
        elif isinstance(info, relax.TensorStructInfo):
            array = np.asarray(value)
            if info.dtype and array.dtype != np_dtype(info.dtype):
                raise ValueError(f"{what}: expected dtype {info.dtype}, got {array.dtype}")
            if info.ndim >= 0 and array.ndim != info.ndim:
                raise ValueError(f"{what}: expected {info.ndim} dimensions, got {array.ndim}")
            if isinstance(info.shape, relax.ShapeExpr):
                self._dims(info.shape.values, array.shape, symbols, what)
        elif isinstance(info, relax.ShapeStructInfo) and info.values is not None:
            self._dims(info.values, value, symbols, what)
        elif isinstance(info, relax.PrimStructInfo) and isinstance(info.value, tir.Var):
            symbols.setdefault(info.value, int(value))

    def _dims(self, dims: Any, sizes: Any, symbols: dict[Any, int], what: str) -> None:
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

    def dim(self, expr: Any, symbols: dict[Any, int]) -> int | None:
        """The value of a dimension, or None if it mentions unknown symbols."""
        try:
            return int(evaluate(expr, symbols))
        except (KeyError, ValueError):
            return None

    def eval(self, expr: Any, env: dict[Any, Any], symbols: dict[Any, int]) -> Any:
        """The value of a graph expression."""
        method = getattr(self, f"eval_{type(expr).__name__}", None)
        if method is None:
            raise NotImplementedError(f"the interpreter does not know {type(expr).__name__}")
        return method(expr, env, symbols)

    def eval_Var(self, expr: Any, env: Any, symbols: Any) -> Any:
        return env[expr]

    eval_DataflowVar = eval_Var

    def eval_Constant(self, expr: Any, env: Any, symbols: Any) -> Any:
        return np.asarray(_array(expr.data))

    def eval_Tuple(self, expr: Any, env: Any, symbols: Any) -> Any:
        return tuple(self.eval(f, env, symbols) for f in expr.fields)

    def eval_TupleGetItem(self, expr: Any, env: Any, symbols: Any) -> Any:
        return self.eval(expr.tuple_value, env, symbols)[expr.index]

    def eval_ShapeExpr(self, expr: Any, env: Any, symbols: Any) -> Any:
        return tuple(int(evaluate(v, symbols)) for v in expr.values)

    def eval_PrimValue(self, expr: Any, env: Any, symbols: Any) -> Any:
        return evaluate(expr.value, symbols)

    def eval_StringImm(self, expr: Any, env: Any, symbols: Any) -> Any:
        return expr.value

    eval_DataTypeImm = eval_StringImm

    def eval_GlobalVar(self, expr: Any, env: Any, symbols: Any) -> Any:
        return self.mod[expr]

    def eval_Function(self, expr: Any, env: Any, symbols: Any) -> Any:
        return _Closure(expr, env, symbols)

    def eval_ExternFunc(self, expr: Any, env: Any, symbols: Any) -> Any:
        return get_global_func(expr.global_symbol)

    def eval_SeqExpr(self, expr: Any, env: Any, symbols: Any) -> Any:
        for block in expr.blocks:
            for binding in block.bindings:
                value = self.eval(binding.value, env, symbols)
                if isinstance(binding, relax.MatchCast):
                    self.match(binding.struct_info, value, symbols, binding.var.name_hint)
                env[binding.var] = value
        return self.eval(expr.body, env, symbols)

    def eval_If(self, expr: Any, env: Any, symbols: Any) -> Any:
        chosen = expr.true_branch if bool(np.asarray(self.eval(expr.cond, env, symbols))) else expr.false_branch
        return self.eval(chosen, dict(env), dict(symbols))

    def eval_Call(self, expr: Any, env: Any, symbols: Any) -> Any:
        op = expr.op
        if isinstance(op, Op):
            return self.operator(expr, env, symbols)
        callee = self.eval(op, env, symbols)
        args = [self.eval(a, env, symbols) for a in expr.args]
        if isinstance(callee, _Closure):
            inner = dict(callee.env)
            if isinstance(op, relax.Var):
                inner[op] = callee
            return self.function(callee.func, args, inner, callee.symbols)
        if isinstance(callee, relax.Function):
            return self.function(callee, args)
        return callee(*args)

    def operator(self, expr: Any, env: Any, symbols: Any) -> Any:
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
            return self.legalized(record, expr, env, symbols)
        if record is not None and record.reference is not None:
            args = [self.eval(a, env, symbols) for a in expr.args]
            attrs = dict(expr.attrs.items()) if expr.attrs is not None else {}
            return record.reference(*args, **attrs)
        raise NotImplementedError(f"the interpreter does not know the operator {expr.op.name}")

    def legalized(self, record: Any, expr: Any, env: Any, symbols: Any) -> Any:
        """Run what an operator legalises to."""
        builder = relax.BlockBuilder()
        builder.begin_scope(())
        builder.begin_binding_block()
        made = record.legalize(builder, expr)
        blocks = [builder.end_block()]
        if isinstance(made, relax.Call) and made.op is expr.op and made is expr:
            raise NotImplementedError(f"the interpreter cannot run {expr.op.name} with these arguments")
        inner = Interpreter(builder.get())
        inner.prims = {**self.prims, **inner.prims}
        return inner.eval(relax.SeqExpr(blocks, made), dict(env), dict(symbols))

    def call_tir(self, expr: Any, name: str, env: Any, symbols: Any) -> Any:
        """Allocate the outputs and run a tensor function (or packed function) on them."""
        args = self.eval(expr.args[1], env, symbols)
        args = list(args) if isinstance(args, tuple) else [args]
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
        extra = list(self.eval(expr.args[2], env, symbols)) if len(expr.args) == 3 else []
        callee = expr.args[0]
        if isinstance(callee, GlobalVar):
            func = self.prims.get(callee.name_hint) or self.mod[callee]
            given = [np.asarray(a, order="C") if isinstance(a, np.ndarray) else a for a in args]
            run_prim_func(func, [*given, *fresh, *extra], self.prims)
        else:
            self.eval(callee, env, symbols)(*args, *fresh)
        return tuple(outs) if isinstance(info, relax.TupleStructInfo) else outs[0]


def run_relax(mod: Any, func_name: str, args: list[Any]) -> Any:
    """Run ``mod[func_name]`` on arrays, tuples of arrays, shapes and scalars."""
    return Interpreter(mod).function(mod[func_name], [_array(a) for a in args])
