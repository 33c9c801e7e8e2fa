"""Random programs under random schedules: the interpreter and the compiler must agree on what they compute.

    python -m relaxish.testing.fuzz --seconds 120

The other fuzzers (``--kind onnx``, ``onnx-operator``, ``torch``, ``hostile``) have modules of their own here:
``differential``, ``onnx_operators``, ``torch_programs``, ``hostile``; ``kinds`` is the table, ``runner`` the loop around
all of them.

A case is a number: the same number always makes the same program and the same schedule.  Each case demands that the
interpreter gives the same arrays for the program before and after its schedule, that the compiled program gives them
too, that the scheduled program is well formed, and that its trace replays.  A failure is shrunk to the fewest schedule
steps that still fail and can be written out as a ready-made regression test.
"""

from __future__ import annotations

from .cases import Case, Failure, check_case, make_case
from .programs import random_program
from .runner import Finding, Report, fuzz
from .shrink import regression_test, shrink
from .steps import STEPS, random_schedule

__all__ = [
    "STEPS",
    "Case",
    "Failure",
    "Finding",
    "Report",
    "check_case",
    "fuzz",
    "make_case",
    "random_program",
    "random_schedule",
    "regression_test",
    "shrink",
]
