"""What happens with each batch of measurements."""

from .measure_callback import AddToDatabase, MeasureCallback, PyMeasureCallback, RemoveBuildArtifact, UpdateCostModel

__all__ = ["AddToDatabase", "MeasureCallback", "PyMeasureCallback", "RemoveBuildArtifact", "UpdateCostModel"]
