"""The device code that every generated file begins with; it is written in ``preamble.cuh``."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["PREAMBLE"]

PREAMBLE = files(__package__).joinpath("preamble.cuh").read_text()
