"""Host functions as machine code of the target's host: what runs around the launches of device kernels.

Before (what host/device splitting leaves) and after::

    def rows(A: T.Buffer((n, 96))):                def rows__host(A: T.Buffer((n, 96)), call: T.int64):
        T.call_packed("rows_kernel", A.data, n,        arguments = T.allocate([2], "int64", "local") ...
                      n, 64)                           sizes = T.allocate([10], "int64", "local") ...
                                                       T.call_extern("rx_device_launch", call, 0, arguments, sizes)

:mod:`relaxish.runtime.devices.native_host` says what is called. Programs that call packed functions or each other stay text
(:mod:`.host_program`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.functor import Mutator
from ...ir.module import IRModule
from ...ir.op import Op, op_name_of
from ...ir.prim import Call, Cast, IntImm, StringImm, Var
from ...ir.types import PointerType, PrimType
from ...runtime.bytecode.plan import ExecutionPlan, KernelCall, Operand
from ...runtime.devices.host_program import KernelInfo
from ...runtime.devices.native_host import ALLOCATE, ELEMENTS, LAUNCH, SUFFIX, TABLE, TENSOR_MAP, HostCode
from ...support.errors import RelaxishError
from ...support.log import get_logger
from ...target import Target
from ...tir import Allocate, AttrStmt, BufferStore, DeclBuffer, Evaluate, LetStmt, PrimFunc, SeqStmt, decl_buffer
from ...tir.stmt import Stmt
from .csource.kernel import device_functions
from .native_compile import native_compiler

__all__ = ["host_maker", "native_functions"]

_log = get_logger("backend")
_DYNAMIC_SHARED = "tir.use_dyn_shared_memory"
_PARTS = ("blockIdx", "threadIdx", "clusterIdx")
_QUIET = ("tir.start_profile_intrinsic", "tir.end_profile_intrinsic")

# The table through which the code finds the two functions, in an object of its own: exported libraries have one each.
_TABLE_TEXT = f"""
@{TABLE} = global [3 x ptr] zeroinitializer
define void @{LAUNCH}(i64 %call, i32 %kernel, ptr %arguments, ptr %sizes) {{
  %f = load ptr, ptr @{TABLE}
  call void %f(i64 %call, i32 %kernel, ptr %arguments, ptr %sizes)
  ret void
}}
define ptr @{ALLOCATE}(i64 %call, i64 %bytes) {{
  %p = getelementptr ptr, ptr @{TABLE}, i64 1
  %f = load ptr, ptr %p
  %r = call ptr %f(i64 %call, i64 %bytes)
  ret ptr %r
}}
define ptr @{TENSOR_MAP}(i64 %call, ptr %words) {{
  %p = getelementptr ptr, ptr @{TABLE}, i64 2
  %f = load ptr, ptr %p
  %r = call ptr %f(i64 %call, ptr %words)
  ret ptr %r
}}
"""


class _NotNative(Exception):
    """A program does what machine code of the host has no call for."""


class _Native(Mutator):
    """A host function in terms of the two calls."""

    def __init__(self, call: Var, infos: Mapping[str, KernelInfo]) -> None:
        self.call = call
        self.infos = infos
        self.numbers = {name: i for i, name in enumerate(sorted(infos))}

    def visit_AttrStmt(self, stmt: AttrStmt) -> Stmt:
        return self.visit(stmt.body)

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        size: Any = IntImm("int64", dt.nbytes(stmt.dtype))
        for extent in stmt.extents:
            size = size * Cast("int64", extent)
        memory = Call("handle", Op.get("tir.call_extern"), (StringImm(ALLOCATE), self.call, size))
        return LetStmt(stmt.buffer_var, memory, self.visit(stmt.body))

    def visit_LetStmt(self, stmt: LetStmt) -> Stmt:
        value: Any = stmt.value
        if op_name_of(value) != "tir.tensor_map_encode":
            return super().default_visit(stmt)
        data, element, *rest = value.args
        if element.value not in ELEMENTS:
            raise _NotNative(f"a tensor map of {element.value}")
        number = IntImm("int64", ELEMENTS.index(element.value))
        words, stores = _array(
            "words", [_bits(self.visit(data), "pointer"), number, *(_wide(self.visit(r)) for r in rest)]
        )
        made = Call("handle", Op.get("tir.call_extern"), (StringImm(TENSOR_MAP), self.call, words.data))
        # The words are read before the next statement; the name is there for all that follow.
        body = SeqStmt([*stores, LetStmt(stmt.var, made, self.visit(stmt.body))])
        return Allocate(words.data, "int64", words.shape, IntImm("bool", 1), body)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        return self.visit(stmt.body)

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        value: Any = stmt.value
        name = op_name_of(value)
        if name in _QUIET:
            return Evaluate(IntImm("int32", 0))
        if name not in ("tir.tvm_call_packed", "tir.call_packed"):
            if isinstance(value, Call) and name != "tir.ret":
                raise _NotNative(f"the call of {name or value.op}")
            return stmt
        kernel = value.args[0]
        info = self.infos.get(kernel.value) if isinstance(kernel, StringImm) else None
        if info is None:
            raise _NotNative(f"the packed function {kernel}")
        return self._launch(info, value.args[1:])

    def visit_Call(self, call: Call) -> Any:
        name = op_name_of(call)
        if "packed" in name or name == "tir.tensor_map_encode" or not name:
            raise _NotNative(f"the call of {name or call.op}")
        return super().default_visit(call)

    def _launch(self, info: KernelInfo, given: Sequence[Any]) -> Stmt:
        values, sizes = given[: len(info.kinds)], dict(zip(info.launch_params, given[len(info.kinds) :]))
        one = IntImm("int32", 1)
        block, thread, cluster = ([sizes.get(f"{part}.{axis}", one) for axis in "xyz"] for part in _PARTS)
        shared = sizes.get(_DYNAMIC_SHARED, IntImm("int32", 0))
        where = [*block, *thread, shared, *cluster]
        arguments, first = _array("arguments", [_bits(self.visit(v), kind) for v, kind in zip(values, info.kinds)])
        extents, second = _array("sizes", [Cast("int64", self.visit(v)) for v in where])
        number = IntImm("int32", self.numbers[info.name])
        launch = Call(
            "void", Op.get("tir.call_extern"), (StringImm(LAUNCH), self.call, number, arguments.data, extents.data)
        )
        body: Any = SeqStmt([*first, *second, Evaluate(launch)])
        for buffer in (extents, arguments):
            body = Allocate(buffer.data, "int64", buffer.shape, IntImm("bool", 1), body)
        return body


def _array(name: str, values: Sequence[Any]) -> tuple[Any, list[Any]]:
    """An array on the stack, and the stores that fill it."""
    data = Var(name, PointerType(PrimType("int64"), "local"))
    buffer = decl_buffer((max(1, len(values)),), "int64", name, data=data, scope="local")
    return buffer, [BufferStore(buffer, value, [IntImm("int32", i)]) for i, value in enumerate(values)]


def _bits(value: PrimExpr, kind: str) -> PrimExpr:
    """An argument of a kernel as 64 bits."""
    if kind in ("pointer", "tensor_map"):
        return Call("int64", Op.get("tir.reinterpret"), (value,))
    if kind.startswith(("float", "bfloat")):
        return Call("int64", Op.get("tir.reinterpret"), (Cast("float64", value),))
    return _wide(value)


def _wide(value: PrimExpr) -> PrimExpr:
    return Cast("int64", value)


def native_functions(host: IRModule, infos: Mapping[str, KernelInfo]) -> list[tuple[str, PrimFunc]]:
    """The host functions that can be machine code, with their symbols."""
    made = []
    for name, func in device_functions(host):
        call = Var("device_call", "int64")
        try:
            body = _Native(call, infos).visit(func.body)
        except _NotNative as reason:
            _log.info("%s runs as text on the host: %s", name, reason)
            continue
        attrs = {"global_symbol": name + SUFFIX, "tir.noalias": True}
        made.append((name, PrimFunc([*func.params, call], body, None, func.buffer_map, attrs)))
    return made


def _on_host(plan: ExecutionPlan, sizes: Mapping[str, int]) -> ExecutionPlan:
    """The plan over the machine code of host programs: behind the slots stands the number of the call, which they take
    before the sizes of shapes."""
    number = Operand("word", slot=len(plan.slots))
    calls = []
    for call in plan.calls:
        count = sizes[call.kernel]
        operands = (*call.operands[:count], number, *call.operands[count:])
        calls.append(KernelCall(call.kernel + SUFFIX, operands))
    return replace(plan, calls=tuple(calls))


def host_maker(host: IRModule, infos: Mapping[str, KernelInfo], target: Target | None) -> Callable[..., Any]:
    """A function that compiles the host functions for the host of a target, when they are asked for.

    It gives None where that cannot be done: no compiler for processors is installed, or nothing can be machine code.
    Plans given become entries that call them, where all that they call is machine code.
    """

    def make(plans: Sequence[ExecutionPlan] = ()) -> HostCode | None:
        functions = native_functions(host, infos)
        where = target if target is not None and target.kind.name == "llvm" else Target("llvm")
        if not functions:
            return None
        try:
            compiler = native_compiler()
        except (ImportError, RelaxishError) as error:
            _log.info("host programs stay text: %s", error)
            return None
        params = {name: len(f.params) - 1 for name, f in functions}  # the last is the number of the call
        entries = [_on_host(p, params) for p in plans if all(call.kernel in params for call in p.calls)]
        named = [(name + SUFFIX, f) for name, f in functions]
        code: HostCode = compiler.host_code(named, where, _TABLE_TEXT, entries)
        return code

    return make
