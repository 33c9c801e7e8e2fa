"""Runner and builder on a Ray cluster."""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ...runtime.nvidia import providers
from ...support.errors import RelaxishError
from ..builder.builder import Builder, BuilderFuture, BuilderInput, BuilderResult
from ..measure.status import MeasureStatus
from ..runner.runner import EvaluatorConfig, Runner, RunnerFuture, RunnerInput, RunnerResult
from .measuring import build_candidate
from .pool import PoolSettings, connect, find_pool

__all__ = ["RayBuilder", "RayRunner", "StoredArtifact"]

_GPU_KINDS = ("cuda", "rocm", "opencl", "vulkan", "metal")


class StoredArtifact(bytes):
    """An artifact that the cluster's object store has already: ``reference`` names it there."""

    reference: Any = None


class _RayFuture(RunnerFuture):
    def __init__(self, future: Future[RunnerResult], claim: Callable[[], None]) -> None:
        super().__init__()
        self._future, self._claim = future, claim
        self._known: RunnerResult | None = None
        self._lock = threading.Lock()

    def done(self) -> bool:
        return self._future.done()

    def result(self) -> RunnerResult:
        with self._lock:
            if self._known is None:
                try:
                    self._known = self._future.result()
                except Exception as error:  # whatever goes wrong elsewhere is this candidate's result
                    text = " ".join(str(error).split())[:500]
                    self._known = RunnerResult(None, f"RayRunner: An exception occurred\n{text}", MeasureStatus.RUNTIME)
                self._claim()
            return self._known

    def on_done(self, callback: Callable[[RunnerResult], None]) -> bool:
        self._future.add_done_callback(lambda _: callback(self.result()))
        return True


class RayRunner(Runner):
    """Candidates are measured on the devices of a cluster: one process for each, pinned to cores of its own (or holding a
    GPU), one program at a time, nothing else of Ray beside it.

    ``address`` is that of the cluster (by default the one that Ray finds, else one of this machine alone), ``device_kind``
    the label of the nodes that measure (``relaxish.device-kind``, see ``docs/cluster.md``), ``cores`` the processors of one
    device, ``gpu`` whether candidates run on GPUs. Runners with the same settings share one pool by their ``weight``; ``name``
    is what a driver that was killed comes back as, and finds what was measured for it meanwhile.

    A candidate whose node dies is measured once more elsewhere; one that takes two nodes with it is recorded as crashing. A
    result measured while the reference kernel ran more than ``noise_limit`` times slower than ever is measured again on
    another node. Where there is no such device the first measurement waits ``wait_sec`` for one to come.

    Raises MissingExtraError where Ray is not installed, RelaxishError where the cluster cannot be reached or has no such
    device.
    """

    def __init__(
        self,
        address: str | None = None,
        evaluator_config: EvaluatorConfig | None = None,
        timeout_sec: float = 30.0,
        *,
        device_kind: str | None = None,
        cores: int = 1,
        gpu: bool = False,
        fingerprint: str | None = None,
        weight: float = 1.0,
        noise_limit: float = 1.25,
        name: str | None = None,
        idle_sec: float = 60.0,
        wait_sec: float = 30.0,
        max_workers: int | None = None,
    ) -> None:
        if not weight > 0:
            raise RelaxishError(f"the weight of a tuner is positive, not {weight}")
        self._ray: Any = connect(address)
        self.evaluator_config = EvaluatorConfig._normalized(evaluator_config)
        self.settings = PoolSettings(device_kind, cores, gpu, fingerprint, timeout_sec, noise_limit, idle_sec)
        self.name = name or f"{os.uname().nodename}-{os.getpid()}-{id(self):x}"
        self.weight = weight
        self.wait_sec = wait_sec
        self._actor: Any = None

    @property
    def pool(self) -> Any:
        """The pool's actor, asked for on first use."""
        if self._actor is None:
            actor = find_pool(self._ray, self.settings)
            until = time.monotonic() + self.wait_sec
            while not (found := self._ray.get(actor.join.remote(self.name, self.weight)))[0]:
                if time.monotonic() > until:
                    kind = (
                        f"labelled relaxish.device-kind={self.settings.device_kind}"
                        if self.settings.device_kind
                        else "free"
                    )
                    raise RelaxishError(
                        f"no {'GPU' if self.settings.gpu else 'processor'} of the cluster is {kind}; "
                        f"its nodes are labelled {', '.join(found[1]) or 'with nothing'}"
                    )
                time.sleep(0.5)
            self._actor = actor
        return self._actor

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        return [self._start(item) for item in runner_inputs]

    def _start(self, item: RunnerInput) -> RunnerFuture:
        artifact = item.artifact_path
        if not self.settings.gpu and item.device_type in _GPU_KINDS:
            text = f"RayRunner: the pool measures on processors, not on {item.device_type}; make it with gpu=True"
            return _over(RunnerResult(None, text, MeasureStatus.RUNTIME))
        if isinstance(artifact, str):
            try:  # a file of this machine is none on the others
                artifact = Path(artifact).read_bytes()
            except OSError as err:
                return _over(RunnerResult(None, f"RayRunner: {err.filename}: {err.strerror}", MeasureStatus.RUNTIME))
        reference = artifact.reference if isinstance(artifact, StoredArtifact) else None
        if reference is None:
            reference = self._ray.put(artifact)
        config = tuple(self.evaluator_config)
        shapes = repr([a.as_json() for a in item.args_info])
        key = hashlib.sha256(repr((item.device_type, shapes, config)).encode() + artifact).hexdigest()
        pool = self.pool
        answer = pool.measure.remote(self.name, key, reference, item.device_type, list(item.args_info), config)
        return _RayFuture(answer.future(), functools.partial(self._claim, key))

    def _claim(self, key: str) -> None:
        if self._actor is not None:
            self._actor.claim.remote(self.name, [key])

    def status(self) -> dict[str, Any]:
        """Devices, queues and counts of the pool."""
        found: dict[str, Any] = self._ray.get(self.pool.status.remote())
        return found

    def want(self, devices: int) -> None:
        """Tell an autoscaling cluster that so many devices are wanted."""
        sdk: Any = importlib.import_module("ray.autoscaler.sdk")
        bundle = {"GPU": 1} if self.settings.gpu else {"CPU": self.settings.cores}
        sdk.request_resources(bundles=[bundle] * devices)

    def shutdown(self) -> None:
        """Leave the pool; the last one to do so ends it."""
        if self._actor is None:
            return
        actor, self._actor = self._actor, None
        try:
            if self._ray.get(actor.leave.remote(self.name), timeout=10):
                self._ray.get(actor.close.remote(), timeout=10)
                self._ray.kill(actor)
        except Exception:  # the cluster may be gone before its users
            return


def _over(result: RunnerResult) -> RunnerFuture:
    return RunnerFuture(lambda: True, lambda: result)


class RayBuilder(Builder):
    """Candidates are built by tasks of a cluster, on any node with a free processor, in child processes that may crash.

    What is built stays in the object store, where the measuring processes find it. A build whose node dies is tried once
    more elsewhere.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        timeout_sec: float = 30.0,
        num_cpus: float = 1,
        max_workers: int | None = None,
    ) -> None:
        self._ray: Any = connect(address)
        self.timeout_sec = timeout_sec
        self._task = self._ray.remote(build_candidate).options(
            num_cpus=num_cpus, max_retries=1, retry_exceptions=False, num_returns=2
        )

    @property
    def streams(self) -> bool:
        return type(self).build is RayBuilder.build

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        return [future.result() for future in self.start(build_inputs)]

    def start(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderFuture]:
        futures = []
        for item in build_inputs:
            answers = self._task.remote(item.mod, item.target, item.params, self.timeout_sec, providers.chosen())
            futures.append(
                BuilderFuture(functools.partial(self._done, answers), functools.partial(self._result, answers))
            )
        return futures

    def _done(self, answers: Sequence[Any]) -> bool:
        return bool(self._ray.wait([answers[0]], timeout=0)[0])

    def _result(self, answers: Sequence[Any]) -> BuilderResult:
        try:
            built, artifact = self._ray.get(list(answers))
        except Exception as error:  # whatever goes wrong elsewhere is this candidate's result
            text = " ".join(str(error).split())[:500]
            return BuilderResult(None, f"RayBuilder: An exception occurred\n{text}", MeasureStatus.CRASH)
        result: BuilderResult = built
        if isinstance(artifact, bytes):
            stored = StoredArtifact(artifact)
            stored.reference = answers[1]
            result.artifact_path = stored
        return result
