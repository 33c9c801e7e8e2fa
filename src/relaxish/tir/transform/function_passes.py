"""Passes over whole functions: BindTarget, AnnotateEntryFunc, Filter, Apply, VerifyMemory, SkipAssert, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.functor import Mutator, Visitor
from ...ir.module import IRModule
from ...support.errors import RelaxishError
from ...ir.transform import Pass, PassContext, PassInfo, module_pass
from ...target import Target
from ..function import PrimFunc
from ..stmt import AssertStmt, AttrStmt, For, ForKind, Stmt
from .base import PrimFuncPass, body_pass


def BindTarget(target: Any) -> PrimFuncPass:  # noqa: N802
    """Give every function without a target attribute the given one."""
    made = Target(target) if not isinstance(target, Target) else target

    def bind(func: PrimFunc, _mod: IRModule, _ctx: PassContext) -> PrimFunc:
        if func.get_attr("target") is not None:
            return func
        chosen: Any = made
        if func.get_attr("tir.is_host_func") and getattr(made, "host", None) is not None:
            chosen = made.host
        return func.with_attr("target", chosen)  # type: ignore[no-any-return]

    return PrimFuncPass(bind, PassInfo(0, "tir.BindTarget"))


def AnnotateEntryFunc() -> Pass:  # noqa: N802
    """Mark the only function (or the only public one) as ``tir.is_entry_func``."""

    @module_pass(opt_level=0, name="tir.AnnotateEntryFunc")  # type: ignore[untyped-decorator]
    def annotate(mod: IRModule, _ctx: PassContext) -> IRModule:
        funcs = [(v, f) for v, f in mod.functions.items() if isinstance(f, PrimFunc)]
        public = [(v, f) for v, f in funcs if f.get_attr("global_symbol") is not None]
        chosen = funcs if len(funcs) == 1 else public if len(public) == 1 else []
        if not chosen or chosen[0][1].get_attr("tir.is_entry_func"):
            return mod
        out = mod.clone()
        out.update_func(chosen[0][0], chosen[0][1].with_attr("tir.is_entry_func", True))
        return out

    return annotate  # type: ignore[no-any-return]


def Filter(fcond: Callable[[PrimFunc], bool]) -> PrimFuncPass:  # noqa: N802
    """Keep only the PrimFuncs for which ``fcond`` holds."""
    return PrimFuncPass(lambda f, _m, _c: f if fcond(f) else None, PassInfo(0, "tir.Filter"))


def Apply(ftransform: Callable[[PrimFunc], PrimFunc]) -> PrimFuncPass:  # noqa: N802
    """A pass from a function over PrimFuncs."""
    return PrimFuncPass(lambda f, _m, _c: ftransform(f), PassInfo(0, "Apply"))


class _HostAccess(Visitor):
    """Finds accesses of device buffers outside of thread scopes."""

    def __init__(self, pointers: set[Any]) -> None:
        self.pointers = pointers
        self.in_thread = False
        self.bad: list[str] = []

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        saved = self.in_thread
        if attr.attr_key in ("thread_extent", "pipeline_exec_scope", "device_scope"):
            self.in_thread = True
        self.visit(attr.body)
        self.in_thread = saved

    def _check(self, access: Any) -> None:
        if not self.in_thread and access.buffer.data in self.pointers:
            self.bad.append(access.buffer.name)
        self.default_visit(access)

    def visit_BufferLoad(self, load: Any) -> None:
        self._check(load)

    def visit_BufferStore(self, store: Any) -> None:
        self._check(store)


def host_accesses(func: PrimFunc) -> list[str]:
    """Buffers of a device function that are accessed outside of its threads; empty for CPU targets."""
    target = func.get_attr("target")
    kind = str(getattr(getattr(target, "kind", None), "name", "llvm")) if target is not None else "llvm"
    if kind in ("llvm", "c", "ext_dev", "hexagon", "test", "composite"):
        return []
    check = _HostAccess({b.data for b in func.buffer_map.values()})
    check.visit(func.body)
    return sorted(set(check.bad))


def VerifyMemory() -> Pass:  # noqa: N802
    """Raise RuntimeError where host code would touch device memory."""

    @module_pass(opt_level=0, name="tir.VerifyMemory")  # type: ignore[untyped-decorator]
    def verify(mod: IRModule, _ctx: PassContext) -> IRModule:
        for var, func in mod.functions.items():
            bad = host_accesses(func) if isinstance(func, PrimFunc) else []
            if bad:
                raise RelaxishError(
                    f"Memory verification failed with the following errors:\n  {var.name_hint}: "
                    f"{', '.join(bad)} is directly accessed by host memory (it is not contained in a thread "
                    "environment or in the function arguments).\n  Did you forget to bind?"
                )
        return mod

    return verify  # type: ignore[no-any-return]


class _Skip(Mutator):
    def visit_PrimExpr(self, e: Any) -> Any:
        return e

    def visit_AssertStmt(self, stmt: AssertStmt) -> Any:
        return self.visit(stmt.body)


def SkipAssert() -> PrimFuncPass:  # noqa: N802
    """Remove assertions."""
    return body_pass(lambda s: _Skip().visit(s), "tir.SkipAssert")


class _Serial(Mutator):
    def visit_PrimExpr(self, e: Any) -> Any:
        return e

    def visit_For(self, loop: For) -> Any:
        new = self.default_visit(loop)
        return new.with_fields(kind=ForKind.SERIAL) if new.kind == ForKind.PARALLEL else new


def _serial(stmt: Stmt) -> Stmt:
    return _Serial().visit(stmt)  # type: ignore[no-any-return]


def ConvertForLoopsToSerial() -> PrimFuncPass:  # noqa: N802
    """Make parallel loops serial."""
    return body_pass(_serial, "tir.ConvertForLoopsToSerial")
