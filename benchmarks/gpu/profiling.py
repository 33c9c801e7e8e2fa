"""Section "profiling": what Nsight Compute says of the default kernel of 4096 cubed, where it is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from .journal import Journal

TOOL = "ncu"
_SECONDS = 150
_LINES = (
    "Tensor",
    "Stall",
    "L2 Hit",
    "DRAM Throughput",
    "Duration",
    "Registers Per Thread",
    "Executed Ipc Active",
    "No Eligible",
)


def jobs(small: bool) -> list[str]:
    """One kernel."""
    return ["ncu gemm f16 4096"]


def command(out: Path) -> list[str]:
    """What profiles one launch of the kernel."""
    script = Path(__file__).with_name("canaries.py")
    return [TOOL, "--set", "full", "--clock-control", "none", "-k", "regex:main_kernel", "-c", "1", "-f", "-o", str(out),
            sys.executable, str(script), "gemm_time", "--one"]  # fmt: skip


def run(job: str, options: Any, journal: Journal) -> None:
    """Profile; the report is a file of the results, its main lines go into the row."""
    if shutil.which(TOOL) is None:
        journal.put(job, skipped=f"there is no {TOOL}")
        return
    report = options.out / "gemm_4096"
    done = subprocess.run(
        command(report), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_SECONDS, check=False
    )
    print(done.stdout[-5000:], flush=True)
    journal.put(job, exit=done.returncode)
    shown = subprocess.run(
        [TOOL, "--import", f"{report}.ncu-rep"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    (options.out / "gemm_4096.txt").write_text(shown.stdout)
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines() if any(word in line for word in _LINES)]
    journal.update(job, {"lines": lines[:24]})
