"""Rules of the target key ``cpu``."""

from . import winograd

__all__ = ["winograd"]
