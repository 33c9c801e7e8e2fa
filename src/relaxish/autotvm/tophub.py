"""Records that came with AutoTVM for common devices. This package downloads nothing: contexts are empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ..support.errors import RelaxishError
from ..support.log import get_logger
from ..target.target import Target
from .task import ApplyHistoryBest

__all__ = ["check_backend", "context", "download_package", "load_reference_log"]

_log = get_logger("autotvm")


def context(target: Target, extra_files: Sequence[str] | None = None) -> ApplyHistoryBest:
    """A context of the records in ``extra_files``; there are no others."""
    found = ApplyHistoryBest([])
    for path in extra_files or []:
        found.load(path)
    return found


def check_backend(tophub_location: Any, backend: str) -> bool:
    """Whether there are records for a backend: no."""
    _log.debug("no records for %s come with this package", backend)
    return False


def download_package(tophub_location: str, package_name: str) -> NoReturn:
    """Raise RelaxishError: records are files of the user's own."""
    raise RelaxishError(
        f"autotvm.tophub downloads nothing, {package_name} neither: fetch the file yourself and pass it to "
        "autotvm.tophub.context(target, extra_files=[path]) or autotvm.apply_history_best(path)"
    )


def load_reference_log(backend: str, model: str, workload_name: str) -> list[Any]:
    """The records for a device and a template: none, so that templates use their own defaults."""
    return []
