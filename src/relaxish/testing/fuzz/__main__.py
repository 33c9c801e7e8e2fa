"""All fuzzers: ``python -m relaxish.testing.fuzz --kind onnx --seconds 600 --first 100000 --out tests/fuzz``.

Kinds are ``schedule`` (random programs under random schedules), ``onnx`` (random graphs by every route),
``onnx-operator`` (single operators with special values) and ``torch`` (programs with views and writes in place).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

Keep: TypeAlias = Callable[[str, str, str], None]
"""Takes a name for a file, what failed as text, and a regression test (empty where there is none)."""


def _schedules(options: argparse.Namespace, keep: Keep) -> tuple[int, str]:
    from .runner import fuzz
    from .shrink import regression_test

    report = fuzz(
        options.seconds,
        options.first,
        options.steps,
        options.max_failures,
        lambda failure: keep(f"case_{failure.case.number}", str(failure), regression_test(failure)),
    )
    report.failures, found = [], len(report.failures)
    return found, str(report)


def _graphs(options: argparse.Namespace, keep: Keep) -> tuple[int, str]:
    from .differential import GraphFailure, check_graph, make_graph_case, regression_test, shrink_graph

    ends: Counter[str] = Counter()
    end, number = time.monotonic() + options.seconds, options.first
    while time.monotonic() < end and ends["failed"] < options.max_failures:
        found = check_graph(make_graph_case(number))
        if isinstance(found, GraphFailure):
            found = shrink_graph(found)
            keep(f"graph_{number}", str(found), regression_test(found))
        ends["failed" if isinstance(found, GraphFailure) else found] += 1
        number += 1
    return ends["failed"], _line("graphs", ends)


def _operators(options: argparse.Namespace, keep: Keep) -> tuple[int, str]:
    from .child import in_child
    from .onnx_judges import check_operator
    from .onnx_operators import operator_case, operator_names

    ends: Counter[str] = Counter()
    names = operator_names()
    end, number, failures = time.monotonic() + options.seconds, options.first, 0
    while time.monotonic() < end and failures < options.max_failures:
        name, seed = names[number % len(names)], number // len(names)
        verdict = in_child(lambda: check_operator(operator_case(name, seed)), 60)  # noqa: B023
        status, reason = ("crashed", verdict) if isinstance(verdict, str) else (verdict.status, verdict.reason)
        ends[status] += 1
        if status not in ("right", "illegal"):
            failures += 1
            keep(f"operator_{number}", f"{status}: {reason}\n{operator_case(name, seed)}", _operator_test(name, seed))
        number += 1
    return failures, _line("operators", ends)


def _operator_test(name: str, seed: int) -> str:
    """A test of one case of an operator; the case is what its name and number make."""
    return f'''"""Found by the fuzzer of single operators ({name}, number {seed})."""

from relaxish.testing.fuzz.onnx_judges import check_operator
from relaxish.testing.fuzz.onnx_operators import operator_case


def test_{"".join(c if c.isalnum() else "_" for c in name.lower())}_{seed}():
    verdict = check_operator(operator_case({name!r}, {seed}))
    assert verdict.status in ("right", "illegal"), verdict.reason
'''


def _programs(options: argparse.Namespace, keep: Keep) -> tuple[int, str]:
    from .torch_programs import regression_test, run

    compared, refused, failures = run(
        options.first,
        10**9,
        options.seconds,
        lambda failure: keep(f"torch_program_{failure.program.number}", str(failure), regression_test(failure)),
        options.max_failures,
    )
    return len(failures), _line("torch programs", Counter(compared=compared, refused=sum(refused.values())))


def _line(what: str, ends: Counter[str]) -> str:
    return f"{sum(ends.values())} {what} ({', '.join(f'{k} {v}' for k, v in ends.most_common())})"


KINDS: dict[str, Callable[[argparse.Namespace, Keep], tuple[int, str]]] = {
    "schedule": _schedules,
    "onnx": _graphs,
    "onnx-operator": _operators,
    "torch": _programs,
}


def main(arguments: list[str] | None = None) -> int:
    """Run and print; the exit code counts failures, at most 100."""
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
    parser.add_argument("--out", type=Path, help="folder for regression tests of what fails")
    options = parser.parse_args(arguments)

    def keep(name: str, told: str, test: str) -> None:
        print(told, flush=True)
        if options.out is not None and test:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"test_fuzz_{name}.py").write_text(test, encoding="utf8")

    found, report = KINDS[options.kind](options, keep)
    print(report, f"({found} found)" if found else "")
    return min(found, 100)


if __name__ == "__main__":
    sys.exit(main())
