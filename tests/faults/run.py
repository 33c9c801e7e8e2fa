"""The fault campaign: every module of this folder with a ``campaign(budget_s, seed)`` runs for its share of the time.

    python tests/faults/run.py --minutes 20 [--only hostile_models differential] [--seed 7] [--out figures.json]

A campaign gives its figures by name; ``tried`` counts cases, and what :data:`MUST_BE_ZERO` names counts faults. Each
runs in a process of its own, so that one that dies is itself a finding and does not end the others. The figures go to
``benchmarks/results/faults_campaign.json``; the exit code is the number of campaigns that found faults, at most 100.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER.parents[1] / "benchmarks" / "results" / "faults_campaign.json"
MUST_BE_ZERO = ("lost", "wrong", "crashed", "hung", "leaked", "accepted")
_PATIENCE = 4.0  # a campaign may overrun its share by this factor, and a minute


def campaign_names() -> list[str]:
    """Modules of this folder that are campaigns."""
    return sorted(p.stem for p in FOLDER.glob("*.py") if "\ndef campaign(" in p.read_text(encoding="utf8"))


def faults_of(figures: dict[str, int]) -> int:
    """How many faults a campaign's figures tell of; one that tried nothing is a fault as well."""
    return sum(int(figures.get(key, 0)) for key in MUST_BE_ZERO) + (figures.get("tried", 0) == 0)


def run_here(name: str, budget_s: float, seed: int) -> dict[str, int]:
    """The figures of one campaign, in this process."""
    figures: dict[str, int] = importlib.import_module(f"faults.{name}").campaign(budget_s, seed)
    return figures


def run_apart(name: str, budget_s: float, seed: int) -> dict[str, int]:
    """The figures of one campaign in a process of its own; its death or silence counts as one more fault."""
    command = [sys.executable, __file__, "--here", name, "--seconds", str(budget_s), "--seed", str(seed)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")])}
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, env=environment, timeout=_PATIENCE * budget_s + 60, check=False
        )
    except subprocess.TimeoutExpired:
        return {"tried": 1, "hung": 1}
    try:
        figures: dict[str, int] = json.loads(done.stdout.decode().splitlines()[-1])
    except (ValueError, IndexError):
        return {"tried": 1, "crashed": 1, "exit_status": done.returncode}
    return figures


def main() -> int:
    """Run the campaigns asked for and write their figures."""
    sys.path.insert(0, str(FOLDER.parent))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0, help="for all campaigns together")
    parser.add_argument("--only", nargs="*", default=None, help="names of campaigns")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="which cases are drawn")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--here", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(run_here(options.here, options.seconds, options.seed)), flush=True)
        return 0
    names = options.only or campaign_names()
    report = {}
    for name in names:
        began = time.monotonic()
        figures = run_apart(name, 60.0 * options.minutes / len(names), options.seed)
        report[name] = {**figures, "seconds": round(time.monotonic() - began)}
        print(f"{name}: {json.dumps(report[name])}" + ("  FAULTS" if faults_of(figures) else ""), flush=True)
    found = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "seed": options.seed,
        "campaigns": report,
    }
    if options.only and options.out.exists():
        found["campaigns"] = {**json.loads(options.out.read_text())["campaigns"], **report}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    return min(sum(bool(faults_of(f)) for f in report.values()), 100)


if __name__ == "__main__":
    sys.exit(main())
