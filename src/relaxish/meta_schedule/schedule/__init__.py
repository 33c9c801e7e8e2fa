"""Rules for particular blocks, found by the annotation ``schedule_rule`` (see ``ApplyCustomRule``)."""

from . import cpu, cuda

__all__ = ["cpu", "cuda"]
