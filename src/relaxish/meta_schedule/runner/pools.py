"""The measuring pools of targets: which runner measures for which device.

``{"kind": "rpc", "tracker": "host:port", "key": "nano"}`` in a target's ``pool`` sends its candidates to the servers of a
tracker; of a composition each device has the pool that it or a level above names, and candidates find theirs by the kind of
their device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...runtime.nvidia import providers
from ...support.errors import RelaxishError
from ...target import Target
from .local_runner import LocalRunner
from .rpc_runner import RPCConfig, RPCRunner
from .runner import Runner, RunnerFuture, RunnerInput

__all__ = ["EmulatorRunner", "PooledRunner", "is_local", "runner_for_target", "runner_of_target"]

_LOCAL = {"kind": "local"}
_HOST = ("llvm", "c", "cpu")


class EmulatorRunner(LocalRunner):
    """Measures on this machine, CUDA kernels in the emulator."""

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        with providers.use("emulator"):
            return super().run(runner_inputs)

    def count_devices(self, provider: str) -> int:
        """The emulator has devices everywhere."""
        return max(1, super().count_devices(provider)) if provider == "emulator" else super().count_devices(provider)


class PooledRunner(Runner):
    """Gives each candidate to the runner of its kind of device."""

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        self.runners = dict(runners)

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """The results, in the order of the inputs. Raises RelaxishError for a kind of device that no pool is for."""
        futures: dict[int, RunnerFuture] = {}
        for kind in dict.fromkeys(x.device_type for x in runner_inputs):
            if kind not in self.runners:
                raise RelaxishError(f"no measuring pool is for {kind}; there are some for {', '.join(self.runners)}")
            numbers = [i for i, x in enumerate(runner_inputs) if x.device_type == kind]
            futures.update(zip(numbers, self.runners[kind].run([runner_inputs[i] for i in numbers]), strict=True))
        return [futures[i] for i in range(len(runner_inputs))]

    def shutdown(self) -> None:
        """End the processes of all runners."""
        for runner in {id(r): r for r in self.runners.values()}.values():
            if hasattr(runner, "shutdown"):
                runner.shutdown()


def is_local(target: Target) -> bool:
    """Whether all candidates for a target are measured by this machine's usual runner."""
    return bool(target.pool == _LOCAL)


def runner_for_target(target: Target) -> Runner:
    """The runner that a target's pools ask for. Raises RelaxishError for one that cannot be had."""
    pools: dict[str, Any] = {}
    for leaf, pool in _pools(target, None):
        pools.setdefault(leaf.kind.name, pool)
    made: list[tuple[Any, Runner]] = []
    runners: dict[str, Runner] = {}
    for kind, pool in pools.items():
        known = next((runner for other, runner in made if other == pool), None)
        if known is None:
            known = _runner_of(pool, kind)
            made.append((pool, known))
        runners[kind] = known
    return next(iter(runners.values())) if len(made) == 1 else PooledRunner(runners)


@contextlib.contextmanager
def runner_of_target(runner: Runner | str, target: Target) -> Iterator[Runner | str]:
    """The runner of a search: one that is given, "local" where the target has no pools, else what these ask for."""
    if runner != "local" or is_local(target):
        yield runner
        return
    made: Any = runner_for_target(target)
    try:
        yield made
    finally:
        if hasattr(made, "shutdown"):
            made.shutdown()


def _pools(target: Target, above: Any) -> list[tuple[Target, Any]]:
    """Each leaf with its pool: its own, else that of the nearest level above it."""
    own = target.attrs.get("pool", above)
    if not len(target):
        chosen = own[0] if isinstance(own, list) else own
        return [(target, chosen or _LOCAL)]
    return [found for child in target for found in _pools(child, own)]


def _ray_runner(pool: Mapping[str, Any], device: str) -> Runner:
    """A runner on a cluster, with the fields of the pool: ``address``, ``device_kind``, ``cores``, ``weight``, ``timeout``."""
    given = {name: pool[name] for name in ("device_kind", "cores", "weight", "fingerprint") if name in pool}
    return Runner.create(
        "ray", pool.get("address"), timeout_sec=float(pool.get("timeout", 30)), gpu=device not in _HOST, **given
    )


def _runner_of(pool: Mapping[str, Any], device: str) -> Runner:
    kind = pool["kind"]
    if kind == "local":
        return LocalRunner()
    if kind == "emulator":
        return EmulatorRunner()
    if kind == "rpc":
        host, _, port = str(pool["tracker"]).rpartition(":")
        if not host or not port.isdigit():
            raise RelaxishError(f"the tracker of a measuring pool is host:port, not {pool['tracker']!r}")
        config = RPCConfig(
            host, int(port), str(pool["key"]), int(pool.get("priority", 1)), int(pool.get("timeout", 10))
        )
        return RPCRunner(config)
    if kind == "ray":
        return _ray_runner(pool, device)
    raise RelaxishError(f"there is no runner for measuring pools of kind {kind}; use local, rpc, ray or emulator")
