"""Small helpers every part of the tuner shares."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from typing_extensions import Self

from ..ir import IRModule, structural_hash
from ..support.errors import RelaxishError

T = TypeVar("T")
Context = TypeVar("Context")

__all__ = [
    "MethodNotDefinedError",
    "PRELOAD",
    "has_column_form",
    "Part",
    "cpu_count",
    "derived_object",
    "fork_seed",
    "get_global_func_with_default_on_worker",
    "rand_seed",
    "shash2hex",
]

_MODULUS = 2147483647
#: What worker processes import before they are forked. Builders, runners and judges name the same modules, so that one
#: process forks the workers of them all.
PRELOAD = (
    "numpy",
    "relaxish.meta_schedule.builder.local_builder",
    "relaxish.meta_schedule.runner.local_runner",
    "relaxish.backend.llvm.compile",
    "llvmlite.binding",
)


def derived_object(cls: type[T]) -> type[T]:
    """Mark a user's subclass: an object without a text of its own prints as ``meta_schedule.Name(0x...)``.

    Subclassing alone is enough for everything else; ``_outer()`` of such an object is the object itself.
    """
    cls._outer = lambda self: self  # type: ignore[attr-defined]
    if "__repr__" not in vars(cls) and "__str__" not in vars(cls):
        cls.__repr__ = lambda self: f"meta_schedule.{cls.__name__}({id(self):#x})"  # type: ignore[method-assign]
    return cls


class Part(Generic[Context]):
    """A part of the tuner: learns what is tuned before use, and can be copied."""

    def _initialize_with_tune_context(self, context: Context) -> None:
        """Called once before use."""

    def initialize_with_tune_context(self, context: Context) -> None:
        """Called once before use; learns target and module from the context."""
        self._initialize_with_tune_context(context)

    def clone(self) -> Self:
        """An independent copy that has not started."""
        return copy.copy(self)


class MethodNotDefinedError(RelaxishError, NotImplementedError):
    """A subclass lacks a method that is needed."""

    def __init__(self, owner: object, method: str) -> None:
        bases = [c for c in type(owner).__mro__ if method in vars(c)]
        name = "".join(part.capitalize() for part in method.split("_"))
        super().__init__(
            f"Py{bases[-1].__name__}'s {name} method not implemented! Define {method} in {type(owner).__name__}."
        )


def has_column_form(part: object) -> bool:
    """Whether a mutator or postproc has an ``on_columns`` of its own: one inherited beside another ``apply`` is of what
    the base does."""
    defined = [vars(part), *(vars(cls) for cls in type(part).__mro__)]
    return next("on_columns" in names for names in defined if "on_columns" in names or "apply" in names)


def cpu_count(logical: bool = True) -> int:
    """Processors this process may run on; with ``logical=False`` physical cores, hyper-threads counted once."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if logical:
        return available
    try:
        import psutil
    except ImportError:
        return available
    return max(1, min(available, psutil.cpu_count(logical=False) or available))


def rand_seed(seed: int | None) -> int:
    """A usable seed; None and -1 draw one from the operating system."""
    if seed is None or seed == -1:
        return int.from_bytes(os.urandom(4), "little") % (_MODULUS - 1) + 1
    return int(seed) % _MODULUS or 1


def fork_seed(seed: int | None, n: int) -> list[int]:
    """``n`` seeds for independent streams, derived from one."""
    state, seeds = rand_seed(seed), []
    for _ in range(n):
        state = state * 48271 % _MODULUS
        seeds.append(state * 32767 % 1999999973)
    return seeds


def shash2hex(mod: IRModule) -> str:
    """The structural hash of a module as hexadecimal text."""
    return f"0x{structural_hash(mod) & 0xFFFFFFFFFFFFFFFF:016x}"


# A step that a caller may replace: a function, or the name of a packed function; None for the default.
Hook: TypeAlias = Callable[..., Any] | str | None


def get_global_func_with_default_on_worker(name: Hook, default: Hook) -> Any:
    """Resolve a packed function by name inside a worker; a callable stands for itself, None for ``default``."""
    if name is None:
        return default
    if callable(name):
        return name
    from ..runtime.registry import get_global_func

    return get_global_func(name)
