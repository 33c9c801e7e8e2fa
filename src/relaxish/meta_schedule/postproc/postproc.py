"""The base of postprocs: what happens to a schedule after its trace has been replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...support.entry_points import load
from ...tir import Schedule
from ..utils import MethodNotDefinedError

if TYPE_CHECKING:
    from ..task import Task

__all__ = ["Postproc", "PyPostproc"]


class Postproc:
    """Subclass and define ``apply(sch) -> bool``; False discards the candidate."""

    def _initialize_with_tune_context(self, context: Task) -> None:
        """Called once before use."""

    def initialize_with_tune_context(self, context: Task) -> None:
        """Called once before use; learns the target from the context."""
        self._initialize_with_tune_context(context)

    def apply(self, sch: Schedule) -> bool:
        """Rewrite in place; False means the candidate is invalid."""
        raise MethodNotDefinedError(self, "apply")

    def clone(self) -> Postproc:
        """An independent copy."""
        import copy

        return copy.copy(self)

    @staticmethod
    def create(kind: str) -> list[Postproc]:
        """The default postprocs of a kind of target."""
        made: list[Postproc] = load("tuning.postprocs")(kind)
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


PyPostproc = Postproc
