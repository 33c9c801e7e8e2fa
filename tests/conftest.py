"""Options and fixtures shared by all tests."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden`` accepts what programs print now as what they should print."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing to them")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests may take an hour each; the time limit of the others stands in pyproject.toml."""
    for item in items:
        if item.get_closest_marker("slow") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(3600))


def pytest_collection_finish() -> None:
    """What was imported and collected stays: no later collection of garbage need walk it, and a hundred tests ask for one.

    Compilers make trees, not cycles: looking for cycles as often as Python does by default took a tenth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 10, 20)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)``: compare ``text`` to ``golden/<name>.txt`` beside the test file."""
    folder = Path(str(request.node.fspath)).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            folder.mkdir(exist_ok=True)
            path.write_text(text + "\n", encoding="utf8")
            return
        assert path.exists(), f"{path} does not exist; run with --update-golden to write it"
        assert text + "\n" == path.read_text(encoding="utf8")

    return compare
