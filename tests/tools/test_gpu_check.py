"""The flow of benchmarks/gpu_check.py: what a crash, a hang, and a section that does not come up cost."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import textwrap
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

# Jobs that end in every way a job can; none of them takes long.
SECTION = textwrap.dedent("""
    import os, time

    def jobs(small):
        hang = ["hangs"] if os.environ.get("MADE_UP_HANGS") else []
        return ["good", "raises", "dies", *hang, "dies | again", "last"]

    def run(job, options, journal):
        journal.put(job.partition(" | ")[0], tried=True)
        if job == "good":
            (options.out / "tuned" / "logs").mkdir(parents=True)
            (options.out / "tuned" / "logs" / "deep.txt").write_text("kept")
        if job == "raises":
            raise ValueError("not this one")
        if job == "dies":
            os._exit(3)
        if job == "hangs":
            time.sleep(600)
        journal.put(job, right=True)
""")


@pytest.fixture
def check(monkeypatch, tmp_path):
    """The script as a module, with sections ``made_up`` and ``broken``."""
    for name in [n for n in sys.modules if n == "gpu" or n.startswith("gpu.") or n == "gpu_check"]:
        monkeypatch.delitem(sys.modules, name)
    before = list(sys.path)
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import gpu_check

        script = tmp_path / "script.py"
        folder = tmp_path / "more"
        folder.mkdir()
        (folder / "made_up.py").write_text(SECTION)
        (folder / "broken.py").write_text("raise ImportError('no such package')")
        script.write_text(
            f"import sys\nsys.path.insert(0, {str(BENCHMARKS)!r})\nimport gpu, gpu_check\n"
            f"gpu.__path__.append({str(folder)!r})\nsys.exit(gpu_check.main())\n"
        )
        monkeypatch.setattr(gpu_check, "__file__", str(script))
        monkeypatch.setattr(gpu_check, "PATIENCE", {"made_up": 15.0})
        monkeypatch.setattr(gpu_check, "LEAST_SECONDS", 0.5)
        yield gpu_check
    finally:
        sys.path[:] = before
        for name in [n for n in sys.modules if n == "gpu" or n.startswith("gpu.") or n == "gpu_check"]:
            del sys.modules[name]


def options(folder):
    return argparse.Namespace(
        out=folder, scratch=folder, provider="null", small=True, device_target="nvidia/nvidia-h200", stem="gpu_check"
    )


@pytest.mark.parametrize("hang", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_one_job_costs_one_job(check, monkeypatch, tmp_path, hang):
    monkeypatch.setenv("MADE_UP_HANGS", "1" if hang else "")
    found = check.run_section("made_up", 120.0, options(tmp_path))
    rows = {row["case"]: row for row in found["rows"]}
    assert rows["good"]["right"] and rows["last"]["right"]
    assert rows["raises"]["failed"] == "ValueError: not this one" and "line" in rows["raises"]["where"]
    assert rows["dies"]["failed"] == "its process ended: 3"
    assert not hang or rows["hangs"]["failed"] == "its process ended: no news for 15 s"
    assert "dies | again" not in rows and found["exit"] == 0
    log = (tmp_path / "gpu_check.log").read_text()
    assert log.count("-- good") == 1 and log.count("-- last") == 1
    assert [p.name for p in tmp_path.glob("made_up.*")] == []
    results = {"provider": "auto", "sections": {"made_up": found}}
    assert check.report(results) == 2 + hang


def test_a_section_that_does_not_come_up(check, tmp_path):
    begin = time.monotonic()
    found = check.run_section("broken", 120.0, options(tmp_path))
    assert found["exit"] == 1 and found["rows"] == [] and "no such package" in found["log"]
    assert time.monotonic() - begin < 60


def test_jobs_are_known_without_a_gpu(check):
    from gpu import calibration, canary_section, kernels, models, tests, tuning

    assert canary_section.jobs(False)[0] == "add" and canary_section.jobs(False)[-1] == "gemm_time_released"
    assert calibration.jobs(False) == ["measure", "fit"]
    assert kernels.jobs(True)[0] == "gemm f16 64" and "attention f16 4x1024x16x64" in kernels.jobs(False)
    assert models.jobs(False)[:2] == ["bert f16", "resnet50 f16"] and tuning.jobs(False) == [
        "gemm f16 4096",
        "gemm f16 8192",
    ]
    assert "tests/gpu/test_gpu_kernels.py" in tests.jobs(False)


@pytest.mark.slow
def test_the_flow(check, monkeypatch, tmp_path):
    """Kernels really run, in the emulator."""
    monkeypatch.setattr(check, "__file__", str(BENCHMARKS / "gpu_check.py"))
    emulated = options(tmp_path)
    emulated.provider = "emulator"
    found = check.run_section("kernels", 200.0, emulated)
    assert found["exit"] == 0 and all(row["right"] for row in found["rows"]), found["rows"]


def test_three_files_come_back(check, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--out", str(tmp_path / "back"), "--provider", "null",
                                      "--minutes", "4", "--sections", "made_up,broken"])  # fmt: skip
    monkeypatch.setattr(check, "SHARES", {"made_up": 0.5, "broken": 0.5})
    assert check.main() == 3  # the two jobs that fail, the section that does not come up
    assert sorted(p.name for p in (tmp_path / "back").iterdir()) == [
        "gpu_check.json",
        "gpu_check.log",
        "gpu_check.tar.gz",
    ]
    with tarfile.open(tmp_path / "back" / "gpu_check.tar.gz") as tar:
        names = tar.getnames()
        kept = tar.extractfile("gpu_check/tuned/logs/deep.txt")
        assert kept is not None and kept.read() == b"kept"
    assert {"gpu_check/gpu_check.json", "gpu_check/gpu_check.log"} <= set(names)


def test_calls_keep_what_they_have_found(check, monkeypatch, tmp_path, capsys):
    """Three calls into one folder; versions are printed first; a section that cannot even be watched costs itself."""
    monkeypatch.setattr(check, "SHARES", {"made_up": 0.5, "broken": 0.5})
    monkeypatch.setattr(check, "CALLS", {"works": (("broken", "made_up"), 4.0), "numbers": (("made_up",), 4.0)})
    run_section, back = check.run_section, tmp_path / "back"

    def watch(name, seconds, options):
        if name == "broken":
            raise OSError("no room for a process")
        return run_section(name, seconds, options)

    monkeypatch.setattr(check, "run_section", watch)
    for call, wrong in (("works", 3), ("numbers", 2)):
        monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--out", str(back), "--provider", "null", "--call", call])
        assert check.main() == wrong
        shown = capsys.readouterr().out
        assert shown.startswith("Python ") and shown.index("numpy 2") < shown.index("== ")
        assert "== made_up" in shown
    stems = {f"gpu_check_{call}.{kind}" for call in ("works", "numbers") for kind in ("json", "log", "tar.gz")}
    assert {p.name for p in back.iterdir()} == stems
    found = json.loads((back / "gpu_check_works.json").read_text())
    assert found["sections"]["broken"]["exit"] == "OSError: no room for a process"
    assert [row["case"] for row in found["sections"]["made_up"]["rows"]][:2] == ["good", "raises"]
    assert found["machine"]["others"]["numpy"] == found["machine"]["versions"]["numpy"]


def test_calls_fit_into_ten_minutes(check):
    assert set(check.CALLS) == {"works", "numbers", "search"}
    for sections, minutes in check.CALLS.values():
        assert minutes < 10 and set(sections) <= set(check.SHARES)
    assert {name for sections, _ in check.CALLS.values() for name in sections} == set(check.SHARES)


@pytest.mark.parametrize("section, tool", [("sanitizer", "compute-sanitizer"), ("profiling", "ncu")])
def test_tools_that_are_not_there_are_left_out(check, monkeypatch, tmp_path, section, tool):
    """... and one that is there says what is in the row."""
    import importlib

    from gpu.journal import Journal

    module = importlib.import_module(f"gpu.{section}")
    journal = Journal(tmp_path / "journal.json")
    job = module.jobs(True)[0]
    monkeypatch.setenv("PATH", str(tmp_path))
    made = options(tmp_path)
    module.run(job, made, journal)
    assert journal.rows[job]["skipped"] == f"there is no {tool}"
    script = tmp_path / tool
    script.write_text("#!/bin/sh\necho '========= ERROR SUMMARY: 3 errors'\necho '  SM Tensor pipe  97.5'\nexit 9\n")
    script.chmod(0o755)
    module.run(job, made, journal)
    if section == "sanitizer":
        assert journal.rows[job]["right"] is False and journal.rows[job]["summary"] == "ERROR SUMMARY: 3 errors"
    else:
        assert journal.rows[job]["lines"] == ["SM Tensor pipe 97.5"] and (tmp_path / "gemm_4096.txt").exists()


def test_the_callers_packages_are_found():
    """``make gpu-check`` puts the sources before the caller's PYTHONPATH, not in its place."""
    root = BENCHMARKS.parent
    for given, expected in (({"PYTHONPATH": "/some/wheels"}, "src:/some/wheels"), ({}, "src")):
        environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | given
        shown = "PYTHON=sh -c 'echo $$PYTHONPATH'"
        done = subprocess.run(
            ["make", "-s", "gpu-check", "gpu-canaries", shown], cwd=root, env=environ, capture_output=True, text=True, check=True
        )  # fmt: skip
        assert done.stdout.split() == [expected, expected]
