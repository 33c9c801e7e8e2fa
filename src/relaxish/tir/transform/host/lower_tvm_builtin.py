"""LowerTVMBuiltin: packed calls and workspaces become code over stacks of arguments, arrays and shapes."""

from __future__ import annotations

from typing import Any

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.module import IRModule
from ....ir.prim import Call, IntImm, StringImm, Var
from ....ir.transform import PassContext
from ...buffer import Buffer, decl_buffer
from ...function import PrimFunc
from ...stmt import (
    Allocate,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
)  # fmt: skip
from .arg_binder import (
    ARR_BYTE_OFFSET,
    ARR_DATA,
    ARR_DEVICE_ID,
    ARR_DEVICE_TYPE,
    ARR_NDIM,
    ARR_SHAPE,
    ARR_STRIDES,
    ARR_TYPE_BITS,
    ARR_TYPE_CODE,
    ARR_TYPE_LANES,
    VALUE_CONTENT,
    type_code,
)  # fmt: skip
from ..base import LoweringError, StmtExprMutator, call, is_call, pointer_scope, FunctionRewrite
from ..device.device_storage import _address

_MAX_STACK = 1024
_ALIGNMENT = 64
_CPU = 1
_STR, _DLTENSOR, _HANDLE = 11, 7, 3
_DEVICE_NAMES = {1: "cpu", 2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 12: "ext_dev", 14: "hexagon"}


def _i32(value: int) -> IntImm:
    return IntImm("int32", value)


def _null() -> Call:
    return call("handle", "reinterpret", IntImm("uint64", 0))


def _throw() -> Stmt:
    return Evaluate(call("int32", "tvm_throw_last_error"))


class _Stacks:
    """The stacks of one body: how much of each is in use, and the most that ever is."""

    def __init__(self) -> None:
        self.shape, self.array, self.args = -1, 0, 0
        self.most_shape, self.most_array, self.most_args = -1, 0, 0
        self.shape_buffer: Buffer | None = None
        self.tcode_buffer: Buffer | None = None
        self.array_var = Var("stack_array", "handle")
        self.value_var = Var("stack_value", "handle")

    def note(self) -> None:
        """Remember the present use as a maximum."""
        self.most_shape = max(self.most_shape, self.shape)
        self.most_array = max(self.most_array, self.array)
        self.most_args = max(self.most_args, self.args)

    def shapes(self) -> Buffer:
        """The stack of shape numbers."""
        if self.shape_buffer is None:
            self.shape_buffer = decl_buffer([Var("n", "int64")], "int64", "stack_shape")
        return self.shape_buffer

    def codes(self) -> Buffer:
        """The stack of argument type codes."""
        if self.tcode_buffer is None:
            self.tcode_buffer = decl_buffer([Var("n", "uint64")], "int32", "stack_tcode")
        return self.tcode_buffer


class _Resize(StmtExprMutator):
    """Replaces the stack buffers, whose sizes are known only at the end."""

    def __init__(self, buffers: dict[Buffer, Buffer]) -> None:
        self.buffers = buffers

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)


class _BuiltinLowerer(StmtExprMutator):
    def __init__(self, device_type: PrimExpr | None) -> None:
        self.device_type: Any = device_type
        self.device_id: Any = None
        self.stacks = _Stacks()
        self.prepare: list[list[Stmt]] = []

    # -- stacks --------------------------------------------------------------------------------------------

    def body(self, stmt: Stmt) -> Stmt:
        """Lower a body that owns its stacks: a function's, or that of a parallel loop."""
        saved, self.stacks = self.stacks, _Stacks()
        made = self.statement(stmt)
        stacks, self.stacks = self.stacks, saved
        sized: dict[Buffer, Buffer] = {}
        if stacks.shape_buffer is not None:
            old = stacks.shape_buffer
            sized[old] = old.with_fields(shape=(IntImm("int64", max(stacks.most_shape, 0)),))
        if stacks.tcode_buffer is not None:
            old = stacks.tcode_buffer
            sized[old] = old.with_fields(shape=(IntImm("uint64", stacks.most_args),))
        if sized:
            made = _Resize(sized).visit(made)

        def reserve(what: str, size: int) -> Call:
            return call("handle", "tvm_stack_alloca", StringImm(what), _i32(size))

        if stacks.shape_buffer is not None:
            buffer = sized[stacks.shape_buffer]
            made = LetStmt(buffer.data, reserve("shape", max(stacks.most_shape, 0)), DeclBuffer(buffer, made))
        if stacks.most_array:
            made = LetStmt(stacks.array_var, reserve("array", stacks.most_array), made)
        if stacks.most_args:
            made = LetStmt(stacks.value_var, reserve("arg_value", stacks.most_args), made)
            if stacks.tcode_buffer is not None:
                buffer = sized[stacks.tcode_buffer]
                made = LetStmt(buffer.data, reserve("arg_tcode", stacks.most_args), DeclBuffer(buffer, made))
        return made

    def statement(self, stmt: Stmt) -> Stmt:
        """Lower a statement, with what its calls need put before it."""
        self.prepare.append([])
        made = super().visit(stmt)
        before = self.prepare.pop()
        return SeqStmt([*before, made]) if before else made

    def visit(self, x: Any) -> Any:
        return self.statement(x) if isinstance(x, Stmt) else super().visit(x)

    # -- statements ----------------------------------------------------------------------------------------

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key == "device_id":
            saved, self.device_id = self.device_id, attr.value
            made = self.visit(attr.body)
            self.device_id = saved
            return made
        if attr.attr_key == "device_type":
            saved, self.device_type = self.device_type, attr.value
            made = self.visit(attr.body)
            self.device_type = saved
            return made
        return self.default_visit(attr)

    def visit_For(self, loop: For) -> Stmt:
        if loop.kind != ForKind.PARALLEL:
            return self.default_visit(loop)
        return loop.with_fields(min=self.visit(loop.min), extent=self.visit(loop.extent), body=self.body(loop.body))

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        made = self.default_visit(stmt)
        if bool(stmt.annotations.get("disable_lower_builtin", False)):
            return made
        nbytes = (dt.bits(stmt.dtype) * dt.lanes(stmt.dtype) + 7) // 8
        size = 1
        for extent in stmt.extents:
            size *= B.as_int(extent) or 0
        on_cpu = B.as_int(self.device_type) == _CPU
        if on_cpu and pointer_scope(stmt.buffer_var) in ("", "global") and 0 < size * nbytes < _MAX_STACK:
            return made
        self._need_device()
        # Counted in 64 bits: sizes of a few gigabytes overflow the type of the extents.
        total: Any = B.const("uint64", nbytes)
        for extent in made.extents:
            total = total * extent
        var = stmt.buffer_var
        device = (B.cast("int32", self.device_type), B.cast("int32", self.device_id))
        check = IfThenElse(call("bool", "isnullptr", var), _throw())
        free = call("int32", "TVMBackendFreeWorkspace", *device, var)
        release = IfThenElse(B.ne(free, _i32(0)), _throw())
        body: Stmt = SeqStmt([check, made.body, release])
        body = AttrStmt(var, "storage_alignment", _ALIGNMENT, body)
        kind = (_i32(type_code(stmt.dtype)), _i32(dt.bits(stmt.dtype)))
        space = call("handle", "TVMBackendAllocWorkspace", *device, B.cast("uint64", total), *kind)
        return LetStmt(var, space, body)

    def visit_LetStmt(self, stmt: LetStmt) -> Stmt:
        if is_call(stmt.value, "nd_mem_alloc_with_scope"):
            return self._nd_alloc(stmt)
        return self.default_visit(stmt)

    def _nd_alloc(self, stmt: LetStmt) -> Stmt:
        self._need_device()
        element = getattr(getattr(stmt.var.type_annotation, "element_type", None), "dtype", "float32")
        prefix = f"device_api.{_DEVICE_NAMES.get(int(self.device_type), 'unknown')}"
        value: Any = stmt.value
        kind = (_i32(type_code(element)), _i32(dt.bits(element)))
        name = StringImm(f"{prefix}.alloc_nd")
        space = call("handle", "tvm_call_packed", name, self.device_type, self.device_id, *kind, *value.args)
        check = IfThenElse(call("bool", "isnullptr", stmt.var), _throw())
        name = StringImm(f"{prefix}.free_nd")
        free = call("int32", "tvm_call_packed", name, self.device_type, self.device_id, value.args[0], stmt.var)
        release = IfThenElse(B.ne(free, _i32(0)), _throw())
        return self.visit(LetStmt(stmt.var, space, SeqStmt([check, stmt.body, release])))

    def _need_device(self) -> None:
        if self.device_type is None:
            raise LoweringError("Unknown device type in current IR")
        if self.device_id is None:
            raise LoweringError("Unknown device id in current IR")

    # -- calls ---------------------------------------------------------------------------------------------

    def visit_Call(self, e: Call) -> PrimExpr:
        if is_call(e, "tvm_call_packed", "tvm_call_trace_packed"):
            return self._packed(e, "tvm_call_packed_lowered", False)
        if is_call(e, "tvm_call_cpacked"):
            return self._packed(e, "tvm_call_cpacked_lowered", True)
        if is_call(e, "tvm_stack_make_shape"):
            return self._shape(e)
        if is_call(e, "tvm_stack_make_array"):
            return self._array(e)
        if is_call(e, "tvm_context_id"):
            return _i32(0)
        return self.default_visit(e)

    def _set(self, base: Var, index: int, field: int, value: PrimExpr) -> None:
        done = call("int32", "tvm_struct_set", base, _i32(index), _i32(field), value)
        self.prepare[-1].append(Evaluate(done))

    def _packed(self, e: Call, lowered: str, c_call: bool) -> Call:
        stacks = self.stacks
        saved = (stacks.shape, stacks.array, stacks.args)
        count = len(e.args) - (1 if c_call else 0)
        begin = stacks.args
        stacks.args += count
        made = self.default_visit(e)
        for i in range(1, count):
            arg, slot = made.args[i], begin + i - 1
            api = "handle" if dt.is_handle(arg.dtype) else "float64" if dt.is_float(arg.dtype) else "int64"
            code = _HANDLE if api == "handle" else type_code(api)
            if isinstance(arg, StringImm):
                code = _STR
            elif is_call(e.args[i], "tvm_stack_make_array"):
                code = _DLTENSOR
            self._set(stacks.value_var, slot, VALUE_CONTENT, B.cast(api, arg))
            self.prepare[-1].append(BufferStore(stacks.codes(), _i32(code), [slot]))
        stacks.codes()
        stacks.note()
        stacks.shape, stacks.array, stacks.args = saved
        args = [made.args[0], stacks.value_var, stacks.codes().data, _i32(begin), _i32(begin + count - 1)]
        if c_call:
            args.append(made.args[count])
        return call(e.dtype, lowered, *args)

    def _shape(self, e: Call) -> PrimExpr:
        stacks = self.stacks
        begin = stacks.shape = max(stacks.shape, 0)
        stacks.shape += len(e.args)
        stacks.note()
        made = self.default_visit(e)
        for i, arg in enumerate(made.args):
            self.prepare[-1].append(BufferStore(stacks.shapes(), B.cast("int64", arg), [begin + i]))
        return _address(stacks.shapes().data, "int64", _i32(begin))

    def _array(self, e: Call) -> PrimExpr:
        stacks = self.stacks
        index = stacks.array
        stacks.array += 1
        stacks.note()
        made = self.default_visit(e)
        data, shape, strides, ndim, element, offset = made.args
        dtype = element.dtype
        nbytes = (dt.bits(dtype) * dt.lanes(dtype) + 7) // 8
        if B.is_zero(strides):
            strides = _null()
        if not B.is_zero(offset):
            offset = offset * B.const(offset.dtype, nbytes)
        self._need_device()
        fields = (
            (ARR_DATA, data), (ARR_SHAPE, shape), (ARR_STRIDES, strides), (ARR_NDIM, ndim),
            (ARR_TYPE_CODE, IntImm("uint8", type_code(dtype))), (ARR_TYPE_BITS, IntImm("uint8", dt.bits(dtype))),
            (ARR_TYPE_LANES, IntImm("uint16", dt.lanes(dtype))), (ARR_BYTE_OFFSET, B.cast("uint64", offset)),
            (ARR_DEVICE_ID, B.cast("int32", self.device_id)), (ARR_DEVICE_TYPE, B.cast("int32", self.device_type)),
        )  # fmt: skip
        for field, value in fields:
            self._set(stacks.array_var, index, field, value)
        return call("handle", "tvm_struct_get", stacks.array_var, _i32(index), _i32(0))


def lower(func: PrimFunc, _mod: IRModule, _ctx: PassContext) -> PrimFunc:
    """Lower one function of the host; device kernels stay as they are."""
    if int(func.get_attr("calling_conv") or 0) == 2 or func.get_attr("tir.is_global_func") and not _is_host(func):
        return func
    target = func.get_attr("target")
    device = None if target is None else _i32(target.get_target_device_type())
    body = _BuiltinLowerer(device).body(func.body)
    return func if body is func.body else func.with_body(body)


def _is_host(func: PrimFunc) -> bool:
    target = func.get_attr("target")
    return target is None or target.get_target_device_type() == _CPU


class LowerTVMBuiltin(FunctionRewrite):
    """Lower packed calls, array descriptors and workspaces.

    Before::

        T.attr("default", "device_id", 0)
        T.attr("default", "device_type", 2)
        A = T.allocate([16], "float32")

    After::

        A: T.handle("float32") = T.TVMBackendAllocWorkspace(2, 0, T.uint64(64), 2, 32)
        T.attr(A, "storage_alignment", 64)
        if T.isnullptr(A): T.tvm_throw_last_error()
        ...
        if T.TVMBackendFreeWorkspace(2, 0, A) != 0: T.tvm_throw_last_error()

    Small allocations on a CPU stay on the stack.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc | None:
        return lower(func, mod, ctx)
