"""Default schedules by rules: good code without search, dynamic shapes included."""

from __future__ import annotations

from ..ir.transform import Pass, Sequential
from ..support.entry_points import lazy_package as _lazy_package
from . import analysis, base, cpu, gpu
from .analysis import BlockInfo, IterInfo, normalize_prim_func
from .base import ApplyDefaultSchedule, ScheduleRule, try_inline, try_inline_contiguous_spatial

__all__ = [
    "ApplyDefaultCPUSchedule", "ApplyDefaultSchedule", "BlockInfo", "IterInfo", "ScheduleRule", "analysis", "base",
    "cpu", "default_cpu_rules", "default_gpu_rules", "gpu", "normalize_prim_func", "try_inline", "try_inline_contiguous_spatial",
]  # fmt: skip


def default_cpu_rules(target: object = None) -> list[ScheduleRule]:
    """The CPU rules in the order they are tried."""
    return [
        cpu.Elementwise(), cpu.MatrixUnit(), cpu.Contraction(), cpu.MatrixVector(), cpu.RowReduction(), cpu.Fallback(),
    ]  # fmt: skip


def default_gpu_rules(target: object = None) -> list[ScheduleRule]:
    """The GPU rules in the order they are tried; of the default pipelines of all GPU targets but Adreno."""
    return [
        gpu.MatmulHopper(), gpu.MatmulSmallTiles(), gpu.Matmul(), gpu.WideRows(), gpu.GEMV(),
        gpu.Reduction(), gpu.Normalization(), gpu.GeneralReduction(), gpu.Fallback(),
    ]  # fmt: skip


def ApplyDefaultCPUSchedule() -> Pass:
    """Give every unscheduled function its default CPU schedule and constant weights the layout that it reads best."""
    rules = ApplyDefaultSchedule(*default_cpu_rules(), simplify_shapes=True)
    return Sequential([cpu.DotWords(), cpu.MarkConstants(), rules, cpu.PackWeights()])


# ``benchmark`` builds and runs programs and so stands above this layer.
__getattr__, __dir__ = _lazy_package(globals())
