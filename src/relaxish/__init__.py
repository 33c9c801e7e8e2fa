"""relaxish: a Relax/MetaSchedule-style deep-learning compiler in Python.

The names of the graph level (``relaxish.Var``, ``relaxish.BlockBuilder``, ``relaxish.build``) are here; ``relaxish.relax``
holds the same.  Everything loads on first use, so ``import relaxish`` is quick and pulls in no framework.
"""

from __future__ import annotations

from .public_names import HOOKS as _HOOKS
from .public_names import PUBLIC_NAMES as _PUBLIC_NAMES
from .support import entry_points as _entry_points

__version__ = "0.1.0"

_entry_points.declare(_HOOKS, _PUBLIC_NAMES)
_entry_points.install()

__getattr__, __dir__ = _entry_points.lazy_package(globals())
