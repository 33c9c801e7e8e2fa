"""Assignment of measurements to devices: fair shares, retries, and the exclusion of nodes that die or are noisy.

Nothing here knows of Ray: a device is a name and a node, and how a job runs on it is a coroutine that the pool gives. Tests
put sixty-four simulated devices in its place.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ..measure.status import MeasureStatus
from ..runner.runner import RunnerResult

__all__ = ["Device", "DeviceLostError", "Dispatcher", "Job", "Measurement"]

#: A candidate that took so many nodes with it is not given another one.
DEADLY = 2
#: So often a result from a noisy moment is measured anew.
REMEASURED = 2
_KEPT = 4096


class DeviceLostError(Exception):
    """The node or the process that measured is gone, or does not answer."""


@dataclass(frozen=True)
class Device:
    """Device that measures one program at a time: ``name`` is its own, ``node`` the machine's."""

    name: str
    node: str
    about: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)


@dataclass(frozen=True)
class Measurement:
    """Measurement by a device: the result, and the slowdown of the reference kernel around it relative to its best (1:
    quiet)."""

    result: RunnerResult
    noise: float = 1.0


@dataclass(eq=False)
class Job:
    """A program to be measured for a ``tenant``; ``key`` names it, so that a driver that comes back finds its result."""

    key: str
    tenant: str
    payload: Any
    result: asyncio.Future[RunnerResult]
    lost: list[str] = field(default_factory=list)
    noisy: list[tuple[float, str, RunnerResult]] = field(default_factory=list)

    def avoids(self) -> set[str]:
        """Nodes that it should not be given again."""
        return {*self.lost, *(node for _, node, _ in self.noisy)}


@dataclass
class _Tenant:
    weight: float
    jobs: collections.deque[Job] = field(default_factory=collections.deque)
    # Seconds of devices used, over the weight.
    used: float = 0.0


class Dispatcher:
    """Gives jobs to devices, each one at a time.

    ``run(device, job)`` measures; it raises :class:`DeviceLostError` when the device is gone. Tenants get device time in
    proportion to their weights. A job whose device is lost is tried once more, on another node if there is one; a second
    loss is the candidate's doing. A result whose noise is above ``noise_limit`` is measured again on another node, at most
    twice, and the quietest counts. ``lost(device)`` is called for each device that is given up.
    """

    def __init__(
        self,
        run: Callable[[Device, Job], Awaitable[Measurement]],
        *,
        noise_limit: float = 1.25,
        lost: Callable[[Device], None] | None = None,
    ) -> None:
        self._run = run
        self._lost = lost
        self.noise_limit = noise_limit
        self.tenants: dict[str, _Tenant] = {}
        self.devices: dict[str, Device] = {}
        self._idle: dict[str, Device] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._jobs: dict[tuple[str, str], Job] = {}
        self._finished: collections.deque[tuple[str, str]] = collections.deque()
        self.counts: collections.Counter[str] = collections.Counter()
        self.on_device: collections.Counter[str] = collections.Counter()
        self.noise: dict[str, float] = {}

    # ---- devices

    def add(self, device: Device) -> None:
        """A device has come."""
        if device.name not in self.devices:
            self.devices[device.name] = self._idle[device.name] = device
            self._go()

    def remove(self, name: str) -> None:
        """A device is taken away; what it measures is measured elsewhere."""
        device = self.devices.pop(name, None)
        self._idle.pop(name, None)
        if device is not None and self._lost is not None:
            self._lost(device)
        self._go()

    # ---- jobs

    def weigh(self, tenant: str, weight: float) -> None:
        """The share of a tenant. One that comes anew has no claim on time that has passed."""
        known = self.tenants.get(tenant)
        if known is None:
            busy = [t.used for t in self.tenants.values() if t.jobs]
            self.tenants[tenant] = _Tenant(
                weight, used=min(busy, default=max((t.used for t in self.tenants.values()), default=0.0))
            )
        else:
            known.weight = weight

    def submit(self, tenant: str, key: str, payload: Any) -> asyncio.Future[RunnerResult]:
        """Queue a job; one of the same tenant and key that is queued, runs, or was not claimed yet is not done twice."""
        known = self._jobs.get((tenant, key))
        if known is not None:
            self.counts["found"] += 1
            return known.result
        if tenant not in self.tenants:
            self.weigh(tenant, 1.0)
        job = Job(key, tenant, payload, asyncio.get_running_loop().create_future())
        self._jobs[tenant, key] = job
        owner = self.tenants[tenant]
        if not owner.jobs:  # whoever was away does not catch up
            owner.used = max(owner.used, min((t.used for t in self.tenants.values() if t.jobs), default=owner.used))
        owner.jobs.append(job)
        self._go()
        return job.result

    def claim(self, tenant: str, key: str) -> None:
        """The result has been written down: it need not be kept."""
        job = self._jobs.get((tenant, key))
        if job is not None and job.result.done():
            del self._jobs[tenant, key]

    @property
    def waiting(self) -> int:
        """Jobs that no device has yet."""
        return sum(len(t.jobs) for t in self.tenants.values())

    @property
    def running(self) -> int:
        """Jobs that a device works on."""
        return len(self._serving)

    def _go(self) -> None:
        """Give jobs to idle devices."""
        for device in list(self._idle.values()):
            job = self._next_for(device)
            if job is not None:
                del self._idle[device.name]
                task = asyncio.get_running_loop().create_task(self._serve(device, job))
                self._serving[device.name] = task

    def _next_for(self, device: Device) -> Job | None:
        """The first job, of the tenant that has used least, that may run there."""
        for tenant in sorted((t for t in self.tenants.values() if t.jobs), key=lambda t: t.used):
            for job in itertools.islice(tenant.jobs, 64):
                if self._may_run(job, device):
                    tenant.jobs.remove(job)
                    return job
        return None

    def _may_run(self, job: Job, device: Device) -> bool:
        """Whether no device of another node would do better for a job that was in trouble here."""
        avoided = job.avoids()
        return device.node not in avoided or all(d.node in avoided for d in self.devices.values())

    async def _serve(self, device: Device, job: Job) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            measured = await self._run(device, job)
        except DeviceLostError as err:
            self.counts["lost"] += 1
            self._serving.pop(device.name, None)
            self._gone(job, device, str(err))
            self.remove(device.name)
            return
        except Exception as err:  # what goes wrong elsewhere is this candidate's result
            measured = Measurement(RunnerResult(None, f"RayRunner: {err}", MeasureStatus.RUNTIME))
        self._serving.pop(device.name, None)
        tenant = self.tenants[job.tenant]
        tenant.used += (loop.time() - began) / tenant.weight
        self.on_device[device.name] += 1
        self.noise[device.name] = measured.noise
        if device.name in self.devices:
            self._idle[device.name] = device
        self._take(job, device, measured)
        self._go()

    def _gone(self, job: Job, device: Device, why: str) -> None:
        job.lost.append(device.node)
        if len(job.lost) < DEADLY:
            self.counts["retried"] += 1
            self.tenants[job.tenant].jobs.appendleft(job)
            return
        text = f"RayRunner: it took {len(job.lost)} measuring nodes with it ({', '.join(job.lost)}): {why}"
        self._finish(job, RunnerResult(None, text, MeasureStatus.CRASH))

    def _take(self, job: Job, device: Device, measured: Measurement) -> None:
        """Accept a result, or have it measured on another node if the moment was a noisy one."""
        result = measured.result
        elsewhere = any(d.node not in {*job.avoids(), device.node} for d in self.devices.values())
        if measured.noise > self.noise_limit and result.run_secs:
            job.noisy.append((measured.noise, device.node, result))
            if len(job.noisy) <= REMEASURED and elsewhere:
                self.counts["remeasured"] += 1
                self.tenants[job.tenant].jobs.appendleft(job)
                return
            result = min(job.noisy, key=lambda item: item[0])[2]
        self._finish(job, result)

    def _finish(self, job: Job, result: RunnerResult) -> None:
        self.counts["finished"] += 1
        if not job.result.done():
            job.result.set_result(result)
        self._finished.append((job.tenant, job.key))
        if len(self._finished) > _KEPT:
            self.claim(*self._finished.popleft())
