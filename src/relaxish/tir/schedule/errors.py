"""What a schedule error says: which primitive, why, where in the program, at which step of the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...support.errors import ScheduleError

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["PrimitiveError", "ScheduleError", "describe", "render_error"]


class PrimitiveError(ScheduleError):
    """Raised by a primitive's check; :func:`render_error` turns it into the user's ``ScheduleError``.

    ``template`` may hold ``{0}``, ``{1}``, ... which stand for the statements in ``locations``.
    """

    def __init__(self, template: str, locations: Sequence[Any] = (), hint: str = "", fast: str = "") -> None:
        super().__init__(template)
        self.template = template
        self.locations = [getattr(x, "stmt", x) for x in locations]
        self.hint = hint
        self.fast = fast

    def message(self) -> str:
        """The reason with the names of the statements filled in."""
        text = self.template
        for index, stmt in enumerate(self.locations):
            text = text.replace("{" + str(index) + "}", describe(stmt))
        return text


def describe(stmt: Any) -> str:
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


def _program_text(mod: Any, locations: Sequence[Any]) -> str:
    """The module as text with the offending statements underlined, as far as the printer can."""
    from ...ir.node import Node

    marks = [x for x in locations if isinstance(x, Node)]
    attempts: list[dict[str, Any]] = [{"obj_to_underline": marks, "syntax_sugar": False}, {}]
    for config in attempts:
        try:
            return str(mod.script(**config))
        except Exception:  # the report must come out even when printing is what is broken
            continue
    return "(the program could not be printed)"


def render_error(error: PrimitiveError, mod: Any, primitive: str, step: int | None, level: str) -> ScheduleError:
    """The error a user sees, at the detail ``level`` asks for ("detail", "fast" or "none")."""
    where = f" (trace step {step})" if step is not None else ""
    head = f"ScheduleError: An error occurred in the schedule primitive '{primitive}'{where}."
    if level == "none":
        made = ScheduleError(f"ScheduleError: (not rendered) in '{primitive}'")
    elif level == "fast":
        made = ScheduleError(f"{head}\n\nError message: {error.fast or error.message()}")
    else:
        parts = [
            head,
            "",
            "The IR with diagnostic is:",
            _program_text(mod, error.locations),
            "",
            f"Error message: {error.message()}",
        ]
        if error.hint:
            parts += ["", f"Hint: {error.hint}"]
        made = ScheduleError("\n".join(parts))
    made.primitive = primitive  # type: ignore[attr-defined]
    made.reason = error.message()  # type: ignore[attr-defined]
    return made
