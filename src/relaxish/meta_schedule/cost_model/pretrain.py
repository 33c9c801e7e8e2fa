"""Cost models for searches to begin with: those that have learnt the records of a database, and those that come with the
package.

The latter have learnt products, windows and depthwise convolutions of small networks: for ``llvm`` as measured on a
processor with AVX-512, for ``cuda`` as a model of an A100 estimates them, on which nothing was measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...support import config
from ...support.errors import RelaxishError
from ...support.log import get_logger
from ..database import Database, TuningRecord, mean_seconds
from ..database.database import is_here
from ...target import Target
from ..tune_context import TuneContext
from .cost_model import CostModel
from .xgb_model import XGBModel

__all__ = ["learn_database", "shipped_prior"]

_log = get_logger("meta_schedule")


_PRIORS = Path(__file__).parent / "priors"


def shipped_prior(target: Target) -> XGBModel:
    """The cost model that comes with the package for a kind of target, as trained as it is shipped.

    Raises RelaxishError where there is none, MissingExtraError where xgboost is not installed.
    """
    path = _PRIORS / f"{target.kind.name}.tar.xz"
    if not path.is_file():
        known = ", ".join(sorted(p.name.partition(".")[0] for p in _PRIORS.glob("*.tar.xz")))
        raise RelaxishError(f"no cost model is shipped for {target.kind.name}: there are some for {known}")
    model = XGBModel()
    model.load(str(path))
    return model


def learn_database(model: CostModel, database: Database, most: int = 256) -> int:
    """Teach a model what was measured on this machine, up to ``most`` records of each workload; how many it learnt.

    Of a workload with more records, fast and slow ones are taken alike. Raises RelaxishError where there is nothing to
    learn.
    """
    learnt = 0
    for workload in database.workloads():
        chosen = _spread((r for r in database.records_of(workload) if _teaches(r)), most)
        if not chosen:
            continue
        try:
            model.learn_records(TuneContext(workload.mod, target=chosen[0].target), chosen)
        except Exception as err:  # a record that cannot be made a program again, say
            _log.warning("the cost model cannot learn from the records of %s: %s", workload.key, err)
            continue
        learnt += len(chosen)
    if not learnt:
        raise RelaxishError("the database has no records of this machine that a cost model could learn from")
    return learnt


def _teaches(record: TuningRecord) -> bool:
    return record.is_valid() and not record.again and (config.ANY_HARDWARE.value or is_here(record))


def _spread(records: Iterable[TuningRecord], most: int) -> list[TuningRecord]:
    """At most so many records, evenly spread over the ranking, the fastest among them."""
    ranked = sorted(records, key=lambda r: mean_seconds(r.run_secs))
    if len(ranked) <= most:
        return ranked
    return [ranked[i * len(ranked) // most] for i in range(most)]
