"""Small rooms and a quick import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from project.sources import package

REPO = Path(__file__).resolve().parents[2]
MAX_FILE, MAX_FUNCTION = 800, 100


def test_files_and_functions_are_small() -> None:
    sources = package()
    long = [f"{name}: {n} lines" for name, c in sources.counts.items() if (n := c["lines"]) > MAX_FILE]
    long += [
        f"{module}: {name} ({lines} lines)"
        for module, functions in sources.functions.items()
        for name, lines in functions
        if lines > MAX_FUNCTION
    ]
    assert not long, "\n".join(long)


def run(code: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(REPO / "src")}
    env.pop("RELAXISH_CHECK", None)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


HEAVY = ["torch", "xgboost", "llvmlite", "onnx", "pycuda", "transformers"]


def test_import_loads_no_framework() -> None:
    loaded = run(f"import sys, relaxish; print([m for m in {HEAVY!r} if m in sys.modules])")
    assert loaded == "[]"


def test_runtime_loads_no_compiler() -> None:
    units = "['ir', 'tir', 'relax', 'arith', 'te', 'transform', 'meta_schedule', 'backend', 'script']"
    loaded = run(f"import sys, relaxish.runtime; print([u for u in {units} if 'relaxish.' + u in sys.modules])")
    assert loaded == "[]"


def test_nothing_names_a_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    marks = ["/" + "work/", "/" + "tmp/rx", "/" + "root/"]
    bad = []
    for name in listed.stdout.split():
        path = REPO / name
        if path.suffix in (".py", ".md", ".toml", ".txt", "") and path.is_file():
            text = path.read_text(errors="ignore")
            bad += [f"{name}: {m}" for m in marks if m in text]
    assert not bad, bad
