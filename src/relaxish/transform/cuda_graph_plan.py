"""Regions of a graph function that a CUDA graph can replay: calls whose arguments all are at fixed addresses.

Storage of constant size that does not leave the function is allocated once; tensors in it, weights and constants are
*static*.  A region is a run of bindings of one block with static arguments, beginning with a kernel launch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.op import op_name_of
from ..ir.prim import const_ints
from ..relax.analysis import definable_tir_vars_in_struct_info
from ..relax.analysis.variables import free_vars
from ..relax.expr import (
    BindingBlock,
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    is_call_of,
)
from ..relax.expr_functor import PyExprVisitor
from ..relax.struct_info import (
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ..support.sequences import of_kind
from ..tir import PrimFunc
from ..tir.analysis import undefined_vars
from ..ir.plain import plain_str, plain_int

__all__ = ["Planner", "Region"]

_CUDA = 2  # DLPack's number
_NUM_INPUT = "num_input"
_CAPTURE_SYMBOLIC = "relax.rewrite_cuda_graph.capture_symbolic_vars"
# Bookkeeping that joins a region but does not start one.
_NO_LAUNCH = ("relax.memory", "relax.builtin")
_NO_LAUNCH_OPS = frozenset(("relax.reshape", "relax.null_value", "relax.call_builtin_with_ctx"))


@dataclass(eq=False)
class Region:
    """Bindings that move to a function of their own, and what crosses its border (each once, in order of use)."""

    bindings: list[VarBinding] = field(default_factory=list)
    inputs: dict[Var, None] = field(default_factory=dict)
    outputs: dict[Var, None] = field(default_factory=dict)
    shape_vars: dict[Any, None] = field(default_factory=dict)


class Planner(PyExprVisitor):
    """Finds the storage to allocate once (:attr:`allocations`, one region a function) and what to capture."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.allocations: list[Region] = []
        self.captures: list[Region] = []
        self._static: set[Var] = set()
        self._capturable: set[Any] = set()
        self._escaping: set[Any] = set()
        self._region_of: dict[Var, Region] = {}
        self._capture: Region | None = None
        self._storage = Region()

    def plan(self) -> Planner:
        """Look at every graph function of the module."""
        for func in of_kind(self.mod.functions.values(), Function):
            self._open(func)
            self.visit_expr(func)
            if self._storage.outputs:
                self.allocations.append(self._storage)
        return self

    def _open(self, func: Function) -> None:
        """Parameters behind the first ``num_input`` are weights: static, as are the dimensions that they define."""
        attrs = func.attrs or {}
        inputs = plain_int(attrs.get(_NUM_INPUT, len(func.params)))
        hinted = {plain_str(name) for name in attrs.get(_CAPTURE_SYMBOLIC, ())}
        for index, param in enumerate(func.params):
            defined = definable_tir_vars_in_struct_info(param.struct_info)
            if index < inputs:
                self._capturable.update(v for v in defined if v.name in hinted)
            else:
                self._static.add(param)
                self._capturable.update(defined)
        self._escaping = _escaping_storage(func)
        self._storage = Region()

    # -- walking ---------------------------------------------------------------------------------------------

    def visit_binding_block_(self, block: BindingBlock) -> None:
        """A region does not reach over the border of a block."""
        outer, self._capture = self._capture, None
        super().visit_binding_block_(block)
        self._end()
        self._capture = outer

    def visit_var_(self, op: Var) -> None:
        """Results and conditions that a region computes are its outputs."""
        self._leave([op])

    def visit_dataflow_var_(self, op: Var) -> None:
        """As any variable."""
        self._leave([op])

    def visit_var_binding_(self, binding: VarBinding) -> None:
        """Add the binding to a region, or end the region that it does not fit."""
        value: Any = binding.value
        match value:
            case Call():
                self._call(binding, value)
            case Constant():
                self._add(binding)
            case Var() | Tuple() | TupleGetItem():
                used, shape_vars = _Uses(), _Uses()
                if self._is_static(value.tuple_value if isinstance(value, TupleGetItem) else value, used, shape_vars):
                    self._add(binding)
                    self._enter(used, shape_vars)
                else:
                    self._end()
                self._leave(used)
            case _:
                super().visit_var_binding_(binding)

    def _call(self, binding: VarBinding, call: Call) -> None:
        name = op_name_of(call)
        if name == "relax.memory.alloc_storage":
            if binding.var not in self._escaping and const_ints(call.args[0].values) is not None:
                self._storage.bindings.append(binding)
                self._region_of[binding.var] = self._storage
                self._static.add(binding.var)
            return
        if name == "relax.builtin.alloc_tensor":
            return
        used, shape_vars = _Uses(), _Uses()
        static = [self._is_static(a, used, shape_vars) for a in call.args]
        kernel = isinstance(call.op, GlobalVar) and isinstance(self.mod.functions.get(call.op), PrimFunc)
        if (kernel and self._runs_elsewhere(call.op)) or name == "relax.to_vdevice":
            static = [False]  # a graph of a device holds neither kernels of others nor waits for them
        builtin = isinstance(call.op, ExternFunc) and str(call.op.global_symbol).startswith("vm.builtin")
        if all(static) and not builtin and (kernel or not isinstance(call.op, GlobalVar)):
            launches = kernel or isinstance(call.op, ExternFunc) or (bool(name) and _is_launch(name))
            if self._capture is None and launches:
                self._capture = Region()
            self._add(binding)
            self._enter(used, shape_vars)
        else:
            self._end()
        self._leave(used)

    def _runs_elsewhere(self, var: GlobalVar) -> bool:
        """Whether a kernel is marked as one of another kind of device."""
        target = (self.mod.functions[var].attrs or {}).get("target")
        return target is not None and target.get_target_device_type() != _CUDA

    # -- regions ---------------------------------------------------------------------------------------------

    def _add(self, binding: VarBinding) -> None:
        """Outside of a region a static binding stays where it is."""
        if self._capture is not None:
            self._capture.bindings.append(binding)
            self._region_of[binding.var] = self._capture
        self._static.add(binding.var)

    def _end(self) -> None:
        if self._capture is not None and self._capture.bindings:
            self.captures.append(self._capture)
        self._capture = None

    def _enter(self, used: Iterable[Var], shape_vars: Iterable[Any]) -> None:
        """What comes from elsewhere is an input of the region."""
        if self._capture is None:
            return
        for var in used:
            if self._region_of.get(var) is not self._capture:
                self._capture.inputs[var] = None
        self._capture.shape_vars.update(dict.fromkeys(shape_vars))

    def _leave(self, used: Iterable[Var]) -> None:
        """What another region computed is an output of that."""
        for var in used:
            region = self._region_of.get(var)
            if region is not None and region is not self._capture:
                region.outputs[var] = None

    # -- static values ---------------------------------------------------------------------------------------

    def _is_static(self, value: Expr, used: _Uses, shape_vars: _Uses) -> bool:
        """Whether a value is the same in every run; notes all variables in it, also where the answer is no."""
        match value:
            case Constant() | DataTypeImm() | StringImm() | GlobalVar():
                return True
            case Var():
                used.append(value)
                return value in self._static and self._is_static_info(value.struct_info, shape_vars)
            case PrimValue():
                return self._are_static_dims([value.value], shape_vars)
            case ShapeExpr():
                return self._are_static_dims(value.values, shape_vars)
            case Tuple():
                fields = [self._is_static(f, used, shape_vars) for f in value.fields]
                return all(fields)
        return False

    def _is_static_info(self, info: StructInfo | None, shape_vars: _Uses) -> bool:
        match info:
            case TensorStructInfo() if isinstance(info.shape, ShapeExpr):
                return self._are_static_dims(info.shape.values, shape_vars)
            case ShapeStructInfo() if info.values is not None:
                return self._are_static_dims(info.values, shape_vars)
            case TupleStructInfo():
                fields = [self._is_static_info(f, shape_vars) for f in info.fields]
                return all(fields)
        return isinstance(info, (ObjectStructInfo, PrimStructInfo))

    def _are_static_dims(self, dims: Iterable[Any], shape_vars: _Uses) -> bool:
        found = [v for dim in dims for v in undefined_vars(dim)]
        shape_vars += [v for v in found if v in self._capturable]
        return all(v in self._capturable for v in found)


class _Uses(list[Any]):
    """Variables in order of use."""


def _is_launch(name: str) -> bool:
    return not name.startswith(_NO_LAUNCH) and name not in _NO_LAUNCH_OPS


def _escaping_storage(func: Function) -> set[Any]:
    """Storage of tensors that the function returns."""
    finder = _Escaping()
    finder.visit_expr(func)
    return finder.storage


class _Escaping(PyExprVisitor):
    def __init__(self) -> None:
        self.storage: set[Any] = set()
        self.returned: set[Any] = set()

    def visit_seq_expr_(self, op: SeqExpr) -> None:
        """From the result backwards."""
        self.returned.update(free_vars(op.body))
        for block in reversed(op.blocks):
            for binding in reversed(block.bindings):
                self.visit_binding(binding)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        """Returned tuples return their fields, too."""
        value = binding.value
        super().visit_var_binding_(binding)
        if binding.var not in self.returned:
            return
        if is_call_of(value, "relax.memory.alloc_tensor"):
            self.storage.add(value.args[0])
        elif isinstance(value, (Var, Tuple)):
            self.returned.update(free_vars(value))
