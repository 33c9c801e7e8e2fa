"""Policies that choose tiles: for threads, and for matrix units."""

from .default import DefaultPolicy
from .tensorcore import TensorCorePolicy

__all__ = ["DefaultPolicy", "TensorCorePolicy"]
