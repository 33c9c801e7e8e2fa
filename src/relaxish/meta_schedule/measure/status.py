"""Status of a measured candidate, as a kind rather than as a text."""

from __future__ import annotations

import enum

__all__ = ["MeasureStatus", "reason_of", "status_of_task"]


class MeasureStatus(enum.Enum):
    """Outcome of the measurement of one candidate.

    The value is what files say (``"build_timeout"``). Every status but ``OK`` comes with a text that says more.
    """

    OK = "ok"
    #: The candidate's program could not be made: a decision that does not fit, a template that raised.
    INSTANTIATION = "instantiation"
    #: The compiler refused the program, or raised.
    COMPILE = "compile"
    BUILD_TIMEOUT = "build_timeout"
    RUN_TIMEOUT = "run_timeout"
    #: The program ran and reported an error, or there was nothing to run it on.
    RUNTIME = "runtime"
    #: The process that built or ran it died.
    CRASH = "crash"
    OUT_OF_MEMORY = "out_of_memory"
    #: It computes something else than it should.
    WRONG_ANSWER = "wrong_answer"
    #: It was not tried: the device's limits forbid it, or the caller said so.
    SKIPPED = "skipped"

    @property
    def ok(self) -> bool:
        """Whether there are times."""
        return self is MeasureStatus.OK

    @property
    def timed_out(self) -> bool:
        """Whether building or running took too long."""
        return self in (MeasureStatus.BUILD_TIMEOUT, MeasureStatus.RUN_TIMEOUT)

    @staticmethod
    def parse(value: str | None) -> MeasureStatus | None:
        """The status of that value; None for what is none, as files of other versions may say.

        >>> MeasureStatus.parse("crash"), MeasureStatus.parse("sunny")
        (<MeasureStatus.CRASH: 'crash'>, None)
        """
        try:
            return MeasureStatus(value)
        except ValueError:
            return None


_TASK = {"ok": MeasureStatus.OK, "crash": MeasureStatus.CRASH, "oom": MeasureStatus.OUT_OF_MEMORY}


def status_of_task(status: str, *, building: bool) -> MeasureStatus:
    """Candidate's status for the end of a worker's task (``TaskResult.status``) that built or ran it."""
    if status == "timeout":
        return MeasureStatus.BUILD_TIMEOUT if building else MeasureStatus.RUN_TIMEOUT
    return _TASK.get(status, MeasureStatus.COMPILE if building else MeasureStatus.RUNTIME)


def reason_of(status: str, words: str, seconds: float) -> str:
    """Why a worker's task gave no result, for the message of the candidate: in ``words``, after ``seconds``.

    >>> reason_of("timeout", "time limit of 1 s exceeded", 1.0)
    'Timeout, killed after 1 seconds: time limit of 1 s exceeded'
    """
    if status == "timeout":
        return f"Timeout, killed after {seconds:.3g} seconds: {words}"
    return f"An exception occurred\n{words}" if status == "error" else f"{status}: {words}"
