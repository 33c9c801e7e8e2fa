"""RewriteCUDAGraph: regions of static kernels become captured graphs, where the option asks for it."""

from __future__ import annotations

from ..ir.module import IRModule
from ..ir.transform import Pass, PassContext
from ..support.errors import RelaxishError
from .base import as_module_pass

__all__ = ["RewriteCUDAGraph"]


def RewriteCUDAGraph() -> Pass:  # noqa: N802  (public name of the pass)
    """Does nothing unless ``relax.backend.use_cuda_graph`` is set in the PassContext.

    Raises RelaxishError when it is set: capture needs the CUDA runtime backend.
    """

    def run(mod: IRModule) -> IRModule:
        if PassContext.current().config.get("relax.backend.use_cuda_graph"):
            raise RelaxishError("relax.backend.use_cuda_graph needs the CUDA runtime, which this build does not have")
        return mod

    return as_module_pass(run, "RewriteCUDAGraph")
