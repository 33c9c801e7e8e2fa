"""Dispatch of operators that have kernels of their own: sorting, scans and sampling."""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..op.statistical import cumsum
from ..relax.call_forms import call_tir
from ..relax.expr import Call, Function
from ..relax.expr_functor import PyExprMutator
from ..relax.op_table import op_record_of
from ..relax.scalars import const_int
from ..target import Target
from ..transform.base import as_module_pass
from .sampling_kernels import generic_get_sample_index

__all__ = ["DispatchSampling", "DispatchSortScan"]

_SORT_SCAN = frozenset(f"relax.{name}" for name in ("sort", "argsort", "topk", "cumsum", "cumprod"))
_SAMPLE = "relax.multinomial_from_uniform"


class _Dispatch(PyExprMutator):
    """Lowers the named operators, and only those, by the rules of their records."""

    def __init__(self, mod: IRModule, names: frozenset[str]) -> None:
        super().__init__(mod)
        self.names = names

    def visit_call_(self, op: Call) -> Any:
        call = super().visit_call_(op)
        record = op_record_of(call.op)
        if record is None or record.name not in self.names or record.legalize is None:
            return call
        return record.legalize(self.builder_, self.builder_.normalize(call))


def _is_gpu(info: Any) -> bool:
    """Whether the kernel is for a GPU: where its result lives, else the current target, says so."""
    device = getattr(info, "vdevice", None)
    target = device.target if device is not None else Target.current(allow_none=True)
    return target is not None and "gpu" in target.keys


class _Sample(PyExprMutator):
    """Draws by cumulated probabilities; GPUs get the operator's own rule."""

    def visit_call_(self, op: Call) -> Any:
        call = super().visit_call_(op)
        record = op_record_of(call.op)
        if record is None or record.name != _SAMPLE or record.legalize is None:
            return call
        call = self.builder_.normalize(call)
        if _is_gpu(call.struct_info):
            return record.legalize(self.builder_, call)
        prob, samples, rows = call.args
        for name, arg in (("uniform_sample", samples), ("sample_indices", rows)):
            dims = arg.struct_info.dims()
            if dims is None or len(dims) != 2 or const_int(dims[1]) != 1:
                raise ValueError(f"{name} should be a 2D tensor with shape (N, 1)")
        of_prob, of_samples, of_rows = (arg.struct_info.dtype for arg in call.args)
        total = cumsum(prob, axis=1, dtype=of_prob, exclusive=False)
        func = generic_get_sample_index(of_prob, of_samples, of_rows, call.attrs.dtype)
        kernel = self.builder_.add_func(func, "get_sample_index")
        return call_tir(kernel, [self.builder_.emit(total), samples, rows], call.struct_info)


def _run(mod: IRModule, dispatch: PyExprMutator) -> IRModule:
    for var, func in list(mod.functions.items()):
        if isinstance(func, Function):
            new = dispatch.visit_expr(func)
            if new is not func:
                dispatch.builder_.update_func(var, new)
    return dispatch.builder_.get()


def DispatchSortScan() -> Pass:  # noqa: N802  (public name of the pass)
    """``R.sort``, ``R.argsort``, ``R.topk``, ``R.cumsum`` and ``R.cumprod`` become ``call_tir`` to sorting and scanning
    loops.
    """
    return as_module_pass(lambda mod: _run(mod, _Dispatch(mod, _SORT_SCAN)), "DispatchSortScan")


def DispatchSampling() -> Pass:  # noqa: N802  (public name of the pass)
    """``R.multinomial_from_uniform`` becomes ``R.cumsum`` and a ``call_tir`` to the loops that look the draws up in it."""
    return as_module_pass(lambda mod: _run(mod, _Sample(mod)), "DispatchSampling")
