"""A pytest plugin: tests that take ``target`` run on every enabled target; ``dev`` is the target's device.

Put ``pytest_plugins = ["relaxish.testing.plugin"]`` in a ``conftest.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from ..runtime import Device, device
from ..support.sequences import of_kind
from ..target import Target
from .compare import ValueSet
from .targets import enabled_targets

__all__ = ["dev", "pytest_collection_modifyitems", "pytest_configure", "pytest_generate_tests"]


def pytest_configure(config: Any) -> None:
    """Make the marks known."""
    config.addinivalue_line("markers", "gpu: uses a GPU")


def pytest_generate_tests(metafunc: Any) -> None:
    """Parameterise over targets, unless the test does so itself."""
    if "target" not in metafunc.fixturenames or "target" in metafunc._arg2fixturedefs:
        return
    marked = [mark for mark in metafunc.definition.iter_markers("parametrize") if "target" in str(mark.args[0])]
    if marked:
        return
    excluded = getattr(metafunc.function, "tvm_excluded_targets", ())
    failing = getattr(metafunc.function, "tvm_known_failing_targets", ())
    params = []
    for name, _ in enabled_targets():
        kind = name.split(" ", 1)[0]
        if kind not in excluded:
            marks = [pytest.mark.xfail(reason=f"fails on {kind}")] if kind in failing else []
            params.append(pytest.param(name, marks=marks))
    metafunc.parametrize("target", params, scope="session")


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Deselect combinations of ``parameters`` that do not belong together; put marks on the cases they name.

    The marks are those of ``skip_parametrizations`` and ``xfail_parametrizations``.
    """
    dropped = [item for item in items if not _values_agree(item)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if _values_agree(item)]
    for item in items:
        marked = getattr(getattr(item, "function", None), "relaxish_marked_parametrizations", {})
        case = item.name.partition("[")[2].rstrip("]")
        if case in marked:
            item.add_marker(marked[case])


def _values_agree(item: Any) -> bool:
    values = list(item.callspec.params.values()) if hasattr(item, "callspec") else []
    return all(value.agrees(other) for value in of_kind(values, ValueSet) for other in values)


@pytest.fixture
def dev(target: str) -> Device:
    """The device of the test's target."""
    return device(target.kind.name if isinstance(target, Target) else Target(target).kind.name)
