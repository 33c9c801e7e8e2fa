"""Databases of tuning records."""

from typing import Any
from collections.abc import Callable

from ...support.entry_points import lazy_package
from .database import Database, PyDatabase, TuningRecord, Workload, hardware_fingerprint, mean_seconds
from .json_database import JSONDatabase
from .memory_database import MemoryDatabase
from .schedule_fn_database import ScheduleFnDatabase
from .union_database import OrderedUnionDatabase, UnionDatabase


def create(kind: str | Callable[..., Any] = "json", *args: Any, **kwargs: Any) -> Database:
    """Make a database by kind; see :meth:`Database.create`."""
    return Database.create(kind, *args, **kwargs)


__getattr__, __dir__ = lazy_package(globals())  # the SQL database needs an extra and loads on first use

__all__ = [
    "Database",
    "JSONDatabase",
    "MemoryDatabase",
    "OrderedUnionDatabase",
    "PyDatabase",
    "ScheduleFnDatabase",
    "TuningRecord",
    "UnionDatabase",
    "Workload",
    "create",
    "hardware_fingerprint",
    "mean_seconds",
]
