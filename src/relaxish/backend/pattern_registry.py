"""Fusion patterns of external libraries, by name; later registrations have priority."""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from typing import Any

from ..relax.dpl import DFPattern
from ..transform.fuse_ops_by_pattern import FusionPattern

__all__ = ["get_pattern", "get_patterns_with_prefix", "patterns_named", "register_patterns"]

#: A FusionPattern or a tuple of its fields.
Pattern = FusionPattern | tuple[str, DFPattern] | tuple[str, DFPattern, Mapping[str, DFPattern]] | tuple[Any, ...]

_PATTERNS: list[FusionPattern] = []
atexit.register(_PATTERNS.clear)


def register_patterns(patterns: Sequence[Pattern]) -> None:
    """Register patterns; those given later, and registered later, are tried first. Raises TypeError for other things.

    ``register_patterns([("mylib.relu", is_op("relax.nn.relu")(wildcard()))])``
    """
    made = []
    for item in patterns:
        if isinstance(item, FusionPattern):
            made.append(item)
        elif isinstance(item, tuple):
            made.append(FusionPattern(*item))
        else:
            raise TypeError(f"Cannot register type {type(item).__name__} as pattern")
    _PATTERNS.extend(made)


def get_patterns_with_prefix(prefix: str) -> list[FusionPattern]:
    """All patterns whose name starts with ``prefix``, the one of highest priority first."""
    return [p for p in reversed(_PATTERNS) if p.name.startswith(prefix)]


def get_pattern(pattern_name: str) -> FusionPattern | None:
    """The pattern of that name registered last, or None."""
    return next((p for p in reversed(_PATTERNS) if p.name == pattern_name), None)


def patterns_named(pattern_name: str) -> list[FusionPattern]:
    """All patterns of that name, the one registered last first: several may share one."""
    return [p for p in reversed(_PATTERNS) if p.name == pattern_name]
