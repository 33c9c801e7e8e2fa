"""Running a module right away: export, build, bind parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from collections.abc import Callable, Sequence

from ...runtime import NDArray, VirtualMachine
from ...runtime import Device, device as make_device
from ...runtime.arrays.ndarray import array, from_dlpack
from ..common import build_module, Pipeline
from .core import Module

if TYPE_CHECKING:
    from .spec import ModuleSpec

__all__ = ["CompiledModule", "jit"]


class CompiledModule:
    """A built module: methods by name, parameters bound, effects threaded through."""

    def __init__(
        self, vm: VirtualMachine, params: list[NDArray], effects: Sequence[Any] | None, out_format: str
    ) -> None:
        self.vm = vm
        self.params = params
        self.effects = effects
        self.out_format = out_format

    def __getitem__(self, method: str) -> Callable[..., Any]:
        function = self.vm[method]

        def call(*args: Any) -> Any:
            inputs = [_to_runtime(a) for a in args]
            if self.effects is None:
                return self._out(function(*inputs, *self.params))
            result, self.effects = function(*inputs, *self.effects, *self.params)
            return self._out(result)

        return call

    def _out(self, value: Any) -> object:
        match value:
            case NDArray():
                if self.out_format == "numpy":
                    return value.numpy()
                import torch

                return torch.from_dlpack(value)
            case list() | tuple():
                return tuple(self._out(v) for v in value)
        return value


def _to_runtime(value: Any) -> object:
    match value:
        case int() if not isinstance(value, bool):
            return (value,)  # an integer argument is a shape of one dimension
        case np.ndarray():
            return array(value)
    if hasattr(value, "__dlpack__") and not isinstance(value, NDArray):
        return from_dlpack(value.contiguous() if hasattr(value, "contiguous") else value)
    return value


def jit(
    module: Module,
    spec: ModuleSpec | dict[str, Any],
    device: str | Device,
    pipeline: Pipeline,
    out_format: str,
    debug: bool,
) -> CompiledModule:
    """See :meth:`Module.jit`. Raises ValueError for an unknown format or parameters without data."""
    if out_format not in ("torch", "numpy"):
        raise ValueError(f"Unknown out_format {out_format!r}; it is 'torch' or 'numpy'")
    mod, named, externs = module.export_tvm(spec, debug=debug, allow_extern=True)
    for extern in externs:
        extern.load()
    unbound = [name for name, param in named if param.data is None]
    if unbound:
        raise ValueError(f"parameters without data: {', '.join(unbound)}; use load_state_dict first")
    where = make_device(device) if isinstance(device, str) else device
    target = "llvm" if str(device).startswith("cpu") or not isinstance(device, str) else str(device).split(":")[0]
    vm = VirtualMachine(build_module(mod, target, pipeline), where)
    effects = vm["_initialize_effect"]() if "_initialize_effect" in mod else None
    params = [param.data for _, param in named]
    return CompiledModule(vm, [p for p in params if p is not None], effects, out_format)
