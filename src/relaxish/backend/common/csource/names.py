"""Names of a generated program: legal in the language, and never given twice."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["NameSupply"]


class NameSupply:
    """Gives names; ``reserved`` ones (keywords, built-in functions) are never given.

    >>> from relaxish.backend.common.csource.names import NameSupply
    >>> names = NameSupply({"half"})
    >>> names.fresh("half"), names.fresh("A.shared"), names.fresh("A.shared")
    ('half_1', 'A_shared', 'A_shared_1')
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = set(reserved)

    def reserve(self, name: str) -> str:
        """Take a name as it is."""
        self._taken.add(name)
        return name

    def fresh(self, hint: str) -> str:
        """A name like ``hint`` that nothing else has."""
        base = re.sub(r"\W", "_", hint, flags=re.ASCII).strip("_") or "v"
        base = f"v{base}" if base[0].isdigit() else base
        found, number = base, 0
        while found in self._taken:
            number += 1
            found = f"{base}_{number}"
        self._taken.add(found)
        return found
