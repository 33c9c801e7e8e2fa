"""AMD devices: HIP C++ from lowered device functions, and machine code through LLVM."""

from __future__ import annotations

from ...support.entry_points import lazy_package

__getattr__, __dir__ = lazy_package(globals())
