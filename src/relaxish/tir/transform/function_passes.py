"""Passes over whole functions: BindTarget, AnnotateEntryFunc, Filter, Apply, VerifyMemory, SkipAssert, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.functor import Visitor
from ...ir.module import IRModule
from ...support.errors import RelaxishError
from ...ir.transform import PassContext
from ...target import Target
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import AssertStmt, AttrStmt, BufferStore, For, ForKind, Stmt
from .base import SeqMutator, BodyRewrite, FunctionRewrite
from ...ir.declared_pass import ModuleRewrite


class BindTarget(FunctionRewrite):
    """Give every function a target.

    Before (``target`` is ``Target("cuda", host="llvm")``)::

        def main(...): T.func_attr({"global_symbol": "main"})
        def helper(...): ...                                            # private
        def entry(...): T.func_attr({"tir.is_host_func": True})

    After::

        def main(...): T.func_attr({"global_symbol": "main", "target": T.target("cuda", host="llvm")})
        def helper(...): T.func_attr({"target": T.target("cuda")})
        def entry(...): T.func_attr({"target": T.target("llvm", host="llvm")})

    A public function that has a target of its own keeps it, and gets the host if it has none.
    """

    target: Target

    def __post_init__(self) -> None:
        if not isinstance(self.target, Target):
            self._settle(target=Target(self.target))

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        target, public = self.target, func.get_attr("global_symbol") is not None
        own = func.get_attr("target")
        if own is not None:
            missing = public and target.host is not None and own.host is None
            return func.with_attr("target", Target(own, target.host)) if missing else func
        if func.get_attr("tir.is_host_func"):
            host = target.host or Target("llvm")
            return func.with_attr("target", Target(host, host)).without_attr("tir.is_host_func")
        return func.with_attr("target", target if public else target.without_host())


class AnnotateEntryFunc(ModuleRewrite, name="tir.AnnotateEntryFunc"):
    """Mark the entry of a module: its only function, or else the only public one.

    Before::

        def main(...): T.func_attr({"global_symbol": "main"})
        def helper(...): ...                                            # private

    After::

        def main(...): T.func_attr({"global_symbol": "main", "tir.is_entry_func": True})
        def helper(...): ...
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        funcs = list(mod.functions.items())
        chosen = funcs if len(funcs) == 1 else [(v, f) for v, f in funcs if f.get_attr("global_symbol") is not None]
        if len(chosen) != 1 or not isinstance(chosen[0][1], PrimFunc) or chosen[0][1].get_attr("tir.is_entry_func"):
            return mod
        out = mod.clone()
        out.update_func(chosen[0][0], chosen[0][1].with_attr("tir.is_entry_func", True))
        return out


class Filter(FunctionRewrite):
    """Keep only the PrimFuncs for which ``fcond`` holds.

    Before::

        def main(...): ...
        def kernel(...): T.func_attr({"is_kernel": True})

    After ``Filter(lambda f: f.get_attr("is_kernel"))``::

        def kernel(...): T.func_attr({"is_kernel": True})
    """

    fcond: Callable[[PrimFunc], bool]

    def transform_function(self, f: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc | None:
        return f if self.fcond(f) else None


class Apply(FunctionRewrite, name="Apply"):
    """A pass that replaces each PrimFunc by ``ftransform(func)``.

    >>> from relaxish import tir
    >>> named = Apply(lambda func: func.with_attr("global_symbol", "f"))
    >>> named.info.name
    'Apply'
    """

    ftransform: Callable[[PrimFunc], PrimFunc]

    def transform_function(self, f: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc | None:
        return self.ftransform(f)


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

    def _check(self, access: BufferLoad | BufferStore) -> None:
        if not self.in_thread and access.buffer.data in self.pointers:
            self.bad.append(access.buffer.name)
        self.default_visit(access)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self._check(load)

    def visit_BufferStore(self, store: BufferStore) -> None:
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


class VerifyMemory(ModuleRewrite, name="tir.VerifyMemory"):
    """Raise RuntimeError where host code would touch device memory."""

    def rewrite(self, mod: IRModule) -> IRModule:
        for var, func in mod.functions.items():
            bad = host_accesses(func) if isinstance(func, PrimFunc) else []
            if bad:
                raise RelaxishError(
                    f"Memory verification failed with the following errors:\n  {var.name_hint}: "
                    f"{', '.join(bad)} is directly accessed by host memory (it is not contained in a thread "
                    "environment or in the function arguments).\n  Did you forget to bind?"
                )
        return mod


class _Skip(SeqMutator):
    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_AssertStmt(self, stmt: AssertStmt) -> Stmt:
        return self.visit(stmt.body)


class SkipAssert(BodyRewrite):
    """Remove assertions."""

    def rewrite_body(self, s: Stmt) -> Stmt:
        return _Skip().visit(s)


class _Serial(SeqMutator):
    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_For(self, loop: For) -> Stmt:
        new = self.default_visit(loop)
        return new.with_fields(kind=ForKind.SERIAL) if new.kind == ForKind.PARALLEL else new


class ConvertForLoopsToSerial(BodyRewrite):
    """Make parallel loops serial.

    Before::

        for i in T.parallel(16): A[i] = 0.0

    After::

        for i in range(16): A[i] = 0.0
    """

    def rewrite_body(self, stmt: Stmt) -> Stmt:
        return _Serial().visit(stmt)
