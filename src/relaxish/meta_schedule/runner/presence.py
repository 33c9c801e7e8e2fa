"""Whether there is a device to measure on, asked once before a search and not by every candidate's failure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...support.errors import RelaxishError
from ...target import Target
from .local_runner import _HOST_KINDS, LocalRunner, _provider_of

if TYPE_CHECKING:
    from . import Runner

__all__ = ["require_devices"]


def require_devices(runner: Runner, targets: Iterable[Target | None]) -> None:
    """Raise RelaxishError for a target whose devices the local runner was to measure on and cannot find.

    Runners of other classes, and those with hooks of the caller's own, know for themselves.
    """
    if type(runner) is not LocalRunner or any(runner.hooks):
        return
    for kind in dict.fromkeys(target.kind.name for target in targets if target is not None):
        if kind in _HOST_KINDS or runner.count_devices(_provider_of(kind)):
            continue
        other = "RELAXISH_CUDA_PROVIDER=emulator or =null to search without one, or " if kind == "cuda" else ""
        raise RelaxishError(
            f"there is no {kind} device here to measure candidates on; use {other}an RPCRunner for a machine that has one"
        )
