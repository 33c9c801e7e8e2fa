"""Search strategies: which candidates are measured next."""

from .candidate import MeasureCandidate
from .evolutionary_search import EvolutionarySearch
from .replay import ReplayFunc, ReplayTrace
from .search_strategy import PySearchStrategy, SearchStrategy

create = SearchStrategy.create

__all__ = [
    "EvolutionarySearch",
    "MeasureCandidate",
    "PySearchStrategy",
    "ReplayFunc",
    "ReplayTrace",
    "SearchStrategy",
    "create",
]
