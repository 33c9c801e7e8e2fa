"""What README and the lessons show runs, each page from top to bottom."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
PAGES = [REPO / "README.md", *sorted((REPO / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.S)


def _program(page: Path) -> str:
    """The page's Python blocks as one module, every line where it stands on the page."""
    text = page.read_text()
    lines: list[str] = []
    for found in BLOCK.finditer(text):
        if found.group(1) == "python":
            start = text.count("\n", 0, found.start(2))
            lines += [""] * (start - len(lines)) + found.group(2).splitlines()
    return "\n".join(lines)


@pytest.mark.parametrize("page", [p for p in PAGES if _program(p)], ids=lambda p: p.stem)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "page_" + re.sub(r"\W", "_", page.stem)
    source = tmp_path / f"{name}.py"
    source.write_text(_program(page))
    spec = importlib.util.spec_from_file_location(name, source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", BLOCK.sub("", page.read_text())):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name} links to {link}"
