"""Comparisons with useful messages, and pytest parameterisation helpers."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir import IRModule, assert_structural_equal
from ..ir.transform import Pass

__all__ = ["assert_allclose", "assert_pass", "fixture", "main", "object_use_count", "parameter", "parameters"]


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7, verbose: bool = True) -> None:
    """NumPy's ``assert_allclose`` that also compares shapes and accepts runtime arrays."""
    have = np.asarray(actual.numpy() if hasattr(actual, "numpy") else actual)
    want = np.asarray(desired.numpy() if hasattr(desired, "numpy") else desired)
    np.testing.assert_allclose(have.shape, want.shape)
    np.testing.assert_allclose(have, want, rtol=rtol, atol=atol, verbose=verbose)


def assert_pass(transform: Pass, before: IRModule, expected: IRModule) -> IRModule:
    """Run a pass and require the expected module; returns what the pass made.

    >>> from relaxish import ir
    >>> from relaxish.testing import assert_pass
    >>> identity = ir.transform.module_pass(lambda mod, ctx: mod, opt_level=0, name="identity")
    >>> _ = assert_pass(identity, ir.IRModule(), ir.IRModule())
    """
    after = transform(before)
    assert_structural_equal(after, expected)
    return after


def fixture(func: Callable[..., Any] | None = None, *, cache_return_value: bool = False) -> Callable[..., Any]:
    """A pytest fixture; with ``cache_return_value`` each set of arguments is computed once, and every test gets a copy."""
    import pytest

    def wrap(inner: Callable[..., Any]) -> Callable[..., Any]:
        return pytest.fixture(_remember(inner) if cache_return_value else inner)

    return wrap if func is None else wrap(func)


def _remember(function: Callable[..., Any]) -> Callable[..., Any]:
    results: dict[bytes, Any] = {}

    @functools.wraps(function)
    def once(*args: Any, **kwargs: Any) -> object:
        key = pickle.dumps((args, sorted(kwargs.items())))
        if key not in results:
            results[key] = function(*args, **kwargs)
        return copy.deepcopy(results[key])

    return once


def parameter(*values: Any, ids: Any = None, by_dict: dict[str, Any] | None = None) -> object:
    """A pytest fixture that takes each of ``values`` in turn; assign it to a name in a test module or class."""
    import pytest

    if by_dict is not None:
        ids, values = list(by_dict), tuple(by_dict.values())

    # In a class the fixture is a method: ``_owner`` takes the instance.
    @pytest.fixture(params=list(values), ids=ids)
    def fixture(*_owner: Any, request: Any) -> Callable[..., Any]:
        return request.param

    return fixture


class ValueSet:
    """One tuple of values of :func:`parameters`, as pytest's parameter of each of its fixtures."""

    def __init__(self, group: object, index: int, values: Sequence[Any]) -> None:
        self.group = group
        self.index = index
        self.values = values

    def agrees(self, other: object) -> bool:
        """Whether both may be used in one test: values of one group change together."""
        return not isinstance(other, ValueSet) or other.group is not self.group or other.index == self.index


def parameters(*value_sets: Any, ids: Any = None) -> list[Any]:
    """Several fixtures whose values change together, one tuple of values at a time.

    Pytest makes all combinations; :mod:`relaxish.testing.plugin` deselects those of different tuples, and without the
    plugin they are skipped.
    """
    import pytest

    group = object()

    def make(place: int) -> Any:
        sets = [ValueSet(group, index, values) for index, values in enumerate(value_sets)]
        names = (
            ids
            if ids is not None
            else [_value_id(values[place], index, place) for index, values in enumerate(value_sets)]
        )

        @pytest.fixture(params=sets, ids=names)
        def fixture(*_owner: Any, request: Any) -> Callable[..., Any]:
            if not all(request.param.agrees(other) for other in request.node.callspec.params.values()):
                pytest.skip("values of different sets")
            return request.param.values[place]

        return fixture

    return [make(i) for i in range(len(value_sets[0]))] if value_sets else []


def _value_id(value: int, index: int, place: int) -> str:
    """How a value is named in the name of a test."""
    plain = isinstance(value, (str, int, float, bool)) or value is None
    return str(value) if plain else getattr(value, "__name__", f"set{index}_{place}")


def main() -> None:
    """Run the tests of the calling file with pytest."""
    import pytest

    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    path = caller.f_globals.get("__file__", "") if caller is not None else ""
    sys.exit(pytest.main([path, *sys.argv[1:]]))


def object_use_count(obj: object) -> int:
    """Number of references to an object."""
    return sys.getrefcount(obj) - 2
