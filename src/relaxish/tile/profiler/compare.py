"""Whether two arrays are the same but for rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["difference"]


def difference(
    got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], rtol: float, atol: float, max_mismatched_ratio: float
) -> str:
    """Description of the mismatch of an array; empty where at most ``max_mismatched_ratio`` of its numbers differ from
    the expected ones by more than ``atol + rtol * |expected|``. A NaN differs from everything but a NaN."""
    if got.shape != expected.shape:
        return f"the shape is {got.shape}, expected {expected.shape}"
    if not expected.size:
        return ""
    with np.errstate(invalid="ignore", over="ignore"):
        a, b = got.astype(np.float64), expected.astype(np.float64)
        wrong = ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        if got.dtype.kind in "iu" and expected.dtype.kind in "iu" and not rtol and not atol:
            wrong = got != expected  # beyond what a float holds
    count = int(np.count_nonzero(wrong))
    if count <= max_mismatched_ratio * wrong.size:
        return ""
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    share = (
        f"{count} of {wrong.size} numbers ({100 * count / wrong.size:.2f} %, {100 * max_mismatched_ratio:g} % allowed)"
    )
    return f"{share} differ, the first at {where}: {got[where]} instead of {expected[where]}"
