"""One fuzz case: a program, a schedule, and what must hold of both."""

from __future__ import annotations

import functools
import traceback
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from ...ir.node import Node
from ...tir import ForKind, PrimFunc
from ...tir.analysis import verify_well_formed
from ...tir.schedule import Schedule, Trace
from ...tir.schedule.testing import verify_trace_roundtrip
from .child import in_child
from .programs import random_program
from .steps import random_schedule

__all__ = ["Case", "Failure", "check_case", "check_program", "make_case", "parse", "warm_up"]


@dataclass
class Case:
    """A program as text, the trace of its schedule, and the number both were made from."""

    number: int
    program: str
    trace: Trace = field(default_factory=Trace)
    steps: list[str] = field(default_factory=list)


@dataclass
class Failure:
    """Failure of a case: its ``stage`` and the reason."""

    case: Case
    stage: str
    reason: str

    def __str__(self) -> str:
        lines = "\n".join(self.case.trace.as_python())
        return f"case {self.case.number} fails at '{self.stage}': {self.reason}\n{self.case.program}\n{lines}"


@functools.lru_cache(maxsize=1)
def parse(program: str) -> PrimFunc:
    """The function that the text of a program defines."""
    from ...script import from_source

    made = from_source(program)
    assert isinstance(made, PrimFunc)
    return made


def make_case(number: int, steps: int = 12) -> tuple[Case, Schedule | None, Failure | None]:
    """Case ``number``: its schedule, or the failure of a primitive that raised what none may raise."""
    rng = Random(number)
    case = Case(number, random_program(rng))
    sch = Schedule(parse(case.program), seed=number % 2147483646 + 1, debug_mask="all")
    try:
        case.steps = random_schedule(sch, rng, steps)
    except Exception as err:  # whatever a primitive raises but ScheduleError is what we are looking for
        assert sch.trace is not None
        case.trace = sch.trace.simplified(remove_postproc=False)
        where = traceback.extract_tb(err.__traceback__)
        step = next(
            f.name
            for f in where
            if f.filename.endswith("steps.py") and f.name not in ("random_schedule", "_took_effect")
        )
        at = f"{where[-1].filename}:{where[-1].lineno}"
        return case, None, Failure(case, "schedule", f"{step}: {type(err).__name__}: {err} ({at})")
    assert sch.trace is not None
    case.trace = sch.trace.simplified(remove_postproc=False)
    return case, sch, None


def _arguments(func: PrimFunc, seed: int) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    buffers = [func.buffer_map[p] for p in func.params]
    return [rng.integers(-3, 4, _shape(b)).astype(b.dtype) for b in buffers]


def _shape(buffer: Any) -> list[int]:
    return [int(d) for d in buffer.shape]


def _is_for_devices(func: PrimFunc) -> bool:
    """Whether a program has threads or memory of more dimensions than one: nothing a CPU has."""
    from ...tir.functor import post_order_visit

    found = []

    def look(node: Node) -> None:
        buffer = getattr(node, "buffer", None)
        if getattr(node, "kind", None) == ForKind.THREAD_BINDING or getattr(buffer, "axis_separators", ()):
            found.append(node)

    post_order_visit(func.body, look)
    return bool(found)


def _differs(expected: list[Any], actual: list[Any]) -> str | None:
    for position, (a, b) in enumerate(zip(expected, actual, strict=True)):
        if not np.allclose(a, b, rtol=1e-4, atol=1e-3, equal_nan=True):
            worst = float(np.nanmax(np.abs(a.astype("float64") - b.astype("float64"))))
            return f"argument {position} differs by up to {worst:g}"
    return None


def check_program(before: PrimFunc, after: PrimFunc, seed: int = 0, *, apart: bool = True) -> tuple[str, str] | None:
    """(stage, reason) if the two compute different things, or compiling the second does not give what it means.

    What is compiled runs in a child process unless ``apart`` is false: for callers that are one.
    """
    from ... import interp

    arguments = _arguments(before, seed)
    expected = [a.copy() for a in arguments]
    interp.run_primfunc(before, *expected)
    actual = [a.copy() for a in arguments]
    try:
        verify_well_formed(after)
        interp.run_primfunc(after, *actual)
    except Exception as err:  # an invalid program may fail in any way
        return "interpret", f"{type(err).__name__}: {err}"
    why = _differs(expected, actual)
    if why:
        return "interpret", why
    if _is_for_devices(after):
        return None
    if not apart:
        why = _compiled(after, arguments, expected)
    else:
        warm_up()
        why = in_child(lambda: _compiled(after, arguments, expected))
    return ("compile", why) if why else None


@functools.cache
def warm_up() -> None:
    """Load the compiler once, here, instead of in every child."""
    from ...driver import build_tir

    build_tir(parse(random_program(Random(0))), "llvm")


def _compiled(func: PrimFunc, arguments: list[Any], expected: list[Any]) -> str | None:
    """How the compiled function differs from what is expected, None if it does not."""
    from ...driver import build_tir
    from ...runtime import nd

    try:
        run = build_tir(func, "llvm")
        arrays = [nd.array(a) for a in arguments]
        run(*arrays)
    except Exception as err:  # the compiler may fail in any way
        return f"{type(err).__name__}: {err}"
    return _differs(expected, [a.numpy() for a in arrays])


def check_case(case: Case, sch: Schedule, *, apart: bool = True) -> Failure | None:
    """Description of a case's failure, None if all is well; ``apart`` as for :func:`check_program`."""
    before = parse(case.program)
    found = check_program(before, sch.mod["main"], case.number, apart=apart)
    if found is not None:
        return Failure(case, *found)
    try:
        verify_trace_roundtrip(sch, before)
    except Exception as err:  # replay may fail in any way
        return Failure(case, "replay", f"{type(err).__name__}: {err}")
    return None
