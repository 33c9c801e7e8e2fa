"""Section "sanitizer": NVIDIA's own checkers on two canaries, where the toolkit has them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from .journal import Journal

TOOL = "compute-sanitizer"
_SECONDS = 120
_JOBS = {"memcheck gemm_cluster": ("memcheck", "gemm_cluster"), "racecheck gemm_ring": ("racecheck", "gemm_ring")}


def jobs(small: bool) -> list[str]:
    """One run of each tool."""
    return list(_JOBS)


def command(job: str) -> list[str]:
    """What runs a canary under a tool, with small products: it is a hundred times slower so."""
    tool, name = _JOBS[job]
    script = Path(__file__).with_name("canaries.py")
    return [TOOL, "--tool", tool, "--error-exitcode", "9", sys.executable, str(script), name, "--one", "--small"]


def run(job: str, options: Any, journal: Journal) -> None:
    """Run a tool; its summary goes into the row, all it says into the log."""
    if shutil.which(TOOL) is None:
        journal.put(job, skipped=f"there is no {TOOL}")
        return
    done = subprocess.run(
        command(job), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_SECONDS, check=False
    )
    print(done.stdout[-20000:], flush=True)
    summary = [line.strip("= ") for line in done.stdout.splitlines() if "SUMMARY" in line]
    journal.put(job, right=done.returncode == 0, summary="; ".join(summary) or f"exit status {done.returncode}")
