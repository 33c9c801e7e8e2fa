"""TVMScript: IR as Python text, for both levels.

``from relaxish.script import ir as I, relax as R, tir as T`` gives the namespaces that scripts use;
``from_source`` parses text, and ``node.script()`` prints it.
"""

from __future__ import annotations

from ..support.entry_points import lazy_package

__all__ = ["from_source", "ir", "ir_module", "parse", "relax", "tir"]

__getattr__, __dir__ = lazy_package(globals())
