"""The neighbours of a default schedule: other register tiles and loop orders, as traces that a database can keep.

A default schedule is a good guess; which of its neighbours is fastest on a machine takes a dozen measurements to find
out, where a search of the full space takes hundreds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.structural import structural_hash
from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule, ScheduleError
from ...tir.schedule.primitives.rule import RULES
from .common import inline_injective, open_function, refresh
from .contraction import Contraction, Variant, choose_tile, row_axis, vector_axis

__all__ = ["contraction_variants"]

RULE = "cpu.contraction"
_ORDERS = ("mixed", "columns-inside", "rows-outside")


def _apply(func: PrimFunc, options: Mapping[str, Any]) -> PrimFunc | None:
    variant = Variant(int(options["rows"]), int(options["vectors"]), str(options["order"]))
    schedule = Contraction(variant).apply(func, Target(dict(options["target"])), False)
    return None if schedule is None else schedule.mod["main"]


RULES[RULE] = _apply


def contraction_variants(func: PrimFunc, target: Target, limit: int = 12) -> list[Schedule]:
    """Schedules of a matmul- or convolution-like function, the most promising first, each with a trace of one step.

    None are given for functions of another kind.
    """
    made: list[Schedule] = []
    seen: set[int] = set()
    for variant in _candidates(func, target):
        options = {
            "rows": variant.rows,
            "vectors": variant.vectors,
            "order": variant.order,
            "target": target.export(),
        }
        schedule = Schedule(func, error_render_level="none")
        try:
            schedule.apply_rule(RULE, options)
        except ScheduleError:
            continue
        # Orders are alike where there are few loops.
        key = structural_hash(schedule.mod)
        if key not in seen:
            seen.add(key)
            made.append(schedule)
        if len(made) == limit:
            break
    return made


def _candidates(func: PrimFunc, target: Target) -> list[Variant]:
    opened = open_function(func)
    if opened is None or target.get_target_device_type() != 1:
        return []
    anchors = [info for info in refresh(inline_injective(opened[0])) if info.is_reduction]
    vector = vector_axis(anchors[0]) if len(anchors) == 1 else None
    if vector is None or vector.dom is None:
        return []
    rows = row_axis(anchors[0], vector)
    height = rows.dom if rows is not None else None
    if height is None:
        return []
    registers = 32 if target.vector_bits == 512 or target.features.has_asimd else 16
    lanes = choose_tile(vector.dom, height, max(1, target.vector_bits // 32), registers).lanes
    tiles = _tiles(vector.dom // lanes, height, registers)
    return [Variant(r, v, order) for _, r, v in tiles[:6] for order in _ORDERS]


def _tiles(vectors: int, height: int, registers: int) -> list[tuple[float, int, int]]:
    """(cost, rows, vectors) of the tiles that fit the registers, best first; partial last tiles cost their waste."""
    found = []
    for v in (v for v in range(1, 7) if vectors % v == 0):
        for r in range(1, min(height, 28) + 1):
            if r * v + v + 1 > registers or r * v < 6:
                continue
            waste = -(-height // r) * r / height
            if waste > 1.2:
                continue
            found.append((waste * ((r + v) / (r * v) + max(0.0, 8 / (r * v) - 1.0)), r, v))
    return sorted(found)
