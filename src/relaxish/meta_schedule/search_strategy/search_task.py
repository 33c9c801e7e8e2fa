"""A task with a space to search, as search strategies see it."""

from __future__ import annotations

from dataclasses import dataclass

from ..space_generator.space_generator import SpaceGenerator
from ..task import Task

__all__ = ["SearchTask"]


@dataclass(eq=False)
class SearchTask(Task):
    """The space gives the sketches, and with them the postprocs and mutators of their kind of target."""

    space_generator: SpaceGenerator | None = None
