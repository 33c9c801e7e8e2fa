"""A sketch's programs on columns of decisions, as postprocs act on them and the search asks them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ..feature_extractor.repeated import Repeated
from ..postproc.postproc import Postproc
from ..utils import has_column_form
from .decisions import DecisionTable
from .fitting import Environment, Table
from .locations import FactMask

__all__ = ["ColumnProgram"]

Array = np.ndarray[Any, Any]


class ColumnProgram:
    """Formulas over a matrix of decisions ``[candidates, columns]``, and the column form of each postproc.

    Every postproc is asked once for its column form (``Postproc.on_columns``). One that has none is carried out on
    example programs: the formulas hold as long as it leaves alone what features see, and nothing is granted.
    """

    def __init__(
        self, columns: DecisionTable, postprocs: Sequence[Postproc], tables: Collection[Table], regular: FactMask
    ) -> None:
        self.columns = columns
        #: What the formulas know from examples only.
        self.tables = tables
        self._regular = regular
        #: Whether loops get the kinds that the root's limits allow, and whether threads share the copying of tiles.
        self.loop_kinds = self.shared_copies = False
        #: The verdicts of postprocs that only look, on rows of decisions.
        self.verdicts: dict[Postproc, Callable[[Array], Array]] = {}
        self._known = {p for p in postprocs if has_column_form(p) and p.on_columns(self)}

    def learn_versions(self, rows: Array, allocated: list[dict[str, int]]) -> None:
        """How many versions of a tile there are; ``allocated[k]`` holds the elements each buffer has in the lowered program
        of row ``k``."""
        raise NotImplementedError

    @property
    def launchable(self) -> Callable[[Array], Array] | None:
        """For which rows a GPU can launch the program; None where the program is none for GPUs, or this is not known."""
        return None

    @property
    def estimate(self) -> Callable[[Array], Array] | None:
        """The seconds that rows are expected to take before anything was measured; None where that is not known."""
        return None

    def mark_loops(self) -> None:
        """Turn the root's limits for parallel, vector and unrolled loops into loops of these kinds."""
        self.loop_kinds = True

    def share_copies(self) -> None:
        """Let the threads of a block share the copies that are annotated so."""
        self.shared_copies = True

    def admit(self, postproc: Postproc, flags: Callable[[Array], Array]) -> None:
        """The postproc changes nothing and admits the rows with a flag; it is not asked about their programs again."""
        self.verdicts[postproc] = flags

    def granted(self, postprocs: Sequence[Postproc]) -> tuple[Postproc, ...]:
        """Postprocs that are certain to accept a valid row and need not be asked; none if one of them has unknown
        effects."""
        return tuple(p for p in postprocs if p in self.verdicts) if self._known.issuperset(postprocs) else ()

    def environment(self, matrix: Array) -> Environment:
        """The decisions of many candidates, ready for formulas."""
        raise NotImplementedError

    def possible(self, env: Environment) -> Array:
        """Which rows may be programs of this structure as far as it is known without examples of each."""
        return np.ones(env.size, dtype=bool)

    def regular(self, env: Environment) -> Array:
        """Which rows are programs that the formulas are known for."""
        keep = self.possible(env) & self._regular(env)
        for table in self.tables:
            keep &= ~np.isnan(np.asarray(table(env)))
        return keep

    def holds(self, matrix: Array) -> Array:
        """Mask of the rows whose programs have this structure and can run on the device."""
        return self.regular(self.environment(matrix))

    def valid(self, matrix: Array) -> Array:
        """Mask of the rows that are candidates and that no verdict on columns refuses."""
        keep = self.holds(matrix)
        for flags in self._further:
            keep = keep & flags(matrix)
        return keep

    @property
    def _further(self) -> list[Callable[[Array], Array]]:
        """The verdicts but that of the device."""
        return [flags for flags in self.verdicts.values() if flags != self.launchable]

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """At most ``count`` random valid rows."""
        raise NotImplementedError

    def feature_rows(self, matrix: Array) -> list[Repeated]:
        """Feature matrices ``[rows, 164]`` of valid rows, one for each stored buffer, equal rows perhaps only once."""
        raise NotImplementedError
