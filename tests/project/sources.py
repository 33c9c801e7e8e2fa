"""The sources of the package, read once: which module loads which (imports anywhere in a file, and modules named in
strings), how long functions are, and what their types say."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

PACKAGE = "relaxish"
ROOT = Path(__file__).resolve().parents[2] / "src" / PACKAGE
# The root's tables are how layers are left on purpose: hooks of low layers, and where public names really are.
TABLES = {PACKAGE, f"{PACKAGE}.public_names"}
_PATH = re.compile(rf"{PACKAGE}(\.\w+)+(:\w+)?")


class Package:
    """The modules under a folder, read once; names are absolute."""

    def __init__(self, root: Path) -> None:
        self.files = {_name(path, root): path for path in sorted(root.rglob("*.py"))}
        # What can refer to something, of each module. Whole trees would be millions of objects, which every later
        # garbage collection of the process would walk.
        self.nodes: dict[str, list[ast.AST]] = {}
        self.counts: dict[str, Counter[str]] = {}
        #: Names and numbers of lines of the functions of each module.
        self.functions: dict[str, list[tuple[str, int]]] = {}
        #: Names, lines and docstrings of the public modules, classes and functions of each module.
        self.docstrings: dict[str, list[tuple[str, int, str]]] = {}
        # What packages import from elsewhere: package -> name -> (module, name there).
        self._exports: dict[str, dict[str, tuple[str, str]]] = {}
        for name, path in self.files.items():
            text = path.read_text()
            tree = ast.parse(text)
            nodes = list(ast.walk(tree))
            self.counts[name] = counts(text, nodes)
            self.functions[name] = [
                (node.name, (node.end_lineno or 0) - node.lineno + 1)
                for node in nodes
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            self.docstrings[name] = list(docstrings(nodes))
            self.nodes[name] = [node for node in nodes if _may_refer(node)]
            if path.name == "__init__.py":
                imported = self._from(name, tree.body)
                self._exports[name] = {a.asname or a.name: (module, a.name) for module, a, _ in imported}

    def references(self, module: str) -> Iterator[tuple[int, str]]:
        """(line, module that defines what is asked for) of every import and every string that names a module."""
        for node in self.nodes[module]:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] == PACKAGE:
                        yield node.lineno, self.home(alias.name)
        for source, alias, line in self._from(module, self.nodes[module]):
            place = self.definer(source, alias.name)
            yield line, place if place != PACKAGE else f"{PACKAGE}.{alias.name}"
        if module not in TABLES:
            yield from self._strings(module)

    def edges(self) -> dict[str, set[str]]:
        """Module -> the modules it refers to, itself excluded."""
        return {name: {to for _, to in self.references(name)} & (self.files.keys() - {name}) for name in self.files}

    def home(self, name: str) -> str:
        """The module that a dotted path leads to: the path itself, or the nearest module above it."""
        while name and name not in self.files:
            name = name.rpartition(".")[0]
        return name

    def definer(self, module: str, name: str, steps: int = 8) -> str:
        """The module that ``from module import name`` takes its name from, re-exports of packages followed."""
        if f"{module}.{name}" in self.files:
            return f"{module}.{name}"
        onward = self._exports.get(module, {}).get(name)
        if onward is not None and onward != (module, name) and steps:
            return self.definer(*onward, steps - 1)
        return self.home(module)

    def _from(self, module: str, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.alias, int]]:
        for node in nodes:
            if not isinstance(node, ast.ImportFrom):
                continue
            base = node.module or ""
            if node.level:
                parts = self._inside(module).split(".")
                parts = parts[: len(parts) - node.level + 1]
                base = ".".join([*parts, node.module] if node.module else parts)
            if base.split(".")[0] == PACKAGE:
                yield from ((base, alias, node.lineno) for alias in node.names)

    def _strings(self, module: str) -> Iterator[tuple[int, str]]:
        """Modules that strings name; of an f-string what stands before its first unknown value counts."""
        for node in self.nodes[module]:
            if isinstance(node, ast.JoinedStr):
                start = self._start(module, node)
                place = self.home(start.rpartition(".")[0]) if start.startswith(f"{PACKAGE}.") else ""
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _PATH.fullmatch(node.value):
                place = self.home(node.value.partition(":")[0])
            else:
                continue
            if place not in ("", PACKAGE):  # names of options and functions begin with the package's name, too
                yield node.lineno, place

    def _start(self, module: str, text: ast.JoinedStr) -> str:
        """The known beginning of an f-string; ``__name__`` and ``__package__`` are known."""
        own = {"__name__": module, "__package__": self._inside(module)}
        found = ""
        for value in text.values:
            if isinstance(value, ast.Constant):
                found += str(value.value)
            elif isinstance(value, ast.FormattedValue) and isinstance(value.value, ast.Name) and value.value.id in own:
                found += own[value.value.id]
            else:
                break
        return found

    def _inside(self, module: str) -> str:
        """The package of a module, which is itself for a package."""
        return module if self.files[module].name == "__init__.py" else module.rpartition(".")[0]


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components, largest first (Kosaraju: finishing order, then the reversed graph)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in edges:
        if start in seen:
            continue
        seen.add(start)
        path = [(start, iter(sorted(edges[start])))]
        while path:
            node, following = path[-1]
            onward = next((n for n in following if n in edges and n not in seen), None)
            if onward is None:
                order.append(path.pop()[0])
            else:
                seen.add(onward)
                path.append((onward, iter(sorted(edges[onward]))))
    reverse: dict[str, list[str]] = {name: [] for name in edges}
    for name, targets in edges.items():
        for target in targets:
            if target in reverse:
                reverse[target].append(name)
    found: list[list[str]] = []
    taken: set[str] = set()
    for start in reversed(order):
        if start in taken:
            continue
        taken.add(start)
        group, todo = [], [start]
        while todo:
            group.append(todo.pop())
            fresh = [n for n in reverse[group[-1]] if n not in taken]
            taken.update(fresh)
            todo += fresh
        found.append(sorted(group))
    return sorted(found, key=len, reverse=True)


@cache
def package() -> Package:
    """The package as it is; reading it takes seconds, so that the first test that asks does so and not the import."""
    return Package(ROOT)


def _is_any(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "Any"


def counts(text: str, nodes: Iterable[ast.AST]) -> Counter[str]:
    """Functions, parameters, those that are bare ``Any``, calls of isinstance, and lines of a source text."""
    found = Counter(lines=text.count("\n"))
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            named = [a for a in arguments if a.arg not in ("self", "cls")]
            found.update(
                functions=1, parameters=len(named), any_parameters=sum(_is_any(a.annotation) for a in named),
                any_returns=_is_any(node.returns),
            )  # fmt: skip
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            found["isinstance"] += 1
    return found


def docstrings(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int, str]]:
    """Name, line and docstring of the public modules, classes and functions that have one."""
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name, text = getattr(node, "name", "module"), ast.get_docstring(node)
            if text and not name.startswith("_"):
                yield name, getattr(node, "lineno", 1), text


def _may_refer(node: ast.AST) -> bool:
    """Whether a node imports, is text, or is a call that names something."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith(PACKAGE)
    if isinstance(node, ast.Call):
        return bool(node.args) and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    return isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr)


def _name(path: Path, root: Path) -> str:
    parts = [PACKAGE, *path.relative_to(root).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
