"""Cost models: scores for candidates, the higher the faster."""

from typing import Any

from .cost_model import CostModel, PyCostModel, RandomModel
from .metric import average_peak_score, max_curve, p_rmse

create = CostModel.create


def __getattr__(name: str) -> Any:
    """The learning models load on first use."""
    if name in ("XGBModel", "XGBConfig"):
        from . import xgb_model

        return getattr(xgb_model, name)
    if name in ("MLPModel", "MLPModelConfig", "MLPModelTrainer"):
        from . import mlp_model

        return getattr(mlp_model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["CostModel", "PyCostModel", "RandomModel", "average_peak_score", "create", "max_curve", "p_rmse"]
