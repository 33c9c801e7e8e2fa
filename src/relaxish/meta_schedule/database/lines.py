"""The lines of database files.

A workload line is ``[hash, base64 of the module's JSON graph, notes]``, a record line ``[number of the workload line,
[trace, run_secs, target, args_info], notes]``: TVM's two files, each line with notes behind it. ``notes`` is an object
of optional keys: a workload's ``name`` and ``script``; a record's ``workload`` (hash), ``hardware``, ``error``,
``stage`` (``build`` or ``run``), ``status`` (the value of a ``MeasureStatus`` other than OK), ``valid``, ``predicted``,
``time`` and ``again``.

The file of records has a line for each measurement and no others. What is found out about them later (a verdict on what
they compute, a second time) is in a third file beside it, in lines of the same form with ``again`` and ``after``, where
the records ended when it was written; older files have such lines among the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import os
from typing import Any

__all__ = ["companion", "record_fields", "workload_fields"]

_RECORD = ("trace", "run_secs", "target", "args_info")


def companion(path_tuning_record: str, what: str) -> str:
    """The path of a file that belongs to a file of records.

    >>> companion("work/database_tuning_record.json", "baseline"), companion("mine.json", "verdict")
    ('work/database_baseline.json', 'mine.json.verdict')
    """
    folder, name = os.path.split(path_tuning_record)
    return os.path.join(folder, name.replace("tuning_record", what) if "tuning_record" in name else f"{name}.{what}")


def workload_fields(
    line: Sequence[str | Mapping[str, str]] | Mapping[str, int | str | Sequence[str]],
) -> dict[str, Any] | None:
    """``hash`` (hexadecimal), ``graph`` (base64), ``name`` and ``script`` of a workload line; None for anything else."""
    if isinstance(line, dict):
        return line if "hash" in line else None
    if not isinstance(line, list) or len(line) not in (2, 3) or not all(isinstance(x, str) for x in line[:2]):
        return None
    notes = line[2] if len(line) == 3 and isinstance(line[2], dict) else {}
    if not line[0].isdigit():
        return None
    return {**notes, "hash": f"{int(line[0]) & 0xFFFFFFFFFFFFFFFF:016x}", "graph": line[1]}


def record_fields(line: object, hashes: list[str] | None = None) -> dict[str, Any] | None:
    """Fields and notes of a record line as one object; None for anything else.

    ``hashes`` are those of the workload lines in order; they name the workload where the notes do not.
    """
    if isinstance(line, dict):
        return line if "trace" in line else None
    if not isinstance(line, list) or len(line) not in (2, 3) or not isinstance(line[0], int):
        return None
    if not isinstance(line[1], list) or len(line[1]) != len(_RECORD):
        return None
    notes = line[2] if len(line) == 3 and isinstance(line[2], dict) else {}
    fields = {**notes, **dict(zip(_RECORD, line[1], strict=True))}
    if "workload" not in fields and hashes is not None and 0 <= line[0] < len(hashes):
        fields["workload"] = hashes[line[0]]
    return fields
