"""Random calls with good and bad arguments, in a process of their own: right numbers or an error, never a crash."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from relaxish.support.config import worker_environment

pytest.importorskip("llvmlite")
pytest.importorskip("torch")


@pytest.mark.parametrize("count", [500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_random_calls(count):
    script = Path(__file__).parents[1] / "faults" / "hostile_arguments.py"
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(script), "17", str(count)],
        capture_output=True, text=True, timeout=1200, env=worker_environment(),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    ends = ast.literal_eval(result.stdout)
    assert sum(ends.values()) == count and min(ends.values()) > count // 10
