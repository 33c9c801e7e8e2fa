"""Matrix instructions of AMD GPUs, for the 64 lanes of a wave.

Each lane holds four neighbours of a row of the left operand and of a column of the right one (one element each where
the depth is four), and four neighbours of a column of the result.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

__all__ = ["WAVE", "matrix_core"]

WAVE = 64


def _operand(values: np.ndarray[Any, Any], depth: int) -> np.ndarray[Any, Any]:
    """The lanes' elements as a matrix of 16 rows: lane ``l`` has row ``l % 16``, from column ``l // 16 * width`` on."""
    width = depth // 4
    return values.reshape(4, 16, width).transpose(1, 0, 2).reshape(16, depth)


def matrix_core(requests: dict[int, Any]) -> dict[int, Any]:
    """Answers ``(name, a, b, c, ...)`` of all lanes with their elements of ``a @ b + c``."""
    if len(requests) != WAVE:
        raise RuntimeError(f"a matrix instruction needs all {WAVE} lanes of a wave, but {len(requests)} execute it")
    name = str(next(iter(requests.values()))[0])
    found = re.fullmatch(r"llvm\.amdgcn\.mfma\.\w+\.16x16x(\d+)(\w+)", name)
    if found is None:
        raise NotImplementedError(f"the interpreter does not know {name}")
    depth, kind = int(found[1]), found[2]

    def gather(position: int) -> np.ndarray[Any, Any]:
        lanes = [np.atleast_1d(np.asarray(requests[lane][position])) for lane in range(WAVE)]
        if kind == "i8":
            lanes = [lane.astype(np.int32).view(np.int8) for lane in lanes]
        return np.stack(lanes)

    wide: Any = np.int32 if kind == "i8" else np.float32
    product = _operand(gather(1), depth).astype(wide) @ _operand(gather(2), depth).astype(wide).T
    held = product.reshape(4, 4, 16).transpose(0, 2, 1).reshape(WAVE, 4)
    return {lane: np.asarray(request[3]) + held[lane] for lane, request in requests.items()}
