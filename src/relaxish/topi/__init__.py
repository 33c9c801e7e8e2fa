"""The library of computations that operators are lowered to."""

from __future__ import annotations

from . import cuda, image, nn, tag
from .broadcast import *  # noqa: F403
from .indexing import *  # noqa: F403
from .math import *  # noqa: F403
from .linalg import *  # noqa: F403
from .reduction import *  # noqa: F403
from .scan import *  # noqa: F403
from .scatter import *  # noqa: F403
from .shape import *  # noqa: F403
from .sort import *  # noqa: F403
