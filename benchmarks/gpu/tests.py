"""Section "tests": the tests that are marked ``gpu``, each file in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from .journal import Journal

ROOT = Path(__file__).resolve().parents[2]
_NO_TESTS = 5  # pytest's exit code where nothing is marked so


def jobs(small: bool) -> list[str]:
    """The files that have such tests: reading all others would take most of the time."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(f.relative_to(ROOT)) for f in files if "mark.gpu" in f.read_text(encoding="utf8")]


def run(job: str, options: Any, journal: Journal) -> None:
    """Run one file; its output goes to the log as it comes, its last line into the row."""
    command = [sys.executable, "-m", "pytest", "-n0", "-x" if options.small else "--maxfail=10", "-m", "gpu", "-rfE",
               "--tb=short", "-p", "no:cacheprovider", job]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    last = ""
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
    code = process.wait()
    journal.put(job, right=code in (0, _NO_TESTS), summary=last)
