"""From scheduled tensor programs to a module for a device: what all kinds but CUDA share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...ir.module import IRModule
from ...ir.transform import Pass
from ...runtime.devices.module import DeviceModule
from ...runtime.devices.host_program import HostProgram
from ...target import Target
from .csource.kernel import device_functions
from .device_split import split_host_device
from .native_host import host_maker
from .host_program import host_program_text, kernel_infos
from .signature import kernel_spec

__all__ = ["build_with"]

Sources = Callable[[IRModule], Mapping[str, str]]
Makers = Callable[[IRModule], Mapping[str, Callable[[], str | bytes]]]


def build_with(
    kernels: IRModule, target: Target, sources: Sources, *, prepare: Pass | None = None, makers: Makers | None = None
) -> DeviceModule:
    """A module whose kernels are what ``sources(device functions)`` gives: texts by format, the main one first.

    ``prepare`` is a pass over the scheduled programs before all others; ``makers`` offer formats made on demand.
    """
    specs = {name: kernel_spec(name, func) for name, func in device_functions(kernels)}
    host, device = split_host_device(kernels if prepare is None else prepare(kernels), target)
    infos = kernel_infos(device)
    programs = []
    for name, func in device_functions(host):
        spec = specs.get(name) or kernel_spec(name, func)
        programs.append(HostProgram(spec, host_program_text(name, func, infos)))
    kind = target.kind.name
    later = makers(device) if makers is not None else None
    made = DeviceModule(kind, target.get_target_device_type(), sources(device), infos.values(), programs, makers=later)
    made.host_maker = host_maker(host, infos, target.host)
    return made
