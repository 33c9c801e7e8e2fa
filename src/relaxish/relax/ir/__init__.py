"""Helpers around graph programs as they pass through pipelines."""

from . import instrument

__all__ = ["instrument"]
