"""Shared parts of GPU backends: the default pipeline, and kernels for scans and sampling."""

from __future__ import annotations

from ...support.entry_points import lazy_package

__getattr__, __dir__ = lazy_package(globals())
