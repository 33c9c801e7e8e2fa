"""Running scheduled GPU programs in this process: host part in the interpreter, kernels in the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...interp import run_prim_func
from ...interp.hopper import TensorMap as OtherTensorMap
from ...interp.intrinsics import EXTERN, Pointer
from ...ir.expr import BaseFunc, GlobalVar, PrimExpr
from ...ir.functor import Mutator
from ...ir.module import IRModule, functions_of
from ...ir.op import Op, op_name_of
from ...ir.prim import Call, StringImm
from ...support.errors import RelaxishError
from ...target import Target
from ...target.shared_memory import STATIC_SHARED_MEMORY, opt_in_shared_memory
from ...tir import PrimFunc
from ..common.device_split import split_host_device
from .kernels import EmulatedKernels
from .launch import Dim, TensorMap

__all__ = ["EmulatedModule", "emulate"]

_LAUNCH = "relaxish.emulator.launch"
_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")


class _NameLaunches(Mutator):
    """``call_packed(kernel, ...)`` becomes a call of a function that the interpreter finds."""

    def __init__(self, kernels: EmulatedKernels) -> None:
        self.kernels = kernels

    def visit_Call(self, e: Call) -> PrimExpr:
        name = op_name_of(e)
        if name == "tir.tvm_call_packed" and e.args[0].value in self.kernels.programs:
            return Call("int32", Op.get("tir.call_extern"), [StringImm(_LAUNCH), *e.args])
        return self.default_visit(e)


class EmulatedModule:
    """Scheduled tensor programs that run on this CPU as if it were the target.

    ``run(name, *arrays)`` writes results into the arrays given.
    """

    def __init__(self, mod: IRModule, target: Target, *, check: bool = True, level: int = 0, **limits: Any) -> None:
        self.target = target
        self.host, self.device = split_host_device(mod, target)
        self.kernels = EmulatedKernels(self.device, checked=check, level=level)
        self.limits = {"shared_limit": _shared_limit(target), **limits}
        self.functions = {
            str((f.attrs or {}).get("global_symbol") or v.name_hint): f.with_body(_NameLaunches(self.kernels).visit(f.body))
            for v, f in functions_of(self.host, PrimFunc)
        }  # fmt: skip

    def run(self, name: str, *args: Any) -> None:
        """Run a function. Raises EmulationError where a kernel is wrong."""
        before = EXTERN.get(_LAUNCH)
        EXTERN[_LAUNCH] = self._launch
        try:
            run_prim_func(self.functions[name], list(args), self.functions)
        finally:
            if before is None:
                del EXTERN[_LAUNCH]
            else:
                EXTERN[_LAUNCH] = before

    def _launch(self, name: str, *args: Any) -> int:
        program = self.kernels.program(name)
        kernel = next(f for v, f in self.device.functions.items() if _symbol(v, f) == name)
        tags = [str(t) for t in (kernel.attrs or {}).get("tir.kernel_launch_params", ())]
        values, sizes = list(args[: len(program.kinds)]), args[len(program.kinds) :]
        launch = dict(zip(tags, (int(s) for s in sizes), strict=False))
        spans: dict[int, int] = {}
        made: list[tuple[str, Any]] = []
        for kind, value in zip(program.kinds, values, strict=True):
            if kind == "pointer":
                address, size = _memory(value)
                spans[address] = size
                made.append((kind, address))
            elif kind == "tensor_map":
                made.append((kind, _tensor_map(value)))
            else:
                made.append((kind, value))
        grid: Dim = tuple(launch.get(t, 1) for t in _AXES[:3])  # type: ignore[assignment]
        block: Dim = tuple(launch.get(t, 1) for t in _AXES[3:])  # type: ignore[assignment]
        cluster: Dim = tuple(launch.get(f"clusterIdx.{a}", 1) for a in "xyz")  # type: ignore[assignment]
        shared = launch.get("tir.use_dyn_shared_memory", 0)
        self.kernels.launch(name, grid, block, shared, made, cluster=cluster, extent=spans.get, **self.limits)
        return 0


def _symbol(var: GlobalVar, func: BaseFunc) -> str:
    return str((func.attrs or {}).get("global_symbol") or var.name_hint)


def _memory(value: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Address and bytes of an array, or of what follows a pointer."""
    if isinstance(value, Pointer):
        data = value.data[value.offset :]
        return int(data.ctypes.data), int(data.nbytes)
    array = np.asarray(value)
    return int(array.ctypes.data), int(array.nbytes)


def _tensor_map(value: OtherTensorMap) -> TensorMap:
    """The map that the interpreter made."""
    address = int(value.memory.ctypes.data) + value.start
    sizes, strides, box = (tuple(int(x) for x in part) for part in (value.sizes, value.strides, value.box))
    return TensorMap(address, int(value.size), sizes, strides, box, int(value.swizzle))


def _shared_limit(target: Target) -> int:
    """What a block may have with the driver's permission, which a launch asks for."""
    found = opt_in_shared_memory(str(target.attrs.get("arch", "sm_80")))
    return found if found > STATIC_SHARED_MEMORY else opt_in_shared_memory("sm_80")


def emulate(
    func_or_mod: IRModule | PrimFunc,
    *args: Any,
    target: Target | str = "nvidia/nvidia-a100",
    check: bool = True,
    **limits: Any,
) -> None:
    """Run a scheduled GPU program on the CPU; see :func:`relaxish.testing.emulate_cuda`."""
    mod = func_or_mod
    if isinstance(mod, PrimFunc):
        mod = IRModule({"main": mod})
    found = Target(target)
    module = EmulatedModule(mod, found, check=check, **limits)
    names = list(module.functions)
    if "main" in names:
        name = "main"
    elif len(names) == 1:
        name = names[0]
    else:
        raise RelaxishError(f"a module with the functions {', '.join(names)} needs one that is called main")
    module.run(name, *[_array(a) for a in args])


def _array(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return value.numpy() if hasattr(value, "numpy") and not isinstance(value, np.ndarray) else value
