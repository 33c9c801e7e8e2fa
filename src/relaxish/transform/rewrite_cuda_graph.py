"""RewriteCUDAGraph: kernels at fixed addresses move to functions that the runtime captures and replays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.expr import GlobalVar, PrimExpr
from ..ir.module import IRModule, functions_of
from ..ir.prim import IntImm
from ..ir.transform import PassContext
from ..relax.call_forms import call_builtin_with_ctx
from ..relax.expr import Call, Expr, Function, PrimValue, SeqExpr, ShapeExpr, Tuple, TupleGetItem, Var, VarBinding
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import ShapeStructInfo, TupleStructInfo
from ..tir import Var as TirVar
from ..tir.functor import substitute
from .cuda_graph_plan import Planner, Region
from ..ir.declared_pass import ModuleRewrite

__all__ = ["RewriteCUDAGraph"]

_ALLOCATE = "vm.builtin.cuda_graph.get_cached_alloc"
_CAPTURE = "vm.builtin.cuda_graph.run_or_capture"


class _Lifted(PyExprMutator):
    """The function of a region."""

    def __init__(self, region: Region) -> None:
        super().__init__()
        self.region = region
        self.shape_vars = {v: TirVar(v.name, v.dtype) for v in region.shape_vars}

    def visit_prim_expr(self, value: PrimExpr) -> PrimExpr:
        """Dimensions in terms of the function's own variables."""
        return substitute(value, self.shape_vars) if self.shape_vars else value

    def build(self) -> Function:
        """Parameters are the region's inputs, then one shape with its variables; the result is a tuple of its outputs."""
        params = []
        for var in self.region.inputs:
            self.var_remap_[var] = Var(var.name_hint, self.visit_struct_info_node(var.struct_info))
            params.append(self.var_remap_[var])
        if self.shape_vars:
            params.append(Var("shape_expr", ShapeStructInfo(list(self.shape_vars.values()))))
        self.builder_.begin_scope(params)
        self.builder_.begin_binding_block()
        for binding in self.region.bindings:
            self.visit_binding(binding)
        result = self.builder_.emit(Tuple([self.visit_expr(var) for var in self.region.outputs]))
        body = self.builder_.normalize(SeqExpr([self.builder_.end_block()], result))
        self.builder_.end_scope()
        return Function(params, body, result.struct_info, True, {"relax.force_pure": True})


def _merge_allocations(regions: Sequence[Region]) -> tuple[Region, dict[Var, int]]:
    """One allocation region for all functions, which do not run at the same time, and the place of each storage in it.

    In each memory scope the largest storages of the functions share one, then the second largest, and so on.
    """
    by_scope: dict[str, list[list[VarBinding]]] = {}
    for index, region in enumerate(regions):
        for binding in region.bindings:
            lists = by_scope.setdefault(str(binding.value.args[2].value), [[] for _ in regions])
            lists[index].append(binding)
    merged = Region()
    places: dict[Var, int] = {}
    for _, lists in sorted(by_scope.items()):
        ranked = [sorted(found, key=_bytes, reverse=True) for found in lists]
        for rank in range(max(len(found) for found in ranked)):
            shared = [found[rank] for found in ranked if rank < len(found)]
            places.update((binding.var, len(merged.bindings)) for binding in shared)
            largest = max(shared, key=_bytes)
            merged.bindings.append(largest)
            merged.outputs[largest.var] = None
    return merged, places


def _bytes(binding: VarBinding) -> int:
    (size,) = binding.value.args[0].values
    return int(size.value)


class _CapturedRegionRewriter(PyExprMutator):
    """Replaces regions by calls of their functions."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod
        self.launches: dict[Var, tuple[Region, dict[Var, int], bool]] = {}
        self.moved: set[Var] = set()
        self.results: dict[Var, TupleGetItem] = {}
        self.allocation: GlobalVar | None = None
        self.owner = ""
        self.captured = 0

    def rewrite(self) -> IRModule:
        """The module with regions as functions."""
        plan = Planner(self.mod).plan()
        if plan.allocations:
            merged, places = _merge_allocations(plan.allocations)
            self.allocation = self.builder_.add_func(_Lifted(merged).build(), "cuda_graph_alloc")
            for region in plan.allocations:
                self.launches[region.bindings[0].var] = (region, {v: places[v] for v in region.outputs}, True)
        for region in plan.captures:
            outputs = {v: i for i, v in enumerate(region.outputs)}
            self.launches[region.bindings[0].var] = (region, outputs, False)
        for gvar, func in functions_of(self.mod, Function):
            self.owner = gvar.name_hint
            made = self.visit_expr(func)
            if made is not func:
                self.builder_.update_func(gvar, made)
        return self.builder_.get()

    def visit_var_binding_(self, binding: VarBinding) -> None:
        """Launch a region before its first binding; take results out where they were bound."""
        launch = self.launches.get(binding.var)
        if launch is not None:
            self._launch(*launch)
        if binding.var in self.results and binding.var not in self.var_remap_:
            self._take(binding.var)
        elif binding.var not in self.moved:
            super().visit_var_binding_(binding)

    def visit_var_(self, op: Var) -> Expr:
        """A result may be used by a region that is launched before the place where it was bound."""
        if op in self.results and op not in self.var_remap_:
            return self._take(op)
        return super().visit_var_(op)

    def _take(self, var: Var) -> Var:
        self.var_remap_[var] = self.builder_.emit(self.results[var], var.name_hint)
        return self.var_remap_[var]

    def _launch(self, region: Region, outputs: dict[Var, int], allocates: bool) -> None:
        called = self.builder_.emit(self._allocate() if allocates else self._capture(region))
        self.moved.update(binding.var for binding in region.bindings)
        self.results.update((var, TupleGetItem(called, index)) for var, index in outputs.items())

    def _allocate(self) -> Call:
        assert self.allocation is not None, "there is storage to allocate"
        info: Any = self.allocation.struct_info
        zero = PrimValue(IntImm("int64", 0))
        return call_builtin_with_ctx(_ALLOCATE, Tuple([self.allocation, zero]), sinfo_args=[info.ret])

    def _capture(self, region: Region) -> Call:
        lifted = _Lifted(region)
        func = lifted.build()
        gvar = self.builder_.add_func(func, f"{self.owner}_cuda_graph_capture")
        args: list[Any] = [self.visit_expr(var) for var in region.inputs]
        result = func.ret_struct_info
        # Other values of the captured dimensions make another graph.
        key: list[Any] = []
        if region.shape_vars:
            shape = ShapeExpr(list(region.shape_vars))
            args.append(shape)
            key.append(shape)
            back = {inner: outer for outer, inner in lifted.shape_vars.items()}
            result = _rename(result, back)
        index = PrimValue(IntImm("int64", self.captured))
        self.captured += 1
        return call_builtin_with_ctx(_CAPTURE, Tuple([gvar, Tuple(args), index, *key]), sinfo_args=[result])


def _rename(info: Any, names: dict[Any, Any]) -> TupleStructInfo:
    return info.map(lambda value: substitute(value, names), lambda var: var)


class RewriteCUDAGraph(ModuleRewrite):
    """Kernels at fixed addresses become functions that a CUDA graph replays, if ``relax.backend.use_cuda_graph`` is set.

    Runs after StaticPlanBlockMemory. Parameters behind the function attribute ``num_input`` are taken as weights that
    stay in place. Dimensions named in ``relax.rewrite_cuda_graph.capture_symbolic_vars`` may occur in captured code;
    each of their values has a graph of its own.

    Before::

        storage = R.memory.alloc_storage(R.shape([8]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        alloc = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([2]), R.dtype("float32"))
        _ = cls.exp(weight, alloc)

    After::

        gv = R.call_builtin_with_ctx("vm.builtin.cuda_graph.get_cached_alloc", (cls.cuda_graph_alloc, 0))
        storage = gv[0]
        alloc = R.memory.alloc_tensor(storage, ...)
        gv1 = R.call_builtin_with_ctx("vm.builtin.cuda_graph.run_or_capture",
                                      (cls.main_cuda_graph_capture, (weight, alloc), 0))
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        wanted = PassContext.current().config.get("relax.backend.use_cuda_graph")
        return _CapturedRegionRewriter(mod).rewrite() if wanted else mod
