"""A driver that computes nothing: the whole flow of compiling, tuning and running, without a GPU.

Kernels leave their outputs as they are. What does not depend on results (shapes, memory, launches) is as on a device.
"""

from __future__ import annotations

from collections.abc import Mapping

from .driver import Handle
from .simulated import Kernel, SimulatedDriver

__all__ = ["NullDriver"]


class NullDriver(SimulatedDriver):
    """Every image loads, every kernel of it exists and does nothing."""

    name = "null"
    image_format = "null"

    def open_image(self, device: int, image: Handle) -> Mapping[str, Kernel]:
        """An image is the list of its kernels' names."""
        return {str(name): Kernel(str(name), None) for name in image}
