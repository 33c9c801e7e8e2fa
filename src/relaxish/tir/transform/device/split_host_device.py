"""SplitHostDevice: the parts that run on a device become functions of their own."""

from __future__ import annotations

from collections.abc import Callable

from ....ir.expr import GlobalVar
from ....ir.module import IRModule, functions_of
from ....ir.prim import EQ, Call, IntImm, StringImm, Var
from ....ir.types import PrimType, VoidType
from ....target.target import Target
from ...function import PrimFunc
from ...stmt import AssertStmt, AttrStmt, DeclBuffer, Evaluate, LetStmt, SeqStmt, Stmt
from ..base import StmtMutator, call
from ..simplify.convert_ssa import ConvertSSA
from ..simplify.use_def import UseDef
from ....ir.declared_pass import ModuleRewrite

# Device types whose kernels hand back a status: CPU, ext_dev, hexagon.
_STATUS_DEVICES = (1, 12, 14)


class _Split(StmtMutator):
    def __init__(self, kernels: dict[GlobalVar, PrimFunc], fresh: Callable[[], GlobalVar]) -> None:
        self.kernels = kernels
        self.fresh = fresh

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key == "target":
            return self._kernel(attr.body, attr.node)
        return self.default_visit(attr)

    def _kernel(self, body: Stmt, target: Target) -> Stmt:
        use_def = UseDef()
        use_def.visit(body)
        params = sorted(use_def.undefined, key=lambda v: (v.dtype != "handle", v.name))
        reports = target.get_target_device_type() in _STATUS_DEVICES
        if reports:
            body = SeqStmt([body, Evaluate(call("int32", "ret", IntImm("int32", 0)))])
        for buffer in use_def.undefined_buffers:
            body = DeclBuffer(buffer, body)
        attrs = {"target": target, "tir.noalias": True, "tir.is_global_func": True}
        result = PrimType("int32") if reports else VoidType()
        symbol = self.fresh()
        self.kernels[symbol] = PrimFunc(params, body, result, None, attrs)
        if not reports:
            return Evaluate(Call("void", symbol, params))
        code = Var("kernel_error_code", "int32")
        check = AssertStmt(EQ(code, IntImm("int32", 0)), StringImm("Error executing compute kernel"), Evaluate(0))
        return LetStmt(code, Call("int32", symbol, params), check)


def split(mod: IRModule) -> IRModule:
    """The module with all device regions taken out into kernels."""
    taken = {v.name_hint for v in mod.functions}
    kernels: dict[GlobalVar, PrimFunc] = {}
    changes: dict[GlobalVar, PrimFunc] = {}
    for var, func in functions_of(mod, PrimFunc):
        prefix = str(func.get_attr("global_symbol") or var.name_hint) + "_kernel"

        def fresh(prefix: str = prefix) -> GlobalVar:
            name, number = prefix, 0
            while name in taken:
                number += 1
                name = f"{prefix}_{number}"
            taken.add(name)
            return GlobalVar(name)

        body = _Split(kernels, fresh).visit(func.body)
        if body is not func.body:
            changes[var] = func.with_body(body)
    if not changes:
        return mod
    out = mod.clone()
    for var, func in (*changes.items(), *kernels.items()):
        out.update_func(var, func)
    return out


class SplitHostDevice(ModuleRewrite, name="tir.SplitHostDevice"):
    """Take each region under ``T.attr(target, "target", 0)`` out into a kernel.

    Before::

        @T.prim_func
        def main(n: T.int32):
            T.func_attr({"target": T.target("cuda", host="llvm")})
            T.attr(T.target("cuda"), "target", 0)
            T.evaluate(n)

    After::

        @T.prim_func
        def main(n: T.int32):
            T.func_attr({"target": T.target("cuda", host="llvm")})
            Module.main_kernel(n)

        @T.prim_func(private=True)
        def main_kernel(n: T.int32):
            T.func_attr({"target": T.target("cuda"), "tir.is_global_func": True, "tir.noalias": True})
            T.evaluate(n)

    What the region uses of its surroundings becomes the kernel's parameters, pointers first, by name. Kernels of
    CPU-like devices return a status that the host asserts to be 0.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        return ConvertSSA()(split(mod))
