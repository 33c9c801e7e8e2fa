"""A CUDA driver for tests: it checks and records, and kernels are Python functions.

>>> from relaxish.testing import FakeCUDA, use_cuda_provider
>>> import relaxish
>>> with use_cuda_provider(FakeCUDA(devices=2)) as fake:
...     array = relaxish.nd.empty((4,), "float32", relaxish.cuda(1))
...     (relaxish.cuda(1).exist, relaxish.cuda(2).exist, fake.memory_info(1)[1] - fake.memory_info(1)[0])
(True, False, 512)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..runtime.nvidia.driver import Driver
from ..runtime.nvidia.errors import CODES, failure
from ..runtime.nvidia.providers import register_provider, use
from ..runtime.nvidia.simulated import Kernel, Launch, SimulatedDriver

__all__ = ["FakeCUDA", "FakeImage", "use_cuda_provider"]


class FakeImage(dict[str, Callable[[Launch], None] | None]):
    """Image of the fake driver: kernels by name, each a function of its launch, or ``None`` to do nothing."""


class FakeCUDA(SimulatedDriver):
    """The recording driver.

    ``launches`` lists what ran, in order. Work is deferred until something waits for it (``deferred=False``: at once),
    events read a clock that advances by ``launch_ms`` a launch. :meth:`fail` makes a call fail, ``kernels`` says what
    kernels of images without functions of their own do.
    """

    name = "fake"
    image_format = "fake"

    def __init__(
        self,
        *,
        devices: int = 1,
        total_memory: int = 1 << 30,
        deferred: bool = True,
        kernels: Mapping[str, Callable[[Launch], None]] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(devices=devices, total_memory=total_memory, deferred=deferred, attributes=attributes)
        self.kernels = dict(kernels or {})
        self.launches: list[Launch] = []
        self.launch_ms = 1.0
        self._now = 0.0
        self._failures: dict[str, list[int]] = {}

    def fail(self, what: str, *codes: str) -> None:
        """Let the next calls of a method, or launches of a kernel, fail with these codes ("OUT_OF_MEMORY", ...)."""
        self._failures.setdefault(what, []).extend(CODES[code] for code in codes)

    def _maybe_fail(self, name: str, what: str) -> None:
        waiting = self._failures.get(name)
        if waiting:
            raise failure(waiting.pop(0), what)

    def clock_ms(self) -> float:
        """The simulated clock."""
        return self._now

    def allocate(self, device: int, nbytes: int) -> int:
        """Allocate, unless a failure was ordered."""
        self._maybe_fail("allocate", f"allocating {nbytes} bytes")
        return super().allocate(device, nbytes)

    def load_module(self, device: int, image: Sequence[str]) -> Any:
        """Load, unless a failure was ordered."""
        self._maybe_fail("load_module", "loading a module")
        return super().load_module(device, image)

    def open_image(self, device: int, image: Sequence[str]) -> Mapping[str, Kernel]:
        """A :class:`FakeImage`, or a list of kernel names. Other images are invalid."""
        match image:
            case FakeImage():
                return {name: Kernel(name, body) for name, body in image.items()}
            case list() | tuple() if all(isinstance(name, str) for name in image):
                return {name: Kernel(name, self.kernels.get(name)) for name in image}
        raise failure(CODES["INVALID_IMAGE"], "loading a module")

    def run_kernel(self, kernel: Kernel, launch: Launch) -> None:
        """Record the launch and run the kernel's function."""
        self._maybe_fail(kernel.name, f"running {kernel.name}")
        self.launches.append(launch)
        self._now += self.launch_ms
        if kernel.body is not None:
            kernel.body(launch)


def use_cuda_provider(driver: Driver | str) -> Any:
    """Use a CUDA driver inside a ``with`` block: "fake", "emulator", "null", or an object made by hand."""
    return use(driver)


register_provider("fake", FakeCUDA)
