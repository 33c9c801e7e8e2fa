"""The library of computations that operators are lowered to."""

from __future__ import annotations

from ..support.entry_points import lazy_package as _lazy_package
from . import cuda, image, nn, tag, vision
from .broadcast import *  # noqa: F403
from .indexing import *  # noqa: F403
from .math import *  # noqa: F403
from .linalg import *  # noqa: F403
from .rearrange import *  # noqa: F403
from .reduction import *  # noqa: F403
from .scan import *  # noqa: F403
from .scatter import *  # noqa: F403
from .search import *  # noqa: F403
from .shape import *  # noqa: F403
from .signal import *  # noqa: F403
from .sort import *  # noqa: F403
from .writes import *  # noqa: F403

__getattr__, __dir__ = _lazy_package(globals())  # references for tests load on first use
