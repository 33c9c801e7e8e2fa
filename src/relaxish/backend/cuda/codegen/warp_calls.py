"""Collective operations of threads: barriers, shuffles, votes, and reductions over fragments of a warp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import Call
from ....support.errors import RelaxishError
from .table import Printer, prints

if TYPE_CHECKING:
    from .expr import CudaExpressions

__all__: list[str] = []

_SYNC = {"warp": "__syncwarp()", "shared": "__syncthreads()", "shared.dyn": "__syncthreads()"}


@prints("tir.tvm_storage_sync")
def _sync(gen: CudaExpressions, e: Call) -> str:
    scope = e.args[0].value
    if scope == "global":
        # All blocks of the grid meet; they must all be resident at once.
        gen.need("grid")
        return "grid_barrier()"
    found = _SYNC.get(scope)
    if found is None:
        raise RelaxishError(f"threads cannot wait for memory of scope {scope}")
    return found


def _shuffle(name: str) -> Printer:
    def printer(gen: CudaExpressions, e: Call) -> str:
        mask, value, lane, width = (gen.expr(a) for a in e.args[:4])
        dtype = e.args[1].dtype
        simple = dt.lanes(dtype) == 1 and (dt.bits(dtype) >= 32 or dtype in ("float16", "bfloat16"))
        if simple:
            return f"{name}({mask}, {value}, {lane}, {width})"
        gen.need("warp")
        kind = name.removeprefix("__shfl_").removesuffix("sync").strip("_") or "lane"
        return f"shuffled<Shuffle_{kind}>({mask}, {value}, {lane}, {width})"

    return printer


for _op, _function in (
    ("tvm_warp_shuffle", "__shfl_sync"), ("tvm_warp_shuffle_up", "__shfl_up_sync"),
    ("tvm_warp_shuffle_down", "__shfl_down_sync"), ("tvm_warp_shuffle_xor", "__shfl_xor_sync"),
):  # fmt: skip
    prints(f"tir.{_op}", f"tir.cuda.{_function}")(_shuffle(_function))


@prints("tir.tvm_warp_activemask", "tir.cuda.__activemask")
def _active(gen: CudaExpressions, e: PrimExpr) -> str:
    return "__activemask()"
