"""Libraries of other devices: partitioning only."""

from __future__ import annotations

from ...support.entry_points import lazy_package

__getattr__, __dir__ = lazy_package(globals())
