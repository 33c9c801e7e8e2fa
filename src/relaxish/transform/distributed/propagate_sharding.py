"""PropagateSharding: wishes for the placement of a few tensors become placements of all.

Source: Xu et al., "GSPMD: general and scalable parallelization for ML computation graphs" (2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import tir
from ...ir.expr import GlobalVar
from ...ir.functor import all_nodes
from ...ir.module import IRModule, functions_of
from ...ir.op import op_name_of
from ...ir.structural import structural_equal
from ...op.distributed import redistribute
from ...op.sharding import call_args, infer_placements, placement_of
from ...relax.axis_groups import MESH_AXIS, Axis, AxisGroupGraph, Edge
from ...relax.distributed import DTensorStructInfo, DeviceMesh, Placement
from ...relax.expr import Call, Constant, Expr, ExternFunc, Function, Tuple, TupleGetItem, Var, VarBinding
from ...relax.expr_functor import PyExprMutator, PyExprVisitor
from ...relax.op_table import op_record_of
from ...relax.scalars import const_int
from ...relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, fields_of
from ...support.errors import InternalError
from ...support.sequences import of_kind
from ...tir.analysis.buffer_axes import BufferAxisGroups
from ...tir.function import PrimFunc
from ...ir.declared_pass import ModuleRewrite

__all__ = ["PropagateSharding"]

_ANNOTATE = "relax.dist.annotate_sharding"

#: The KV cache's functions for whole tensors, and for spread ones.
_CACHE_FUNCTIONS = {
    "vm.builtin.attention_kv_cache_append": "vm.builtin.distributed.attention_kv_cache_append",
    "vm.builtin.attention_kv_cache_view": "vm.builtin.distributed.attention_kv_cache_view",
}


def _symbol(call: Call) -> str:
    return str(call.op.global_symbol) if isinstance(call.op, ExternFunc) else ""


def _is_annotated(func: Function) -> bool:
    return any(op_name_of(node) == _ANNOTATE for node in all_nodes(func))


def _prim_func(mod: IRModule, callee: GlobalVar) -> PrimFunc | None:
    func = mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
    return func if isinstance(func, PrimFunc) else None


def _tensors_of(info: StructInfo) -> list[TensorStructInfo]:
    """The tensors that a value is made of; none for what holds something else."""
    fields = fields_of(info)
    tensors = list(of_kind(fields, TensorStructInfo))
    return tensors if len(tensors) == len(fields) else []


def _join_call_tir(output: Var, call: Call, func: PrimFunc, graph: AxisGroupGraph) -> None:
    """The rule of ``call_tir``: axes go together as the function ``func`` indexes them."""
    groups = BufferAxisGroups(func.body)
    values = [*call_args(call), output]
    values_of = {func.buffer_map[p]: (p, v) for p, v in zip(func.params, values) if p in func.buffer_map}
    info = call.sinfo_args[0]
    outputs = len(fields_of(info))
    written = {p: number for number, p in enumerate(func.params[len(func.params) - outputs :])}
    param_of = {func.buffer_map[p]: p for p in func.params if p in func.buffer_map}
    seen: set[Any] = set()
    for param in func.params:
        buffer = func.buffer_map.get(param)
        for axis in range(len(buffer.shape) if buffer is not None else 0):
            if buffer is None or (buffer, axis) not in groups:
                continue
            found = groups.group_of((buffer, axis), seen)
            members = [(param_of[b], n) for b, n in found if b in param_of] if len(found) > 1 else []
            _join_group(members, written, output, {p: v for p, v in values_of.values()}, graph)


def _join_group(
    members: Sequence[tuple[tir.Var, int]],
    written: dict[tir.Var, int],
    output: Var,
    values: dict[tir.Var, Expr],
    graph: AxisGroupGraph,
) -> None:
    """Inputs lead to each output of the group; without outputs they are one another's siblings."""
    targets = [(written[p], n) for p, n in members if p in written]
    sources = [Axis(values[p], n) for p, n in members if p not in written]
    if not targets:
        for other in sources[1:]:
            graph.join(other, sources[0], Edge.SIBLING)
    for index, dim in targets:
        for source in sources:
            graph.join(source, Axis(output, dim, index), Edge.DESCEND)


class _Joiner(PyExprVisitor):
    """Joins the axes of a function's values, and notes the annotations as sources."""

    def __init__(self, graph: AxisGroupGraph, mod: IRModule) -> None:
        super().__init__()
        self.graph, self.mod = graph, mod

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        match value:
            case Call():
                self._join_call(binding.var, value)
            case TupleGetItem():
                self._join_field(binding.var, value)
            case Var():
                for index, info in enumerate(_tensors_of(binding.var.struct_info)):
                    for dim in range(MESH_AXIS, info.ndim):
                        self.graph.join(Axis(value, dim, index), Axis(binding.var, dim, index), Edge.DESCEND)
        super().visit_var_binding_(binding)

    def _join_call(self, var: Var, call: Call) -> None:
        record = op_record_of(call.op)
        if record is not None and record.axes is not None:
            record.axes(var, call, self.graph)
        elif op_name_of(call) == "relax.call_tir":
            func = _prim_func(self.mod, call.args[0])
            if func is not None:
                _join_call_tir(var, call, func, self.graph)
        for arg in call_args(call):
            if isinstance(arg.struct_info_, TensorStructInfo):
                self.graph.join(Axis(arg, MESH_AXIS), Axis(var, MESH_AXIS), Edge.DESCEND)
        if op_name_of(call) == _ANNOTATE:
            mesh = call.attrs.device_mesh
            for place, spec in enumerate(call.attrs.placement.dim_specs):
                if spec.kind == "sharding":
                    self.graph.add_source(Axis(var, spec.axis), (mesh, place))
            self.graph.add_source(Axis(var, MESH_AXIS), (mesh, -1))

    def _join_field(self, var: Var, value: TupleGetItem) -> None:
        info = var.struct_info
        rank = info.ndim if isinstance(info, TensorStructInfo) else 0
        for dim in range(MESH_AXIS, rank):
            self.graph.join(Axis(value.tuple_value, dim, value.index), Axis(var, dim), Edge.DESCEND)


class _Conflicts(PyExprVisitor):
    """Raises InternalError for placements that contradict one another; stops them at axes too short to be split."""

    def __init__(self, graph: AxisGroupGraph) -> None:
        super().__init__()
        self.graph = graph

    def check(self, var: Var) -> None:
        """Check one tensor."""
        info = var.struct_info
        dims = info.dims()
        if dims is None:
            raise InternalError(f"the shape of {var.name_hint} must be known")
        mesh: Any = None
        taken: set[int] = set()
        for dim in range(MESH_AXIS, len(dims)):
            spec = self.graph.spec_of(Axis(var, dim))
            if spec is None:
                continue
            where = f"Sharding conflict detected for tensor {var.name_hint}"
            if mesh is not None and not structural_equal(mesh, spec[0]):
                raise InternalError(f"{where}: Device Mesh mismatch")
            mesh = spec[0] if mesh is None else mesh
            if dim == MESH_AXIS:
                continue
            if spec[1] in taken:
                raise InternalError(f"{where}: Replicate sharding device mesh axis {spec[1]}")
            taken.add(spec[1])
            size = const_int(dims[dim])
            if size is not None and size < mesh.shape[spec[1]]:
                self.graph.cut(Axis(var, dim))

    def visit_call_(self, op: Call) -> None:
        for arg in of_kind(call_args(op), Constant):
            if isinstance(arg.struct_info, TensorStructInfo):
                if any(self.graph.spec_of(Axis(arg, dim)) for dim in range(arg.struct_info.ndim)):
                    raise InternalError("Constant is not allowed to be sharded. Please convert it into an input param.")
        super().visit_call_(op)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        if isinstance(binding.var.struct_info, TensorStructInfo):
            self.check(binding.var)
        super().visit_var_binding_(binding)


def _placed(mod: IRModule, func: Function) -> AxisGroupGraph:
    """The graph of a function with all placements spread."""
    graph = AxisGroupGraph()
    _Joiner(graph, mod).visit_expr(func)
    graph.propagate()
    conflicts = _Conflicts(graph)
    conflicts.visit_expr(func)
    for param in func.params:
        if isinstance(param.struct_info, TensorStructInfo):
            conflicts.check(param)
    graph.propagate()
    return graph


class _Distribute(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod
        self.graph = AxisGroupGraph()
        self.fields: dict[tuple[Var, int], Var] = {}

    def rewrite(self, func: Function) -> Function:
        """The function over distributed tensors."""
        self.graph, self.fields = _placed(self.mod, func), {}
        params = []
        for param in func.params:
            info = self._spread(param, param.struct_info)
            new = param if info is param.struct_info else Var(param.name_hint, info, param.span)
            self.var_remap_[param] = new
            params.append(new)
        body = self.visit_with_new_scope(func.body, params)
        return Function(params, body, None, func.is_pure, func.attrs, func.span)

    def _spread(self, value: Expr, info: StructInfo) -> StructInfo:
        """The struct info of a parameter or constant as the graph places it."""
        if isinstance(info, TupleStructInfo):
            fields = [self._dtensor(value, f, i) for i, f in enumerate(info.fields)]
            return TupleStructInfo(fields)
        return self._dtensor(value, info, 0)

    def _dtensor(self, value: Expr, info: StructInfo, index: int) -> StructInfo:
        if not isinstance(info, TensorStructInfo):
            return info
        spec = self.graph.spec_of(Axis(value, MESH_AXIS, index))
        if spec is None:
            raise InternalError(f"{value}[{index}] is not assigned device mesh")
        return DTensorStructInfo(info, spec[0], self._placement(value, info, spec[0], index))

    def _placement(self, value: Expr, info: TensorStructInfo, mesh: DeviceMesh, index: int) -> Placement:
        return placement_of(self.graph, value, info.ndim, len(mesh.shape), index)

    def visit_call_(self, op: Call) -> Expr:
        call: Call = super().visit_call_(op)
        args = [self._constant(arg) for arg in call_args(call)]
        if op_name_of(call) == "relax.call_tir":
            if not args:
                return call
            func = _prim_func(self.mod, call.args[0])
            if func is None:
                raise InternalError(f"{call.args[0]} must be a PrimFunc of the module")
            call = Call(call.op, (call.args[0], Tuple(args), *call.args[2:]), call.attrs, call.sinfo_args, call.span)

            def rule(output: Var, of: Call, graph: AxisGroupGraph) -> None:
                _join_call_tir(output, of, func, graph)

            info = infer_placements(call, call.sinfo_args[0], rule)
            return Call(call.op, call.args, call.attrs, [info], call.span)
        symbol = _symbol(call)
        callee = ExternFunc(_CACHE_FUNCTIONS[symbol]) if symbol in _CACHE_FUNCTIONS else call.op
        return Call(callee, args, call.attrs, call.sinfo_args, call.span)

    def _constant(self, arg: Expr) -> Expr:
        if isinstance(arg, Constant) and isinstance(arg.struct_info, TensorStructInfo):
            return Constant(arg.data, self._dtensor(arg, arg.struct_info, 0), arg.span)
        return arg

    def _declared(self, call: Call, mesh: DeviceMesh, placements: Sequence[Placement]) -> Call:
        """The call with its declared outputs placed as the graph says, where nothing could be inferred."""
        is_view = _symbol(call) == "vm.builtin.distributed.attention_kv_cache_view"
        tensors = _tensors_of(call.sinfo_args[0]) if len(call.sinfo_args) == 1 else []
        if not tensors or not (is_view or op_name_of(call) == "relax.call_tir"):
            return call
        made = [DTensorStructInfo(t, mesh, p) for t, p in zip(tensors, placements)]
        info = made[0] if len(made) == 1 else TupleStructInfo(made)
        return Call(call.op, call.args, call.attrs, [info], call.span)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        if isinstance(value, TupleGetItem) and (value.tuple_value, value.index) in self.fields:
            self.var_remap_[binding.var] = self.fields[value.tuple_value, value.index]
            return
        outputs = _tensors_of(binding.var.struct_info)
        if not isinstance(value, Call) or not outputs:
            super().visit_var_binding_(binding)
            return
        spec = self.graph.spec_of(Axis(binding.var, MESH_AXIS))
        if spec is None:
            raise InternalError(f"{binding.var.name_hint} is not assigned device mesh")
        mesh = spec[0]
        wanted = [self._placement(binding.var, info, mesh, index) for index, info in enumerate(outputs)]
        seen: Any = self.visit_expr(value)
        call = self.builder_.normalize(self._declared(seen, mesh, wanted))
        if isinstance(call.struct_info, DTensorStructInfo):
            self._bind_tensor(binding, call, mesh, wanted[0])
        else:
            self._bind_tuple(binding, call, mesh, wanted)

    def _bind_tensor(self, binding: VarBinding, call: Call, mesh: DeviceMesh, wanted: Placement) -> None:
        """Bind what was computed, redistributed if it does not lie as it should; annotations themselves go."""
        value = call.args[0] if op_name_of(call) == _ANNOTATE else call
        if not _lies(call.struct_info, mesh, wanted):
            value = redistribute(value, mesh, wanted)
        if isinstance(value, Var):
            self.var_remap_[binding.var] = value
        else:
            self.reemit_binding(binding, self.builder_.normalize(value))

    def _bind_tuple(self, binding: VarBinding, call: Call, mesh: DeviceMesh, wanted: Sequence[Placement]) -> None:
        made = self.builder_.emit(call)
        self.var_remap_[binding.var] = made
        for index, (info, placement) in enumerate(zip(call.struct_info.fields, wanted)):
            if not _lies(info, mesh, placement):
                moved = redistribute(TupleGetItem(made, index), mesh, placement)
                self.fields[binding.var, index] = self.builder_.emit(moved)


def _lies(info: DTensorStructInfo, mesh: DeviceMesh, placement: Placement) -> bool:
    return bool(structural_equal(DTensorStructInfo(info.tensor_sinfo, mesh, placement), info))


class PropagateSharding(ModuleRewrite, opt_level=1):
    """Spread the placements asked for by ``R.dist.annotate_sharding`` to all tensors of the annotated functions.

    Tensors become ``R.DTensor``; an operator whose result does not lie as it should is followed by
    ``R.dist.redistribute``, and the annotations go::

        y = R.matmul(x, w)                                    x, w: R.Tensor
        z = R.dist.annotate_sharding(y, mesh, "S[1]")

    becomes ``y = R.matmul(x, w)`` with ``w`` and ``y`` split by columns and ``x`` on every device.

    Raises InternalError where annotations contradict one another, or a constant would be split.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        out = mod
        distribute = _Distribute(mod)
        for var, func in functions_of(mod, Function):
            if _is_annotated(func):
                out = mod.clone() if out is mod else out
                out.update_func(var, distribute.rewrite(func))
        return out
