"""Sorting and scans get kernels of their own: loops on CPUs, GPU programs or Thrust on GPUs."""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import Any

from .. import dlight, topi
from ..dlight.base.transform import schedulable
from ..ir.declared_pass import ModuleRewrite
from ..ir.dtype import nbytes
from ..ir.expr import GlobalVar, RelaxExpr, PrimExpr
from ..ir.module import IRModule
from ..op.builtin import alloc_tensor
from ..relax.call_forms import call_pure_packed, call_tir
from ..relax.expr import Call, Expr, ShapeExpr
from ..relax.expr_functor import rewrite_functions
from ..relax.op_table import op_record_of
from ..relax.struct_info import TensorStructInfo
from ..target import Target
from ..topi.cuda.thrust import can_use_thrust
from .gpu_generic.cumsum import gpu_2d_continuous_cumsum
from .utils import BackendDispatcher

__all__ = ["DispatchSortScan", "SortScanDispatcher"]

_THRUST_SORT, _THRUST_SCAN = "tvm.contrib.thrust.sort", "tvm.contrib.thrust.sum_scan"
_RESHAPE = "vm.builtin.reshape"


def _optional_int(value: int) -> int | None:
    return None if value is None else int(value)


class SortScanDispatcher(BackendDispatcher):
    """Rewrites the calls of one module, then schedules what it made for GPUs."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.calls_to_update: dict[GlobalVar, Target] = {}
        self._rules = {
            "relax.sort": self._sort,
            "relax.argsort": self._argsort,
            "relax.topk": self._topk,
            "relax.cumsum": self._scan,
            "relax.cumprod": self._scan,
        }

    def visit_call_(self, op: Call) -> RelaxExpr:
        call = super().visit_call_(op)
        record = op_record_of(call.op)
        rule = None if record is None else self._rules.get(record.name)
        if rule is None:
            return call
        call = self.builder_.normalize(call)
        return rule(call, self._get_target(call.struct_info))

    def _by_sort(self, call: Call, target: Target, name: str) -> tuple[Any, dict[str, Any]]:
        """The function of topi for a target, and the scratch memory it asks for."""
        if can_use_thrust(target, _THRUST_SORT):
            return getattr(topi.cuda, f"{name}_thrust"), {"workspace": self.allocate_workspace(call)}
        return getattr(topi.cuda if self.is_gpu_target(target) else topi, name), {}

    def _sort(self, call: Call, target: Target) -> Call:
        func, extra = self._by_sort(call, target, "sort")
        with target:
            return self.builder_.call_te(func, call.args[0], int(call.attrs.axis), not call.attrs.descending, **extra)

    def _argsort(self, call: Call, target: Target) -> Call:
        a = call.attrs
        func, extra = self._by_sort(call, target, "argsort")
        with target:
            return self.builder_.call_te(
                func, call.args[0], axis=int(a.axis), is_ascend=not a.descending, dtype=a.dtype, **extra
            )

    def _topk(self, call: Call, target: Target) -> Call:
        a = call.attrs
        func, extra = self._by_sort(call, target, "topk")
        with target:
            made = self.builder_.call_te(
                func, call.args[0], k=int(a.k), axis=int(a.axis), ret_type=a.ret_type, is_ascend=not a.largest,
                dtype=a.dtype, **extra,
            )  # fmt: skip
        self._schedule_later(made, target)
        return made

    def _scan(self, call: Call, target: Target) -> Call:
        name = call.op.name.removeprefix("relax.")
        axis, shape = _optional_int(call.attrs.axis), call.struct_info.shape
        if shape is None:
            raise ValueError("non-symbolic shape is not supported for now")
        on_gpu, by_thrust = self.is_gpu_target(target), can_use_thrust(target, _THRUST_SCAN)
        last = axis is not None and axis in (-1, len(shape) - 1)
        if on_gpu and last and not by_thrust and name == "cumsum" and not call.attrs.exclusive:
            return self._cumsum_of_rows(call, list(shape))
        extra = {"workspace": self.allocate_workspace(call)} if name == "cumsum" and by_thrust else {}
        with target:
            made = self.builder_.call_te(
                getattr(topi.cuda if on_gpu else topi, name), call.args[0], axis, call.attrs.dtype or None,
                bool(call.attrs.exclusive), **extra,
            )  # fmt: skip
        self._schedule_later(made, target)
        return made

    def _cumsum_of_rows(self, call: Call, shape: list[Any]) -> Call:
        """All leading axes as one, summed up by the kernel for matrices."""
        in_dtype = call.args[0].struct_info.dtype
        out_dtype = call.attrs.dtype or in_dtype
        rows = ShapeExpr([reduce(mul, shape[:-1], 1), shape[-1]])
        matrix = TensorStructInfo(rows, out_dtype)
        flat = call_pure_packed(_RESHAPE, call.args[0], rows, sinfo_args=TensorStructInfo(rows, in_dtype))
        kernel = self.builder_.add_func(
            gpu_2d_continuous_cumsum(in_dtype=in_dtype, out_dtype=out_dtype), "gpu_2d_continuous_cumsum"
        )
        total = call_tir(kernel, self.builder_.emit(flat), out_sinfo=matrix)
        back = ShapeExpr(shape)
        return call_pure_packed(_RESHAPE, self.builder_.emit(total), back, sinfo_args=call.struct_info)

    # ---- memory and schedules

    def estimate_thrust_workspace_size(self, call: Call) -> PrimExpr | int:
        """Bytes: eight times the input, 8 MiB, and an int64 and an int32 for each element."""
        info = call.args[0].struct_info
        count = reduce(mul, info.shape, 1)
        return 8 * (count * nbytes(info.dtype)) + 8 * 1024 * 1024 + count * (nbytes("int64") + nbytes("int32"))

    def allocate_workspace(self, call: Call) -> Expr:
        """Scratch memory on the device, as a variable."""
        size = self.estimate_thrust_workspace_size(call)
        return self.builder_.emit(alloc_tensor(ShapeExpr([size]), "uint8", 0))

    def _schedule_later(self, call: Call, target: Target) -> None:
        kernel = call.args[0]
        before = self.calls_to_update.get(kernel)
        if before is not None and str(before) != str(target):
            raise ValueError(
                f"Multiple targets detected for function {kernel}. Existing target: {before}, new target: {target}"
            )
        self.calls_to_update[kernel] = target

    def apply_dlight_gpu_fallback(self) -> None:
        """Bind the loops around the kernels to threads, where they are for a GPU."""
        for var, target in self.calls_to_update.items():
            func = self.builder_.get()[var]
            if not schedulable(func):  # one program and nothing around it: there is no loop to bind
                if self.is_gpu_target(target):
                    self.builder_.update_func(var, func.with_attr("tir.is_scheduled", 1))
                continue
            space = dlight.gpu.Fallback().apply(func, target, False)
            if space is not None:
                schedule = space[0] if isinstance(space, list) else space
                self.builder_.update_func(var, schedule.mod["main"].with_attr("tir.is_scheduled", 1))


class DispatchSortScan(ModuleRewrite):
    """``R.sort``, ``R.argsort``, ``R.topk``, ``R.cumsum`` and ``R.cumprod`` become ``call_tir`` to sorting and scanning
    programs: loops on CPUs; on GPUs a merge sort or scan in global memory, Thrust if the target says ``-libs=thrust``, or
    (sums along the last axis) a kernel that works in shared memory.

    The target is that of the result's virtual device, else the one in scope; ValueError if there is neither.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        dispatcher = SortScanDispatcher(mod)
        rewrite_functions(dispatcher, mod)
        dispatcher.apply_dlight_gpu_fallback()
        return dispatcher.builder_.get()
