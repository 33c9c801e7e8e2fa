"""Who measures what: shares, retries, noise and efficiency, on simulated devices in simulated time."""

from __future__ import annotations

import asyncio
import collections
import random
import selectors
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from relaxish import lab
from relaxish.meta_schedule.distributed import Device, DeviceLostError, Dispatcher, Job, Measurement
from relaxish.meta_schedule.measure.status import MeasureStatus
from relaxish.meta_schedule.runner import RunnerResult


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Sleeps take no time but pass; what the program itself computes passes, too, as the processor's time that it took."""

    def __init__(self) -> None:
        super().__init__(selectors.SelectSelector())
        self._skipped = -time.process_time()
        real = self._selector.select  # type: ignore[attr-defined]

        def select(timeout: float | None = None) -> Any:
            if timeout:
                self._skipped += timeout
            return real(0)

        self._selector.select = select  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._skipped + time.process_time()


def simulate(body: Callable[[], Awaitable[Any]]) -> Any:
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(body())
    finally:
        loop.close()


def devices(count: int, per_node: int = 1) -> list[Device]:
    return [Device(f"d{i}", f"n{i // per_node}") for i in range(count)]


def test_sixty_four_devices_are_busy_nine_tenths_of_the_time() -> None:
    space = lab.load_space("gemm")
    rng = random.Random(1)
    points = [rng.choice(space.points.tolist()) for _ in range(64 * 30)]
    # As the local runner measures: one run to warm up, then as many as fill a tenth of a second.
    durations = {p: 0.1 + 2 * space.time(p) for p in set(points)}
    network = 0.002

    async def run(device: Device, job: Job) -> Measurement:
        await asyncio.sleep(network + durations[job.payload])
        return Measurement(RunnerResult([space.time(job.payload)]))

    async def body() -> tuple[float, list[RunnerResult]]:
        dispatcher = Dispatcher(run)
        for device in devices(64):
            dispatcher.add(device)
        loop = asyncio.get_running_loop()
        began = loop.time()
        results = await asyncio.gather(*(dispatcher.submit("t", f"{i}", p) for i, p in enumerate(points)))
        assert sum(dispatcher.on_device.values()) == len(points) and len(dispatcher.on_device) == 64
        return loop.time() - began, results

    took, results = simulate(body)
    efficiency = sum(durations[p] for p in points) / 64 / took
    assert [r.run_secs for r in results] == [[space.time(p)] for p in points]
    assert efficiency >= 0.9, f"{efficiency:.3f}"


def test_nothing_is_lost_or_measured_twice_in_twenty_kills() -> None:
    finished: collections.Counter[str] = collections.Counter()
    lives = {f"d{i}": 1 + i % 7 for i in range(30)}
    killed: list[str] = []

    async def run(device: Device, job: Job) -> Measurement:
        await asyncio.sleep(0.01 + 0.001 * int(job.key) % 0.005)
        lives[device.name] -= 1
        # Of thirty devices twenty die, each in the middle of a measurement; no two of them of one job.
        if lives[device.name] == 0 and len(killed) < 20 and not job.lost:
            killed.append(device.name)
            raise DeviceLostError("it died")
        finished[job.key] += 1
        return Measurement(RunnerResult([float(job.key) + 1]))

    async def body() -> list[RunnerResult]:
        dispatcher = Dispatcher(run)
        for device in devices(30):
            dispatcher.add(device)
        results = await asyncio.gather(*(dispatcher.submit("t", str(i), None) for i in range(400)))
        assert dispatcher.counts["lost"] == dispatcher.counts["retried"] == 20 and len(dispatcher.devices) == 10
        return results

    results = simulate(body)
    assert len(killed) == 20 and set(finished.values()) == {1} and len(finished) == 400
    assert [r.run_secs for r in results] == [[float(i) + 1] for i in range(400)]


def test_a_candidate_that_takes_two_nodes_with_it_is_not_given_a_third() -> None:
    async def run(device: Device, job: Job) -> Measurement:
        await asyncio.sleep(0.01)
        if job.key == "deadly":
            raise DeviceLostError("gone")
        return Measurement(RunnerResult([1.0]))

    async def body() -> None:
        dispatcher = Dispatcher(run)
        for device in devices(6, per_node=2):
            dispatcher.add(device)
        good = [dispatcher.submit("t", str(i), None) for i in range(10)]
        deadly = dispatcher.submit("t", "deadly", None)
        result = await deadly
        assert (
            result.run_secs is None
            and result.status is MeasureStatus.CRASH
            and "2 measuring nodes" in str(result.error_msg)
        )
        assert len(dispatcher.devices) == 4 and len({d.node for d in dispatcher.devices.values()}) >= 2
        assert all(r.run_secs for r in await asyncio.gather(*good))

    simulate(body)


def test_what_waits_is_measured_when_a_device_comes() -> None:
    async def run(device: Device, job: Job) -> Measurement:
        if device.name == "d0":
            raise DeviceLostError("gone")
        return Measurement(RunnerResult([2.0]))

    async def body() -> None:
        dispatcher = Dispatcher(run)
        first, second = devices(2)
        future = dispatcher.submit("t", "a", None)
        await asyncio.sleep(1)
        assert not future.done() and dispatcher.waiting == 1
        dispatcher.add(first)
        await asyncio.sleep(1)
        assert not future.done() and not dispatcher.devices
        dispatcher.add(second)
        assert (await future).run_secs == [2.0]

    simulate(body)


def test_shares_follow_weights_and_who_was_away_does_not_catch_up() -> None:
    served: collections.Counter[str] = collections.Counter()

    async def run(device: Device, job: Job) -> Measurement:
        await asyncio.sleep(0.1)
        served[job.tenant] += 1
        return Measurement(RunnerResult([1.0]))

    async def body() -> None:
        dispatcher = Dispatcher(run)
        for device in devices(4):
            dispatcher.add(device)
        dispatcher.weigh("big", 3.0)
        for i in range(900):
            dispatcher.submit("big", str(i), None)
            dispatcher.submit("small", str(i), None)
        await asyncio.sleep(20.05)
        assert served["big"] + served["small"] > 700 and 2.7 < served["big"] / served["small"] < 3.3
        for i in range(300):
            dispatcher.submit("late", str(i), None)
        before = served.copy()
        await asyncio.sleep(10)
        now = {name: served[name] - before[name] for name in served}
        assert 2.5 < now["big"] / now["late"] < 3.5 and 2.5 < now["big"] / now["small"] < 3.5

    simulate(body)


@pytest.mark.parametrize(("noises", "expected", "times"), [((1.0, 1.0), 1, 1), ((2.0, 1.0), 2, 2), ((3.0, 2.0), 2, 2)])
def test_a_noisy_moment_is_measured_again_elsewhere(noises: tuple[float, float], expected: int, times: int) -> None:
    asked: list[str] = []

    async def run(device: Device, job: Job) -> Measurement:
        asked.append(device.node)
        number = len(asked)
        return Measurement(RunnerResult([float(number)]), noises[number - 1])

    async def body() -> None:
        dispatcher = Dispatcher(run, noise_limit=1.25)
        for device in devices(2):
            dispatcher.add(device)
        assert (await dispatcher.submit("t", "a", None)).run_secs == [float(expected)]

    simulate(body)
    assert len(asked) == times and len(set(asked)) == times


def test_a_driver_that_comes_back_finds_its_results() -> None:
    runs: collections.Counter[str] = collections.Counter()

    async def run(device: Device, job: Job) -> Measurement:
        await asyncio.sleep(1)
        runs[job.key] += 1
        return Measurement(RunnerResult([1.0]))

    async def body() -> None:
        dispatcher = Dispatcher(run)
        dispatcher.add(devices(1)[0])
        futures = [dispatcher.submit("t", key, None) for key in "abc"]
        await asyncio.sleep(1.5)  # one is done, one runs, one waits: the driver is killed, and comes back
        assert futures[0].done() and not futures[1].done()
        again = await asyncio.gather(*(dispatcher.submit("t", key, None) for key in "abcd"))
        assert len(again) == 4 and runs == {"a": 1, "b": 1, "c": 1, "d": 1}
        dispatcher.claim("t", "a")  # it is written down; asked for once more it is measured once more
        await dispatcher.submit("t", "a", None)
        await dispatcher.submit("other", "b", None)
        assert runs == {"a": 2, "b": 2, "c": 1, "d": 1}

    simulate(body)


def test_an_error_of_the_candidate_is_its_result() -> None:
    async def run(device: Device, job: Job) -> Measurement:
        raise ValueError("cannot be loaded")

    async def body() -> None:
        dispatcher = Dispatcher(run)
        dispatcher.add(devices(1)[0])
        result = await dispatcher.submit("t", "a", None)
        assert result.run_secs is None and "cannot be loaded" in str(result.error_msg) and len(dispatcher.devices) == 1

    simulate(body)


def test_the_reference_kernel_sees_noise() -> None:
    from relaxish.meta_schedule.distributed.measuring import ReferenceKernel

    kernel = ReferenceKernel()
    assert kernel.best > 0
    assert all(kernel.ratio() >= 1.0 for _ in range(20))
    kernel.best /= 4  # as if it had been faster once
    assert np.median([kernel.ratio() for _ in range(20)]) > 1.5
