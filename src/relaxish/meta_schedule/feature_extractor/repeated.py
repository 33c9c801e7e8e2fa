"""Feature matrices in which many rows are the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Repeated"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Repeated:
    """The matrix ``rows[index]``; without an index, ``rows`` itself."""

    rows: Array
    index: Array | None = None

    def __len__(self) -> int:
        return len(self.rows if self.index is None else self.index)

    def expanded(self) -> Array:
        """The whole matrix."""
        # Features of one kind lie side by side.
        return self.rows if self.index is None else self.rows.T[:, self.index].T
