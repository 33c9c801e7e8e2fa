"""Candidates of measurements: anything that makes a program, and the arguments it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir import IRModule
from ...target import Target
from ...tir import PrimFunc, Schedule
from ..arg_info import ArgInfo

__all__ = ["Candidate", "Prebuilt", "Skipped", "program_of"]


class Skipped(Exception):
    """Raised while a program is made: there is no use in trying this candidate. The text says why."""


@dataclass(eq=False)
class Candidate:
    """A program that is yet to be made.

    ``make()`` gives an IRModule, a PrimFunc or a Schedule, and may raise: that costs this candidate only. ``args_info``
    is read from the program where it is not given. ``key`` names the candidate in a journal, ``target`` overrides the
    engine's, ``params`` go to the builder, and ``payload`` is the caller's.
    """

    make: Callable[[], IRModule | PrimFunc | Schedule]
    args_info: Sequence[ArgInfo] | None = None
    key: str | None = None
    target: Target | None = None
    params: dict[str, Any] | None = None
    payload: Any = None


@dataclass(eq=False)
class Prebuilt:
    """A program that has been built already, to be run among candidates."""

    artifact: str | bytes
    args_info: Sequence[ArgInfo]
    key: str | None = None
    target: Target | None = None


def program_of(candidate: Any) -> IRModule:
    """The module of a candidate: of a :class:`Candidate`, or of whatever has a schedule ``sch``.

    Raises whatever making it raises, and TypeError for something else than a program.
    """
    made = candidate.make() if hasattr(candidate, "make") else candidate.sch
    if isinstance(made, Schedule):
        made = made.mod
    if isinstance(made, PrimFunc):
        symbol = (made.attrs or {}).get("global_symbol") or "main"
        made = IRModule({str(symbol): made})
    if not isinstance(made, IRModule):
        raise TypeError(f"a candidate makes an IRModule, a PrimFunc or a Schedule, not a {type(made).__name__}")
    return made
