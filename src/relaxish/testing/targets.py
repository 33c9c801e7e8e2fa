"""Tests over several targets: which are enabled, and marks that choose, exclude or expect failure on some."""

from __future__ import annotations

from collections.abc import Callable
import functools
from typing import Any

from ..runtime import Device, device, enabled
from ..support.config import TEST_TARGETS
from ..support.errors import RelaxishError
from ..target import Target

__all__ = [
    "device_enabled", "enabled_targets", "exclude_targets", "known_failing_targets",
    "parametrize_targets",
]  # fmt: skip


def _kind(target: Any) -> str:
    match target:
        case Target():
            return target.kind.name
        case dict():
            return Target(target).kind.name
    return str(target).split(" ", 1)[0]


def device_enabled(target: str | Target | dict[str, Any]) -> bool:
    """Whether code for this target can run here.

    >>> device_enabled("llvm -mcpu=x86-64")
    True
    """
    kind = _kind(target)
    return bool(enabled(kind) and device(kind).exist and (kind != "opencl" or _opencl_compiles()))


@functools.cache
def _opencl_compiles() -> bool:
    """Whether the driver makes code for its device: older releases of PoCL know no processor newer than themselves."""
    from ..runtime.opencl_driver.program import OpenCLProgram

    try:
        OpenCLProgram("__kernel void nothing(__global int *a) { a[0] = 1; }", 0).binary()
    except RelaxishError:
        return False
    return True


def enabled_targets() -> list[tuple[str, Device]]:
    """The targets that tests run on here, with their devices; the knob ``test_targets`` names the candidates."""
    chosen = [t.strip() for t in TEST_TARGETS.value.split(";") if t.strip()]
    return [(t, device(_kind(t))) for t in chosen if device_enabled(t)]


def parametrize_targets(*targets: Any) -> Callable[..., Any]:
    """Run a test once on each target, or on each enabled one; the test takes ``target`` and ``dev``.

    Used bare (``@parametrize_targets``) or with targets (``@parametrize_targets("llvm", "cuda")``).
    """
    import pytest

    if len(targets) == 1 and callable(targets[0]) and not isinstance(targets[0], (str, dict, Target)):
        return pytest.mark.parametrize("target", [t for t, _ in enabled_targets()])(targets[0])
    params = [
        pytest.param(t, marks=pytest.mark.skipif(not device_enabled(t), reason=f"no device for {t}")) for t in targets
    ]
    return pytest.mark.parametrize("target", params or [t for t, _ in enabled_targets()])


def _excluding(attribute: str, targets: tuple[Any, ...]) -> Callable[..., Any]:
    def wrap(func: Callable[..., Any]) -> Callable[..., Any]:
        setattr(func, attribute, [*getattr(func, attribute, []), *targets])
        return func

    return wrap


def exclude_targets(*args: Any) -> Callable[..., Any]:
    """Leave these target kinds out of an automatically parameterised test."""
    return _excluding("tvm_excluded_targets", args)


def known_failing_targets(*args: Any) -> Callable[..., Any]:
    """Expect an automatically parameterised test to fail on these target kinds."""
    return _excluding("tvm_known_failing_targets", args)
