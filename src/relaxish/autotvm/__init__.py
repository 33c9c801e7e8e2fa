"""AutoTVM: templates with parameters, tuned by measuring.

A template says what can be tuned (``cfg.define_split`` and so on) and builds the schedule; a tuner tries configurations
and writes them to a log; ``apply_history_best`` finds the fastest again. Everything is measured by the engine of
``meta_schedule``, whose databases can hold the same measurements.

>>> from relaxish import autotvm
>>> task = autotvm.task.create("matmul", args=(512, 512, 512), target="llvm")  # doctest: +SKIP
>>> tuner = autotvm.tuner.XGBTuner(task)  # doctest: +SKIP
>>> option = autotvm.measure_option(autotvm.LocalBuilder(), autotvm.LocalRunner(number=5))  # doctest: +SKIP
>>> tuner.tune(100, option, callbacks=[autotvm.callback.log_to_file("matmul.log")])  # doctest: +SKIP
"""

from . import database, env, feature, graph_tuner, measure, record, task, tophub, tuner, utils
from .env import GLOBAL_SCOPE
from .measure import (
    LocalBuilder,
    LocalRunner,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    RPCRunner,
    measure_option,
)
from .task import (
    ApplyConfig,
    ApplyFixedConfig,
    ApplyGraphBest,
    ApplyHistoryBest,
    ConfigEntity,
    ConfigSpace,
    DispatchContext,
    FallbackContext,
    create,
    get_config,
    register_kernel_template,
    register_topi_compute,
    register_topi_schedule,
    template,
)
from .tuner import callback

apply_history_best = ApplyHistoryBest
apply_graph_best = ApplyGraphBest

__all__ = [
    "GLOBAL_SCOPE", "ApplyConfig", "ApplyFixedConfig", "ApplyGraphBest", "ApplyHistoryBest", "ConfigEntity", "ConfigSpace",
    "DispatchContext", "FallbackContext", "LocalBuilder", "LocalRunner", "MeasureErrorNo", "MeasureInput", "MeasureResult",
    "RPCRunner", "apply_graph_best", "apply_history_best", "callback", "create", "database", "env", "feature", "get_config",
    "graph_tuner", "measure", "measure_option", "record", "register_kernel_template", "register_topi_compute", "register_topi_schedule",
    "task", "template", "tophub", "tuner", "utils",
]  # fmt: skip
