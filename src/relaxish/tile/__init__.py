"""Tile programs: kernels written as operators on tiles, lowered for each architecture by one planner.

``relaxish.tile.language`` (usually ``T``) is what they are written with.
"""

from __future__ import annotations

from ..support.aliases import lazy_package as _lazy_package
from ..support.aliases import register_attributes as _register

# Here and not on first use: the function `jit` has the name of the folder it is in.
from .jit import JITKernel, cached, clear_cache, compile, jit, par_compile

__all__ = [
    "AutoTuner", "AutotuneResult", "JITKernel", "Profiler", "TensorSupplyType", "autotune", "cached", "clear_cache",
    "compile", "do_bench", "jit", "language", "par_compile", "set_autotune_inputs",
]  # fmt: skip

_register(
    "relaxish.tile",
    {
        "language": "relaxish.tile.language",
        "profiler": "relaxish.tile.profiler",
        "autotuner": "relaxish.tile.autotuner",
        **{name: f"relaxish.tile.profiler:{name}" for name in ("Profiler", "TensorSupplyType", "do_bench")},
        **{
            name: f"relaxish.tile.autotuner:{name}"
            for name in (
                "AutoTuner",
                "AutotuneResult",
                "autotune",
                "set_autotune_inputs",
            )
        },
    },
)
__getattr__, __dir__ = _lazy_package(globals())
