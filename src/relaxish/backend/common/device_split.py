"""Scheduled tensor programs as host functions that launch device kernels.

Before and after (shortened)::

    def add(A, B):                            def add(A, B):                      # host
        for bx in thread_binding("blockIdx.x"):   add_kernel(A, B, 4, 64)         # grid and block at the end
            for tx in thread_binding(...):    def add_kernel(A, B):               # device
                B[..] = A[..] + 1                 launch_thread("blockIdx.x", 4) ...
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import CallingConv, GlobalVar
from ...ir.functor import pre_order_visit
from ...ir.module import IRModule
from ...ir.node import Node
from ...ir.prim import Call
from ...ir.transform import Pass, PassContext, Sequential
from ...support.sequences import of_kind
from ...target import Target
from ...tir import PrimFunc
from ...tir.transform import BF16StorageLegalize, BindTarget, LowerDeviceKernelLaunch
from ...tir.transform.numerics.exact_float8 import ExactFP8ComputeLegalize, ExactFP8StorageLegalize
from ...tir.transform.numerics.exact_variances import ExactVariances
from ...tir.transform.simplify.shape_arithmetic import SimplifyShapeArithmetic
from ...tir.transform.steps import default_passes, device_passes
from ...tir.transform.device.warp_barriers import MaskWarpBarriers
from ..gpu_generic.lockstep import without_lockstep
from ..gpu_generic.parallel_loops import with_parallel_kernels

__all__ = ["split_host_device"]

# Packed calls are another way to call host functions than ours; what follows it is for kernels alone.
_LATER = ("MakePackedAPI", "FP8StorageLegalize", "BF16StorageLegalize", "LowerDeviceKernelLaunch")
# Kinds of devices that all compute in float64.
_WITH_FLOAT64 = ("cuda", "nvptx", "rocm")


def split_host_device(mod: IRModule, target: Target) -> tuple[IRModule, IRModule]:
    """(host functions with their parameters as they were, device kernels) of scheduled tensor programs.

    Host functions call kernels as ``T.call_packed(kernel, *arguments, *launch parameters)``; the kernel's attribute
    ``tir.kernel_launch_params`` says which those are. Raises RuntimeError when a function computes outside of any
    thread: it needs a device schedule first.
    """
    if target.host is None:
        target = Target(target, host="llvm")
    mod = with_parallel_kernels(without_lockstep(mod), target)
    steps = [p for p in default_passes(PassContext.current()) if _plain_name(p) not in _LATER]
    steps = [ExactFP8ComputeLegalize() if _plain_name(p) == "FP8ComputeLegalize" else p for p in steps]
    if target.kind.name in _WITH_FLOAT64:
        steps.insert(0, ExactVariances())
    # Once offsets are flat and before their common parts get names.
    flat = next(i for i, p in enumerate(steps) if _plain_name(p) == "CommonSubexprElimTIR")
    steps.insert(flat, SimplifyShapeArithmetic(truncate=True))
    lowered = LowerDeviceKernelLaunch()(_on_their_hosts(Sequential(steps)(BindTarget(target)(_public(mod)))))
    host: dict[Any, Any] = {}
    device: dict[Any, Any] = {}
    for var, func in lowered.functions.items():
        is_kernel = (func.attrs or {}).get("calling_conv") == CallingConv.DEVICE_KERNEL_LAUNCH
        (device if is_kernel else host)[var] = func
    finish = [MaskWarpBarriers(), ExactFP8StorageLegalize(), BF16StorageLegalize(), *device_passes(mathematics=False)]
    return IRModule(host), Sequential(finish)(IRModule(device))


def _plain_name(step: Pass) -> str:
    return step.info.name.rpartition(".")[2]


def _public(mod: IRModule) -> IRModule:
    """Functions that nobody in the module calls are there to be called from outside: they get symbols."""
    called: set[Any] = set()

    def look(node: Node) -> bool:
        if isinstance(node, Call) and isinstance(node.op, GlobalVar):
            called.add(node.op)
        return True

    for program in of_kind(mod.functions.values(), PrimFunc):
        pre_order_visit(program.body, look)
    functions: dict[Any, Any] = {}
    for var, func in mod.functions.items():
        named = "global_symbol" in (func.attrs or {}) or var in called
        functions[var] = func if named else func.with_attr("global_symbol", var.name_hint)
    return IRModule(functions, mod.attrs)


def _on_their_hosts(mod: IRModule) -> IRModule:
    """Once kernels are split off, what is left of a function is for the host alone."""
    functions: dict[Any, Any] = {}
    for var, func in mod.functions.items():
        target = (func.attrs or {}).get("target")
        host = None if target is None else target.host
        functions[var] = func if host is None else func.with_attr("target", host)
    return IRModule(functions, mod.attrs)
