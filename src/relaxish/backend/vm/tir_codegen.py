"""Fully lowered Relax functions to loop programs that drive the virtual machine's lists of values.

Each graph function becomes a PrimFunc ``__vmtir__<name>(ctx_ptr, r, c, f)`` of the machine, its registers, constants and
functions::

    R.Function foo(x):                    __vmtir__foo(ctx_ptr, r, c, f):
        z = R.call_packed("add", x, x)      T.anylist_setitem_call_packed(r, 2, "add", T.anylist_getitem(r, 0), ...)
        return z                            T.anylist_setitem_call_packed(r, 1, "vm.builtin.copy", T.anylist_getitem(r, 2))

Registers: the parameters, then the result, then one for each value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.expr import GlobalVar, PrimExpr, RelaxExpr
from ...ir.module import IRModule, functions_of
from ...ir.op import Op, op_name_of
from ...ir.prim import Cast, IntImm, StringImm
from ...ir.prim import Call as PrimCall
from ...relax.expr import (
    Call,
    Constant,
    DataTypeImm,
    ExternFunc,
    Function,
    If,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from ...relax.expr import StringImm as RelaxString, is_call_of
from ...relax.struct_info import is_void
from ...runtime.arrays.container import ShapeTuple
from ...runtime.bytecode.exec_builder import ExecBuilder
from ...runtime.arrays.ndarray import NDArray
from ...support.sequences import of_kind
from ...tir import Evaluate, IfThenElse, SeqStmt
from ...tir import Var as TirVar
from ...tir.function import PrimFunc
from ...tir.stmt import Stmt
from .codegen import VMCodeGenError, symbol_of

PREFIX = "__vmtir__"


def generate_tir(mod: IRModule, builder: ExecBuilder) -> IRModule:
    """The module with every graph function replaced by its ``__vmtir__`` form; ``builder`` learns of the functions."""
    functions: dict[GlobalVar, Any] = {}
    for var, func in mod.functions.items():
        if not isinstance(func, Function):
            functions[var] = func
    for var, func in functions_of(mod, Function):
        if (func.attrs or {}).get("global_symbol") is None:
            raise VMCodeGenError(
                f"there should be no local functions in Relax VM codegen phase, but {var.name_hint} has no "
                f"global_symbol. Did you forget to apply LambdaLift or AttachGlobalSymbol Pass?"
            )
        made = _TIRCodeGen(builder, mod).function(func)
        functions[GlobalVar(PREFIX + symbol_of(var, func))] = made
    return IRModule(functions, mod.attrs, mod.global_infos)


def _int32(value: int) -> IntImm:
    return IntImm("int32", value)


def _call(dtype: str, name: str, args: Sequence[Any]) -> PrimCall:
    return PrimCall(dtype, Op.get("tir." + name), tuple(args))


class _TIRCodeGen:
    """The statements of one function."""

    def __init__(self, builder: ExecBuilder, mod: IRModule) -> None:
        self.builder = builder
        self.mod = mod
        self.by_name = {var.name_hint: func for var, func in mod.functions.items()}
        self.context = TirVar("ctx_ptr", "handle")
        self.registers = TirVar("r", "handle")
        self.constants = TirVar("c", "handle")
        self.functions = TirVar("f", "handle")
        self.values: dict[Any, Any] = {}
        self.count = 0
        self.statements: list[Any] = []

    def function(self, func: Function) -> PrimFunc:
        """The loop program of a graph function."""
        for param in func.params:
            self.values[param] = self._item(self.registers, self._new_register())
        result = self._new_register()

        def emit_body() -> None:
            value = self.visit(func.body)
            if value is not None:
                self._call_packed("vm.builtin.copy", [value], result)

        body = self._scope(emit_body)
        symbol = str(func.attrs["global_symbol"])
        self.builder.declare_function(symbol, "vmtir")
        params = [self.context, self.registers, self.constants, self.functions]
        return PrimFunc(params, body, None, {}, {"global_symbol": PREFIX + symbol})

    # ---- statements

    def _scope(self, emit: Callable[[], None]) -> Stmt:
        outer, self.statements = self.statements, []
        emit()
        made, self.statements = self.statements, outer
        return SeqStmt.flatten(*made)

    def _new_register(self) -> int:
        self.count += 1
        return self.count - 1

    @staticmethod
    def _item(values: PrimExpr, index: int) -> PrimCall:
        return _call("handle", "anylist_getitem", [values, _int32(index)])

    def _call_packed(self, name: str, args: Sequence[Any], dst: int = -1, *, kernel: bool = False) -> None:
        head = [self.registers, _int32(dst)] if dst >= 0 else []
        # The C convention has a trailing handle of resources.
        tail = [_call("handle", "reinterpret", [IntImm("uint64", 0)])] if kernel else []
        kind = "cpacked" if kernel else "packed"
        builtin = f"anylist_setitem_call_{kind}" if dst >= 0 else f"tvm_call_{kind}"
        self.statements.append(Evaluate(_call("int32", builtin, [*head, StringImm(name), *args, *tail])))

    # ---- expressions

    def visit(self, expr: RelaxExpr) -> PrimExpr | None:
        """The expression that reads the value of ``expr``, after the statements that compute it; ``None`` if void."""
        for kind, visit in _VISIT.items():
            if isinstance(expr, kind):
                return visit(self, expr)
        raise VMCodeGenError(f"cannot generate code for a {type(expr).__name__}: {expr}")

    def _var(self, var: Var) -> PrimExpr:
        if var not in self.values:
            raise VMCodeGenError(f"variable {var.name_hint} is used before its definition")
        return self.values[var]

    def _pooled(self, value: NDArray | ShapeTuple | str) -> PrimExpr:
        return self._item(self.constants, self.builder.convert_constant(value).value)

    def _shape(self, expr: ShapeExpr) -> PrimExpr:
        dims = [int(v.value) for v in of_kind(expr.values, IntImm)]
        if len(dims) != len(expr.values):
            raise VMCodeGenError(f"should only use constant shape after shape lowering: {expr}")
        return self._pooled(ShapeTuple(dims))

    def _tuple(self, expr: Tuple) -> PrimExpr:
        fields = [self.visit(f) for f in expr.fields]
        dst = self._new_register()
        self._call_packed("vm.builtin.make_tuple", fields, dst)
        return self._item(self.registers, dst)

    def _tuple_get_item(self, expr: TupleGetItem) -> PrimExpr:
        source = self.visit(expr.tuple_value)
        dst = self._new_register()
        self._call_packed("vm.builtin.tuple_getitem", [source, IntImm("int64", expr.index)], dst)
        return self._item(self.registers, dst)

    def _global_var(self, var: GlobalVar) -> PrimExpr:
        func = self.by_name.get(var.name_hint)
        if func is None:
            raise VMCodeGenError(f"the module has no function {var.name_hint}")
        kind = "kernel" if isinstance(func, PrimFunc) else "vmtir" if isinstance(func, Function) else "packed"
        symbol = symbol_of(var, func)
        return self._item(self.functions, self.builder.declare_function(symbol, kind))

    def _extern(self, func: ExternFunc) -> Any:
        return self._item(self.functions, self.builder.declare_function(func.global_symbol))

    def _seq(self, expr: SeqExpr) -> Any:
        for block in expr.blocks:
            for binding in block.bindings:
                value = self.visit(binding.value)
                if value is not None:
                    self.values[binding.var] = value
        return self.visit(expr.body)

    def _if(self, expr: If) -> PrimExpr:
        merged = self._new_register()
        cond = _call("int32", "tvm_call_packed", [StringImm("vm.builtin.read_if_cond"), self.visit(expr.cond)])

        def branch(body: RelaxExpr) -> Callable[[], None]:
            return lambda: self._call_packed("vm.builtin.copy", [self.visit(body)], merged)

        then = self._scope(branch(expr.true_branch))
        other = self._scope(branch(expr.false_branch))
        self.statements.append(IfThenElse(Cast("bool", cond), then, other))
        return self._item(self.registers, merged)

    # ---- calls

    def _call_expr(self, call: Call) -> PrimExpr | None:
        if is_call_of(call, "relax.null_value"):
            return _call("handle", "reinterpret", [IntImm("int64", 0)])
        info = call.struct_info_
        void = is_void(info)
        dst = -1 if void else self._new_register()
        if op_name_of(call):
            dst = self._operator(call.op.name, call, dst)
        else:
            self._plain_call(call, dst)
        return self._item(self.registers, dst) if dst >= 0 else None

    def _operator(self, name: str, call: Call, dst: int) -> int:
        if name == "relax.call_builtin_with_ctx":
            func, fields = call.args
            self._call_packed(func.global_symbol, [self.context, *(self.visit(f) for f in fields.fields)], dst)
        elif name == "relax.vm.alloc_storage":
            self._call_packed("vm.builtin.alloc_storage", [self.context, *(self.visit(a) for a in call.args)], dst)
        elif name == "relax.vm.alloc_tensor":
            self._call_packed("vm.builtin.alloc_tensor", [self.visit(a) for a in call.args], dst)
        elif name == "relax.vm.kill_object":
            killed = self.visit(call.args[0])
            if not (isinstance(killed, PrimCall) and killed.args and killed.args[0].same_as(self.registers)):
                raise VMCodeGenError(f"only a register can be killed: {call}")
            slot: Any = killed.args[1]
            dst = int(slot.value)
            self._call_packed("vm.builtin.null_value", [], dst)
        else:
            raise VMCodeGenError(f"CodeGenVMTIR cannot handle this intrinsic now:\n{name}")
        return dst

    def _plain_call(self, call: Call, dst: int) -> None:
        args = [self.visit(a) for a in call.args]
        if isinstance(call.op, ExternFunc):
            self._call_packed(call.op.global_symbol, args, dst)
            return
        callee = self.by_name.get(call.op.name_hint) if isinstance(call.op, GlobalVar) else None
        if isinstance(callee, PrimFunc):
            self._call_packed(symbol_of(call.op, callee), args, dst, kernel=True)
        else:
            self._call_packed("vm.builtin.invoke_closure", [self.context, self.visit(call.op), *args], dst)


_VISIT: Mapping[type, Callable[[_TIRCodeGen, Any], Any]] = {
    Var: _TIRCodeGen._var,
    Constant: lambda self, e: self._pooled(e.data),
    ShapeExpr: _TIRCodeGen._shape,
    PrimValue: lambda self, e: e.value,
    RelaxString: lambda self, e: self._pooled(str(e.value)),
    DataTypeImm: lambda self, e: self._pooled(str(e.value)),
    Tuple: _TIRCodeGen._tuple,
    TupleGetItem: _TIRCodeGen._tuple_get_item,
    GlobalVar: _TIRCodeGen._global_var,
    ExternFunc: _TIRCodeGen._extern,
    SeqExpr: _TIRCodeGen._seq,
    If: _TIRCodeGen._if,
    Call: _TIRCodeGen._call_expr,
}
