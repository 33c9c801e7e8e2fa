"""Templates, tasks, spaces, and the contexts that choose configurations."""

from .dispatcher import (
    ApplyConfig,
    ApplyFixedConfig,
    ApplyGraphBest,
    ApplyHistoryBest,
    DispatchContext,
    FallbackContext,
    clear_fallback_cache,
)
from .flops import FlopCalculationError, compute_flop
from .kernel import KernelTask, register_kernel_template
from .relax_integration import extract_from_multiple_program, extract_from_program
from .space import ConfigEntity, ConfigSpace, FallbackConfigEntity, InstantiationError
from .task import (
    Task,
    args_to_workload,
    create,
    deserialize_args,
    get_config,
    serialize_args,
    template,
)
from .topi_integration import TaskExtractEnv, get_workload, register_topi_compute, register_topi_schedule

__all__ = [
    "ApplyConfig", "ApplyFixedConfig", "ApplyGraphBest", "ApplyHistoryBest", "ConfigEntity", "ConfigSpace",
    "DispatchContext", "FallbackConfigEntity", "FallbackContext", "FlopCalculationError", "InstantiationError", "KernelTask",
    "Task", "TaskExtractEnv", "args_to_workload", "clear_fallback_cache", "compute_flop", "create", "deserialize_args",
    "extract_from_multiple_program", "extract_from_program", "get_config", "get_workload", "register_kernel_template",
    "register_topi_compute", "register_topi_schedule", "serialize_args", "template",
]  # fmt: skip
