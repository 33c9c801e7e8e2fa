"""Operators: each a record of inference, lowering, gradient, layout and precision rules, reference and samples."""

from __future__ import annotations

from . import base, builtin, ccl, distributed, grad, image, inspect, memory, nn, vm
from .base import *  # noqa: F403
from .binary import *  # noqa: F403
from .create import *  # noqa: F403
from .datatype import *  # noqa: F403
from .gather import *  # noqa: F403
from .index import *  # noqa: F403
from .linear_algebra import *  # noqa: F403
from .manipulate import *  # noqa: F403
from .mask import *  # noqa: F403
from .qdq import *  # noqa: F403
from .sampling import *  # noqa: F403
from .search import *  # noqa: F403
from .set import *  # noqa: F403
from .sorting import *  # noqa: F403
from .statistical import *  # noqa: F403
from .ternary import *  # noqa: F403
from .unary import *  # noqa: F403
from . import op_attrs  # after the operators whose attributes it names
