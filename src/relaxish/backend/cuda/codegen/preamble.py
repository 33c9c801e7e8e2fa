"""Device code that generated files begin with: sections of ``preamble_<name>.cuh``, only those that a kernel needs.

The first line of a section, ``// needs: a, b``, names the sections that must come before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files

__all__ = ["preamble", "section"]

_NEEDS = "// needs:"


@lru_cache(maxsize=None)
def section(name: str) -> tuple[tuple[str, ...], str]:
    """(what it needs, text) of a section. Raises FileNotFoundError for an unknown one."""
    text = files(__package__).joinpath(f"preamble_{name}.cuh").read_text()
    first, _, rest = text.partition("\n")
    if not first.startswith(_NEEDS):
        return (), text
    return tuple(part.strip() for part in first.removeprefix(_NEEDS).split(",")), rest


def preamble(names: Iterable[str]) -> str:
    """The text of some sections and of all that they need, each once; the same sections always give the same text."""
    order: list[str] = []

    def add(name: str) -> None:
        if name not in order:
            for earlier in section(name)[0]:
                add(earlier)
            order.append(name)

    for name in sorted(set(names)):
        add(name)
    return "\n".join(section(name)[1].strip() + "\n" for name in order)
