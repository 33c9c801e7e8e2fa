"""LegalizeOps and the means to say how operators are lowered."""

from __future__ import annotations

from .common import register_legalize
from .lower import LegalizeOps, legalization_key

__all__ = ["LegalizeOps", "legalization_key", "register_legalize"]
