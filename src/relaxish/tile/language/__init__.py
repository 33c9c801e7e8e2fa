"""``T`` of tile programs: all of TVMScript's ``T``, and operators on tiles.

>>> import relaxish.tile.language as T
>>> @T.prim_func
... def double(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
...     with T.Kernel(4, threads=64) as bx:
...         tile = T.alloc_fragment((64,), "float32")
...         T.copy(A[bx * 64], tile)
...         for i in T.Parallel(64):
...             tile[i] = tile[i] * 2
...         T.copy(tile, B[bx * 64])

Statements run in the order they are written for a block of threads together; see ``docs/lessons``.
"""

from __future__ import annotations

from typing import Any

from ...script.parser import tir as _script
from ...script.parser.tir import *  # noqa: F403
from ...script.parser.tir import __all__ as _script_names
from . import (
    atomics,
    hints,
    kernel,
    loops,
    memory,
    operators,
    printing,
    reductions,
    scalars,
    sparse,
    threads,
    variables,
)
from .atomics import *  # noqa: F403
from .hints import *  # noqa: F403
from .kernel import *  # noqa: F403
from .loops import *  # noqa: F403
from .memory import *  # type: ignore[assignment]  # noqa: F403
from .operators import *  # noqa: F403
from .phases import sync_grid
from .printing import *  # noqa: F403
from .reductions import *  # noqa: F403
from .regions import TileError
from .scalars import *  # noqa: F403
from .sparse import *  # noqa: F403
from .threads import *  # noqa: F403

_ = variables
_OWN = [
    *atomics.__all__, *hints.__all__, *kernel.__all__, *loops.__all__, *memory.__all__, *operators.__all__, "sync_grid", *printing.__all__,
    *reductions.__all__, *scalars.__all__, *sparse.__all__, *threads.__all__, "TileError",
]  # fmt: skip
__all__ = [*_script_names, *(n for n in _OWN if n not in _script_names)]


def __getattr__(name: str) -> Any:
    return getattr(_script, name)
