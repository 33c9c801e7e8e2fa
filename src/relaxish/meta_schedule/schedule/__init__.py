"""Rules for particular blocks, found by the annotation ``schedule_rule`` (see ``ApplyCustomRule``)."""

from . import cuda

__all__ = ["cuda"]
