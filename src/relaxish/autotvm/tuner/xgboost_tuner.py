"""The tuner that learns with boosted trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .model_based_tuner import ModelBasedTuner
from .sa_model_optimizer import ModelOptimizer, SimulatedAnnealingOptimizer
from .xgboost_cost_model import XGBoostCostModel

if TYPE_CHECKING:
    from ..task.task import Task

__all__ = ["XGBTuner"]


class XGBTuner(ModelBasedTuner):
    """Learns after every ``plan_size`` measurements and plans the next by simulated annealing (``optimizer="sa"``).

    ``feature_type``: "itervar" (loops of the program), "knob" (parameters) or "curve" (reuse of memory). ``loss_type``:
    "reg", "rank" or "rank-binary".
    """

    def __init__(
        self,
        task: Task,
        plan_size: int = 64,
        feature_type: str = "itervar",
        loss_type: str = "reg",
        num_threads: int | None = None,
        optimizer: str | ModelOptimizer = "sa",
        diversity_filter_ratio: float | None = None,
        log_interval: int = 50,
    ) -> None:
        model = XGBoostCostModel(task, feature_type, loss_type, num_threads, log_interval // 2)
        if isinstance(optimizer, str):
            if optimizer != "sa":
                raise ValueError(f"unknown optimizer {optimizer!r}; use 'sa' or give a ModelOptimizer")
            optimizer = SimulatedAnnealingOptimizer(task, log_interval=log_interval)
        elif not isinstance(optimizer, ModelOptimizer):
            raise TypeError("Optimizer must be a supported name string or a ModelOptimizer object.")
        super().__init__(task, model, optimizer, plan_size, diversity_filter_ratio)
