"""All fuzzers: ``python -m relaxish.testing.fuzz --kind onnx --seconds 600 --first 100000 --out tests/fuzz``.

Kinds are ``schedule`` (random programs under random schedules), ``onnx`` (random graphs by every route),
``onnx-operator`` (single operators with special values), ``torch`` (programs with views and writes in place) and
``hostile`` (calls with indices from data, under ``RELAXISH_CHECK=2`` with every access checked).

Cases run in child processes. One that takes longer than its limit, or kills its process, is a finding of its own kind.
Counts are printed every minute and at the end, which an interrupt or SIGTERM brings about as well.
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from pathlib import Path
from typing import Any

from .kinds import KINDS, schedules
from .runner import Finding, Report, run

__all__ = ["main"]

_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run and print; the exit code counts failures, at most 100, or is 130 after an interrupt without any."""
    parser = argparse.ArgumentParser(
        prog="python -m relaxish.testing.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kind", choices=sorted(KINDS), default="schedule", help="which fuzzer (default: schedule)")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to run")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--steps", type=int, default=12, help="schedule steps to try in each case (schedule only)")
    parser.add_argument("--max-failures", type=int, default=5, help="stop after so many failures")
    parser.add_argument("--case-seconds", type=float, help="how long a case may take (default: what its kind needs)")
    parser.add_argument("--out", type=Path, help="folder for regression tests of what fails")
    options = parser.parse_args(arguments)

    def keep(finding: Finding) -> None:
        print(finding, flush=True)
        if options.out is not None and finding.test:
            options.out.mkdir(parents=True, exist_ok=True)
            name = f"test_fuzz_{options.kind.replace('-', '_')}_{finding.number}.py"
            (options.out / name).write_text(finding.test, encoding="utf8")

    def say(report: Report) -> None:
        print(report.head(), flush=True)

    kind = schedules(options.steps) if options.kind == "schedule" else KINDS[options.kind]()
    if options.case_seconds is not None:
        kind = dataclasses.replace(kind, patience=options.case_seconds)
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        report = run(kind, options.seconds, options.first, options.max_failures, keep, say)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    found = len(report.failures)
    print(dataclasses.replace(report, failures=[]) if not found else report.head(), flush=True)
    return min(found, 100) or (_INTERRUPTED if report.interrupted else 0)


def _interrupt(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
