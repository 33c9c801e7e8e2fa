"""The measuring engine: candidate, build, check, run, journal.

Everything that measures programs goes through :class:`MeasureEngine`: the search of ``tune_tir`` and ``tune_relax``,
AutoTVM's ``measure_option``, and the tile language's autotuner. Builders, runners, worker processes and databases are
those of ``meta_schedule``; what becomes of a candidate is a :class:`MeasureStatus`.

>>> from relaxish.meta_schedule.measure import Candidate, MeasureEngine
>>> with MeasureEngine("llvm -num-cores=2") as engine:  # doctest: +SKIP
...     results = engine.measure([Candidate(lambda n=n: kernel(n), key=str(n)) for n in (8, 16, 32)])
>>> [(m.status, m.mean) for m in results]  # doctest: +SKIP
[(<MeasureStatus.OK: 'ok'>, 1.2e-05), (<MeasureStatus.OK: 'ok'>, 9.8e-06), (<MeasureStatus.COMPILE: 'compile'>, inf)]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...support.entry_points import lazy_package
from .status import MeasureStatus

if TYPE_CHECKING:
    from .candidate import Candidate, Prebuilt, Skipped
    from .engine import Batch, Measured, MeasureEngine
    from .journal import FileJournal, MeasureJournal
    from .validators import CheckFailedError, ReferenceValidator, Validator

# Builders and runners, which the engine stands on, need the status: what stands on them loads on first use.
__getattr__, __dir__ = lazy_package(globals())

__all__ = [
    "Batch", "Candidate", "CheckFailedError", "FileJournal", "MeasureEngine", "MeasureJournal", "MeasureStatus", "Measured", "Prebuilt",
    "ReferenceValidator", "Skipped", "Validator",
]  # fmt: skip
