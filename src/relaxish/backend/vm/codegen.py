"""Fully lowered Relax functions to bytecode.

What arrives here has been through ``VMShapeLower`` and ``AttachGlobalSymbol``: shapes are constants or values computed
by builtins, memory is allocated explicitly, operators are gone. Each bound variable gets a register of its own::

    R.Function main(x):                      main(x):
        s = R.vm.alloc_storage(...)            call vm.builtin.alloc_storage  in: %vm, c[0], i0, ...  dst: %1
        t = R.vm.alloc_tensor(s, 0, ...)       call vm.builtin.alloc_tensor   in: %1, i0, ...         dst: %2
        _ = relu(x, t)                         call relu                      in: %0, %2              dst: %void
        return t                               ret  %2
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...arith.build import as_int
from ...ir.expr import BaseFunc, GlobalVar, PrimExpr, RelaxExpr
from ...ir.module import IRModule, functions_of
from ...ir.op import Op
from ...ir.prim import FloatImm, IntImm
from ...relax.expr import (
    Binding, Call, Constant, DataTypeImm, ExternFunc, Function, If, PrimValue, SeqExpr, ShapeExpr, StringImm, Tuple,
    TupleGetItem, Var,
)  # fmt: skip
from ...runtime.bytecode.builtins import WITH_CONTEXT
from ...relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ...runtime.bytecode.instructions import Arg, Declared, GotoOp, IfOp
from ...runtime.arrays.container import ShapeTuple
from ...runtime.bytecode.exec_builder import ExecBuilder
from ...support.errors import RelaxishError
from ...tir.function import PrimFunc


class VMCodeGenError(RelaxishError):
    """A construct that should have been lowered before code generation."""


def symbol_of(var: GlobalVar, func: BaseFunc) -> str:
    """The exported name of a function, else its name in the module."""
    attrs = getattr(func, "attrs", None)
    name = attrs.get("global_symbol") if attrs is not None else None
    return str(name) if name else str(var.name_hint)


def generate(mod: IRModule, builder: ExecBuilder | None = None, *, native: bool = False) -> ExecBuilder:
    """Emit every Relax function of a lowered module; PrimFuncs are declared as kernels by name.

    ``native`` functions carry the same bytecode, for what their native entries cannot do.
    """
    builder = builder or ExecBuilder()
    kind = "vmtir" if native else "vm"
    names = {var: symbol_of(var, func) for var, func in mod.functions.items()}
    by_name = {var.name_hint: symbol for var, symbol in names.items()}
    for var, func in mod.functions.items():
        match func:
            case PrimFunc():
                builder.declare_function(names[var], "kernel")
            case ExternFunc():
                by_name[var.name_hint] = func.global_symbol
            case Function():
                builder.declare_function(names[var], kind)
    for var, func in functions_of(mod, Function):
        _FunctionCodeGen(builder, by_name).emit(names[var], func)
    return builder


def declared_of(info: StructInfo) -> Declared | None:
    """Declared struct info of a value, as plain data for :mod:`relaxish.runtime.bytecode.results`; None if nothing is
    declared."""
    match info:
        case TensorStructInfo():
            extents = None
            if isinstance(info.shape, ShapeExpr):
                extents = tuple(as_int(d) for d in info.shape.values)
            return ("tensor", "" if info.dtype in (None, "", "void") else str(info.dtype), int(info.ndim), extents)
        case ShapeStructInfo():
            return ("shape", int(info.ndim))
        case TupleStructInfo() if info.fields:
            return ("tuple", tuple(declared_of(f) for f in info.fields))
    return None


class _FunctionCodeGen:
    """The code of one function."""

    def __init__(self, builder: ExecBuilder, names: Mapping[str, str]) -> None:
        self.builder = builder
        self.names = names
        self.registers: dict[Var, Arg] = {}
        self.next_register = 0

    def emit(self, name: str, func: Function) -> None:
        builder = self.builder
        with builder.function(name, param_names=[p.name_hint for p in func.params]):
            for param in func.params:
                self.registers[param] = self._fresh()
            builder.emit_ret(self._register(self.value(func.body)))

    def _fresh(self) -> Arg:
        register = self.builder.r(self.next_register)
        self.next_register += 1
        return register

    def _register(self, arg: Arg) -> Arg:
        """The operand in a register, loading constants."""
        return arg if arg.kind == "r" else self._call("vm.builtin.copy", [arg])

    def _call(self, name: str, args: Sequence[Arg], dst: Arg | None = None, *, returns: Declared | None = None) -> Arg:
        target = dst or self._fresh()
        if name in WITH_CONTEXT and not (args and args[0] == self.builder.vm_state()):
            args = [self.builder.vm_state(), *args]
        self.builder.emit_call(name, list(args), target, returns=returns)
        return target

    # ---- expressions

    def value(self, expr: RelaxExpr) -> Arg:
        """Emit the code that computes an expression; the operand that holds it."""
        visit = _VISIT.get(type(expr))
        if visit is None:
            for base, candidate in _VISIT.items():
                if isinstance(expr, base):
                    visit = candidate
                    break
            else:
                raise VMCodeGenError(f"cannot generate code for a {type(expr).__name__}: {expr}")
        return visit(self, expr)

    def _values(self, exprs: Sequence[Any]) -> list[Arg]:
        return [self.value(e) for e in exprs]

    def _var(self, var: Var) -> Arg:
        if var not in self.registers:
            raise VMCodeGenError(f"variable {var.name_hint} is used before its definition")
        return self.registers[var]

    def _constant(self, expr: Constant) -> Arg:
        vdevice = getattr(expr.struct_info, "vdevice", None)
        place = None if vdevice is None else (vdevice.target.get_target_device_type(), vdevice.vdevice_id)
        return self.builder.convert_constant(expr.data, place)

    def _shape(self, expr: ShapeExpr) -> Arg:
        return self.builder.convert_constant(ShapeTuple(self._static_int(v, expr) for v in expr.values))

    def _prim(self, expr: PrimValue) -> Arg:
        value = expr.value
        match value:
            case FloatImm():
                return self.builder.convert_constant(float(value.value))
            case IntImm() if value.dtype == "bool":
                return self.builder.convert_constant(bool(value.value))
        return self.builder.imm(self._static_int(value, expr))

    @staticmethod
    def _static_int(value: PrimExpr, context: RelaxExpr) -> int:
        if not isinstance(value, IntImm):
            raise VMCodeGenError(f"symbolic value {value} in {context} should have been lowered by VMShapeLower")
        return int(value.value)

    def _text(self, expr: StringImm | DataTypeImm) -> Arg:
        return self.builder.convert_constant(str(expr.value))

    def _tuple(self, expr: Tuple) -> Arg:
        return self._call("vm.builtin.make_tuple", self._values(expr.fields))

    def _tuple_get_item(self, expr: TupleGetItem) -> Arg:
        source = self.value(expr.tuple_value)
        return self._call("vm.builtin.tuple_getitem", [source, self.builder.imm(expr.index)])

    def _global_var(self, var: GlobalVar) -> Arg:
        return self.builder.f(self._symbol(var))

    def _symbol(self, var: GlobalVar) -> str:
        name = var.name_hint
        if name not in self.names:
            raise VMCodeGenError(f"the module has no function {name}")
        return self.names[name]

    def _extern(self, func: ExternFunc) -> Arg:
        return self.builder.f(func.global_symbol)

    def _seq(self, expr: SeqExpr) -> Arg:
        for block in expr.blocks:
            for binding in block.bindings:
                self._bind(binding)
        return self.value(expr.body)

    def _bind(self, binding: Binding) -> None:
        value = self.value(binding.value)
        if value.kind == "r" and isinstance(binding.value, Var):
            # A register of its own: killing one of two names must leave the other alive.
            value = self._call("vm.builtin.copy", [value])
        self.registers[binding.var] = self._register(value)

    def _if(self, expr: If) -> Arg:
        builder = self.builder
        cond = self._call("vm.builtin.read_if_cond", [self.value(expr.cond)])
        result = self._fresh()
        branch = builder.position()
        builder.emit_if(cond, 1)
        self._call("vm.builtin.copy", [self.value(expr.true_branch)], result)
        skip = builder.position()
        builder.emit_goto(1)
        builder.patch(branch, IfOp(cond.value, builder.position() - branch))
        self._call("vm.builtin.copy", [self.value(expr.false_branch)], result)
        builder.patch(skip, GotoOp(builder.position() - skip))
        return result

    # ---- calls

    def _call_expr(self, call: Call) -> Arg:
        op = call.op
        match op:
            case GlobalVar():
                return self._call(self._symbol(op), self._values(call.args))
            case ExternFunc():
                return self._call_extern(op, self._values(call.args), call)
            case Op():
                return self._call_op(op, call)
        return self._call("vm.builtin.invoke_closure", [self.value(op), *self._values(call.args)])

    def _call_extern(self, func: ExternFunc, args: Sequence[Arg], call: Call) -> Arg:
        """A call of a function that is looked up when the machine starts: what it gives is compared with its type."""
        name, infos = func.global_symbol, call.sinfo_args
        known = name.startswith(("vm.builtin.", "relax.run.")) or not infos
        declared = None if known else declared_of(infos[0] if len(infos) == 1 else TupleStructInfo(list(infos)))
        return self._call(name, args, returns=declared)

    def _call_op(self, op: Op, call: Call) -> Arg:
        special = _SPECIAL.get(op.name)
        if special is not None:
            return special(self, call)
        if op.name in _RENAMED:
            return self._call(_RENAMED[op.name], self._values(call.args))
        packed = op.get_attr("FCallPacked")
        if packed is not None:
            return self._call(str(packed), self._values(call.args))
        raise VMCodeGenError(f"operator {op.name} was not lowered before code generation: {call}")

    def _call_with_context(self, call: Call) -> Arg:
        func, fields = call.args[0], call.args[1]
        args = [self.builder.vm_state(), *self._values(fields.fields)]
        return self._call(func.global_symbol, args)

    def _kill(self, call: Call) -> Arg:
        target = self.value(call.args[0])
        if target.kind == "r":
            self._call("vm.builtin.null_value", [], target)
        return self.builder.convert_constant(None)

    def _call_with_tuple(self, name: str, call: Call) -> Arg:
        first, fields = call.args[0], call.args[1]
        rest = self._values(fields.fields) if isinstance(fields, Tuple) else [self.value(fields)]
        return self._call(name, [self.value(first), *rest])

    def _call_packed_first(self, call: Call) -> Arg:
        func, args = call.args[0], self._values(call.args[1:])
        match func:
            case ExternFunc():
                return self._call_extern(func, args, call)
            case GlobalVar():
                return self._call(self._symbol(func), args)
        return self._call("vm.builtin.invoke_closure", [self.value(func), *args])


_VISIT: dict[type, Callable[[_FunctionCodeGen, Any], Arg]] = {
    Var: _FunctionCodeGen._var,
    Constant: _FunctionCodeGen._constant,
    ShapeExpr: _FunctionCodeGen._shape,
    PrimValue: _FunctionCodeGen._prim,
    StringImm: _FunctionCodeGen._text,
    DataTypeImm: _FunctionCodeGen._text,
    Tuple: _FunctionCodeGen._tuple,
    TupleGetItem: _FunctionCodeGen._tuple_get_item,
    GlobalVar: _FunctionCodeGen._global_var,
    ExternFunc: _FunctionCodeGen._extern,
    SeqExpr: _FunctionCodeGen._seq,
    If: _FunctionCodeGen._if,
    Call: _FunctionCodeGen._call_expr,
}

_RENAMED = {
    "relax.vm.alloc_storage": "vm.builtin.alloc_storage",
    "relax.null_value": "vm.builtin.null_value",
    "relax.shape_of": "vm.builtin.shape_of",
    "relax.tensor_to_shape": "vm.builtin.tensor_to_shape",
    "relax.reshape": "vm.builtin.reshape",
    "relax.print": "relax.run.print",
    "relax.assert_op": "relax.run.assert_op",
    "relax.shape_to_tensor": "relax.run.shape_to_tensor",
    "relax.unique": "relax.run.unique",
}

_SPECIAL: dict[str, Callable[[_FunctionCodeGen, Call], Arg]] = {
    "relax.call_builtin_with_ctx": _FunctionCodeGen._call_with_context,
    "relax.vm.alloc_tensor": lambda self, call: self._call("vm.builtin.alloc_tensor", self._values(call.args[:4])),
    "relax.vm.kill_object": _FunctionCodeGen._kill,
    "relax.memory.kill_tensor": _FunctionCodeGen._kill,
    "relax.memory.kill_storage": _FunctionCodeGen._kill,
    "relax.vm.call_tir_dyn": lambda self, call: self._call_with_tuple("vm.builtin.call_tir_dyn", call),
    "relax.make_closure": lambda self, call: self._call_with_tuple("vm.builtin.make_closure", call),
    "relax.invoke_closure": lambda self, call: self._call_with_tuple("vm.builtin.invoke_closure", call),
    "relax.invoke_pure_closure": lambda self, call: self._call_with_tuple("vm.builtin.invoke_closure", call),
    "relax.call_pure_packed": _FunctionCodeGen._call_packed_first,
}
