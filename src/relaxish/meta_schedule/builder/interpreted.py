"""Candidates that no compiler sees: the reference interpreter runs them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir import IRModule, load_json, save_json
from ...target import Target
from ..arg_info import entry_func

__all__ = ["InterpretedArtifact", "build_interpreted"]


@dataclass
class InterpretedArtifact:
    """A program as JSON text."""

    program: str

    def bind(self, arrays: Sequence[np.ndarray[Any, Any]]) -> Callable[[], int]:
        """A function that runs the program once on arrays, in place."""
        from ...interp import run_prim_func

        func, values = entry_func(load_json(self.program)), list(arrays)

        def run() -> int:
            run_prim_func(func, values)
            return 0

        return run


def build_interpreted(mod: IRModule, target: Target | None = None, params: object | None = None) -> bytes:
    """The module as an artifact that the interpreter runs: slow, but it needs no compiler."""
    return pickle.dumps(InterpretedArtifact(save_json(mod)))
