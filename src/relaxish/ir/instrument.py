"""Pass instruments: code that is told of every pass, to time, print, check or skip it."""

from __future__ import annotations

from collections.abc import Iterable, Callable
import difflib
import inspect
import re
import shutil
import time
from pathlib import Path
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from .module import IRModule
    from .transform import PassInfo

__all__ = [
    "DumpIR",
    "PassDiffInstrument",
    "PassInstrument",
    "PassPrintingInstrument",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "pass_instrument",
]


class PassInstrument:
    """Base of instruments; every hook does nothing unless overridden."""

    def enter_pass_ctx(self) -> None:
        """The context starts."""

    def exit_pass_ctx(self) -> None:
        """The context ends."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Whether the pass may run; one false answer skips it."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Just before a pass runs."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Just after a pass ran."""


_HOOKS = ("enter_pass_ctx", "exit_pass_ctx", "should_run", "run_before_pass", "run_after_pass")


def pass_instrument(pi_cls: type | None = None) -> type | Callable[[type], type]:
    """Make a plain class with some of the hooks an instrument class.

    >>> from relaxish.ir.instrument import pass_instrument
    >>> @pass_instrument
    ... class Count:
    ...     def __init__(self): self.seen = 0
    ...     def run_before_pass(self, mod, info): self.seen += 1
    """

    def wrap(cls: type) -> type:
        if not inspect.isclass(cls):
            raise TypeError("pi_cls must be a class")
        if not any(callable(getattr(cls, hook, None)) for hook in _HOOKS):
            raise TypeError(f"{cls.__name__} defines none of the hooks {', '.join(_HOOKS)}")
        return type(cls.__name__, (cls, PassInstrument), {"__doc__": cls.__doc__, "__module__": cls.__module__})

    return wrap if pi_cls is None else wrap(pi_cls)


class PassTimingInstrument(PassInstrument):
    """Times passes, nested ones included; :meth:`render` gives the table until the context ends.

    >>> from relaxish import IRModule, relax, transform
    >>> from relaxish.ir.instrument import PassTimingInstrument
    >>> timing = PassTimingInstrument()
    >>> with transform.PassContext(instruments=[timing]):
    ...     _ = relax.transform.DeadCodeElimination()(IRModule({}))
    ...     print(timing.render().split(":")[0])
    DeadCodeElimination
    """

    def __init__(self) -> None:
        self._stack: list[tuple[str, float, list[Any]]] = []
        self._roots: list[Any] = []

    def exit_pass_ctx(self) -> None:
        self._stack.clear()
        self._roots.clear()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._stack.append((info.name, time.perf_counter(), []))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        name, start, children = self._stack.pop()
        entry = (name, time.perf_counter() - start, children)
        (self._stack[-1][2] if self._stack else self._roots).append(entry)

    def render(self) -> str:
        """Microseconds of each pass, its own share without nested passes, and its share of its parent."""
        total = sum(seconds for _, seconds, _ in self._roots)
        lines: list[str] = []

        def add(entries: list[Any], depth: int, parent: float) -> None:
            for name, seconds, children in entries:
                own = seconds - sum(child[1] for child in children)
                share = (seconds / total if total else 0.0, seconds / parent if parent else 0.0)
                lines.append(
                    f"{chr(9) * depth}{name}: {seconds * 1e6:.0f}us [{own * 1e6:.0f}us] "
                    f"({share[0] * 100:.2f}%; {share[1] * 100:.2f}%)"
                )
                add(children, depth + 1, seconds)

        add(self._roots, 0, total)
        return "".join(f"{line}\n" for line in lines)


class PassPrintingInstrument(PassInstrument):
    """Prints the module before and after the passes named."""

    def __init__(self, print_before_pass_names: Iterable[str] = (), print_after_pass_names: Iterable[str] = ()) -> None:
        self.before = list(print_before_pass_names)
        self.after = list(print_after_pass_names)

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self.before:
            print(f"Print IR before: {info.name}\n{mod}\n\n")

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self.after:
            print(f"Print IR after: {info.name}\n{mod}\n\n")


class PrintBeforeAll(PassInstrument):
    """Prints the module before every pass."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        print(f"Before Running Pass: {info}\n{mod}")


class PrintAfterAll(PassInstrument):
    """Prints the module after every pass."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        print(f"After Running Pass: {info}\n{mod}")


class DumpIR(PassInstrument):
    """Writes the module after every pass to a numbered file: ``000_Simplify.py``.

    With ``refresh`` what the folder held before is removed first.
    """

    def __init__(self, dump_dir: str | Path, refresh: bool = False) -> None:
        self.folder = Path(dump_dir)
        self.counter = 0
        if refresh and self.folder.exists():
            shutil.rmtree(self.folder)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^\w.-]", "_", info.name)
        (self.folder / f"{self.counter:03d}_{name}.py").write_text(mod.script(), encoding="utf-8")
        self.counter += 1


class PassDiffInstrument(PassInstrument):
    """Keeps every before/after pair; :meth:`write_html` shows the pipeline with side-by-side differences."""

    def __init__(self, only: str = ".*") -> None:
        self.only = re.compile(only)
        self.steps: list[tuple[str, str, str, float]] = []
        self._open: list[tuple[str, float]] = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._open.append((mod.script(), time.perf_counter()))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        before, start = self._open.pop()
        if self.only.fullmatch(info.name):
            self.steps.append((info.name, before, mod.script(), time.perf_counter() - start))

    def write_html(self, path: str | Path) -> None:
        """Write one self-contained page: a list of passes, each with its difference."""
        import html

        differ = difflib.HtmlDiff(wrapcolumn=100)
        parts = []
        for number, (name, before, after, seconds) in enumerate(self.steps):
            changed = before != after
            body = (
                differ.make_table(before.splitlines(), after.splitlines(), "before", "after", context=True, numlines=3)
                if changed
                else "<p>unchanged</p>"
            )
            parts.append(
                f"<details{' open' if changed and number < 3 else ''}><summary>{number}. {html.escape(name)} "
                f"({seconds * 1e3:.1f} ms{'' if changed else ', unchanged'})</summary>{body}</details>"
            )
        style = (
            "body{font:14px sans-serif;margin:2em}table.diff{font:12px monospace;border-collapse:collapse}"
            ".diff_add{background:#cfc}.diff_chg{background:#ffc}.diff_sub{background:#fcc}summary{cursor:pointer}"
        )
        page = f"<!doctype html><meta charset=utf-8><title>Passes</title><style>{style}</style>{''.join(parts)}"
        with open(path, "w", encoding="utf-8") as out:
            out.write(page)
