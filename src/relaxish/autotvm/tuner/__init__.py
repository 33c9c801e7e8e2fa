"""Tuners: which configurations to measure next."""

from . import callback, metric
from .droplet_tuner import DropletTuner
from .ga_tuner import GATuner
from .index_based_tuner import GridSearchTuner, RandomTuner
from .model_based_tuner import ModelBasedTuner
from .sa_model_optimizer import ModelOptimizer, SimulatedAnnealingOptimizer
from .tuner import Tuner
from .xgboost_cost_model import XGBoostCostModel
from .xgboost_tuner import XGBTuner

__all__ = [
    "DropletTuner", "GATuner", "GridSearchTuner", "ModelBasedTuner", "ModelOptimizer", "RandomTuner",
    "SimulatedAnnealingOptimizer", "Tuner", "XGBTuner", "XGBoostCostModel", "callback", "metric",
]  # fmt: skip
