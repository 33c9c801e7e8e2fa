"""Timing kernels, and comparing what they compute."""

from .bench import do_bench
from .profiler import Profiler
from .supply import TensorSupplyType, get_tensor_supply, supply_arrays

__all__ = ["Profiler", "TensorSupplyType", "do_bench", "get_tensor_supply", "supply_arrays"]
