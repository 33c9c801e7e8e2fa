"""Builders: from scheduled modules to artifacts a runner can load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir import IRModule
from ...support.entry_points import load
from ...target import Target
from ..measure.status import MeasureStatus
from ..utils import MethodNotDefinedError

__all__ = ["Builder", "BuilderFuture", "BuilderInput", "BuilderResult", "PyBuilder"]


@dataclass
class BuilderInput:
    """A module to build, its target, and optional bound parameters."""

    mod: IRModule
    target: Target
    params: dict[str, Any] | None = None


@dataclass
class BuilderResult:
    """The artifact (a path, or the code itself as bytes) or the reason there is none.

    ``status`` is the kind of that reason, ``COMPILE`` where only a text is given; ``seconds`` what building took.
    """

    artifact_path: str | bytes | None
    error_msg: str | None = None
    status: MeasureStatus | None = field(default=None, compare=False)
    seconds: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        if self.status is None:
            self.status = MeasureStatus.COMPILE if self.error_msg else MeasureStatus.OK


class BuilderFuture:
    """A build that will be done later; ``f_result`` waits for it."""

    def __init__(self, f_done: Callable[[], bool], f_result: Callable[[], BuilderResult]) -> None:
        self.done = f_done
        self.result = f_result


class Builder:
    """Subclass and define ``build(inputs) -> results``, one result per input, never raising for one bad input."""

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Build a batch."""
        raise MethodNotDefinedError(self, "build")

    def start(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderFuture]:
        """Begin to build a batch, one future for each input; this default builds all of it before it returns."""
        return [_finished(result) for result in self.build(build_inputs)]

    @property
    def streams(self) -> bool:
        """Whether :meth:`start` returns at once, so that inputs are best given as they come."""
        return False

    @staticmethod
    def create(kind: str = "local", *args: Any, **kwargs: Any) -> Builder:
        """``local`` or ``ray``."""
        if kind == "local":
            from .local_builder import LocalBuilder

            return LocalBuilder(*args, **kwargs)
        if kind == "ray":
            made: Builder = load("builder.ray")(*args, **kwargs)
            return made
        raise ValueError(f"unknown builder {kind!r}; expected 'local' or 'ray'")


def _finished(result: BuilderResult) -> BuilderFuture:
    return BuilderFuture(lambda: True, lambda: result)


PyBuilder = Builder
