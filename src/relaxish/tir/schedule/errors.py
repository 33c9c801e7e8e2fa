"""Reports of schedule errors: the primitive, the reason, the place in the program and the step of the trace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...ir.module import IRModule
from ...support.errors import ScheduleError
from ..stmt import Stmt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


__all__ = ["PrimitiveError", "ScheduleError", "describe", "location_name", "render_error"]


class PrimitiveError(ScheduleError):
    """Raised by a primitive's check; :func:`render_error` turns it into the user's ``ScheduleError``.

    ``template`` may hold ``{0}``, ``{1}``, ... which stand for the statements in ``locations``.  ``fast`` is what a
    schedule with ``error_render_level="fast"`` says; by default the template without its places.
    """

    def __init__(self, template: str, locations: Sequence[Any] = (), hint: str = "", fast: str = "") -> None:
        super().__init__(template)
        self.template = template
        self.locations = [getattr(x, "stmt", x) for x in locations]
        self.hint = hint
        self.fast = fast

    def message(self) -> str:
        """The reason, with the names that the printed program gives to the statements it is about."""
        return self._filled(location_name)

    def short_message(self) -> str:
        """The reason without saying where."""
        return self.fast or "ScheduleError: " + re.sub(r" ?\{\d+\}", "", self.template)

    def reason(self) -> str:
        """The reason without a program to look at: statements are called by their own names."""
        return self._filled(lambda stmt, _: describe(stmt))

    def _filled(self, name: Callable[[Any, int], str]) -> str:
        text = self.template
        for index, stmt in enumerate(self.locations):
            text = text.replace("{" + str(index) + "}", name(stmt, index))
        return text


def location_name(stmt: Stmt, index: int) -> str:
    """Name of the ``index``-th statement of an error in the report: ``tir.For#0``."""
    return f"tir.{type(stmt).__name__}#{index}"


def describe(stmt: Stmt | None) -> str:
    """A short name of a statement: ``block "C"``, ``loop i_0``."""
    if stmt is None:
        return "(removed statement)"
    stmt = getattr(stmt, "block", stmt)
    name = getattr(stmt, "name_hint", None)
    if name is not None:
        return f'block "{name}"'
    loop_var = getattr(stmt, "loop_var", None)
    if loop_var is not None:
        return f"loop {loop_var.name}"
    return type(stmt).__name__


def _program_text(mod: IRModule, locations: Sequence[Any]) -> str:
    """The module as text with the offending statements named and underlined, as far as the printer can."""
    marks = {x: location_name(x, i) for i, x in enumerate(locations) if isinstance(x, Stmt)}
    marked = {"obj_to_underline": list(marks), "obj_to_annotate": marks, "syntax_sugar": False}
    attempts: list[dict[str, Any]] = [marked, {}]
    for config in attempts:
        try:
            return str(mod.script(**config))
        except Exception:  # the report must come out even when printing is what is broken
            continue
    return "(the program could not be printed)"


class _DetailedError(ScheduleError):
    """Says everything, when asked: default schedules try primitives by the dozen and drop what fails."""

    def __init__(self, error: PrimitiveError, mod: IRModule, primitive: str, step: int | None) -> None:
        super().__init__()
        self._parts: Any = (mod, tuple(error.locations), primitive, error.message(), error.hint, step)
        self._text = ""

    @property
    def args(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The text, as every error has it."""
        return (str(self),)

    def __str__(self) -> str:
        if not self._text:
            mod, locations, primitive, message, hint, step = self._parts
            lines = [
                f"ScheduleError: An error occurred in the schedule primitive '{primitive}'.",
                "",
                "The IR with diagnostic is:",
                _program_text(mod, locations),
                f"Error message: {message}",
            ]
            if hint:
                lines += ["", f"Hint: {hint}"]
            if step is not None:
                lines += ["", f"Trace step: {step}"]
            self._text = "\n".join(lines)
            self._parts = None
        return self._text

    def __repr__(self) -> str:
        return f"ScheduleError({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ScheduleError, (str(self),)


def render_error(error: PrimitiveError, mod: IRModule, primitive: str, step: int | None, level: str) -> ScheduleError:
    """The error a user sees, at the detail ``level`` asks for ("detail", "fast" or "none")."""
    if level == "none":
        made = ScheduleError("ScheduleError: (not rendered)")
    elif level == "fast":
        made = ScheduleError(error.short_message())
    else:
        made = _DetailedError(error, mod, primitive, step)
    made.primitive = primitive  # type: ignore[attr-defined]
    made.reason = error.reason()  # type: ignore[attr-defined]
    return made
