"""From scheduled tensor programs to a module with a CUDA part.

The host part knows the functions' signatures; its first imported module holds the kernels as source, PTX and machine
code, so that everything can be looked at on a machine without a GPU.
"""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...ir.transform import Sequential
from ...runtime import Module
from ...support.errors import RelaxishError
from ...target import Target
from ...tir.transform import BindTarget
from ...tir.transform.pipeline import default_tir_pipeline
from ...tir.transform.steps import device_passes
from ..common.signature import kernel_spec
from . import nvrtc
from .codegen import cuda_source

__all__ = ["CUDAModule", "build_cuda", "lower_for_device"]


class CUDAModule(Module):
    """Kernels of one target: CUDA C++, and what it compiles to."""

    is_device_module = True
    is_dso_exportable = False

    def __init__(self, source: str, arch: str, names: list[str]) -> None:
        super().__init__({}, None, sources={"cu": source}, type_key="cuda")
        self.arch = arch
        self.kernel_names = names

    def get_source(self, fmt: str = "") -> str:
        """The kernels as "cu" (default) or "ptx". Raises MissingExtraError where PTX needs a compiler that is absent."""
        if fmt == "ptx" and "ptx" not in self.sources:
            self.sources["ptx"] = nvrtc.compile_ptx(self.sources["cu"], self.arch)
        return super().get_source(fmt)

    inspect_source = get_source

    def cubin(self) -> bytes:
        """Machine code for the target's architecture."""
        if not self.objects:
            self.objects.append(nvrtc.compile_cubin(self.sources["cu"], self.arch))
        return self.objects[0]


def lower_for_device(mod: IRModule, target: Target) -> tuple[IRModule, IRModule]:
    """(host functions, device kernels) of scheduled tensor programs.

    Raises RelaxishError when a function computes outside of any thread: it needs a GPU schedule first.
    """
    if target.host is None:
        target = Target(target, host="llvm")
    lowered = default_tir_pipeline()(BindTarget(target)(mod))
    host: dict[Any, Any] = {}
    device: dict[Any, Any] = {}
    for var, func in lowered.functions.items():
        kind = (func.attrs or {}).get("target")
        (device if kind is not None and kind.kind.name == target.kind.name else host)[var] = func
    return IRModule(host), Sequential(device_passes(mathematics=False))(IRModule(device))


def build_cuda(kernels: IRModule, target: Target) -> Module:
    """Compile scheduled tensor programs for CUDA."""
    _, device = lower_for_device(kernels, target)
    names = [str((f.attrs or {}).get("global_symbol") or v.name_hint) for v, f in device.functions.items()]
    specs = {}
    for var, func in kernels.functions.items():
        symbol = str((func.attrs or {}).get("global_symbol") or var.name_hint)
        specs[symbol] = kernel_spec(symbol, func)
    made = Module(specs, None, python_kernels={name: _needs_device(name) for name in specs}, type_key="llvm")
    made.import_module(CUDAModule(cuda_source(device), str(target.attrs.get("arch", "sm_80")), sorted(names)))
    return made


def _needs_device(name: str) -> Any:
    def run(*_: Any) -> Any:
        raise RelaxishError(f"'{name}' runs on a CUDA device, and launching kernels is not part of this version yet")

    return run
