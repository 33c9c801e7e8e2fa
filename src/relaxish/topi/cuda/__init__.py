"""Computations as GPU programs: what does not become a good kernel by scheduling loops."""

from __future__ import annotations

from .scan import *  # noqa: F403
from .sort import *  # noqa: F403
from .thrust import *  # noqa: F403
