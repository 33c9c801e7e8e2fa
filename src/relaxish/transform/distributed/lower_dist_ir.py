"""LowerDistIR: programs over distributed tensors become the program that each worker runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.module import IRModule
from ...ir.op import Op, op_name_of
from ...op.ccl import broadcast_from_worker0, scatter_from_worker0
from ...relax.distributed import DTensorStructInfo
from ...relax.expr import (
    BindingBlock,
    Call,
    Constant,
    Expr,
    ExternFunc,
    Function,
    ShapeExpr,
    TupleGetItem,
    Var,
    VarBinding,
)
from ...relax.expr_functor import PyExprMutator
from ...relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, fields_of
from ...support.errors import InternalError
from ...tir import floordiv
from ..base import map_relax_functions
from ...ir.declared_pass import ModuleRewrite

__all__ = ["LowerDistIR"]


def _is_distributed(func: Function) -> bool:
    """Whether the parameters are distributed tensors."""
    found = False
    for param in func.params:
        info = param.struct_info
        for leaf in fields_of(info):
            found = found or isinstance(leaf, DTensorStructInfo)
    return found


def _part_shape(dims: Sequence[Any], info: DTensorStructInfo) -> ShapeExpr:
    """The shape of one worker's part of a tensor of shape ``dims``."""
    part = list(dims)
    for size, spec in zip(info.device_mesh.shape, info.placement.dim_specs):
        if spec.kind == "sharding":
            part[spec.axis] = floordiv(dims[spec.axis], size)
    return ShapeExpr(part)


def _local(info: StructInfo, *, part: bool) -> StructInfo:
    """The struct info without distribution: of the whole tensor, or of one worker's part."""
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo([_local(f, part=part) for f in info.fields])
    if not isinstance(info, DTensorStructInfo):
        return info
    whole = info.tensor_sinfo
    if not part:
        return whole
    return TensorStructInfo(_part_shape(whole.dims() or (), info), whole.dtype, whole.vdevice, whole.ndim)


class _ShardingLowerer(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.pairs: list[tuple[Var, Var]] = []
        self.fields: dict[tuple[Var, int], Var] = {}

    def lower(self, func: Function) -> Function:
        """One worker's function."""
        params = [Var(p.name_hint, _local(p.struct_info, part=False), p.span) for p in func.params]
        self.pairs, self.fields = list(zip(func.params, params)), {}
        self.var_remap_.update(self.pairs)
        body = self.visit_with_new_scope(func.body, params)
        return Function(params, body, None, func.is_pure, func.attrs, func.span)

    def _distribute(self, value: Expr, info: DTensorStructInfo) -> Var:
        """Worker 0 hands a parameter out."""
        if len(info.device_mesh.shape) != 1:
            raise InternalError("only meshes of one axis are supported")
        spec = info.placement.dim_specs[0]
        if spec.kind == "replica":
            return self.builder_.emit(broadcast_from_worker0(value))
        return self.builder_.emit(scatter_from_worker0(value, info.device_mesh.shape[0], spec.axis))

    def _visit_block(self, block: BindingBlock, *, dataflow: bool) -> BindingBlock:
        if dataflow:
            self.builder_.begin_dataflow_block()
        else:
            self.builder_.begin_binding_block()
        pairs, self.pairs = self.pairs, []
        for old, new in pairs:
            info = old.struct_info
            match info:
                case DTensorStructInfo():
                    self.var_remap_[old] = self._distribute(new, info)
                case TupleStructInfo():
                    for index, field in enumerate(info.fields):
                        if isinstance(field, DTensorStructInfo):
                            self.fields[old, index] = self._distribute(TupleGetItem(new, index), field)
        for binding in block.bindings:
            self.visit_binding(binding)
        return self.builder_.end_block()

    def visit_constant_(self, op: Constant) -> Expr:
        info = op.struct_info
        if not isinstance(info, DTensorStructInfo):
            return op
        if any(spec.kind != "replica" for spec in info.placement.dim_specs):
            raise InternalError("a distributed constant must lie on every worker")
        return Constant(op.data, info.tensor_sinfo, op.span)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        match value:
            case TupleGetItem() if (value.tuple_value, value.index) in self.fields:
                self.var_remap_[binding.var] = self.fields[value.tuple_value, value.index]
                return
            case Call():
                value = self._special(value, binding.var)
                value = self.builder_.normalize(self.visit_expr(value))
                var = type(binding.var)(binding.var.name_hint, value.struct_info_, binding.var.span)
                self.var_remap_[binding.var] = var
                self.builder_.emit_normalized(VarBinding(var, value, binding.span))
                return
        super().visit_var_binding_(binding)

    def _special(self, call: Call, var: Var) -> Call:
        """Calls that name shapes name those of one worker's part."""
        info: Any = var.struct_info
        name = op_name_of(call)
        if name == "relax.reshape" and isinstance(info, DTensorStructInfo):
            return Call(call.op, (call.args[0], _part_shape(call.args[1].values, info)), call.attrs, None, call.span)
        if name == "relax.dist.call_tir_local_view":
            infos = [_local(info, part=True)]
            return Call(Op.get("relax.call_tir"), call.args, call.attrs, infos, call.span)
        if name == "relax.call_tir":
            raise InternalError("call_tir should be lowered to call_tir_local_view before lowering to relax")
        symbol = call.op.global_symbol if isinstance(call.op, ExternFunc) else ""
        if symbol == "vm.builtin.distributed.attention_kv_cache_append":
            op = ExternFunc("vm.builtin.attention_kv_cache_append")
            return Call(op, call.args, call.attrs, call.sinfo_args, call.span)
        if symbol == "vm.builtin.distributed.attention_kv_cache_view":
            shape = _part_shape(call.args[1].values, info)
            op = ExternFunc("vm.builtin.attention_kv_cache_view")
            args = (call.args[0], shape, *call.args[2:])
            return Call(op, args, call.attrs, [TensorStructInfo(shape, info.tensor_sinfo.dtype)], call.span)
        return call


class LowerDistIR(ModuleRewrite, opt_level=1):
    """Turn functions over distributed tensors into what each worker runs on its part.

    Parameters come from worker 0 (``R.ccl.broadcast_from_worker0`` or ``R.ccl.scatter_from_worker0``),
    ``R.dist.call_tir_local_view`` becomes ``R.call_tir``, and shapes become those of one part.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        lower = _ShardingLowerer(mod)
        return map_relax_functions(mod, lambda _, func: lower.lower(func) if _is_distributed(func) else func)
