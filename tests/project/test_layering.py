"""Folders are layers: what a file imports or names in a string is in a lower row (or its own folder), and few files
need each other in a circle. Hooks of ``support/entry_points.py`` are the one way up."""

import ast
from pathlib import Path

import pytest
from project.sources import PACKAGE, ROOT, Package, circles, package
from relaxish.public_names import HOOKS

LARGEST_CIRCLE = 10
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
    ["testing", "cli", "tools", "contrib", "tile", "autotvm", "compat", "lab"],
]
ROW = {name: index for index, row in enumerate(ROWS) for name in row}
# Same-row imports that are in order: topi is written with te, Relax builds te and topi functions, drivers
# share a row with the pipelines they run.
SIBLINGS = {
    ("topi", "te"), ("relax", "te"), ("relax", "topi"), ("driver", "pipeline"), ("vm_build", "driver"), ("cli", "tools"), ("testing", "tools"),
    ("cli", "testing"), ("tools", "testing"), ("lab", "autotvm"), ("lab", "tools"), ("cli", "lab"),
}  # fmt: skip
BACKEND_SHARED = {"vm", "common", "gpu_generic"}


def unit_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0].removesuffix(".py")


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


def test_references_point_down() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {why}"
        for module, path in package().files.items()
        if module != PACKAGE
        for line, target in package().references(module)
        if (why := breach(path, target))
    ]
    assert not found, "\n".join(found)


def test_circles_are_small() -> None:
    edges = package().edges()
    found = [
        "\n".join(f"{name} -> {', '.join(sorted(edges[name] & set(circle)))}" for name in circle)
        for circle in circles(edges)
        if len(circle) > LARGEST_CIRCLE
    ]
    assert not found, "\n\n".join(found)


def hooks_asked(nodes: list[ast.AST]) -> set[str]:
    """The hooks that a file, of which these are the nodes, asks for by name; those put together at run time end with "*"."""
    asking = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] in ("support", "entry_points")
        for alias in node.names
    } & {"entry_points", "load", "available", "module_name"}
    found = set()
    for node in nodes:
        if asking and isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            found.add(f"{node.values[0].value}*")
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            func = node.func
            called = func.id if isinstance(func, ast.Name) else getattr(getattr(func, "value", None), "id", "")
            if called in asking:
                found.add(str(node.args[0].value))
    return found


def test_hooks_are_declared_and_used() -> None:
    asked = {hook: name for name, nodes in package().nodes.items() for hook in hooks_asked(nodes)}
    unknown = {hook: name for hook, name in asked.items() if not hook.endswith("*") and hook not in HOOKS}
    assert not unknown
    begun = tuple(hook[:-1] for hook in asked if hook.endswith(".*"))
    unused = [hook for hook in HOOKS if hook not in asked and not hook.startswith(begun)]
    assert not unused


FILES = {
    "__init__.py": "",
    "low/__init__.py": "from .core import thing",
    "low/core.py": "thing = 1",
    "low/lazy.py": "def f():\n    from relaxish.high.part import x\n    return x",
    "low/typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..high.part import x",
    "low/named.py": "PLACE = 'relaxish.high.part:x'\nOPTION = 'relaxish.not_a_module'",
    "low/made.py": "def f(n):\n    return __import__(f'relaxish.high.{n}'), __import__(f'{__package__}.core{n}')",
    "high/__init__.py": "",
    "high/part.py": "from ..low import thing\nx = thing",
}


@pytest.fixture
def small(tmp_path: Path) -> Package:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return Package(tmp_path)


@pytest.mark.parametrize(
    "module, wanted",
    [
        ("lazy", {"relaxish.high.part"}),
        ("typed", {"relaxish.high.part"}),
        ("named", {"relaxish.high.part"}),
        ("made", {"relaxish.high", "relaxish.low"}),
    ],
)
def test_every_kind_of_reference_is_seen(small: Package, module: str, wanted: set[str]) -> None:
    assert small.edges()[f"relaxish.low.{module}"] == wanted


def test_re_exports_are_followed(small: Package) -> None:
    assert small.edges()["relaxish.high.part"] == {"relaxish.low.core"}


def test_circles_are_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(edges) == [["a", "b", "c"], ["d", "e"], ["f"]]


def test_a_breach_is_noticed() -> None:
    assert breach(ROOT / "ir" / "expr.py", "relaxish.tir.stmt")
    assert breach(ROOT / "runtime" / "vm.py", "relaxish.ir.node")
    assert not breach(ROOT / "tir" / "stmt.py", "relaxish.ir.node")
