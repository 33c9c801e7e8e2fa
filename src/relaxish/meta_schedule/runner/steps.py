"""The steps of a measurement as users may replace them, and the defaults that theirs may build on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...runtime import Device, NDArray, nd
from ...runtime.kernels.module import Module
from ..arg_info import ArgInfo
from ..builder.artifact import unpacked
from ..builder.device_artifact import DeviceArtifact
from ..builder.interpreted import InterpretedArtifact
from .arguments import alloc_arguments
from .runner import EvaluatorConfig

__all__ = [
    "T_ARGUMENT_LIST", "T_ARG_INFO_JSON_OBJ_LIST", "default_alloc_argument", "default_cleanup", "default_run_evaluator",
    "device_module", "is_host", "loaded_module",
]  # fmt: skip

T_ARG_INFO_JSON_OBJ_LIST = list[ArgInfo]
T_ARGUMENT_LIST = list[NDArray]


def is_host(device: Device) -> bool:
    """Whether arrays of the device are this process's memory."""
    return device.device_type == Device.kDLCPU


def default_alloc_argument(
    device: Device, args_info: Sequence[ArgInfo], alloc_repeat: int
) -> list[list[NDArray]]:  # T_ARGUMENT_LIST for each repeat
    """Sets of random arguments on the device."""
    return [[nd.array(a, device) for a in alloc_arguments(args_info, seed)] for seed in range(alloc_repeat)]


def default_run_evaluator(
    rt_mod: Any, device: Device, evaluator_config: EvaluatorConfig, repeated_args: Sequence[Sequence[Any]]
) -> list[float]:
    """Seconds of a run of the module's entry: so many figures for each set of arguments as there are repeats."""
    timed = rt_mod.time_evaluator(
        rt_mod.entry_name or "", device, number=evaluator_config.number, repeat=evaluator_config.repeat,
        min_repeat_ms=evaluator_config.min_repeat_ms,
        f_preproc="cache_flush_cpu_non_first_arg" if evaluator_config.enable_cpu_cache_flush else "",
    )  # fmt: skip
    return [float(t) for arguments in repeated_args for t in timed(*arguments).results]


def default_cleanup() -> None:
    """Nothing is left behind by the other defaults."""


def loaded_module(artifact: str | bytes) -> Module:
    """A candidate as a module of the runtime. Raises ValueError for one that is interpreted."""
    made = unpacked(artifact)
    if isinstance(made, InterpretedArtifact):
        raise ValueError("what is interpreted is no module; it is measured by the runner's own evaluator only")
    if made is None:
        from ...runtime.exports.load import load_module

        found = load_module(str(artifact))
        if not isinstance(found, Module):
            raise ValueError(f"{artifact!r} is not a module of kernels")
        return found
    if isinstance(made, DeviceArtifact):
        return device_module(made)
    from ...backend.llvm.compile import jit_load

    return Module(made.kernels, jit_load(made), messages=made.messages)


def device_module(made: DeviceArtifact) -> Module:
    """A candidate for a device, as a module around that of the device."""
    from ...runtime.devices.module import DeviceModule
    from ...runtime.nvidia.module import CUDAModule

    kind: Any = CUDAModule if made.kind == "cuda" else DeviceModule
    module = Module({}, None, entry_name=made.name)
    module.add_device_module(kind.from_json(made.manifest, made.binaries))
    return module
