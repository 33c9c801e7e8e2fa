"""Postprocs: what happens to a schedule after its trace has been replayed."""

from .cooperative_fetch import RewriteCooperativeFetch
from .hexagon import DisallowAsyncStridedMemCopy, VerifyVTCMLimit
from .parallel_vectorize_unroll import RewriteParallelVectorizeUnroll
from .postproc import Postproc, PyPostproc
from .rewrite_layout import RewriteLayout
from .simple import DisallowDynamicLoop, RewriteReductionBlock, RewriteTensorize
from .unbound_block import RewriteUnboundBlock
from .verify_gpu import VerifyGPUCode

create = Postproc.create

__all__ = [
    "DisallowAsyncStridedMemCopy",
    "DisallowDynamicLoop",
    "Postproc",
    "PyPostproc",
    "RewriteCooperativeFetch",
    "RewriteLayout",
    "RewriteParallelVectorizeUnroll",
    "RewriteReductionBlock",
    "RewriteTensorize",
    "RewriteUnboundBlock",
    "VerifyGPUCode",
    "VerifyVTCMLimit",
    "create",
]
