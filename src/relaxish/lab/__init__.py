"""A laboratory for search: spaces measured once, searches replayed on them, and compared.

A recorded space holds every program of a sketch with the times that it took. Strategies (those of ``meta_schedule``, the
tuners of AutoTVM, Optuna's, and the caller's own) search it without a machine, thousands of trials in seconds, and the
same seed gives the same run, bit for bit.

>>> from relaxish import lab
>>> lab.bundled_spaces()
['conv2d', 'gemm', 'softmax']
>>> result = lab.compare(["random", "ga"], ["gemm"], seeds=2, trials=100)
>>> sorted(result.mean_ranks()) == ["ga", "random"]
True
"""

from __future__ import annotations

from ..support.entry_points import lazy_package

__getattr__, __dir__ = lazy_package(globals())  # what is not asked for is not loaded

__all__ = [
    "Band", "Comparison", "Dimension", "FEATURE_GROUPS", "MetaScheduleStrategy", "ModelMetrics", "Noise", "PairTest",
    "PartialXGBModel", "RecordedGenerator", "RecordedSpace", "ReplayBuilder", "ReplayRunner", "Run", "Strategy", "TPEStrategy",
    "TunerStrategy", "UnsupportedSpaceError", "ablate", "bundled_spaces", "compare", "create_strategy", "evaluate_cost_model",
    "load_space", "make_cost_model", "record", "record_workload", "register_strategy", "run_search", "strategy_names",
]  # fmt: skip
