"""Tuning on a Ray cluster: builds anywhere, measurements where the device is and nothing else runs (extra ``ray``).

>>> from relaxish.meta_schedule import tune_tir
>>> tune_tir(mod, "llvm", "logs", 64, builder="ray", runner="ray")  # doctest: +SKIP
"""

from .dispatcher import Device, DeviceLostError, Dispatcher, Job, Measurement
from .pool import KIND_LABEL, PoolSettings, pool_statuses
from .ray_runner import RayBuilder, RayRunner

__all__ = [
    "KIND_LABEL", "Device", "DeviceLostError", "Dispatcher", "Job", "Measurement", "PoolSettings", "RayBuilder", "RayRunner",
    "pool_statuses",
]  # fmt: skip
