"""What a section has found so far, in a file that is whole at any time: a crash or a hang costs one job, not the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Journal:
    """Rows by case, the jobs that are done, and the one that is running.

    A section's process writes it, and the one that watches over it reads it: a job that was running when the process
    ended is the one that ended it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        self.done: list[str] = []
        self.running: str | None = None
        if path.exists():
            found = json.loads(path.read_text())
            self.rows, self.done, self.running = found["rows"], found["done"], found["running"]

    def begin(self, job: str) -> None:
        """A job starts."""
        self.running = job
        self._write()

    def put(self, case: str, **values: Any) -> dict[str, Any]:
        """Add to the row of a case; the row."""
        row = self.rows.setdefault(case, {"case": case})
        row.update({name.replace("_", " "): value for name, value in values.items()})
        self._write()
        return row

    def update(self, case: str, values: dict[str, Any]) -> None:
        """Add values under their names as they are."""
        self.rows.setdefault(case, {"case": case}).update(values)
        self._write()

    def end(self) -> None:
        """The running job is done, whether it succeeded or not."""
        if self.running is not None:
            self.done.append(self.running)
        self.running = None
        self._write()

    def _write(self) -> None:
        temporary = self.path.with_suffix(".tmp")
        data = {"running": self.running, "done": self.done, "rows": self.rows}
        temporary.write_text(json.dumps(data, indent=1, default=str))
        temporary.replace(self.path)


def case_of(job: str) -> str:
    """The case that a job adds to: jobs are named ``case`` or ``case | what``."""
    return job.partition(" | ")[0]
