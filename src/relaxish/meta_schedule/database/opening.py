"""Databases by where they are: a tuning directory, an SQLite file, a server."""

from __future__ import annotations

import os

from ...support.entry_points import load
from ...support.errors import RelaxishError
from .database import Database
from .json_database import JSONDatabase

__all__ = ["is_sql", "open_database"]

_FILES = ("database_tuning_record.json", "database_workload.json")
_SUFFIXES = (".sqlite", ".sqlite3", ".db")


def is_sql(where: str) -> bool:
    """Whether an address is that of an SQL database: an URL, a file, or what is called like one.

    >>> is_sql("postgresql://lab/tuning"), is_sql("team.sqlite"), is_sql("tuning_logs")
    (True, True, False)
    """
    return "://" in where or os.path.isfile(where) or (where.endswith(_SUFFIXES) and not os.path.isdir(where))


def open_database(where: str, *, create: bool = False, readonly: bool = False) -> Database:
    """The database at ``where``; a new one if there is none and ``create`` asks for it.

    Raises RelaxishError where there is none, or where what is there is something else.
    """
    if is_sql(where):
        made: Database = load("database.sql")(where, create=create, readonly=readonly)
        return made
    if not create:
        for name in _FILES:
            if not os.path.exists(os.path.join(where, name)):
                raise RelaxishError(f"{where}: no tuning database here ({name} is missing)")
    database = JSONDatabase(work_dir=where, allow_missing=create)
    if not database.readable and os.path.getsize(database.path_tuning_record):
        raise RelaxishError(f"{database.path_tuning_record}: is damaged, or not a file that relaxish wrote")
    return database
