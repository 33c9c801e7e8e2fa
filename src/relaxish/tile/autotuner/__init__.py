"""Choosing the fastest of several configurations of a kernel by measuring them."""

from .decorator import AutoTuneImpl, autotune
from .inputs import get_autotune_inputs, set_autotune_inputs
from .params import CompileArgs, ProfileArgs
from .result import AutotuneResult
from .tuner import AutoTuner

__all__ = [
    "AutoTuneImpl", "AutoTuner", "AutotuneResult", "CompileArgs", "ProfileArgs", "autotune", "get_autotune_inputs",
    "set_autotune_inputs",
]  # fmt: skip
