"""Section "canary_section": the canaries, each in a process of its own; a row says what the first that fails means."""

from __future__ import annotations

import argparse
import os
from typing import Any

from . import canaries
from .journal import Journal


def jobs(small: bool) -> list[str]:
    """All checks that the provider can do."""
    return canaries.chosen([], os.environ.get("RELAXISH_CUDA_PROVIDER", ""))


def run(job: str, options: Any, journal: Journal) -> None:
    """Run a check; its output goes to the log."""
    hung = sum(r.get("verdict") == "HANGS" for r in journal.rows.values())
    seconds = canaries.limit(canaries.LIMIT_SECONDS, hung)
    row = canaries.watch(job, argparse.Namespace(small=options.small, provider="", seconds=seconds))
    print(row.pop("said"), flush=True)
    values = {"right": row["verdict"] == "right" if row["verdict"] != "ran" else None, "s": row["seconds"]}
    if row["verdict"] not in ("right", "ran"):
        canary = canaries.CANARIES[job]
        values |= {"verdict": row["verdict"], "cause": canary.cause, "look at": canary.look}
    journal.update(job, values | {"note": row["note"]})
