"""Cost models: scores for candidates, the higher the faster."""

from ...support.entry_points import lazy_package
from .cost_model import CostModel, PyCostModel, RandomModel
from .metric import average_peak_score, max_curve, p_rmse

create = CostModel.create


__getattr__, __dir__ = lazy_package(globals())  # the learning models load on first use

__all__ = ["CostModel", "PyCostModel", "RandomModel", "average_peak_score", "create", "max_curve", "p_rmse"]
