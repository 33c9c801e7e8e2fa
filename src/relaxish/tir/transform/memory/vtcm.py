"""LowerVtcmAlloc and VerifyVTCMLimit: the tightly coupled memory of Hexagon."""

from __future__ import annotations


from ....ir.module import IRModule
from ....ir.prim import IntImm, StringImm
from ....support.errors import RelaxishError
from ....support.sequences import of_kind
from ....target.target import Target
from ...function import PrimFunc
from ...stmt import Allocate, LetStmt, Stmt
from ..base import StmtMutator, call, config, pointer_scope, BodyRewrite
from ....ir.declared_pass import ModuleRewrite


class _VtcmAllocationLowerer(StmtMutator):
    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        scope = pointer_scope(stmt.buffer_var)
        body = self.visit(stmt.body)
        if "global.vtcm" not in scope:
            return stmt if body is stmt.body else stmt.with_fields(body=body)
        shape = call("handle", "tvm_stack_make_shape", *stmt.extents)
        value = call("handle", "nd_mem_alloc_with_scope", StringImm(scope), IntImm("int64", len(stmt.extents)), shape)
        return LetStmt(stmt.buffer_var, value, body)


class LowerVtcmAlloc(BodyRewrite):
    """Turn allocations in ``global.vtcm`` into calls of the device's allocator.

    Before::

        A = T.allocate([32, 32], "float32", "global.vtcm")

    After::

        with T.LetStmt(T.nd_mem_alloc_with_scope("global.vtcm", T.int64(2), T.tvm_stack_make_shape(32, 32)), var=A):
    """

    def rewrite_body(self, s: Stmt) -> Stmt:
        return _VtcmAllocationLowerer().visit(s)


class VerifyVTCMLimit(ModuleRewrite, name="tir.calculate_allocated_bytes"):
    """Raise RuntimeError where a function allocates more ``global.vtcm`` than its target (or the default) has."""

    default_target: Target | None = None

    def rewrite(self, mod: IRModule) -> IRModule:
        from ...analysis import calculate_allocated_bytes

        for func in of_kind(mod.functions.values(), PrimFunc):
            target = func.get_attr("target") or self.default_target
            limit = int(config("tir.vtcm_capacity", 0) or 0) or int(getattr(target, "vtcm_capacity", 0) or 0)
            sizes = calculate_allocated_bytes(func)
            sizes = sizes.get("main", sizes)
            used = int(sizes.get("global.vtcm", 0))
            if limit > 0 and used > limit:
                raise RelaxishError(
                    f"RuntimeError: The global.vtcm memory allocation limit has been exceeded (allocated: {used}, "
                    f"limit: {limit})."
                )
        return mod
