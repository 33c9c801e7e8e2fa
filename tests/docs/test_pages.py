"""What README and the lessons show runs, each page from top to bottom."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from relaxish.runtime import enabled
from relaxish.testing.targets import device_enabled

REPO = Path(__file__).resolve().parents[2]
PAGES = [REPO / "README.md", *sorted((REPO / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.S)
# Files and folders named in running text: `tir/op_hopper.py`, `kernel.py`, `backend/cuda/`.
NAMED = re.compile(r"`((?:\w+/)*\w+\.(?:py|cuh|md)|(?:\w+/)+)`")


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
    if page.stem == "devices" and enabled("opencl") and not device_enabled("opencl"):
        pytest.skip("the OpenCL driver has no code generation for this processor")
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


def test_files_in_the_text_exist() -> None:
    """A name may leave out the folders that the text is about: `kernel.py`, `emulator/launch.py`."""
    known = {"README.md", "CHANGELOG.md"}
    for root in ("src", "tests", "docs", "benchmarks"):
        for path in (REPO / root).rglob("*"):
            parts = path.relative_to(REPO).parts
            known.update("/".join(parts[start:]) for start in range(len(parts)))
    for page in (p for p in PAGES if p.parent.name != "lessons"):  # lessons also name files that they write
        named = set(NAMED.findall(BLOCK.sub("", page.read_text())))
        assert not {name for name in named if name.strip("/") not in known}, page.name
