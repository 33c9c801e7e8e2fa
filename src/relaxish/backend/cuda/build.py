"""From scheduled tensor programs to a module of CUDA kernels and the host programs that launch them.

The module holds the kernels as source; PTX and machine code are made when somebody asks for them, so that everything
can be looked at on a machine without a GPU.
"""

from __future__ import annotations


from ...ir import load_json, save_json
from ...ir.expr import BaseFunc, GlobalVar
from ...ir.module import IRModule
from ...runtime.devices.host_program import HostProgram
from ...runtime.nvidia.module import TOOLS, CUDAModule
from ...target import Target
from ...tir import PrimFunc
from ..common.device_split import split_host_device
from ..common.host_program import host_program_text, kernel_infos
from ..common.native_host import host_maker
from ..common.signature import kernel_spec
from .compile import nvrtc, sass
from .codegen.printer import cuda_source

__all__ = ["CUDAModule", "build_device", "lower_for_device"]

_DEFAULT_ARCH = "sm_80"


def lower_for_device(mod: IRModule, target: Target) -> tuple[IRModule, IRModule]:
    """(host functions, device kernels) of scheduled tensor programs.

    Raises RelaxishError when a function computes outside of any thread: it needs a GPU schedule first.
    """
    return split_host_device(mod, target)


def build_device(kernels: IRModule, target: Target) -> CUDAModule:
    """The device module of scheduled tensor programs: kernels, and a host program for each function."""
    host, device = lower_for_device(kernels, target)
    infos = kernel_infos(device)
    specs = {}
    for var, func in kernels.functions.items():
        symbol = _symbol(var, func)
        specs[symbol] = kernel_spec(symbol, func)
    programs = []
    for var, func in host.functions.items():
        assert isinstance(func, PrimFunc), "what is split off for the host are tensor programs"
        symbol = _symbol(var, func)
        spec = specs.get(symbol) or kernel_spec(symbol, func)
        programs.append(HostProgram(spec, host_program_text(symbol, func, infos)))
    arch = str(target.attrs.get("arch", _DEFAULT_ARCH))

    def parts() -> dict[str, str]:
        return {_symbol(v, f): cuda_source(IRModule({v: f})) for v, f in device.functions.items()}

    made = CUDAModule(cuda_source(device), arch, infos.values(), programs, parts=parts, device_ir=device)
    made.host_maker = host_maker(host, infos, target.host)
    return made


def _symbol(var: GlobalVar, func: BaseFunc) -> str:
    return str((func.attrs or {}).get("global_symbol") or var.name_hint)


TOOLS.update(
    {
        "cubin": nvrtc.compile_cubin,
        "cubins": nvrtc.compile_many,
        "ptx": nvrtc.compile_ptx,
        "sass": sass.disassemble,
        "save_ir": save_json,
        "load_ir": load_json,
    }
)
