"""Fusion patterns of external libraries, by name; later registrations have priority."""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from ..relax.dpl import DFPattern
from ..transform.fuse_ops_by_pattern import FusionPattern, PatternCheckContext

__all__ = ["get_pattern", "get_patterns_with_prefix", "only_on", "patterns_named", "register_patterns"]

#: A FusionPattern or a tuple of its fields.
Pattern = FusionPattern | tuple[str, DFPattern] | tuple[str, DFPattern, Mapping[str, DFPattern]] | tuple[Any, ...]

_ONLY_ON: ContextVar[tuple[str, bool]] = ContextVar("relaxish_patterns_only_on", default=("", True))
_PATTERNS: list[FusionPattern] = []
atexit.register(_PATTERNS.clear)


def register_patterns(patterns: Sequence[Pattern]) -> None:
    """Register patterns; those given later, and registered later, are tried first. Raises TypeError for other things.

    ``register_patterns([("mylib.relu", is_op("relax.nn.relu")(wildcard()))])``
    """
    made = []
    for item in patterns:
        match item:
            case FusionPattern():
                made.append(item)
            case tuple():
                made.append(FusionPattern(*item))
            case _:
                raise TypeError(f"Cannot register type {type(item).__name__} as pattern")
    _PATTERNS.extend(made)


def get_patterns_with_prefix(prefix: str) -> list[FusionPattern]:
    """All patterns whose name starts with ``prefix``, the one of highest priority first."""
    found = [p for p in reversed(_PATTERNS) if p.name.startswith(prefix)]
    kind, home = _ONLY_ON.get()
    return [_on_device(p, kind, home) for p in found] if kind else found


@contextmanager
def only_on(kind: str, home: bool) -> Iterator[None]:
    """While it lasts, patterns match only what lives on devices of a kind, or (at ``home``) on none in particular."""
    token = _ONLY_ON.set((kind, home))
    try:
        yield
    finally:
        _ONLY_ON.reset(token)


def _on_device(pattern: FusionPattern, kind: str, home: bool) -> FusionPattern:
    def check(context: PatternCheckContext) -> bool:
        device = getattr(context.matched_expr.struct_info, "vdevice", None)
        there = home if device is None else device.target.kind.name == kind
        return there and (pattern.check is None or pattern.check(context))

    return replace(pattern, check=check)


def get_pattern(pattern_name: str) -> FusionPattern | None:
    """The pattern of that name registered last, or None."""
    return next((p for p in reversed(_PATTERNS) if p.name == pattern_name), None)


def patterns_named(pattern_name: str) -> list[FusionPattern]:
    """All patterns of that name, the one registered last first: several may share one."""
    return [p for p in reversed(_PATTERNS) if p.name == pattern_name]
