"""Functions with one implementation for each kind of target, chosen by the target that is current at the call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from .target import Target

__all__ = ["GenericFunc", "generic_func", "get_native_generic_func", "override_native_generic_func"]

Function = Callable[..., Any]
_P = ParamSpec("_P")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_NAMED: dict[str, GenericFunc] = {}


class Dispatched(Protocol[_P, _R_co]):
    """A function that targets may have implementations of; ``register`` is a decorator if no function is given."""

    fdefault: Function

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        """Run the implementation for the current target."""

    def register(self, key: str | Sequence[str], func: Function | None = None, override: bool = ...) -> Function:
        """Add an implementation for targets with one of the keys."""


def _keys_of_current() -> list[str]:
    target = Target.current(allow_none=True)
    return [] if target is None else list(target.keys)


class GenericFunc:
    """A default implementation, and others by key of the target.

    >>> area = GenericFunc("area")
    >>> area.set_default(lambda a: a * a)
    >>> area.register(lambda a: -a, ["cuda"])
    >>> with Target("cuda", host="llvm"):
    ...     area(3)
    -3
    >>> area(3)
    9
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._default: Function | None = None
        self._by_key: dict[str, Function] = {}

    def __call__(self, *args: Any) -> Any:
        return self.get_packed_func()(*args)

    def set_default(self, func: Function, allow_override: bool = False) -> None:
        """Register the implementation for targets without one of their own keys."""
        if self._default is not None and not allow_override:
            raise ValueError(f"Generic function already registered for {self.name}")
        self._default = func

    def register(self, func: Function, key_list: Sequence[str], allow_override: bool = False) -> None:
        """An implementation for targets that have one of these keys."""
        for key in key_list:
            if key in self._by_key and not allow_override:
                raise ValueError(f"Tag {key} already registered for schedule factory {self.name}")
            self._by_key[key] = func

    def get_packed_func(self) -> Function:
        """The implementation for the current target."""
        for key in _keys_of_current():
            if key in self._by_key:
                return self._by_key[key]
        if self._default is None:
            raise ValueError(f"no generic function registered for {self.name}")
        return self._default


def get_native_generic_func(name: str) -> GenericFunc:
    """The function of a name, the same one at every call; an empty one at the first."""
    return _NAMED.setdefault(name, GenericFunc(name))


def override_native_generic_func(func_name: str) -> Callable[[Callable[_P, _R]], Dispatched[_P, _R]]:
    """Decorator: make the function the default of the generic function called ``func_name``.

    What comes back has ``register(key, func=None, override=True)``, itself usable as a decorator.
    """
    shared = get_native_generic_func(func_name)

    def decorate(default: Callable[_P, _R]) -> Dispatched[_P, _R]:
        shared.set_default(default, allow_override=True)

        def add(keys: list[str], func: Function, override: bool) -> None:
            shared.register(func, keys, override)

        made = _dispatching(default, shared, add, override_by_default=True)
        made.generic_func_node = shared  # type: ignore[attr-defined]
        return made

    return decorate


def generic_func(fdefault: Callable[_P, _R]) -> Dispatched[_P, _R]:
    """Decorator: let other modules register implementations of a function for keys of targets.

    >>> @generic_func
    ... def lanes(width):
    ...     return width
    >>> @lanes.register("cuda")
    ... def _(width):
    ...     return 32
    >>> with Target("cuda", host="llvm"):
    ...     lanes(4)
    32
    """
    by_key: dict[str, Callable[_P, _R]] = {}

    def choose(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for key in _keys_of_current():
            if key in by_key:
                return by_key[key](*args, **kwargs)
        return fdefault(*args, **kwargs)

    def add(keys: list[str], func: Function, override: bool) -> None:
        for key in keys:
            if key in by_key and not override:
                raise ValueError(f"Key is already registered for {fdefault.__name__}")
            by_key[key] = func

    made = _dispatching(fdefault, choose, add, override_by_default=False)
    made.dispatch_dict = by_key  # type: ignore[attr-defined]
    return made


def _dispatching(
    default: Callable[_P, _R], choose: Callable[_P, _R] | GenericFunc, add: Callable[[list[str], Function, bool], None], *,
    override_by_default: bool,
) -> Dispatched[_P, _R]:  # fmt: skip
    """``choose`` dressed as the function it stands for, with ``register`` and ``fdefault``."""

    def register(
        key: str | Sequence[str], func: Function | None = None, override: bool = override_by_default
    ) -> Function:
        keys = [key] if isinstance(key, str) else list(key)

        def put(implementation: Function) -> Function:
            add(keys, implementation, override)
            return implementation

        return put if func is None else put(func)

    @functools.wraps(default)
    def dispatch(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return cast(_R, choose(*args, **kwargs))

    made = cast(Any, dispatch)
    made.fdefault, made.register = default, register
    return cast(Dispatched[_P, _R], made)
