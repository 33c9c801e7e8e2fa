"""Everything that needs a GPU, in one run of under nine minutes: tests, numerics, times against peers, tuning, models.

    make gpu-check                                  (or: python benchmarks/gpu_check.py --out results)
    python benchmarks/gpu_check.py --small --provider emulator      (the same flow without a GPU)

Each section is a process of its own with a share of the time, so a hang or a crash costs no other section. Results are
written as they come: ``gpu_check.json``, the log of each section, and the tuned databases.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
# Share of the whole time; what a section leaves over goes to those after it.
SHARES = {"tests": 0.17, "kernels": 0.30, "tuning": 0.28, "models": 0.25}
CPU_PROVIDERS = ("emulator", "null")


def environment() -> dict[str, Any]:
    """What the numbers were measured on."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "versions": {}}
    for package in ("relaxish", "torch", "triton", "cuda-bindings", "pycuda", "nvidia-cuda-nvrtc", "nvidia-cublas",
                    "llvmlite", "numpy"):  # fmt: skip
        with contextlib.suppress(PackageNotFoundError):
            found["versions"][package] = version(package)
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        found["device"] = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    return found


def run_tests(options: argparse.Namespace) -> None:
    """The tests that are marked ``gpu``; their summary is the section's result."""
    command = [sys.executable, "-m", "pytest", "-q", "-x" if options.small else "--maxfail=20", "-m", "gpu",
               "-p", "no:cacheprovider", str(HERE.parent / "tests")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parent)
    print(done.stdout[-6000:], done.stderr[-2000:])
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    # 5: no test is marked so, which is right where there is no device.
    save(options, [{"case": "tests", "right": done.returncode in (0, 5), "summary": lines[-1] if lines else ""}])


def save(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """A section's rows, replaced as a whole so that a kill in between leaves the last good ones."""
    path = options.out / f"{options.section}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(rows, indent=1, default=str))
    temporary.replace(path)


def run_section(options: argparse.Namespace) -> None:
    """The body of one section's process."""
    sys.path[:0] = [str(SOURCE), str(HERE)]
    if options.section == "tests":
        run_tests(options)
        return
    from relaxish.target import Target

    options.target = Target(options.device_target, host="llvm")
    importlib.import_module(f"gpu.{options.section}").run(options, lambda rows: save(options, rows))


def start_section(name: str, seconds: float, options: argparse.Namespace) -> dict[str, Any]:
    """Run a section in a process group of its own; when its time is up the whole group is killed."""
    command = [sys.executable, str(Path(__file__).resolve()), "--section", name, "--seconds", str(seconds),
               "--out", str(options.out), "--device-target", options.device_target]  # fmt: skip
    command += ["--small"] if options.small else []
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])}
    if options.provider:
        environ["RELAXISH_CUDA_PROVIDER"] = options.provider
    begin = time.monotonic()
    log = options.out / f"{name}.log"
    with log.open("w") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, env=environ, start_new_session=True)
        try:
            code: int | str = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = f"stopped after {seconds:.0f} s"
    path = options.out / f"{name}.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    tail = "" if code == 0 else log.read_text()[-3000:]
    return {"seconds": time.monotonic() - begin, "exit": code, "rows": rows, "log": tail}


def report(results: dict[str, Any]) -> int:
    """Print the rows of all sections; the number of things that are wrong. The null device computes nothing."""
    wrong = 0
    computes = results["provider"] != "null"
    for name, section in results["sections"].items():
        print(f"== {name}: {section['seconds']:.0f} s, exit {section['exit']}")
        wrong += section["exit"] != 0
        for row in section["rows"]:
            wrong += "failed" in row or (computes and row.get("right") is False)
            shown = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items() if k not in ("trace", "where")}
            print("  " + ", ".join(f"{k}: {v}" for k, v in shown.items()))
        if section["log"]:
            print(section["log"][-800:])
    return wrong


def main() -> int:
    """Run all sections; the exit code says whether everything was right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "gpu_check_out")))
    parser.add_argument("--minutes", type=float, default=8.5)
    parser.add_argument("--sections", default=",".join(SHARES))
    parser.add_argument("--device-target", default="nvidia/nvidia-h200")
    parser.add_argument("--provider", default="", help=f"{' or '.join(CPU_PROVIDERS)}: the flow without a GPU")
    parser.add_argument("--small", action="store_true", help="tiny shapes, a few trials")
    parser.add_argument("--section", default="", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=60.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.section:
        run_section(options)
        return 0
    results: dict[str, Any] = {"machine": environment(), "provider": options.provider or "auto", "sections": {}}
    deadline = time.monotonic() + options.minutes * 60
    names = options.sections.split(",")
    for index, name in enumerate(names):
        share = SHARES[name] / sum(SHARES[n] for n in names[index:])
        results["sections"][name] = start_section(name, (deadline - time.monotonic()) * share, options)
        (options.out / "gpu_check.json").write_text(json.dumps(results, indent=1, default=str))
    wrong = report(results)
    print(f"{'all right' if not wrong else f'{wrong} problem(s)'}; results in {options.out / 'gpu_check.json'}")
    return min(wrong, 100)


if __name__ == "__main__":
    sys.exit(main())
