"""Imperative construction of IR: ``IRBuilder`` and the builders ``ir``, ``tir`` and ``relax``."""

from __future__ import annotations

from ...support.entry_points import lazy_package
from .base import IRBuilder, IRBuilderFrame, Namer

__all__ = ["IRBuilder", "IRBuilderFrame", "Namer", "ir", "relax", "tir"]

__getattr__, __dir__ = lazy_package(globals())
