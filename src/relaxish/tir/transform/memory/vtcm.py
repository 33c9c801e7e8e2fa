"""LowerVtcmAlloc and VerifyVTCMLimit: the tightly coupled memory of Hexagon."""

from __future__ import annotations


from ....ir.module import IRModule
from ....ir.prim import IntImm, StringImm
from ....support.errors import RelaxishError
from ....support.sequences import of_kind
from ....ir.transform import Pass, PassContext, module_pass
from ....target.target import Target
from ...function import PrimFunc
from ...stmt import Allocate, LetStmt, Stmt
from ..base import PrimFuncPass, StmtMutator, body_pass, call, config, pointer_scope


class _Lower(StmtMutator):
    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        scope = pointer_scope(stmt.buffer_var)
        body = self.visit(stmt.body)
        if "global.vtcm" not in scope:
            return stmt if body is stmt.body else stmt.with_fields(body=body)
        shape = call("handle", "tvm_stack_make_shape", *stmt.extents)
        value = call("handle", "nd_mem_alloc_with_scope", StringImm(scope), IntImm("int64", len(stmt.extents)), shape)
        return LetStmt(stmt.buffer_var, value, body)


def LowerVtcmAlloc() -> PrimFuncPass:
    """Turn allocations in ``global.vtcm`` into calls of the device's allocator.

    Before::

        A = T.allocate([32, 32], "float32", "global.vtcm")

    After::

        with T.LetStmt(T.nd_mem_alloc_with_scope("global.vtcm", T.int64(2), T.tvm_stack_make_shape(32, 32)), var=A):
    """
    return body_pass(lambda s: _Lower().visit(s), "tir.LowerVtcmAlloc")


def VerifyVTCMLimit(default_target: Target | None = None) -> Pass:
    """Raise RuntimeError where a function allocates more ``global.vtcm`` than its target (or the default) has."""

    @module_pass(opt_level=0, name="tir.calculate_allocated_bytes")  # type: ignore[untyped-decorator]
    def verify(mod: IRModule, _ctx: PassContext) -> IRModule:
        from ...analysis import calculate_allocated_bytes

        for func in of_kind(mod.functions.values(), PrimFunc):
            target = func.get_attr("target") or default_target
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

    return verify
