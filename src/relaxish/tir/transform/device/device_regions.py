"""AnnotateDeviceRegions and DecorateDeviceScope: say which statements run on the device."""

from __future__ import annotations


from ....ir.module import IRModule
from ....ir.prim import IntImm
from ....ir.transform import PassContext
from ....target.target import Target
from ...function import PrimFunc
from ...stmt import AttrStmt, Stmt
from ..base import LoweringError, StmtMutator, FunctionRewrite

DEVICE_KEYS = ("thread_extent", "pipeline_exec_scope", "device_scope")


class _Annotate(StmtMutator):
    def __init__(self, target: Target) -> None:
        self.target = target

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key == "target":
            return attr
        if attr.attr_key in DEVICE_KEYS:
            return AttrStmt(self.target, "target", 0, attr)
        return self.default_visit(attr)


class AnnotateDeviceRegions(FunctionRewrite):
    """Put the device's target around every statement that only a device can run.

    Before (``target="cuda", host="llvm"``)::

        T.attr(T.iter_var(i, T.Range(0, 16), "ThreadIndex", "threadIdx.x"), "thread_extent", 16)
        A[i] = 0.0

    After::

        T.attr(T.target("cuda"), "target", 0)
        T.attr(T.iter_var(i, T.Range(0, 16), "ThreadIndex", "threadIdx.x"), "thread_extent", 16)
        A[i] = 0.0

    Raises ValueError for a function without a target.
    """

    def transform_function(self, func: PrimFunc, _mod: IRModule, _ctx: PassContext) -> PrimFunc:
        target = func.get_attr("target")
        if target is None:
            raise LoweringError("AnnotateDeviceRegions: Require the target attribute")
        if target.host is None:
            return func
        body = _Annotate(target.without_host()).visit(func.body)
        return func if body is func.body else func.with_body(body)


class DecorateDeviceScope(FunctionRewrite):
    """Put ``T.attr(0, "device_scope", 0)`` around the whole body: all of the function runs on the device."""

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return func.with_body(AttrStmt(IntImm("int32", 0), "device_scope", 0, func.body))
