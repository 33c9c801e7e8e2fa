"""Every benchmark, one after another, each in a process of its own, on one core and again on two.

python benchmarks/run_all.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RUNS = [
    ["overhead.py"],
    ["passes.py"],
    ["compile.py"],
    ["models.py", "--cores", "1"],
    ["models.py", "--cores", "2"],
    ["gemm.py", "--cores", "1"],
    ["gemm.py", "--cores", "2"],
    ["gpt2.py", "--cores", "1"],
    ["gpt2.py", "--cores", "2"],
    ["search.py"],
    ["candidates.py"],
    ["faults.py"],
    ["ir.py"],
]


def main() -> int:
    """Run all; the exit code counts failures."""
    failed = 0
    for name, *arguments in RUNS:
        print(f"== {name} {' '.join(arguments)}", flush=True)
        failed += subprocess.run([sys.executable, str(HERE / name), *arguments], cwd=HERE).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
