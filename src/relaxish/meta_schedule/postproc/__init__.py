"""Postprocs: what happens to a schedule after its trace has been replayed."""

from .parallel_vectorize_unroll import RewriteParallelVectorizeUnroll
from .postproc import Postproc, PyPostproc
from .rewrite_layout import RewriteLayout
from .simple import DisallowDynamicLoop, RewriteReductionBlock, RewriteTensorize

create = Postproc.create

__all__ = [
    "DisallowDynamicLoop", "Postproc", "PyPostproc", "RewriteLayout", "RewriteParallelVectorizeUnroll",
    "RewriteReductionBlock", "RewriteTensorize", "create",
]
