"""Whether a candidate computes what it should, asked before it is timed."""

from __future__ import annotations

from typing import Protocol

from ...ir import IRModule
from ...target import Target
from ..verdicts.judge import Judge, Verdict, shared_judge
from .status import MeasureStatus

__all__ = ["CheckFailedError", "ReferenceValidator", "Validator"]


class CheckFailedError(Exception):
    """Raised by a validator where a candidate cannot even be run: its ``status`` says how that ended."""

    def __init__(self, status: MeasureStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Validator(Protocol):
    """``check`` gives a verdict on a built candidate; one that is wrong gets no times."""

    def check(self, candidate: object, program: IRModule | None, artifact: str | bytes, target: Target) -> Verdict:
        """``valid`` False for a wrong answer; None where nothing could be found out, which lets it pass.

        What else it raises but CheckFailedError is a wrong answer, too.
        """


class ReferenceValidator:
    """Compares candidates with a program that is right, on random legal arguments in a process of its own."""

    def __init__(self, reference: IRModule, judge: Judge | None = None) -> None:
        self.reference = reference
        self._judge = judge

    def check(self, candidate: object, program: IRModule | None, artifact: str | bytes, target: Target) -> Verdict:
        """The judge's verdict; programs that were built elsewhere cannot be compared."""
        if program is None:
            return Verdict(None, "there is only its code")
        return (self._judge or shared_judge()).compare(self.reference, program, target)
