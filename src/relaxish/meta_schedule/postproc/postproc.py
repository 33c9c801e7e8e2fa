"""The base of postprocs: what happens to a schedule after its trace has been replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...support.entry_points import load
from ...tir import Schedule
from ..utils import MethodNotDefinedError, Part

if TYPE_CHECKING:
    from ..search_strategy.column_program import ColumnProgram
    from ..task import Task  # noqa: F401 (the base names it in a string)

__all__ = ["Postproc", "PyPostproc"]


class Postproc(Part["Task"]):
    """Subclass and define ``apply(sch) -> bool``; False discards the candidate.

    The search keeps its candidates as rows of decisions, and knows of their programs what formulas say. A postproc that
    also defines :meth:`on_columns` acts on the formulas; one that does not is carried out on programs. The search stays
    fast with it as long as it leaves alone what features see.
    """

    #: Whether features are those of the program after this postproc. False for one that only looks, and for one whose
    #: change is the same for all candidates.
    changes_features = True

    def apply(self, sch: Schedule) -> bool:
        """Rewrite in place; False means the candidate is invalid."""
        raise MethodNotDefinedError(self, "apply")

    def on_columns(self, program: ColumnProgram) -> bool:
        """Do to ``program``, which stands for all candidates of a sketch, what :meth:`apply` does to one: nothing, a
        method of it, or ``program.admit(self, flags)`` with a verdict on rows. False: not defined."""
        return False

    @staticmethod
    def create(kind: str) -> list[Postproc]:
        """The default postprocs of a kind of target."""
        made: list[Postproc] = load("tuning.postprocs")(kind)
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


PyPostproc = Postproc
