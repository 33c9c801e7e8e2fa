"""MakePackedAPI: functions get the calling convention of the runtime's packed functions."""

from __future__ import annotations

from typing import Any

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import CallingConv, GlobalVar, PrimExpr
from ....ir.module import IRModule, functions_of
from ....ir.prim import EQ, Call, IntImm, Not, Or, StringImm, Var
from ....ir.types import PointerType, PrimType
from ....target.target import Target
from ...buffer import Buffer, decl_buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import AssertStmt, AttrStmt, BufferStore, DeclBuffer, Evaluate, For, ForKind, LetStmt, SeqStmt, Stmt
from .arg_binder import VALUE_CONTENT, ArgBinder
from ..base import LoweringError, StmtExprMutator, StmtMutator, call, is_call, merge_nest
from ..simplify.use_def import undefined_vars
from ....ir.declared_pass import ModuleRewrite

C_PACKED_FUNC = int(CallingConv.C_PACKED_FUNC)
_DEVICE_CONTEXT = "device_api_context"
# Argument type codes: int, uint, float, opaque handle, null, tensor descriptor, array object, bool.
_INT, _FLOAT, _HANDLE, _NULL, _DLTENSOR, _NDARRAY, _BOOL = 0, 2, 3, 4, 7, 13, 15
# Devices whose kernels need "the current device" set first: everything but the CPU.
_CPU = 1


class _Return(StmtMutator):
    """Turns ``T.ret(value)`` into stores of the value and its type code, and a status of 0."""

    def __init__(self, value: Var, code: Var) -> None:
        self.value = value
        self.code = code
        self.parallel = 0

    def visit_For(self, loop: For) -> Stmt:
        inside = loop.kind == ForKind.PARALLEL
        self.parallel += inside
        made = self.default_visit(loop)
        self.parallel -= inside
        return made

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        if not is_call(stmt.value, "ret"):
            return stmt
        if self.parallel:
            raise LoweringError("tir.ret cannot be used in parallel scope.")
        call_node: Any = stmt.value
        value = call_node.args[0]
        if dt.is_integral(value.dtype):
            code, wide = _INT, "int64"
        elif dt.is_float(value.dtype):
            code, wide = _FLOAT, "float64"
        elif value.dtype in ("void", ""):
            code, wide = _NULL, value.dtype
        else:
            raise LoweringError(f"data type {value.dtype} not supported yet")
        values = _scalar_buffer(self.value, wide)
        codes = _scalar_buffer(self.code, "int32")
        return SeqStmt([
            BufferStore(values, B.cast(wide, value), [0]),
            BufferStore(codes, IntImm("int32", code), [0]),
            Evaluate(call("int32", "ret", IntImm("int32", 0))),
        ])  # fmt: skip


def _scalar_buffer(pointer: Var, dtype: str) -> Buffer:
    return Buffer(pointer, dtype, [1], [1], 0, pointer.name, 0, 0, "")


class _Calls(StmtExprMutator):
    """Calls of functions that become packed use the packed convention too."""

    def __init__(self, packed: dict[GlobalVar, str]) -> None:
        self.packed = packed

    def visit_Call(self, e: Call) -> PrimExpr:
        node = self.default_visit(e)
        symbol = self.packed.get(node.op) if isinstance(node.op, GlobalVar) else None
        if symbol is None:
            return node
        null = call("handle", "reinterpret", IntImm("uint64", 0))
        return call(node.dtype, "tvm_call_cpacked", StringImm(symbol), *node.args, null)


def requires_packed_api(func: PrimFunc) -> str | None:
    """The symbol of a function that is called from outside and has no calling convention yet."""
    if int(func.get_attr("calling_conv") or 0) != 0:
        return None
    symbol = func.get_attr("global_symbol")
    return None if symbol is None else str(symbol)


def _type_check(name: str, index: int, param: Var, code: Var) -> Stmt:
    def any_of(*codes: int) -> PrimExpr:
        out: Any = EQ(code, IntImm("int32", codes[0]))
        for other in codes[1:]:
            out = Or(out, EQ(code, IntImm("int32", other)))
        return out

    if param.dtype == "handle":
        condition, kind = any_of(_HANDLE, _NDARRAY, _DLTENSOR, _NULL), "pointer"
    elif dt.is_bool(param.dtype):
        condition, kind = any_of(_BOOL, _INT), "boolean"
    elif dt.is_integral(param.dtype):
        condition, kind = any_of(_INT), "int"
    else:
        condition, kind = any_of(_FLOAT), "float"
    return AssertStmt(condition, StringImm(f"{name}: Expect arg[{index}] to be {kind}"), Evaluate(0))


def _api_type(dtype: str) -> str:
    if dtype == "handle":
        return dtype
    return "float64" if dt.is_float(dtype) else "int64"


def _load_arg(args: Var, dtype: str, index: int) -> PrimExpr:
    api = _api_type(dtype)
    value = call(api, "tvm_struct_get", args, IntImm("int32", index), IntImm("int32", VALUE_CONTENT))
    return value if api == dtype else B.cast(dtype, value)


class _Packed:
    """The pieces of one function's packed form."""

    def __init__(self, func: PrimFunc, name: str) -> None:
        self.func = func
        self.name = name
        self.args = Var("args", "handle")
        self.codes = decl_buffer([len(func.params)], "int32", "arg_type_ids")
        self.num_args = Var("num_args", "int32")
        self.ret_value = Var("out_ret_value", PointerType(PrimType("void")))
        self.ret_code = Var("out_ret_tcode", PointerType(PrimType("int32")))
        self.resource = Var("resource_handle", "handle")
        for param in func.params:
            if param.name == _DEVICE_CONTEXT:
                self.resource = param
        self.binder = ArgBinder()
        self.device_id = Var("dev_id", "int32")

    def _prologue(self) -> list[Stmt]:
        """Checks of the call itself: the number of arguments and the type of each."""
        params = [p for p in self.func.params if p.name != _DEVICE_CONTEXT]
        count, nop = len(params), Evaluate(0)
        message = StringImm(f"{self.name}: num_args should be {count}")
        init: list[Stmt] = [AssertStmt(EQ(self.num_args, IntImm("int32", count)), message, nop)]
        if count:
            pointers = ((self.args, "TVMValue* arg pointer"), (self.codes.data, "int* type_codes"))
            for pointer, what in pointers:
                text = StringImm(f"{self.name}: {what} was NULL")
                init.append(AssertStmt(Not(call("bool", "isnullptr", pointer)), text, nop))
        init.append(DeclBuffer(self.codes, nop))
        for index, param in enumerate(self.func.params):
            if param.name == _DEVICE_CONTEXT:
                continue
            code = Var(f"{param.name}.code", "int32")
            init.append(LetStmt(code, BufferLoad(self.codes, [index]), nop))
            init.append(_type_check(self.name, index, param, code))
        return init

    def _bind(self, device_type: int) -> list[Stmt]:
        """Bind scalars, then buffers: a scalar parameter may also be a dimension. Returns buffer declarations."""
        for index, param in enumerate(self.func.params):
            if param.name != _DEVICE_CONTEXT:
                self.binder.bind(param, _load_arg(self.args, param.dtype, index), f"{self.name}.{param.name}", True)
        declared: list[Stmt] = []
        for param in self.func.params:
            buffer = self.func.buffer_map.get(param)
            if buffer is not None:
                kind = IntImm("int32", device_type)
                self.binder.bind_dltensor(buffer, kind, self.device_id, param, f"{self.name}.{param.name}")
                declared.append(DeclBuffer(buffer, Evaluate(0)))
        return declared

    def make(self, device_type: int, host: Target) -> PrimFunc:
        """The packed function."""
        init = self._prologue()
        declared = self._bind(device_type)
        body = _Return(self.ret_value, self.ret_code).visit(self.func.body)
        body = AttrStmt(IntImm("int32", 0), "compute_scope", StringImm(f"{self.name}_compute_"), body)
        checks: list[Stmt] = []
        if self.device_id in self.binder.defs:
            checks.append(AttrStmt("default", "device_id", self.device_id, Evaluate(0)))
            checks.append(AttrStmt("default", "device_type", device_type, Evaluate(0)))
            if device_type != _CPU:
                set_device = call(
                    "int32", "tvm_call_packed", StringImm("__tvm_set_device"), IntImm("int32", device_type),
                    self.device_id,
                )  # fmt: skip
                body = SeqStmt([Evaluate(set_device), body])
        body = SeqStmt([body, Evaluate(call("int32", "ret", IntImm("int32", 0)))])
        body = merge_nest([*init, *self.binder.init_nest, *checks, *self.binder.asserts, *declared], body)
        params = (self.args, self.codes.data, self.num_args, self.ret_value, self.ret_code, self.resource)
        free = undefined_vars(body, params)
        if free:
            names = ", ".join(v.name for v in free)
            raise LoweringError(
                f"In PrimFunc {self.name} variables [{names}] are used, but are not passed in as API arguments"
            )
        made = PrimFunc(params, body, PrimType("int32"), None, self.func.attrs, self.func.span)
        return made.with_attr("calling_conv", C_PACKED_FUNC).with_attr("target", host)


def make_packed(func: PrimFunc, name: str) -> PrimFunc:
    """The packed form of one function. Raises ValueError if it has no target."""
    target = func.get_attr("target")
    if target is None:
        raise LoweringError(
            "MakePackedAPI required the function to be annotated with tvm::attr::kTarget (target), but the function "
            f"only has attributes {dict(func.attrs.items())}"
        )
    if target.host is None:
        return func
    return _Packed(func, name).make(target.get_target_device_type(), target.host)


def lower(mod: IRModule) -> IRModule:
    """Give all externally visible functions the packed convention."""
    packed: dict[GlobalVar, str] = {}
    for var, func in mod.functions.items():
        symbol = requires_packed_api(func) if isinstance(func, PrimFunc) else None
        if symbol is not None:
            packed[var] = symbol
    out, changed = mod.clone(), False
    for var, func in functions_of(mod, PrimFunc):
        body = _Calls(packed).visit(func.body)
        new = func if body is func.body else func.with_body(body)
        if var in packed:
            new = make_packed(new, packed[var])
        if new is not func:
            out.update_func(var, new)
            changed = True
    return out if changed else mod


class MakePackedAPI(ModuleRewrite, name="tir.MakePackedAPI"):
    """Give externally visible functions the runtime's calling convention, with checks of every argument.

    Before::

        def main(A: T.Buffer((16,), "float32")): ...

    After::

        def main(args: T.handle, arg_type_ids: T.handle("int32"), num_args: T.int32,
                 out_ret_value: T.handle("void"), out_ret_tcode: T.handle("int32"), resource_handle: T.handle) -> T.int32:
            T.func_attr({"calling_conv": 1, ...})
            assert num_args == 1, "main: num_args should be 1"
            ...

    Private functions, and functions whose target has no host (they are lowered already), stay as they are.
    Raises ValueError for a function without a target.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        return lower(mod)


__all__ = ["MakePackedAPI", "make_packed", "requires_packed_api"]
