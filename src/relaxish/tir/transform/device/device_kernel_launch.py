"""LowerDeviceKernelLaunch: calls of device functions become launches with their grid and block sizes."""

from __future__ import annotations

from typing import Any

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import CallingConv, GlobalVar, PrimExpr
from ....ir.functor import Visitor
from ....ir.module import IRModule, functions_of
from ....ir.prim import Call, StringImm
from ....ir.types import VoidType
from ...function import PrimFunc
from ...functor import substitute
from ...stmt import Allocate, AttrStmt, Evaluate, Stmt
from ..base import LoweringError, StmtExprMutator, StmtMutator, call, is_call, pointer_scope
from ....ir.declared_pass import ModuleRewrite

DEVICE_KERNEL_LAUNCH = int(CallingConv.DEVICE_KERNEL_LAUNCH)
_DYNAMIC_SHARED = "tir.use_dyn_shared_memory"


class _Info(Visitor):
    """How a kernel is launched: its thread axes in order, their extents, and its dynamic shared memory."""

    def __init__(self, var: GlobalVar, func: PrimFunc) -> None:
        target = func.get_attr("target")
        if target is None:
            raise LoweringError(f"LowerDeviceKernelLaunch: function {var.name_hint} has no target attribute")
        self.target = target.without_host()
        self.params = func.params
        self.symbol = str(func.get_attr("global_symbol") or var.name_hint)
        self.launch_params: list[str] = []
        self.extents: dict[str, Any] = {}
        self.dynamic: Any = None
        self._threads: set[Any] = set()
        self.visit(func.body)
        if self.dynamic is not None:
            self.launch_params.append(_DYNAMIC_SHARED)
            self.extents[_DYNAMIC_SHARED] = self.dynamic

    def visit_PrimExpr(self, e: PrimExpr) -> None:
        return

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        if attr.attr_key == "thread_extent" and attr.node not in self._threads:
            tag = attr.node.thread_tag
            self._threads.add(attr.node)
            if tag not in self.extents:
                self.launch_params.append(tag)
            self.extents[tag] = attr.value
        self.visit(attr.body)

    def visit_Allocate(self, stmt: Allocate) -> None:
        if pointer_scope(stmt.buffer_var) == "shared.dyn":
            if self.dynamic is not None:
                raise LoweringError("Only one dynamic shared memory allocation is allowed.")
            size: Any = B.const("int32", 1)
            for extent in stmt.extents:
                size = size * extent
            self.dynamic = size * (dt.bits(stmt.dtype) // 8 * dt.lanes(stmt.dtype))
        self.visit(stmt.body)


class _Launch(StmtExprMutator):
    def __init__(self, infos: dict[GlobalVar, _Info]) -> None:
        self.infos = infos
        self.target: Any = None
        self.launched: set[GlobalVar] = set()
        self.external: set[GlobalVar] = set()

    def visit_Call(self, e: Call) -> PrimExpr:
        node = self.default_visit(e)
        if not isinstance(node.op, GlobalVar):
            return node
        info = self.infos.get(node.op)
        if info is None:
            raise LoweringError(
                f"CallNode attempted subroutine call to {node.op.name_hint}, which is not in the module"
            )
        if str(self.target) == str(info.target):
            return node
        if self.target.get_target_device_type() == info.target.get_target_device_type():
            self.external.add(node.op)
            return call(node.dtype, "call_extern", StringImm(node.op.name_hint), *node.args)
        self.launched.add(node.op)
        values = dict(zip(info.params, node.args))
        sizes = [substitute(info.extents[name], values) for name in info.launch_params]
        dtype = "int32" if node.dtype == "void" else node.dtype
        return call(dtype, "tvm_call_packed", StringImm(info.symbol), *node.args, *sizes)


class _NoReturn(StmtMutator):
    """A launch itself reports success; kernels have nothing to return."""

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        value: Any = stmt.value
        if not is_call(value, "ret"):
            return stmt
        if B.as_int(value.args[0]) != 0:
            raise LoweringError("Device kernel may only contain successful return, T.ret(0)")
        return Evaluate(0)


def _annotate(launch: _Launch, var: GlobalVar, func: PrimFunc) -> PrimFunc:
    if var in launch.launched and var in launch.external:
        raise LoweringError(
            f"Function {var.name_hint} has multiple callees, and would need to be lowered into a call_extern at some "
            "call sites, and a device kernel launch at others.  This case is not yet supported."
        )
    if var in launch.launched or var in launch.external:
        func = func.with_attr("tir.is_global_func", True)
    if var in launch.launched:
        info = launch.infos[var]
        body = _NoReturn().visit(func.body)
        func = PrimFunc(func.params, body, VoidType(), func.buffer_map, func.attrs, func.span)
        func = func.with_attr("calling_conv", DEVICE_KERNEL_LAUNCH)
        func = func.with_attr("tir.kernel_launch_params", list(info.launch_params))
        return func.with_attr("global_symbol", info.symbol)
    if var in launch.external and func.get_attr("global_symbol") is None:
        return func.with_attr("global_symbol", var.name_hint)
    return func


def lower(mod: IRModule) -> IRModule:
    """Rewrite launches in all functions, then mark the kernels."""
    funcs = dict(functions_of(mod, PrimFunc))
    launch = _Launch({v: _Info(v, f) for v, f in funcs.items()})
    made: dict[GlobalVar, PrimFunc] = {}
    for var, func in funcs.items():
        launch.target = launch.infos[var].target
        body = launch.visit(func.body)
        made[var] = func if body is func.body else func.with_body(body)
    out = mod.clone()
    changed = False
    for var, func in made.items():
        new = _annotate(launch, var, func)
        if new is not funcs[var]:
            out.update_func(var, new)
            changed = True
    return out if changed else mod


class LowerDeviceKernelLaunch(ModuleRewrite, name="tir.LowerDeviceKernelLaunch"):
    """Lower calls between functions of different targets.

    Before::

        Module.kernel(A.data)                   # kernel: threadIdx.x has extent 16

    After::

        T.call_packed("kernel", A.data, 16)     # kernel: calling_conv 2, tir.kernel_launch_params ["threadIdx.x"]

    Calls to another target of the same device type become ``T.call_extern``; calls within a target stay.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        return lower(mod)
