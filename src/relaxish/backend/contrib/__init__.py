"""Libraries of other devices: partitioning only."""

from __future__ import annotations

from ...support.aliases import lazy_package

__getattr__, __dir__ = lazy_package(globals())
