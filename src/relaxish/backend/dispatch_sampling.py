"""Draws from probabilities get kernels of their own."""

from __future__ import annotations


from ..ir.declared_pass import ModuleRewrite
from ..ir.expr import RelaxExpr
from ..ir.module import IRModule
from ..op.statistical import cumsum
from ..relax.call_forms import call_tir
from ..relax.expr import Call
from ..relax.expr_functor import rewrite_functions
from ..relax.op_table import op_record_of
from ..relax.scalars import const_int
from .gpu_generic.sampling import generic_get_sample_index, gpu_multinomial_from_uniform
from .utils import BackendDispatcher

__all__ = ["DispatchSampling", "SamplingDispatcher"]


class SamplingDispatcher(BackendDispatcher):
    """Rewrites the calls of one module."""

    def visit_call_(self, op: Call) -> RelaxExpr:
        call = super().visit_call_(op)
        record = op_record_of(call.op)
        if record is None or record.name != "relax.multinomial_from_uniform":
            return call
        call = self.builder_.normalize(call)
        target = self._get_target(call.struct_info)
        prob, samples, rows = call.args
        for name, arg in (("uniform_sample", samples), ("sample_indices", rows)):
            dims = arg.struct_info.dims()
            if dims is None or len(dims) != 2 or const_int(dims[1]) != 1:
                raise ValueError(f"{name} should be a 2D tensor with shape (N, 1)")
        of_prob, of_samples, of_rows = (arg.struct_info.dtype for arg in call.args)
        dtypes = (of_prob, of_samples, of_rows, str(call.attrs.dtype))
        if self.is_gpu_target(target):
            with target:
                func = gpu_multinomial_from_uniform(*dtypes)
            kernel = self.builder_.add_func(func, "gpu_multinomial_from_uniform")
            return call_tir(kernel, [prob, samples, rows], call.struct_info)
        total = self.builder_.emit(cumsum(prob, axis=1, dtype=of_prob, exclusive=False))
        kernel = self.builder_.add_func(generic_get_sample_index(*dtypes), "get_sample_index")
        return call_tir(kernel, [total, samples, rows], call.struct_info)


class DispatchSampling(ModuleRewrite):
    """``R.multinomial_from_uniform`` becomes a ``call_tir``: on GPUs to a kernel in which a block looks up one draw, on
    CPUs to loops over ``R.cumsum`` of the probabilities.

    The target is that of the result's virtual device, else the one in scope; ValueError if there is neither.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        dispatcher = SamplingDispatcher(mod)
        return rewrite_functions(dispatcher, mod)
