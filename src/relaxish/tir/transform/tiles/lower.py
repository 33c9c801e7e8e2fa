"""LowerTiles: tile kernels as statements of threads, for the architecture that a function is compiled for."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....ir.functor import post_order_visit
from ....ir.prim import IterVar, Var, const
from ....ir.types import PointerType, PrimType
from ...buffer import Buffer, decl_buffer
from ...function import PrimFunc
from ...functor import Substitute
from ...stmt import BlockRealize, For, ForKind, Stmt
from ..base import op_name, FunctionRewrite
from .arch import Arch, arch_of
from .gpu import GpuKernel
from .hopper import lower_product
from .infer import nests_of
from .names import FRAGMENT, VAR
from .program import Kernel, TileLoweringError, has_kernels, rewrite_kernels, written_for_threads
from .updates import Updates, update_on

__all__ = ["LowerTiles", "lower_for_device"]


def lower_for_device(func: PrimFunc, target: Any) -> PrimFunc:
    """The function with its tile kernels lowered for a device. Raises TileLoweringError for what the device cannot do."""
    arch = arch_of(target)

    def lower(kernel: Kernel) -> Stmt:
        _check_prints(kernel, arch)
        if written_for_threads(kernel):
            _check_threads(kernel, arch)
            return _as_it_is(kernel, arch)
        made = lower_product(kernel) if arch.hopper else None
        return GpuKernel(kernel, arch).lower() if made is None else made

    return rewrite_kernels(func, lower)


# What a thread's program may call -> (what programs write, the compute capability that has it).
_NEEDS = {
    "create_barriers": ("T.alloc_barrier (mbarrier)", 80), "ptx_arrive_barrier_expect_tx": ("T.mbarrier_expect_tx", 90),
    "tvm_warp_activemask": ("T.activemask", 30),
    **{f"__{vote}_sync": ("T.ballot, T.any_sync and T.all_sync", 30) for vote in ("ballot", "any", "all")},
}  # fmt: skip


def _extern(node: Any) -> str:
    """The function that a node calls by name; nothing for other nodes."""
    return str(getattr(node.args[0], "value", "")) if op_name(node) == "call_extern" else ""


def _check_prints(kernel: Kernel, arch: Arch) -> None:
    """Raise TileLoweringError where a kernel prints and its architecture cannot."""

    def look(node: For) -> None:
        if _extern(node) == "printf" and not arch.prints:
            raise TileLoweringError(
                f"T.print: kernels of {arch.name} have no output; print on a CPU or an emulated GPU, or copy the tile to an argument"
            )

    post_order_visit(kernel.block.body, look)


def _check_threads(kernel: Kernel, arch: Arch) -> None:
    """Raise TileLoweringError for what threads cannot do on an architecture."""

    def look(node: For) -> None:
        name = _extern(node) or op_name(node)
        what, level = _NEEDS.get(name, ("", 0))
        if level > arch.level:
            raise TileLoweringError(f"{what}: {arch.name} has no such instruction, sm_{level} and later have")

    post_order_visit(kernel.block.body, look)


def _as_it_is(kernel: Kernel, arch: Arch) -> Stmt:
    """A kernel written for one thread: an ordinary scheduled program, once its variables are registers."""
    block = kernel.block
    memory: dict[Buffer, Buffer] = {}
    for buffer in block.alloc_buffers:
        if buffer.scope() == FRAGMENT:
            raise TileLoweringError(
                f"T.alloc_fragment: {buffer.name} belongs to all threads of a block, and the kernel is written for one "
                "(T.get_thread_binding); use T.alloc_local"
            )
        if buffer.scope() == VAR:
            data = Var(buffer.name, PointerType(PrimType(buffer.dtype), "local"))
            memory[buffer] = decl_buffer(buffer.shape, buffer.dtype, buffer.name, data=data, scope="local")
    if any(n.op != "parallel" for n in nests_of(block.body)):
        raise TileLoweringError(
            "tile operators belong to all threads of a block, and the kernel is written for one (T.get_thread_binding): write "
            "T.Parallel loops instead"
        )
    change = Substitute({old.data: new.data for old, new in memory.items()}, memory)
    annotations = {k: v for k, v in kernel.annotations.items() if not k.startswith("tile.")}
    allocations = tuple(memory.get(b, b) for b in block.alloc_buffers)
    made: Any = BlockRealize((), True, block.with_fields(
        body=Updates(partial(update_on, arch)).visit(change.visit(block.body)), alloc_buffers=allocations, annotations=annotations
    ))  # fmt: skip
    for (var, extent), axis in reversed(list(zip(kernel.grid, "xyz", strict=False))):
        binding = IterVar(None, Var("", var.dtype), IterVar.ThreadIndex, f"blockIdx.{axis}")
        made = For(var, const(0, var.dtype), extent, ForKind.THREAD_BINDING, made, binding)
    return made


class LowerTiles(FunctionRewrite):
    """Lower the operators of tile programs (``relaxish.tile.language``) for the function's target.

    Every architecture gets its own instructions: sm_70 ``wmma``, sm_80 ``mma.sync`` with ``ldmatrix`` and ``cp.async``,
    sm_90a ``wgmma`` and bulk tensor copies; elsewhere, and for tiles that do not fit these, threads multiply. Functions
    without tile kernels stay as they are. Raises TileLoweringError, which names the operator.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        if not has_kernels(func):
            return func
        from ....target import Target

        target = func.get_attr("target") or Target.current()
        if target is None:
            raise ValueError(
                "LowerTiles needs a target: bind one with BindTarget, or enter one with `with Target(...)`"
            )
        return lower_for_device(func, target)
