"""The measuring pool of a cluster: one actor that finds devices, starts a measuring process on each, and shares them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ...support.errors import MissingExtraError, RelaxishError
from ..arg_info import ArgInfo
from ..runner.runner import RunnerResult
from .dispatcher import Device, DeviceLostError, Dispatcher, Job, Measurement
from .measuring import MeasuringProcess

__all__ = ["KIND_LABEL", "NAMESPACE", "Pool", "PoolSettings", "connect", "find_pool", "pool_statuses", "ray_module"]

#: The label of a node that says which kind of device it has.
KIND_LABEL = "relaxish.device-kind"
NAMESPACE = "relaxish"
_LOOK_EVERY = 1.0
# Longer than a measurement's own time limit: then the process or its node hangs.
_GRACE = 15.0
_START = 330.0


def ray_module(feature: str = "a measuring pool of kind ray") -> ModuleType:
    """The package. Raises MissingExtraError where it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise MissingExtraError("ray", "ray", feature) from None


def connect(address: str | None) -> ModuleType:
    """Ray, connected to a cluster: the one of ``address``, else the one that Ray finds, else one of this machine alone."""
    ray = ray_module()
    if not ray.is_initialized():
        try:
            ray.init(address=address, namespace=NAMESPACE, ignore_reinit_error=True, log_to_driver=False)
        except Exception as err:
            raise RelaxishError(
                f"the cluster {address!r} cannot be reached: {' '.join(str(err).split())[:300]}"
            ) from None
    return ray


@dataclass(frozen=True)
class PoolSettings:
    """Devices of a pool, and its limits.

    ``device_kind`` is what nodes are labelled with (``relaxish.device-kind``) or the type of accelerator that Ray sees;
    None takes nodes of every label. ``cores`` is how many processors a device of the processor has; ``gpu`` asks for GPUs.
    ``fingerprint`` restricts it to one processor; without, the first device decides, so that times are compared only where
    they can be.
    """

    device_kind: str | None = None
    cores: int = 1
    gpu: bool = False
    fingerprint: str | None = None
    timeout_sec: float = 30.0
    noise_limit: float = 1.25
    idle_sec: float = 60.0

    @property
    def name(self) -> str:
        """The name of the pool's actor: drivers with the same settings share it."""
        return f"relaxish-pool:{self.device_kind or 'any'}:{'gpu' if self.gpu else 'cpu'}:{self.cores}"


def find_pool(ray: Any, settings: PoolSettings) -> Any:
    """The actor of a pool, started on the cluster's head node if it is not there."""
    made = ray.remote(Pool).options(
        name=settings.name, namespace=NAMESPACE, get_if_exists=True, lifetime="detached", num_cpus=0, max_concurrency=10_000,
        max_restarts=0, resources={"node:__internal_head__": 0.001},
    )  # fmt: skip
    return made.remote(settings)


def pool_statuses(address: str | None) -> list[dict[str, Any]]:
    """Status of the measuring pools of a cluster, one entry each: devices, queues, counts."""
    ray = connect(address)
    names = [item["name"] for item in ray.util.list_named_actors(all_namespaces=True) if item["namespace"] == NAMESPACE]
    pools = [(name, ray.get_actor(name, namespace=NAMESPACE)) for name in names if name.startswith("relaxish-pool:")]
    return [{"name": name, **ray.get(actor.status.remote(), timeout=10)} for name, actor in pools]


class Pool:
    """The actor. Its methods are coroutines of one event loop, so that nothing here needs a lock."""

    def __init__(self, settings: PoolSettings) -> None:
        self.settings = settings
        self.fingerprint = settings.fingerprint
        self._ray: Any = ray_module()
        self._dispatcher = Dispatcher(self._measure_on, noise_limit=settings.noise_limit, lost=self._end)
        self._actors: dict[str, Any] = {}
        self._starting: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._tenants: dict[str, float] = {}
        self._last_asked = time.monotonic()
        self._watch: asyncio.Task[None] | None = None

    # ---- what runners call

    async def join(self, tenant: str, weight: float) -> tuple[int, list[str]]:
        """A tuner begins, or comes back; how many devices there are for it, and how the cluster's nodes are labelled."""
        self._tenants[tenant] = weight
        self._dispatcher.weigh(tenant, weight)
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._look_after())
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        labels = {kind for node in nodes for kind in self._kinds_of(node)}
        return sum(self._devices_of(node) for node in nodes), sorted(labels)

    async def measure(
        self, tenant: str, key: str, artifact: bytes, device_type: str, args: list[ArgInfo], config: tuple[Any, ...]
    ) -> RunnerResult:
        """Measure a program when its turn has come."""
        self._last_asked = time.monotonic()
        found = self._dispatcher.submit(tenant, key, (artifact, device_type, args, config))
        # A driver that is killed must not take the measurement with it.
        result = await asyncio.shield(found)
        self._last_asked = time.monotonic()
        return result

    async def claim(self, tenant: str, keys: Sequence[str]) -> None:
        """The driver has these results."""
        for key in keys:
            self._dispatcher.claim(tenant, key)

    async def leave(self, tenant: str) -> bool:
        """A tuner is done; whether it was the last one."""
        self._tenants.pop(tenant, None)
        return not self._tenants and not self._dispatcher.running and not self._dispatcher.waiting

    async def status(self) -> dict[str, Any]:
        """Status of the pool for the dashboard."""
        d = self._dispatcher
        return {
            "devices": [
                {"name": x.name, "node": x.node, "measured": d.on_device[x.name], "noise": d.noise.get(x.name, 1.0),
                 "busy": x.name in d._serving, **x.about}
                for x in d.devices.values()
            ],
            "refused": dict(self._refused), "waiting": d.waiting, "running": d.running, "counts": dict(d.counts),
            "tenants": {name: t.weight for name, t in d.tenants.items()}, "fingerprint": self.fingerprint,
        }  # fmt: skip

    async def close(self) -> None:
        """End every measuring process."""
        if self._watch is not None:
            self._watch.cancel()
        for name in list(self._dispatcher.devices):
            self._dispatcher.remove(name)

    # ---- devices

    async def _look_after(self) -> None:
        """Find nodes that have come; end when nobody has asked for anything for a while."""
        while True:
            with contextlib.suppress(Exception):  # the cluster's directory may be away for a moment
                self._look()
            await asyncio.sleep(_LOOK_EVERY)
            quiet = not self._dispatcher.running and not self._dispatcher.waiting
            if quiet and time.monotonic() - self._last_asked > self.settings.idle_sec:
                for name in list(self._dispatcher.devices):
                    self._dispatcher.remove(name)
                os._exit(0)  # the one way to end an actor from its own loop

    def _look(self) -> None:
        alive = {str(node["NodeID"]): node for node in self._ray.nodes() if node["Alive"]}
        for name, device in list(self._dispatcher.devices.items()):
            if device.node not in alive and name not in self._dispatcher._serving:
                self._dispatcher.remove(name)
        for node_id, node in alive.items():
            for number in range(self._devices_of(node)):
                name = f"{node_id[:8]}/{number}"
                if name not in self._dispatcher.devices and name not in self._starting and name not in self._refused:
                    self._starting[name] = node_id
                    asyncio.get_running_loop().create_task(self._start(name, node_id, number))

    def _devices_of(self, node: dict[str, Any]) -> int:
        """How many devices a node has for this pool."""
        resources = node.get("Resources", {})
        wanted = self.settings.device_kind
        if wanted is not None and wanted.lower() not in {kind.lower() for kind in self._kinds_of(node)}:
            return 0
        if self.settings.gpu:
            return int(resources.get("GPU", 0))
        # One processor of a node that has several is left for builds and for Ray itself.
        free = int(resources.get("CPU", 0))
        return max(int(free >= 1), (free - 1) // self.settings.cores) if free >= self.settings.cores else 0

    @staticmethod
    def _kinds_of(node: dict[str, Any]) -> set[str]:
        """What a node is labelled with, and the accelerators that Ray found in it."""
        labels = node.get("Labels", {}) or {}
        found = {str(labels.get(KIND_LABEL, "")), str(labels.get("ray.io/accelerator-type", ""))}
        found |= {key.partition(":")[2] for key in node.get("Resources", {}) if key.startswith("accelerator_type:")}
        return found - {""}

    async def _start(self, name: str, node_id: str, number: int) -> None:
        ray, settings = self._ray, self.settings
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
        actor = ray.remote(MeasuringProcess).options(
            num_cpus=0 if settings.gpu else settings.cores, num_gpus=int(settings.gpu), scheduling_strategy=strategy, max_restarts=0,
        ).remote(number, settings.cores, settings.timeout_sec)  # fmt: skip
        try:
            about = await asyncio.wait_for(_awaited(actor.describe.remote()), _START)
        except Exception:  # a node that goes again, or has no room: it is looked for again
            _kill(ray, actor)
            self._starting.pop(name, None)
            return
        self._starting.pop(name, None)
        if self.fingerprint is None:
            self.fingerprint = about["fingerprint"]
        if about["fingerprint"] != self.fingerprint:
            self._refused[name] = f"{about['fingerprint']} is not {self.fingerprint}: times could not be compared"
            _kill(ray, actor)
            return
        self._actors[name] = actor
        self._dispatcher.add(Device(name, node_id, about))

    def _end(self, device: Device) -> None:
        actor = self._actors.pop(device.name, None)
        if actor is not None:
            _kill(self._ray, actor)

    async def _measure_on(self, device: Device, job: Job) -> Measurement:
        actor = self._actors.get(device.name)
        if actor is None:
            raise DeviceLostError(f"{device.name} was taken away")
        reference = actor.measure.remote(*job.payload)
        try:
            found: Measurement = await asyncio.wait_for(_awaited(reference), self.settings.timeout_sec + _GRACE)
            return found
        except (asyncio.TimeoutError, self._ray.exceptions.RayActorError, self._ray.exceptions.NodeDiedError) as err:
            raise DeviceLostError(f"{type(err).__name__}: {' '.join(str(err).split())[:200]}") from None
        except self._ray.exceptions.RayTaskError:
            raise  # the candidate's own
        except self._ray.exceptions.RayError as err:  # the object or the worker is gone
            raise DeviceLostError(f"{type(err).__name__}: {' '.join(str(err).split())[:200]}") from None


async def _awaited(reference: Any) -> Any:
    return await reference


def _kill(ray: Any, actor: Any) -> None:
    with contextlib.suppress(Exception):
        ray.kill(actor)
