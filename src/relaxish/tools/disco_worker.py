"""The program that worker processes of a disco session run, and small functions to try sessions with.

``python -m relaxish.tools.disco_worker`` is started by :class:`relaxish.runtime.disco.ProcessSession`.
"""

from __future__ import annotations

import sys

from ..runtime import NDArray, ShapeTuple, String, array, register_func
from ..runtime.disco.process import run_worker

__all__ = ["run_worker"]


@register_func("tests.disco.add_one", override=True)
def _add_one(x: int) -> int:
    return x + 1


@register_func("tests.disco.add_one_float", override=True)
def _add_one_float(x: float) -> float:
    return x + 0.5


@register_func("tests.disco.add_one_ndarray", override=True)
def _add_one_ndarray(x: NDArray) -> NDArray:
    return array(x.numpy() + 1)


@register_func("tests.disco.str", override=True)
def _suffix(x: str) -> str:
    return x + "_suffix"


@register_func("tests.disco.str_obj", override=True)
def _suffix_object(x: str) -> String:
    return String(x + "_suffix")


@register_func("tests.disco.shape_tuple", override=True)
def _longer_shape(x: ShapeTuple) -> ShapeTuple:
    return ShapeTuple([*x, 4, 5])


if __name__ == "__main__":
    run_worker(sys.argv[1:])
