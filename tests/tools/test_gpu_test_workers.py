"""What tests on a GPU survive: a test that loses the device, and one that hangs, cost one worker each."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TESTS = textwrap.dedent("""
    import time

    import pytest

    from relaxish.runtime.nvidia import providers
    from relaxish.runtime.nvidia.errors import failure


    def lose(*args):
        raise failure(700, "waiting for the device")


    @pytest.mark.parametrize("number", range(4))
    def test_before(gpu, number):
        gpu.sync()


    def test_loses(gpu):
        driver = providers.current().driver
        type(driver).synchronize = lose
        gpu.sync()


    def test_loses_unseen(gpu):
        type(providers.current().driver).synchronize = lose


    def test_hangs(gpu):
        time.sleep(600)


    @pytest.mark.parametrize("number", range(8))
    def test_after(gpu, number):
        gpu.sync()
""")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="pytest-xdist is not installed")
def test_a_lost_device_or_a_hang_costs_one_worker(tmp_path):
    shutil.copy(ROOT / "tests/gpu/conftest.py", tmp_path / "conftest.py")
    conftest = tmp_path / "conftest.py"
    # The null device counts as a real one here: its tests are limited, too.
    conftest.write_text(conftest.read_text() + "\n\nproviders.current().driver.simulated = False\n")
    (tmp_path / "test_made_up.py").write_text(TESTS)
    environ = {
        **os.environ, "RELAXISH_CUDA_PROVIDER": "null", "RELAXISH_GPU_TEST_SECONDS": "8",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }  # fmt: skip
    environ.pop("PYTEST_XDIST_WORKER", None)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-vv",
        "-n2",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:timeout",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=tmp_path, timeout=240, check=False)
    said = done.stdout
    for name in ("test_loses", "test_loses_unseen", "test_hangs"):
        assert f"crashed while running 'test_made_up.py::{name}'" in said, said[-6000:]
    for name, count in (("before", 4), ("after", 8)):
        for number in range(count):
            assert f"PASSED test_made_up.py::test_{name}[{number}]" in said, said[-6000:]


MADE_UP = textwrap.dedent("""
    import os

    import pytest

    @pytest.mark.gpu
    @pytest.mark.parametrize("number", range(3))
    def test_one(number):
        assert os.environ["RELAXISH_CUDA_PROVIDER"] == "emulator-fast" and number < 2
""")


def test_every_test_is_news(monkeypatch, tmp_path):
    """A file with many tests is not given up while they come to their ends; the emulator does without its checks."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in [n for n in sys.modules if n == "gpu" or n.startswith("gpu.")]:
        monkeypatch.delitem(sys.modules, name)
    from gpu import tests
    from gpu.journal import Journal

    try:
        path = tmp_path / "test_made_up.py"
        path.write_text(MADE_UP)
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs one\n")
        monkeypatch.setattr(tests, "ROOT", tmp_path)
        monkeypatch.setattr(tests, "find_spec", lambda name: None)
        monkeypatch.setenv("RELAXISH_CUDA_PROVIDER", "emulator")
        journal = Journal(tmp_path / "journal.json")
        written = []
        put = journal.put
        monkeypatch.setattr(journal, "put", lambda case, **values: written.append(values) or put(case, **values))
        tests.run("test_made_up.py", type("Options", (), {"small": False}), journal)
        assert [v["tests_over"] for v in written if "tests_over" in v][:3] == [1, 2, 3]
        row = journal.rows["test_made_up.py"]
        assert row["right"] is False and "1 failed, 2 passed" in row["summary"]
    finally:
        for name in [n for n in sys.modules if n == "gpu" or n.startswith("gpu.")]:
            del sys.modules[name]


def test_options(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in [n for n in sys.modules if n == "gpu" or n.startswith("gpu.")]:
        monkeypatch.delitem(sys.modules, name)
    from gpu import tests

    try:
        there: set[str] = set()
        monkeypatch.delenv("RELAXISH_CUDA_PROVIDER", raising=False)
        monkeypatch.setattr(tests, "find_spec", lambda name: name if name in there else None)
        assert tests.survival() == []
        there.add("xdist")
        assert tests.survival() == ["-n", "4"]
        there.add("pytest_timeout")
        assert tests.survival() == ["-n", "4", "--timeout=30", "--timeout-method=thread"]
        monkeypatch.setenv("RELAXISH_CUDA_PROVIDER", "emulator-fast")
        assert tests.survival()[2] == "--timeout=300"
    finally:
        for name in [n for n in sys.modules if n == "gpu" or n.startswith("gpu.")]:
            del sys.modules[name]
