"""Everything that needs a GPU, in three calls of under ten minutes each: what works; numbers; search and models.

    make gpu-check CALL=works                       (or: python benchmarks/gpu_check.py --call works --out results)
    make gpu-check CALL=numbers
    make gpu-check CALL=search
    python benchmarks/gpu_check.py --sections tuning --minutes 9    (one section, with all of the time)
    python benchmarks/gpu_check.py --call works --small --provider emulator      (the same flow without a GPU)

Each section is a process of its own with a share of the time, working through a list of jobs. A job that crashes the
device or does not come to an end costs the process; the next one goes on behind it. What a section has found is on disk
when it ends: ``gpu_check_works.json``, ``gpu_check_works.log``, and ``gpu_check_works.tar.gz`` with both and all else that
the sections have written, such as tuned databases: three files for each call, whatever collects them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
sys.path[:0] = [str(SOURCE), str(HERE)]

from gpu.journal import Journal, case_of  # noqa: E402  (found through the line above)

# Share of the whole time; what a section leaves over goes to those after it.
SHARES = {
    "canary_section": 0.40, "tests": 0.40, "sanitizer": 0.20, "kernels": 0.50, "calibration": 0.40, "profiling": 0.10,
    "tuning": 0.55, "models": 0.45,
}  # fmt: skip
# The sections of a call, and its minutes.
CALLS = {
    "works": (("canary_section", "tests", "sanitizer"), 8.0),
    "numbers": (("kernels", "calibration", "profiling"), 9.5),
    "search": (("tuning", "models"), 9.5),
}
# Seconds without news after which the running job is given up; tuning ends by itself.
PATIENCE = {
    "canary_section": 60.0, "tests": 120.0, "sanitizer": 150.0, "kernels": 75.0, "calibration": 150.0, "profiling": 240.0,
    "models": 240.0,
}  # fmt: skip
# A section is not started again with less time than a process needs to come up.
LEAST_SECONDS = 20.0
# How a section's process ends when its device is lost: another one goes on with the next job.
DEVICE_LOST = 70
CPU_PROVIDERS = ("emulator", "null")


# Packages that the check stands on; without those of the first row a section fails, without others it does less.
PACKAGES = (
    "numpy", "llvmlite", "ml_dtypes", "psutil", "rich", "click", "pygments", "safetensors", "typing_extensions",
    "xgboost-cpu", "xgboost", "scipy", "torch", "triton", "transformers", "cuda-bindings", "pycuda", "nvidia-cuda-nvrtc",
    "nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cublas", "nvidia-cudnn-cu13", "pytest", "pytest-xdist", "pytest-timeout",
)  # fmt: skip
TOOLS = ("nvidia-smi", "nvcc", "nvdisasm", "cuobjdump", "ncu", "compute-sanitizer")


def environment() -> dict[str, Any]:
    """What the numbers were measured on: every installed package, and the toolkit's programs."""
    from importlib.metadata import distributions

    installed = {
        str(d.metadata["Name"]).lower().replace("_", "-"): d.version for d in distributions() if d.metadata["Name"]
    }
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "cores": os.cpu_count(),
        "versions": {name: installed.get(name.replace("_", "-"), "not installed") for name in PACKAGES},
        "others": dict(sorted(installed.items())), "tools": {name: shutil.which(name) or "not found" for name in TOOLS},
    }  # fmt: skip
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        found["device"] = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    return found


def show_environment(found: dict[str, Any]) -> None:
    """First of all: which Python, packages and programs these are."""
    print(f"Python {found['python']}, {found['cores']} cores; {found.get('device', 'nvidia-smi shows no device')}")
    print("  " + ", ".join(f"{name} {version}" for name, version in found["versions"].items()))
    print("  " + ", ".join(f"{name}: {path}" for name, path in found["tools"].items()), flush=True)


# ---- inside the process of a section


def device_lost() -> bool:
    """Whether a kernel took the device's context with it: then nothing else can run in this process."""
    import relaxish
    from relaxish.runtime.nvidia.errors import CUDAError

    if not relaxish.cuda().exist:
        return False
    try:
        relaxish.cuda().sync()
    except CUDAError as error:
        return error.sticky
    return False


def work(options: argparse.Namespace) -> None:
    """The body of a section's process: its jobs, one after another, without those that are done."""
    from relaxish.target import Target

    options.target = Target(options.device_target, host="llvm")
    section = importlib.import_module(f"gpu.{options.section}")
    journal = Journal(options.out / f"{options.section}.json")
    for job in section.jobs(options.small):
        if job in journal.done or "failed" in journal.rows.get(case_of(job), {}):
            continue  # a case that crashed once is not worth another process
        print(f"-- {job}", flush=True)
        journal.begin(job)
        try:
            section.run(job, options, journal)
        except Exception as error:  # one broken job must not hide the others
            journal.put(
                case_of(job), failed=f"{type(error).__name__}: {error}"[:2000], where=traceback.format_exc()[-3000:]
            )
            traceback.print_exc()
        lost = device_lost()
        journal.end()
        if lost:
            sys.exit(DEVICE_LOST)


# ---- watching over it


def run_section(name: str, seconds: float, options: argparse.Namespace) -> dict[str, Any]:
    """Run a section's jobs, in a new process after each one that did not come back; what was found."""
    begin = time.monotonic()
    deadline = begin + seconds
    path, log = options.scratch / f"{name}.json", options.scratch / f"{name}.log"
    for stale in (path, log):
        stale.unlink(missing_ok=True)
    while True:
        done = len(Journal(path).done)
        code = _run_process(name, deadline, options, path, log)
        journal = Journal(path)
        if code == 0:
            break
        if journal.running is not None:
            journal.put(case_of(journal.running), failed=f"its process ended: {code}")
            journal.end()
        if len(journal.done) == done or deadline - time.monotonic() < LEAST_SECONDS:
            break  # it did not even come to a job, or there is no time for another process
    text = log.read_text(errors="replace")
    with (options.out / f"{options.stem}.log").open("a") as whole:
        whole.write(f"==== {name}\n{text}\n")
    path.unlink(missing_ok=True)
    log.unlink()
    return {"seconds": time.monotonic() - begin, "exit": code, "rows": list(journal.rows.values()),
            "log": "" if code == 0 else text[-3000:]}  # fmt: skip


def _run_process(name: str, deadline: float, options: argparse.Namespace, journal: Path, log: Path) -> int | str:
    """One process of a section, in a group of its own, which is killed as a whole; its exit code, or why it was."""
    seconds = deadline - time.monotonic()
    command = [sys.executable, str(Path(__file__).resolve()), "--section", name, "--until", str(time.time() + seconds),
               "--out", str(options.scratch), "--device-target", options.device_target]  # fmt: skip
    command += ["--small"] if options.small else []
    environ = {**os.environ, "PYTHONUNBUFFERED": "1",
               "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])}  # fmt: skip
    if options.provider:
        environ["RELAXISH_CUDA_PROVIDER"] = options.provider
    patience = PATIENCE.get(name, seconds)
    with log.open("a") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, env=environ, start_new_session=True)
        started = time.time()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=0.5)
            last = max(started, journal.stat().st_mtime if journal.exists() else 0.0)
            if time.monotonic() > deadline:
                reason = "the section's time was up"
            elif time.time() - last > patience:
                reason = f"no news for {patience:.0f} s"
            else:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return reason


def pack(options: argparse.Namespace) -> None:
    """What there is so far as one archive; it takes the place of the one before when it is whole."""
    archive = options.out / f"{options.stem}.tar.gz"
    made = archive.with_suffix(".tmp")
    with tarfile.open(made, "w:gz") as tar:
        tar.add(options.scratch, options.stem)
        for name in (f"{options.stem}.json", f"{options.stem}.log"):
            if (options.out / name).exists():
                tar.add(options.out / name, f"{options.stem}/{name}")
    made.replace(archive)


def report(results: dict[str, Any]) -> int:
    """Print the rows of all sections; the number of things that are wrong. The null device computes nothing."""
    wrong = 0
    computes = results["provider"] != "null"
    for name, section in results["sections"].items():
        print(f"== {name}: {section['seconds']:.0f} s, exit {section['exit']}")
        wrong += section["exit"] != 0
        for row in section["rows"]:
            wrong += "failed" in row or (computes and row.get("right") is False)
            shown = {
                k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items() if k not in ("trace", "where")
            }
            print("  " + ", ".join(f"{k}: {v}" for k, v in shown.items()))
        if section["log"]:
            print(section["log"][-800:])
    return wrong


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "gpu_check_out")))
    parser.add_argument("--call", choices=CALLS, default="works", help="which sections, if they are not given")
    parser.add_argument("--minutes", type=float, default=0.0, help="of all sections; those of the call by default")
    parser.add_argument("--sections", default="", help=f"which, in their order, of {', '.join(SHARES)}")
    parser.add_argument("--device-target", default="nvidia/nvidia-h200")
    parser.add_argument("--provider", default="", help=f"{' or '.join(CPU_PROVIDERS)}: the flow without a GPU")
    parser.add_argument("--small", action="store_true", help="tiny shapes, a few trials")
    parser.add_argument("--section", default="", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.stem = "gpu_check" if options.sections else f"gpu_check_{options.call}"
    sections, minutes = CALLS[options.call]
    options.sections = options.sections or ",".join(sections)
    options.minutes = options.minutes or minutes
    return options


def main() -> int:
    """Run all sections; the exit code says whether everything was right."""
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.section:
        work(options)
        return 0
    for kind in ("log", "json", "tar.gz"):
        (options.out / f"{options.stem}.{kind}").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu_check_", ignore_cleanup_errors=True) as scratch:
        options.scratch = Path(scratch)
        return run_all(options)


def run_all(options: argparse.Namespace) -> int:
    """Run the sections, and keep what each has found before the next begins; how many things are wrong."""
    results: dict[str, Any] = {"machine": environment(), "provider": options.provider or "auto", "sections": {}}
    show_environment(results["machine"])
    deadline = time.monotonic() + options.minutes * 60
    names = options.sections.split(",")
    for index, name in enumerate(names):
        share = SHARES[name] / sum(SHARES[n] for n in names[index:])
        try:
            results["sections"][name] = run_section(name, (deadline - time.monotonic()) * share, options)
        except Exception as error:  # a section that cannot be watched must not cost the others
            text = traceback.format_exc()
            results["sections"][name] = {
                "seconds": 0.0,
                "exit": f"{type(error).__name__}: {error}",
                "rows": [],
                "log": text,
            }
        try:
            (options.out / f"{options.stem}.json").write_text(json.dumps(results, indent=1, default=str))
            pack(options)
        except OSError as error:
            print(f"what {name} found could not be written: {error}", flush=True)
    wrong = report(results)
    print(f"{'all right' if not wrong else f'{wrong} problem(s)'}; results in {options.out / f'{options.stem}.json'}")
    return min(wrong, 100)


if __name__ == "__main__":
    sys.exit(main())
