"""Choice of the CUDA driver: PyCUDA, cuda-bindings, the emulator or the null device.

``RELAXISH_CUDA_PROVIDER`` names a provider: "pycuda", "cuda-bindings", "emulator" (kernels run on the CPU), "null"
(kernels do nothing), or "auto" (default): pycuda, else cuda-bindings. Providers register in a table; those of upper
layers are in a module that is loaded when asked for.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

from ...support import entry_points
from ...support.config import CUDA_PROVIDER
from .driver import Driver
from .errors import CUDAError, NoCUDAError
from .state import CUDAState

__all__ = ["chosen", "current", "find", "open_driver", "provider_names", "register_provider", "use"]

_FACTORIES: dict[str, Callable[[], Driver]] = {}
# Providers that are not part of the run time.
_UPPER = ("emulator", "emulator-fast")
_AUTO = ("pycuda", "cuda-bindings")
# Opened drivers by the knob's value, and what a `use` block put in their place.
_OPENED: dict[str, CUDAState] = {}
_REFUSED: dict[str, NoCUDAError] = {}
_USED: list[CUDAState] = []
# Threads that begin at once must not open a driver each: memory of one is none of the other's.
_opening = threading.RLock()
# The driver that the environment chose; it is asked once, since looking it up costs as much as a launch.
_FROM_ENVIRONMENT: list[CUDAState] = []


def register_provider(name: str, factory: Callable[[], Driver]) -> None:
    """Offer a provider: ``factory()`` opens its driver, or raises NoCUDAError saying what is missing."""
    _FACTORIES[name] = factory


def provider_names() -> list[str]:
    """Names that the knob may have."""
    return sorted({*_FACTORIES, *_UPPER})


def open_driver(name: str) -> Driver:
    """A new driver of a provider. Raises NoCUDAError when it cannot work here."""
    if name == "auto":
        return _first_available()
    hook = f"cuda.provider.{name}"
    if name not in _FACTORIES and entry_points.available(hook):
        entry_points.load(hook)
    if name not in _FACTORIES:
        raise NoCUDAError(f"there is no CUDA provider {name!r}; RELAXISH_CUDA_PROVIDER may be auto, {_listed()}")
    try:
        return _FACTORIES[name]()
    except CUDAError as error:
        raise NoCUDAError(str(error)) from None


def _listed() -> str:
    return ", ".join(provider_names())


def _first_available() -> Driver:
    reasons = []
    for name in _AUTO:
        try:
            return open_driver(name)
        except NoCUDAError as error:
            reasons.append(f"{name}: {error}")
    raise NoCUDAError(
        "CUDA is not available here:\n  " + "\n  ".join(reasons) + "\nTo run kernels on the CPU, use "
        "RELAXISH_CUDA_PROVIDER=emulator."
    )


def current() -> CUDAState:
    """The driver in use with its memory pools and streams. Raises NoCUDAError when there is none."""
    if _USED:
        return _USED[-1]
    if _FROM_ENVIRONMENT and not CUDA_PROVIDER.is_set:
        _FROM_ENVIRONMENT[0].check_usable()
        return _FROM_ENVIRONMENT[0]
    name = CUDA_PROVIDER.value
    found = _OPENED.get(name)
    if found is None:
        with _opening:
            found = _opened(name)
    found.check_usable()
    return found


def _opened(name: str) -> CUDAState:
    """The driver of that name, opened now if it is not yet."""
    found = _OPENED.get(name)
    if found is None:
        if name in _REFUSED:
            raise NoCUDAError(*_REFUSED[name].args)
        try:
            found = _OPENED[name] = CUDAState(open_driver(name))
        except NoCUDAError as error:
            _REFUSED[name] = error
            raise
    return found


def chosen() -> str:
    """The name of the provider in use, or of the one the knob asks for; opens nothing."""
    return _USED[-1].driver.name if _USED else str(CUDA_PROVIDER.value)


def find() -> CUDAState | None:
    """As :func:`current`; ``None`` when there is none."""
    try:
        return current()
    except NoCUDAError:
        return None


@contextlib.contextmanager
def use(driver: Driver | str) -> Iterator[Driver]:
    """Use a driver, or a new one of a provider, inside a ``with`` block."""
    made = open_driver(driver) if isinstance(driver, str) else driver
    state = CUDAState(made)
    _USED.append(state)
    try:
        yield made
    finally:
        _USED.remove(state)
        state.close()


def _after_fork_in_child() -> None:
    global _opening
    _opening = threading.RLock()  # whoever held it is not in this process
    for state in (*_OPENED.values(), *_USED):
        state.forked()
    _REFUSED.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _null() -> Driver:
    from .null_driver import NullDriver

    return NullDriver()


def _pycuda() -> Driver:
    from .pycuda_driver import PyCUDADriver

    return PyCUDADriver()


def _bindings() -> Driver:
    from .bindings_driver import BindingsDriver

    return BindingsDriver()


register_provider("null", _null)
register_provider("pycuda", _pycuda)
register_provider("cuda-bindings", _bindings)
