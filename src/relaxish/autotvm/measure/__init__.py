"""Measurement of configurations: AutoTVM's builders and runners, on the engine of ``meta_schedule``."""

from .measure import Builder, BuildResult, MeasureErrorNo, MeasureInput, MeasureResult, Runner
from .measure_methods import LocalBuilder, LocalRunner, RPCRunner, check_remote, request_remote
from .options import MeasureBatch, MeasureOption, create_measure_batch, measure_option

__all__ = [
    "BuildResult", "Builder", "LocalBuilder", "LocalRunner", "MeasureBatch", "MeasureErrorNo", "MeasureInput", "MeasureOption",
    "MeasureResult", "RPCRunner",
    "Runner", "check_remote", "create_measure_batch", "measure_option", "request_remote",
]  # fmt: skip
