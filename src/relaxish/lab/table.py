"""Rows of results as CSV and Parquet files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from ..support.errors import MissingExtraError, RelaxishError

__all__ = ["read_rows", "write_rows"]


def _parquet() -> ModuleType:
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("lab", "pyarrow", "Parquet files") from None
    return pyarrow


def write_rows(rows: Sequence[Mapping[str, Any]], path: str | PathLike[str]) -> None:
    """Write rows with the same keys to a ``.csv`` or ``.parquet`` file, numbers exactly.

    Raises RelaxishError for another ending, MissingExtraError where pyarrow is needed and not installed.
    """
    where = Path(path)
    names = list(rows[0]) if rows else []
    match where.suffix:
        case ".csv":
            with where.open("w", newline="") as file:
                writer = csv.DictWriter(file, names)
                writer.writeheader()
                writer.writerows(rows)
        case ".parquet":
            arrow = _parquet()
            arrow.parquet.write_table(arrow.table({name: [row[name] for row in rows] for name in names}), where)
        case other:
            raise RelaxishError(f"results go to .csv or .parquet files, not {other or where.name!r}")


def read_rows(path: str | PathLike[str]) -> list[dict[str, Any]]:
    """Rows of a file that :func:`write_rows` wrote; of a CSV file all values are texts."""
    where = Path(path)
    if where.suffix == ".parquet":
        found: list[dict[str, Any]] = _parquet().parquet.read_table(where).to_pylist()
        return found
    with where.open(newline="") as file:
        return list(csv.DictReader(file))
