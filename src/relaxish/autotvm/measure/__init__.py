"""How fast configurations are: AutoTVM's way to say how to build and run them, on the engine of ``meta_schedule``."""

from .measure import (
    Builder,
    BuildResult,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    Runner,
    create_measure_batch,
    measure_option,
)
from .measure_methods import LocalBuilder, LocalRunner, RPCRunner, check_remote, request_remote

__all__ = [
    "BuildResult", "Builder", "LocalBuilder", "LocalRunner", "MeasureErrorNo", "MeasureInput", "MeasureResult", "RPCRunner",
    "Runner", "check_remote", "create_measure_batch", "measure_option", "request_remote",
]  # fmt: skip
