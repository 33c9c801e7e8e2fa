"""Helpers for tests of schedules."""

from __future__ import annotations

from typing import Any, Literal

from ...ir.module import IRModule
from ...ir.structural import assert_structural_equal
from ..function import PrimFunc
from .schedule import Schedule

__all__ = ["assert_structural_equal_ignore_global_symbol", "verify_trace_roundtrip"]

TEXT_FORMATS = ("python", "json")


def assert_structural_equal_ignore_global_symbol(
    mod1: PrimFunc | IRModule, mod2: PrimFunc | IRModule, *args: Any, **kwargs: Any
) -> None:
    """Assert that two functions or modules are equal but for the names their functions are exported under."""
    assert_structural_equal(_anonymous(mod1), _anonymous(mod2), *args, **kwargs)


def _anonymous(value: PrimFunc | IRModule) -> PrimFunc | IRModule:
    if isinstance(value, PrimFunc):
        return value.with_attr("global_symbol", "main")
    functions = {
        gv: f.with_attr("global_symbol", "main") if isinstance(f, PrimFunc) else f for gv, f in value.functions.items()
    }
    return value.with_fields(functions=functions)


def verify_trace_roundtrip(
    sch: Schedule,
    mod: PrimFunc | IRModule,
    *,
    debug_mask: str | int = "all",
    text_format: Literal["python", "json"] | list[str] | tuple[str, ...] = TEXT_FORMATS,
) -> Schedule:
    """Replay the trace of ``sch`` on ``mod`` through text and JSON; each replay must give the program of ``sch``.

    Gives the schedule of the last replay.
    """
    assert sch.trace is not None, "an untraced schedule cannot be replayed"
    formats = [text_format] if isinstance(text_format, str) else list(text_format)
    replay = sch
    for name in formats:
        replay = Schedule(mod, debug_mask=debug_mask)
        if name == "json":
            sch.trace.apply_json_to_schedule(sch.trace.as_json(), replay)
        elif name == "python":
            sch.trace.apply_python_to_schedule(sch.trace.as_python(), replay)
        else:
            raise ValueError(f"unknown text format {name!r}")
        assert_structural_equal(replay.mod, sch.mod)
        assert replay.trace is not None
        assert replay.trace.as_python() == sch.trace.as_python()
    return replay
