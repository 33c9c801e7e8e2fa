"""Folders are layers: every import in the package must point to a lower row (or stay in its own folder)."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "src" / "relaxish"
ROWS = [
    ["support"],
    ["ir", "runtime"],
    ["target"],
    ["arith"],
    ["tir"],
    ["te", "topi", "relax"],
    ["script", "interp"],
    ["op", "carver"],
    ["transform", "dlight"],
    ["backend"],
    ["meta_schedule"],
    ["frontend", "training"],
    ["pipeline", "driver", "vm_build"],
    ["testing", "cli", "tools", "contrib", "tile", "autotvm"],
]
ROW = {name: index for index, row in enumerate(ROWS) for name in row}
# Same-row imports that are in order: topi is written with te, Relax builds te and topi functions, drivers
# share a row with the pipelines they run.
SIBLINGS = {
    ("topi", "te"), ("relax", "te"), ("relax", "topi"), ("driver", "pipeline"), ("vm_build", "driver"), ("cli", "tools"), ("testing", "tools"),
    ("cli", "testing"), ("tools", "testing"),
}  # fmt: skip
BACKEND_SHARED = {"vm", "common", "gpu_generic"}


def unit_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[tuple[int, str]]:
    """(line, absolute module path) of every import inside relaxish, nested and TYPE_CHECKING ones included."""
    package = ["relaxish", *path.relative_to(ROOT).with_suffix("").parts]
    package = package[:-1]
    out = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            out += [(node.lineno, a.name) for a in node.names if a.name.split(".")[0] == "relaxish"]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
                module = ".".join([*base, node.module] if node.module else base)
            else:
                module = node.module or ""
            if module.split(".")[0] == "relaxish":
                out += [(node.lineno, f"{module}.{a.name}") for a in node.names]
    return out


FILES = sorted(p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.name != "__init__.py")


def breach(path: Path, target: str) -> str | None:
    here = unit_of(path)
    parts = target.split(".")
    there = parts[1] if len(parts) > 1 else ""
    if there == here:
        if here == "backend":
            mine, other = path.relative_to(ROOT).parts[1:2], parts[2:3]
            if (
                mine
                and other
                and mine != tuple(other)
                and other[0] not in BACKEND_SHARED
                and other[0] in {p.name for p in (ROOT / "backend").iterdir() if p.is_dir()}
            ):
                return f"backend/{mine[0]} imports its sibling backend/{other[0]}"
        return None
    if there not in ROW:
        return None if there in ("__version__",) else f"unknown unit {there!r}"
    if here not in ROW:
        return f"{here!r} is in no layer"
    if here == "runtime" and there != "support":
        return "runtime imports only support"
    if ROW[there] < ROW[here] or (here, there) in SIBLINGS:
        return None
    return f"{here} (row {ROW[here]}) imports {there} (row {ROW[there]})"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    found = [f"{path.name}:{line}: {why}" for line, target in imports_of(path) if (why := breach(path, target))]
    assert not found, "\n".join(found)


def test_a_breach_is_noticed() -> None:
    assert breach(ROOT / "ir" / "expr.py", "relaxish.tir.stmt")
    assert breach(ROOT / "runtime" / "vm.py", "relaxish.ir.node")
    assert not breach(ROOT / "tir" / "stmt.py", "relaxish.ir.node")
