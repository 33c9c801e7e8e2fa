"""Passes over programs whose tensors are spread over a mesh of devices."""

from __future__ import annotations

from .legalize_redistribute import LegalizeRedistribute
from .lower_dist_ir import LowerDistIR
from .lower_global_view import LowerGlobalViewToLocalView
from .propagate_sharding import PropagateSharding

__all__ = ["LegalizeRedistribute", "LowerDistIR", "LowerGlobalViewToLocalView", "PropagateSharding"]
