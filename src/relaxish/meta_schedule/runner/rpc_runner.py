"""Measures candidates on other machines: servers of one key at a tracker, as many at a time as there are."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any, NamedTuple

from ...runtime import Device, rpc
from ..arg_info import ArgInfo
from ..builder.artifact import export_kernels, unpacked
from ..builder.device_artifact import DeviceArtifact
from ..builder.interpreted import InterpretedArtifact
from ..measure.status import MeasureStatus
from ..utils import get_global_func_with_default_on_worker, Hook
from . import steps
from .runner import EvaluatorConfig, Runner, RunnerFuture, RunnerInput, RunnerResult
from .steps import T_ARG_INFO_JSON_OBJ_LIST, T_ARGUMENT_LIST, device_module

__all__ = [
    "RPCConfig", "RPCRunner", "RPCRunnerFuture", "T_ARGUMENT_LIST", "T_ARG_INFO_JSON_OBJ_LIST", "default_alloc_argument",
    "default_cleanup", "default_create_session", "default_run_evaluator", "default_upload_module",
]  # fmt: skip


# A server's clock and ours need not begin at the same moment.
_ALMOST = 0.9


class RPCConfig(NamedTuple):
    """Configuration of RPC measurements: the tracker's address, the servers' key, the priority of requests, and the
    time limit of a measurement in seconds."""

    tracker_host: str | None = None
    tracker_port: int | None = None
    tracker_key: str | None = None
    session_priority: int = 1
    session_timeout_sec: int = 10

    @staticmethod
    def _normalized(config: RPCConfig | None) -> RPCConfig:
        """The configuration, if it names tracker and key. Raises ValueError if it does not."""
        made = RPCConfig() if config is None else RPCConfig(*config)
        missing = [n for n in ("tracker_host", "tracker_port", "tracker_key") if getattr(made, n) is None]
        if missing:
            raise ValueError(f"RPCConfig lacks {', '.join(missing)}")
        return made

    def connect_tracker(self) -> rpc.TrackerSession:
        """A connection to the tracker. Raises RPCError if there is none."""
        assert self.tracker_host is not None and self.tracker_port is not None
        return rpc.connect_tracker(self.tracker_host, int(self.tracker_port))

    def count_num_servers(self, allow_missing: bool = True) -> int:
        """Number of servers with the key. Raises RuntimeError if there are none, unless that is allowed."""
        tracker = self.connect_tracker()
        try:
            servers = tracker.summary()["server_info"]
        finally:
            tracker.close()
        count = sum(1 for s in servers if s["key"] == f"server:{self.tracker_key}")
        if not count and not allow_missing:
            raise RuntimeError(f"no server with the key {self.tracker_key!r} is registered at the tracker")
        return count

    def connect_server(self) -> rpc.RPCSession:
        """A session with a server, as soon as one is free."""
        tracker = self.connect_tracker()
        try:
            assert self.tracker_key is not None
            return tracker.request(self.tracker_key, self.session_priority, self.session_timeout_sec)
        finally:
            tracker.close()


class RPCRunnerFuture(RunnerFuture):
    """The result of one measurement elsewhere."""

    def __init__(self, future: Future[tuple[list[float], float]], timeout_sec: float) -> None:
        super().__init__()
        self._future = future
        self._timeout_sec = timeout_sec

    def done(self) -> bool:
        return self._future.done()

    def on_done(self, callback: Callable[[RunnerResult], None]) -> bool:
        self._future.add_done_callback(lambda _: callback(self.result()))
        return True

    def result(self) -> RunnerResult:
        try:
            times, seconds = self._future.result()
            return RunnerResult(times, None, MeasureStatus.OK, seconds)
        except (TimeoutError, FutureTimeout):
            reason = f"RPCRunner: Timeout, killed after {self._timeout_sec} seconds"
            return RunnerResult(None, reason, MeasureStatus.RUN_TIMEOUT, self._timeout_sec)
        # Whatever goes wrong elsewhere is this candidate's result.
        except Exception as error:
            status = MeasureStatus.CRASH if isinstance(error, EOFError) else MeasureStatus.RUNTIME
            return RunnerResult(None, f"RPCRunner: An exception occurred\n{error}", status)


class RPCRunner(Runner):
    """Each candidate is uploaded to a server, loaded, given arguments and timed there.

    The hooks (functions, or names of packed functions) take the place of a step: ``f_create_session(rpc_config)``,
    ``f_upload_module(session, local_path, remote_path)``, ``f_alloc_argument(session, device, args_info, alloc_repeat)``,
    ``f_run_evaluator(session, module, device, config, arguments)`` and ``f_cleanup(session, remote_path)``.
    """

    def __init__(
        self, rpc_config: RPCConfig | None = None, evaluator_config: EvaluatorConfig | None = None,
        cooldown_sec: float = 0.0, alloc_repeat: int = 1, f_create_session: Hook = None, f_upload_module: Hook = None,
        f_alloc_argument: Hook = None, f_run_evaluator: Hook = None, f_cleanup: Hook = None, max_workers: int | None = None,
        initializer: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.rpc_config = RPCConfig._normalized(rpc_config)
        self.evaluator_config = EvaluatorConfig._normalized(evaluator_config)
        self.cooldown_sec = cooldown_sec
        self.alloc_repeat = alloc_repeat
        found = (f_create_session, f_upload_module, f_alloc_argument, f_run_evaluator, f_cleanup)
        defaults: tuple[Hook, ...] = (
            default_create_session, default_upload_module, default_alloc_argument, default_run_evaluator, default_cleanup,
        )  # fmt: skip
        self._steps = [get_global_func_with_default_on_worker(f, d) for f, d in zip(found, defaults, strict=True)]
        workers = max_workers if max_workers is not None else self.rpc_config.count_num_servers(allow_missing=False)
        self._rest = threading.local()
        self.pool = ThreadPoolExecutor(max(1, workers), "rpc-runner", initializer or _nothing)

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        seconds = self.rpc_config.session_timeout_sec
        return [RPCRunnerFuture(self.pool.submit(self._measure, x), seconds) for x in runner_inputs]

    def _measure(self, x: RunnerInput) -> tuple[list[float], float]:
        """Seconds of every repeat, and of the whole measurement."""
        # The server rests between measurements; results are told before.
        time.sleep(max(0.0, getattr(self._rest, "until", 0.0) - time.perf_counter()))
        begin = time.perf_counter()
        create, upload, allocate, evaluate, clean_up = self._steps
        session = create(self.rpc_config)
        opened = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory(prefix="relaxish-rpc-runner-") as folder:
                local = _as_library(x.artifact_path, Path(folder))
                module = upload(session, str(local), local.name)
            device = session.device(x.device_type, 0)
            sets = allocate(session, device, x.args_info, self.alloc_repeat)
            times = [float(t) for t in evaluate(session, module, device, self.evaluator_config, sets)]
            clean_up(session, None)
        except rpc.RPCError as error:
            if getattr(session, "alive", True):
                raise
            # The server ends a session that takes too long; else what ran there ended its process.
            if time.perf_counter() - opened >= _ALMOST * self.rpc_config.session_timeout_sec > 0:
                raise TimeoutError from error
            raise EOFError(f"the session's process ended: {error}") from error
        finally:
            session.close()
            self._rest.until = time.perf_counter() + self.cooldown_sec
        return times, time.perf_counter() - begin


def _nothing() -> None:
    """No initializer."""


def _as_library(artifact: str | bytes, folder: Path) -> Path:
    """The artifact as a library with its manifest; an exported module stays as it is."""
    made = unpacked(artifact)
    if made is None:
        return Path(str(artifact))
    if isinstance(made, InterpretedArtifact):
        raise ValueError("a server runs compiled programs; what is interpreted is measured on this machine only")
    if not isinstance(made, DeviceArtifact):
        return export_kernels(made, folder)
    path = folder / "candidate.so"
    device_module(made).export_library(path)
    return path


def default_create_session(config: RPCConfig) -> rpc.RPCSession:
    return config.connect_server()


def default_upload_module(session: rpc.RPCSession, local_path: str, remote_path: str) -> rpc.RPCModule:
    session.upload(local_path, remote_path)
    return session.load_module(remote_path)


def default_alloc_argument(
    session: rpc.RPCSession, device: Device, args_info: Sequence[ArgInfo], alloc_repeat: int
) -> list[list[Any]]:
    return steps.default_alloc_argument(device, args_info, alloc_repeat)


def default_run_evaluator(
    session: rpc.RPCSession, module: rpc.RPCModule, device: Device, config: EvaluatorConfig, sets: list[list[Any]]
) -> list[float]:
    return steps.default_run_evaluator(module, device, config, sets)


def default_cleanup(session: rpc.RPCSession, remote_path: str | None) -> None:
    """The session's folder goes with it."""
