"""As fast and as right on what nobody named: random workloads against torch, ONNX Runtime and OpenVINO.

Every run has a new seed, so nothing can be tuned to the list. Each draw is checked against float64 with the error that
its types allow, timed untuned between its peers on one or two threads, and one in twenty is tuned as well.

    python benchmarks/anywhere.py                            # ten minutes
    python benchmarks/anywhere.py --minutes 2 --families dense,attention
    python benchmarks/anywhere.py --seed 17 --only 42        # one draw again: what a report's reproducer runs
"""

from __future__ import annotations

import argparse
import json
import math
import random
import select
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import common

HERE = Path(__file__).resolve().parent
#: Seconds after which a draw counts as hanging.
_PATIENCE = 90.0
#: One draw of so many is tuned as well: no divisor of the number of families, so that each has its turn.
_TUNED, _FAMILIES = 19, 21
_GEOMEAN, _MOST, _WORST = 0.85, 1.15, 2.0


class Worker:
    """A process that measures draws on so many threads; one that dies or hangs is replaced."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._process: subprocess.Popen[str] | None = None

    def measure(self, seed: int, index: int, family: str | None, tuned: int) -> dict[str, Any]:
        """The row of one draw."""
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = subprocess.Popen(
                [sys.executable, str(HERE / "draws" / "measure.py"), str(self.cores)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps([seed, index, family, tuned]) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], _PATIENCE + 10 * tuned)
        line = process.stdout.readline() if ready else ""
        row: dict[str, Any] = json.loads(line) if line else {"failed": "crashed" if ready else "hung"}
        if not line:
            process.kill()
            process.wait()
        return {"cores": self.cores, **row}

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def rows(seed: int, indices: Sequence[int] | None, families: Sequence[str], options: Any) -> Iterator[dict[str, Any]]:
    """Measured draws until the time is over, or those of ``indices``."""
    workers = [Worker(cores) for cores in options.cores]
    # Families follow one another: each shall meet every number of threads.
    every = len(families) or _FAMILIES
    end = time.monotonic() + options.minutes * 60
    index = -1
    try:
        while (indices is None and time.monotonic() < end) or (indices and index < max(indices)):
            index += 1
            if indices is not None and index not in indices:
                continue
            family = families[index % len(families)] if families else None
            tuned = options.trials if options.trials and (index % _TUNED == _TUNED - 1 or indices is not None) else 0
            worker = workers[(index // every + index % every) % len(workers)]
            row = worker.measure(seed, index, family, tuned)
            again = (
                f"python benchmarks/anywhere.py --seed {seed} --only {index} --cores {row['cores']} --trials {tuned}"
            )
            row["again"] = again + (f" --families {','.join(families)}" if families else "")
            yield row | {"index": index}
    finally:
        for worker in workers:
            worker.close()


def ratio(row: dict[str, Any]) -> float | None:
    """Our time over that of the fastest peer."""
    times = row.get("ms")
    if not times:
        return None
    others = [v for k, v in times.items() if k not in ("relaxish", "tuned")]
    return float(times["relaxish"] / min(others))


def problem(row: dict[str, Any]) -> str | None:
    """Why a draw counts as failed: not imported, not built, crashed, or outside of its error bound."""
    if "failed" in row or "broken" in row:
        return str(row.get("failed") or row["broken"])
    return f"wrong: error {row['error']:.2g}, bound {row['bound']:.2g}" if row["error"] > row["bound"] else None


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def summary(measured: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each family and one for all: ratios to the best peer, and failures."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in measured:
        groups[row.get("family", "?")].append(row)
    table = []
    for name, members in [*sorted(groups.items()), ("all", list(measured))]:
        ratios = sorted(r for m in members if (r := ratio(m)) is not None)
        gains = [m["ms"]["relaxish"] / m["ms"]["tuned"] for m in members if "tuned" in m.get("ms", {})]
        worst = ratios[math.ceil(0.95 * len(ratios)) - 1] if ratios else float("nan")
        table.append(
            {
                "family": name,
                "draws": len(members),
                "geometric mean": geometric_mean(ratios),
                "95 % at most": worst,
                "worst": ratios[-1] if ratios else float("nan"),
                "over 1.15": sum(r > _MOST for r in ratios),
                "failed": sum(problem(m) is not None for m in members),
                "tuning gains": geometric_mean(gains),
            }
        )
    return table


def verdicts(total: dict[str, Any]) -> dict[str, str]:
    """The bars, each with pass or FAIL."""

    def said(ok: bool) -> str:
        return "pass" if ok else "FAIL"

    return {
        f"geometric mean at most {_GEOMEAN}": said(total["geometric mean"] <= _GEOMEAN),
        f"95 % at most {_MOST}": said(total["95 % at most"] <= _MOST),
        f"none over {_WORST}": said(total["worst"] <= _WORST),
        "none wrong or failed": said(total["failed"] == 0),
    }


def report(measured: Sequence[dict[str, Any]], shown: int) -> list[dict[str, Any]]:
    """Print failures and the slowest draws with their reproducers; the table is returned."""
    for row in measured:
        said = problem(row)
        if said is not None:
            print(f"FAILED {row.get('draw', '?')}\n    {said}\n    {row['again']}")
    timed = sorted((r for r in measured if ratio(r) is not None), key=lambda r: -(ratio(r) or 0.0))
    for row in timed[:shown]:
        times = ", ".join(f"{k} {v:.3g}" for k, v in row["ms"].items())
        print(f"{ratio(row):6.2f}  {row['draw']} on {row['cores']} threads: {times} ms\n        {row['again']}")
    return summary(measured)


def main() -> None:
    """Draw, measure, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="new in every run")
    parser.add_argument("--only", type=lambda s: [int(i) for i in s.split(",")], help="these draws and no others")
    parser.add_argument("--families", type=lambda s: s.split(","), default=[])
    parser.add_argument("--cores", type=lambda s: [int(i) for i in s.split(",")], default=[1, 2])
    parser.add_argument("--trials", type=int, default=16, help="tune one draw of 19 with so many trials, 0 none")
    parser.add_argument("--worst", type=int, default=10, help="how many of the slowest draws are shown")
    parser.add_argument("--out", default="anywhere", help="name of the result file; empty writes none")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    measured = []
    for row in rows(options.seed, options.only, options.families, options):
        measured.append(row)
        said = problem(row) or f"{ratio(row):.2f}"
        print(f"{row['index']:4d} {said[:60]:12s} {row.get('draw', row.get('family', '?'))}", flush=True)
    table = report(measured, options.worst)
    if options.out and options.only is None:
        slow = sorted(measured, key=lambda r: -(ratio(r) or math.inf))[:10]
        common.save(options.out, [*table, *({"worst draws": json.dumps(r)} for r in slow)])
    else:
        common.table(table)
    for bar, verdict in verdicts(table[-1]).items():
        print(f"{verdict}  {bar}")


if __name__ == "__main__":
    main()
