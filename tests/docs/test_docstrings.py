"""Every example in a docstring runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _modules() -> list[str]:
    """Modules with examples; the others need not be imported."""
    found = []
    for path in sorted(SOURCE.glob("relaxish/**/*.py")):
        if ">>>" in path.read_text():
            parts = path.relative_to(SOURCE).with_suffix("").parts
            found.append(".".join(p for p in parts if p != "__init__"))
    return found


@pytest.mark.parametrize("name", _modules())
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    lines: list[str] = []
    for test in finder.find(module, name):
        runner.run(test, out=lines.append)
    assert not runner.failures, "".join(lines)
