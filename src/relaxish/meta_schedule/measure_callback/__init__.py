"""Callbacks after each batch of measurements."""

from typing import TYPE_CHECKING

from ...support.entry_points import lazy_package
from .measure_callback import AddToDatabase, MeasureCallback, PyMeasureCallback, RemoveBuildArtifact, UpdateCostModel

if TYPE_CHECKING:
    from .exporters import MLflowCallback, TensorBoardCallback
    from .progress import LiveProgress

__getattr__, __dir__ = lazy_package(globals())  # what shows and exports loads on first use

__all__ = [
    "AddToDatabase", "LiveProgress", "MLflowCallback", "MeasureCallback", "PyMeasureCallback", "RemoveBuildArtifact",
    "TensorBoardCallback", "UpdateCostModel",
]  # fmt: skip
