"""Names of AutoTVM's tuner of layouts, for which nothing is left to do here: each says what to write.

Layouts are chosen when a model is built, by the target's own pipeline (``transform.CPULayoutPacking`` for CPUs), before its
kernels become tasks, so that no records of several layouts are weighed against each other.
"""

from __future__ import annotations

from typing import NoReturn

__all__: list[str] = []

_NAMES = ("BaseGraphTuner", "DPTuner", "PBQPTuner")


def __getattr__(name: str) -> NoReturn:
    if name in _NAMES:
        raise ImportError(
            f"autotvm.graph_tuner.{name} is not available: relaxish.build chooses the layouts of convolutions itself. Tune the "
            "kernels of autotvm.task.extract_from_program(mod, params, target), and build in the scope of "
            "autotvm.apply_history_best(log) instead of apply_graph_best(graph_log)"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
