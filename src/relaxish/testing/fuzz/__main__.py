"""``python -m relaxish.testing.fuzz --seconds 600 --first 100000 --out tests/fuzz``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .cases import Failure
from .runner import fuzz
from .shrink import regression_test


def main() -> int:
    """Run and print; the exit code counts failures."""
    parser = argparse.ArgumentParser(prog="python -m relaxish.testing.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to run")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--steps", type=int, default=12, help="schedule steps to try in each case")
    parser.add_argument("--max-failures", type=int, default=5, help="stop after so many failures")
    parser.add_argument("--out", type=Path, help="folder for regression tests of what fails")
    options = parser.parse_args()

    def keep(failure: Failure) -> None:
        print(failure, flush=True)
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"test_fuzz_case_{failure.case.number}.py").write_text(regression_test(failure))

    report = fuzz(options.seconds, options.first, options.steps, options.max_failures, keep)
    report.failures, found = [], len(report.failures)
    print(report, f"({found} found)" if found else "")
    return min(found, 100)


if __name__ == "__main__":
    sys.exit(main())
