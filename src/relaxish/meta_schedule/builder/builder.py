"""Builders: from scheduled modules to artifacts a runner can load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...ir import IRModule
from ...target import Target

__all__ = ["Builder", "BuilderInput", "BuilderResult", "PyBuilder"]


@dataclass
class BuilderInput:
    """A module to build, its target, and optional bound parameters."""

    mod: IRModule
    target: Target
    params: dict[str, Any] | None = None


@dataclass
class BuilderResult:
    """The artifact (a path, or the code itself as bytes) or the reason there is none."""

    artifact_path: str | bytes | None
    error_msg: str | None = None


class Builder:
    """Subclass and define ``build(inputs) -> results``, one result per input, never raising for one bad input."""

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Build a batch."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str = "local", *args: Any, **kwargs: Any) -> Builder:
        """``local``."""
        if kind == "local":
            from .local_builder import LocalBuilder

            return LocalBuilder(*args, **kwargs)
        raise ValueError(f"unknown builder {kind!r}; expected 'local'")


PyBuilder = Builder
