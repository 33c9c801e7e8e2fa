"""Cost model of warpgroup products on Hopper GPUs: the constants, from one table, and the estimate of cycles.

Default schedules and the search ask the same estimate. The constants below are those of an H100 as far as they are
published; what was measured on a device is in ``backend/cuda/calibration/<device>.json`` and takes their place.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..support.errors import MalformedDataError
from ..support.untrusted import parse_json

__all__ = ["CALIBRATION", "HopperCosts", "TileWork", "costs_of", "device_key"]

CALIBRATION = Path(__file__).resolve().parents[1] / "backend" / "cuda" / "calibration"
"""The folder of tables, one a device: ``{"costs": {field of HopperCosts: number, ...}, ...}``."""


@dataclass(frozen=True)
class TileWork:
    """A product by tiles of ``rows`` x ``columns`` results. Numbers, or columns of a search's candidates.

    ``tiles`` are all of the result, ``steps`` what one takes of the depth, ``width`` bytes a step. Of a cluster,
    ``sharing_columns`` blocks fetch the same columns of B together, ``sharing_rows`` the same rows of A; ``split``
    blocks share the depth of a tile. ``persistent`` blocks process all tiles (0: each its own).
    """

    rows: Any
    columns: Any
    width: Any
    tiles: Any
    steps: Any
    item: Any = 2
    stages: Any = 4
    sharing_columns: Any = 1
    sharing_rows: Any = 1
    split: Any = 1
    persistent: Any = 0
    result_item: Any = 2
    direct: Any = False


@dataclass(frozen=True)
class HopperCosts:
    """Constants of the estimate. Rates are per cycle of one processor unless they say otherwise.

    >>> HopperCosts().concurrent(4)
    128
    """

    processors: int = 132
    clock: float = 1.7  # GHz
    launch: float = 4e-6  # seconds
    multiply_adds: float = 2048.0  # of 16-bit operands
    bytes_from_shared: float = 128.0
    bytes_into_processor: float = 56.0
    bytes_from_l2: float = 4400.0  # for all processors together
    latency: float = 900.0  # cycles from the request for a tile to its arrival
    start: float = 1500.0  # cycles from the launch to the first products
    step: float = 60.0  # cycles of waiting and issuing in each step of a ring
    cluster_step: float = 5.0  # cycles of a step for each further block whose readers are waited for
    cluster_barrier: float = 1000.0  # cycles
    cluster_bytes: float = 32.0  # between the shared memories of a cluster
    bytes_out: float = 48.0  # of results, by bulk copies
    bytes_out_direct: float = 24.0  # of results, by the threads themselves
    running_4: float = 128 / 132  # of all processors, those that clusters of 3 or 4 blocks can take
    running_8: float = 112 / 132  # of 5 to 8 blocks

    def concurrent(self, team: int) -> int:
        """Blocks that run at once in clusters of ``team``: one stays within a group of 16 or 18 processors."""
        return int(self._concurrent(team))

    def _concurrent(self, team: int | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        share = np.where(team <= 2, 1.0, np.where(team <= 4, self.running_4, self.running_8))
        return np.maximum(np.floor(self.processors * share / team + 1e-6), 1.0) * team

    def cycles(self, work: TileWork) -> np.ndarray[Any, Any]:
        """Estimated cycles, from the launch on.

        All tiles of a wave take equally long: their steps, each bound by products, by what these read from shared
        memory, or by the rate at which operands arrive, and the write-back.
        """
        w = work
        team = np.maximum(w.sharing_columns * w.sharing_rows, w.split)
        at_once = self._concurrent(team)
        blocks = w.tiles * w.split
        running = np.minimum(blocks, at_once)
        products = w.rows * w.columns * w.width / (2.0 * self.multiply_adds)
        reads = w.rows / 64.0 * (64.0 + w.columns) * w.width / self.bytes_from_shared
        into = (w.rows + w.columns) * w.width / self.bytes_into_processor
        from_l2 = (w.rows / w.sharing_rows + w.columns / w.sharing_columns) * w.width * running / self.bytes_from_l2
        bound = np.maximum(np.maximum(products, reads), np.maximum(into, from_l2))
        waiting = self.step + self.cluster_step * (w.sharing_columns + w.sharing_rows - 2.0)
        step = np.maximum(bound + waiting, self.latency / w.stages)
        out = w.rows * w.columns * w.result_item / np.where(w.direct, self.bytes_out_direct, self.bytes_out) / w.split
        sums = self.cluster_barrier + 2.0 * 4.0 * w.rows * w.columns / self.cluster_bytes
        tile = np.ceil(w.steps / w.split) * step + out + np.where(w.split > 1, sums, 0.0)
        return self._waves(w, blocks, at_once) * tile + self.start

    @staticmethod
    def _waves(work: TileWork, blocks: np.ndarray[Any, Any], at_once: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """How many tiles the busiest processor computes, one after the other."""
        persistent = np.where((work.persistent > 0) & (work.split <= 1), work.persistent, blocks)
        there = np.minimum(blocks, persistent)
        return np.ceil(blocks / there) * np.ceil(there / at_once)

    def seconds(self, work: TileWork) -> np.ndarray[Any, Any]:
        """Estimated time, with what a launch takes."""
        return self.cycles(work) * (1e-9 / self.clock) + self.launch

    @staticmethod
    def from_table(table: Mapping[str, Any]) -> HopperCosts:
        """The costs of a calibration table: published ones where the table has no number.

        Raises MalformedDataError for names that are no cost and for values that are no positive number.
        """
        costs = table.get("costs", {})
        known = {field.name: field.type for field in fields(HopperCosts)}
        made: dict[str, Any] = {}
        for name, value in costs.items() if isinstance(costs, Mapping) else [("costs", costs)]:
            right = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12
            if name not in known or not right:
                raise MalformedDataError(f"a calibration table has {name!r}: {value!r}, which is no cost of a tile")
            made[name] = int(value) if known[name] == "int" else float(value)
        return replace(HopperCosts(), **made)


def device_key(name: str) -> str:
    """The name of a device's table, from what its driver or a target's tag calls it.

    >>> device_key("NVIDIA H100 80GB HBM3"), device_key("nvidia/nvidia-h200"), device_key("NVIDIA GH200 480GB")
    ('nvidia-h100', 'nvidia-h200', 'nvidia-gh200')
    """
    words = name.lower().rpartition("/")[2].replace("-", " ").split()
    last = next((i for i, word in enumerate(words) if any(c.isdigit() for c in word)), len(words) - 1)
    return "-".join(words[: last + 1])


@functools.cache
def _table(key: str, folder: Path) -> HopperCosts:
    path = folder / f"{key}.json"
    if not path.is_file():
        return HopperCosts()
    return HopperCosts.from_table(parse_json(path.read_text(encoding="utf-8"), path.name))


def costs_of(target: Any) -> HopperCosts:
    """The costs of a target's device: measured ones where its tag or ``model`` names one with a table.

    The target's ``multi_processor_count`` is believed before the table's.
    """
    if target is None:
        return HopperCosts()
    attrs = target.attrs
    found = _table(device_key(str(target.tag or attrs.get("model", ""))), CALIBRATION)
    count = int(attrs.get("multi_processor_count", found.processors))
    return found if count == found.processors else replace(found, processors=count)
