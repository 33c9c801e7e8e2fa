"""State of a library on one device: its handle, and scratch memory for each stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary
import ctypes

from .. import providers
from ..state import CUDAState, DeviceBlock

__all__ = ["WORKSPACE_BYTES", "LibraryContext", "context"]

_T = TypeVar("_T")

#: Scratch memory a library may use on one stream. It is never given back or moved: captured graphs refer to it.
WORKSPACE_BYTES = 32 << 20


class LibraryContext:
    """A library's state on one device of one driver."""

    def __init__(self, state: CUDAState, device: int, library: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        self.state = state
        self.device = device
        self.library = library
        self.handle = handle
        self.plans: dict[Any, Any] = {}
        self.lock = threading.RLock()
        self._workspaces: dict[int, DeviceBlock] = {}

    def stream(self) -> int:
        """The stream that this thread issues work to."""
        return self.state.stream(self.device)

    def make_current(self) -> None:
        """Let the calling thread use the device's context: the library asks for it."""
        self.state.driver.make_current(self.device)

    def workspace(self, stream: int) -> int:
        """The address of the stream's scratch memory."""
        block = self._workspaces.get(stream)
        if block is None:
            block = self._workspaces[stream] = self.state.allocate(self.device, WORKSPACE_BYTES)
        return block.address

    def plan(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Plan for ``key``, made on first use."""
        found = self.plans.get(key)
        if found is None:
            found = self.plans[key] = make()
        return found


_CONTEXTS: WeakKeyDictionary[CUDAState, dict[tuple[int, int], LibraryContext]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def context(device: int, library: ctypes.CDLL, create: Callable[[], Any]) -> LibraryContext:
    """The library's context on a device of the driver in use; ``create`` makes its handle once."""
    state = providers.current()
    with _LOCK:
        of_state = _CONTEXTS.setdefault(state, {})
        found = of_state.get((device, id(library)))
        if found is None:
            state.driver.make_current(device)
            found = of_state[device, id(library)] = LibraryContext(state, device, library, create())
    return found
