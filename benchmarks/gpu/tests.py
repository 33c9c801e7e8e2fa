"""Section "tests": the tests that are marked ``gpu``, file by file, in processes that a hang or a lost device may end."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .journal import Journal

ROOT = Path(__file__).resolve().parents[2]
_NO_TESTS = 5  # pytest's exit code where nothing is marked so
_WORKERS = 4
_SECONDS = 30  # a test that takes longer hangs
_EMULATED_SECONDS = 300  # emulated, on a few cores
_OUTCOMES = ("PASSED", "FAILED", "SKIPPED", "ERROR", "crashed while running")


def jobs(small: bool) -> list[str]:
    """The files that have such tests: reading all others would take most of the time."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(f.relative_to(ROOT)) for f in files if "mark.gpu" in f.read_text(encoding="utf8")]


def survival() -> list[str]:
    """Options by which a test that hangs or loses the device ends one worker, which another one replaces.

    The limit ends the process from another thread: one in a call of the driver takes no signal.
    """
    chosen = ["-n", str(_WORKERS)] if find_spec("xdist") else []
    if find_spec("pytest_timeout"):
        seconds = _EMULATED_SECONDS if _emulated() else _SECONDS
        chosen += [f"--timeout={seconds}", "--timeout-method=thread"]
    return chosen


def _emulated() -> bool:
    return os.environ.get("RELAXISH_CUDA_PROVIDER", "").startswith("emulator")


def command(job: str, small: bool) -> list[str]:
    """What runs a file. ``-vv`` shows names against the quiet of the project's own options."""
    return [sys.executable, "-m", "pytest", "-vv", *survival(), "-x" if small else "--maxfail=10", "-m", "gpu", "-rfE",
            "--tb=short", "-p", "no:cacheprovider", job]  # fmt: skip


def run(job: str, options: Any, journal: Journal) -> None:
    """Run one file; its output goes to the log as it comes, its last line into the row. Each test is news."""
    environ = {**os.environ, **({"RELAXISH_CUDA_PROVIDER": "emulator-fast"} if _emulated() else {})}
    process = subprocess.Popen(
        command(job, options.small), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=environ
    )
    last, over = "", 0
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
        if any(word in line for word in _OUTCOMES):
            over += 1
            journal.put(job, tests_over=over)
    code = process.wait()
    journal.put(job, right=code in (0, _NO_TESTS), summary=last)
