"""Images of kernels on a device: loaded when they are needed, unloaded when nobody can launch them any more."""

from __future__ import annotations

import sys
from typing import Any

from .driver import Handle
from .state import CUDAState

__all__ = ["LoadedImages"]


class LoadedImages:
    """One image for all kernels, or (a dict) machine code by kernel, each loaded when its kernel first runs."""

    def __init__(self, state: CUDAState, device: int, image: Handle) -> None:
        self._state = state
        self._device = device
        self._by_kernel: dict[str, bytes] | None = image if isinstance(image, dict) else None
        self._modules: dict[int, Any] = {}
        if self._by_kernel is None:
            self._load(image)

    def _load(self, image: Handle) -> Handle:
        made = self._modules[id(image)] = self._state.driver.load_module(self._device, image)
        return made

    def holding(self, kernel: str) -> Handle:
        """The driver's module with a kernel."""
        if self._by_kernel is None:
            (module,) = self._modules.values()
            return module
        image = self._by_kernel[kernel]
        return self._modules.get(id(image)) or self._load(image)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            for module in self._modules.values():
                self._state.unload(module)
