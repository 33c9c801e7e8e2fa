"""Strategies by name: those in the box, and those that others register."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ..support.errors import AlreadyRegisteredError, RelaxishError
from .strategy import MetaScheduleStrategy, Strategy, TPEStrategy, TunerStrategy

__all__ = ["create_strategy", "register_strategy", "strategy_names"]

Factory = Callable[..., Strategy]


def _tuner(name: str, /, **options: Any) -> Strategy:
    def make(task: Any) -> Any:
        from ..autotvm import tuner

        return getattr(tuner, name)(task, **options)

    return TunerStrategy(make)


def _searched(kind: str, /, **options: Any) -> Strategy:
    from ..meta_schedule.search_strategy import SearchStrategy

    ours = {name: options.pop(name) for name in ("cost_model", "mutators") if name in options}
    ours.setdefault("cost_model", "xgb" if kind == "evolutionary" else "random")
    return MetaScheduleStrategy(functools.partial(SearchStrategy.create, kind, **options), **ours)


_TABLE: dict[str, Factory] = {
    "random": functools.partial(_tuner, "RandomTuner"),
    "grid": functools.partial(_tuner, "GridSearchTuner"),
    "ga": functools.partial(_tuner, "GATuner"),
    "xgb-sa": functools.partial(_tuner, "XGBTuner", feature_type="knob"),
    "droplet": functools.partial(_tuner, "DropletTuner"),
    "tpe": TPEStrategy,
    "evolutionary": functools.partial(_searched, "evolutionary"),
    "replay-trace": functools.partial(_searched, "replay-trace"),
}


def register_strategy(name: str, factory: Factory) -> None:
    """Make ``factory(**options)``, which gives a new :class:`Strategy` for each search, known by a name.

    Raises AlreadyRegisteredError where the name is taken.
    """
    if name in _TABLE:
        raise AlreadyRegisteredError(f"the strategy {name!r} is registered already; give it another name")
    _TABLE[name] = factory


def strategy_names() -> list[str]:
    """All known names."""
    return list(_TABLE)


def create_strategy(name: str, options: Mapping[str, Any] | None = None) -> Strategy:
    """A new strategy of that name. Raises RelaxishError for unknown names and options it does not take."""
    if name not in _TABLE:
        raise RelaxishError(f"there is no strategy {name!r}; known are {', '.join(_TABLE)}")
    try:
        return _TABLE[name](**dict(options or {}))
    except TypeError as err:
        raise RelaxishError(f"the strategy {name!r} does not take these options: {err}") from None
