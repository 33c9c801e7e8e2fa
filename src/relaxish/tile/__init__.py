"""Tile programs: kernels written as operators on tiles, lowered for each architecture by one planner.

``relaxish.tile.language`` (usually ``T``) is what they are written with.
"""

from __future__ import annotations

from ..support.entry_points import lazy_package as _lazy_package

# Here and not on first use: the function `jit` has the name of the folder it is in.
from .jit import JITKernel, cached, clear_cache, compile, jit, par_compile

__all__ = [
    "AutoTuner", "AutotuneResult", "JITKernel", "Profiler", "TensorSupplyType", "autotune", "cached", "clear_cache",
    "compile", "do_bench", "jit", "language", "layout", "par_compile", "set_autotune_inputs", "utils",
]  # fmt: skip

__getattr__, __dir__ = _lazy_package(globals())
