"""LegalizeRedistribute: changes of placement become operations of the workers."""

from __future__ import annotations


from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.structural import structural_equal
from ...op.distributed import redistribute_replica_to_shard
from ...relax.distributed import DTensorStructInfo
from ...relax.expr import Call, Expr, Function, is_call_of
from ...relax.expr_functor import PyExprMutator
from ...support.errors import InternalError
from ..base import map_relax_functions
from ...ir.declared_pass import ModuleRewrite

__all__ = ["LegalizeRedistribute"]


class _Legalizer(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not is_call_of(call, "relax.dist.redistribute"):
            return call
        info, attrs = call.args[0].struct_info, call.attrs
        if not isinstance(info, DTensorStructInfo) or not structural_equal(info.device_mesh, attrs.device_mesh):
            raise InternalError("a tensor is redistributed within one mesh of devices only")
        if len(info.device_mesh.shape) != 1:
            raise InternalError("only meshes of one axis are supported")
        before, after = info.placement.dim_specs[0], attrs.placement.dim_specs[0]
        if before.kind == after.kind:
            if before.kind == "sharding" and before.axis != after.axis:
                raise InternalError("AlltoAll not implemented yet")
            return call.args[0]
        if before.kind == "sharding":
            raise InternalError("Allgather not implemented yet")
        return redistribute_replica_to_shard(call.args[0], attrs.device_mesh.shape[0], after.axis)


class LegalizeRedistribute(ModuleRewrite, opt_level=1):
    """``R.dist.redistribute`` to the placement a tensor has becomes the tensor, and from a copied to a split one
    ``R.dist.redistribute_replica_to_shard``.

    Raises InternalError for changes that need communication, and for meshes of more than one axis.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        legalizer = _Legalizer(mod)

        def rewrite(_: GlobalVar, func: Function) -> Function:
            made: Function = legalizer.visit_expr(func)
            return made

        return map_relax_functions(mod, rewrite)
