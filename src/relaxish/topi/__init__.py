"""The library of computations that operators are lowered to."""

from __future__ import annotations

from . import image, nn, tag
from .broadcast import *  # noqa: F403
from .indexing import *  # noqa: F403
from .math import *  # noqa: F403
from .linalg import matmul, tensordot
from .reduction import all, any, argmax, argmin, collapse_sum, max, min, prod, sum
from .scan import cumprod, cumsum
from .scatter import scatter_elements, scatter_nd
from .shape import *  # noqa: F403
from .sort import argsort, sort, topk
