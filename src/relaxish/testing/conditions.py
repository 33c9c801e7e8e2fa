"""Helpers that tests of integer systems, of parameter sets and of the machine use."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..arith import IntConstraints, IntConstraintsTransform
from ..ir.expr import PrimExpr
from ..ir.prim import And, const
from ..tir import Var, max_value, min_value
from ..tir.functor import substitute
from .features import cuda_compute_version
from .numeric import check_bool_expr_is_true

__all__ = [
    "check_int_constraints_trans_consistency", "get_dtype_range", "identity_after", "is_ampere_or_newer",
    "skip_if_32bit", "skip_if_wheel_test", "skip_parametrizations", "strtobool", "terminate_self", "xfail_parametrizations",
]  # fmt: skip


def _all(conditions: Iterable[PrimExpr]) -> PrimExpr:
    total: PrimExpr | None = None
    for condition in conditions:
        total = condition if total is None else And(total, condition)
    return const(True) if total is None else total


def _maps_onto(
    source: IntConstraints, target: IntConstraints, there: Mapping[Var, PrimExpr], back: Mapping[Var, PrimExpr]
) -> None:
    """Every solution of ``source`` must be one of ``target``, and come back as itself."""
    ranges = {var: source.ranges[var] for var in source.variables if var in source.ranges}
    for var, bounds in target.ranges.items():
        value = there.get(var, var)
        inside = And(value >= substitute(bounds.min, there), value < substitute(bounds.min + bounds.extent, there))
        check_bool_expr_is_true(inside, ranges, _all(source.relations))
    check_bool_expr_is_true(_all(substitute(r, there) for r in target.relations), ranges, _all(source.relations))
    returned = [substitute(back[var], there).equal(var) for var in source.variables if var in back]
    check_bool_expr_is_true(_all(returned), ranges, _all(source.relations))


def check_int_constraints_trans_consistency(
    constraints_trans: IntConstraintsTransform, vranges: Mapping[Var, Any] | None = None
) -> None:
    """Require the two systems of a transform to have the same solutions, mapped to each other, by trying all points.

    ``vranges`` gives ranges of free parameters.
    """

    def with_parameters(system: IntConstraints) -> IntConstraints:
        extra = {var: bounds for var, bounds in (vranges or {}).items() if var not in system.ranges}
        return IntConstraints((*system.variables, *extra), {**system.ranges, **extra}, system.relations)

    src, dst = with_parameters(constraints_trans.src), with_parameters(constraints_trans.dst)
    forth, back = constraints_trans.src_to_dst, constraints_trans.dst_to_src
    _maps_onto(src, constraints_trans.dst, back, forth)
    _maps_onto(dst, constraints_trans.src, forth, back)


def get_dtype_range(dtype: str) -> tuple[int | float, int | float]:
    """Smallest and largest value of a type.

    >>> get_dtype_range("int8")
    (-128, 127)
    """
    low, high = min_value(dtype), max_value(dtype)
    return low.value, high.value  # type: ignore[attr-defined]


def identity_after(x: int, sleep: float) -> int:
    """``x``, after ``sleep`` seconds."""
    import time

    time.sleep(sleep)
    return x


def terminate_self() -> None:
    """End this process, as a worker that crashes."""
    import os

    os._exit(-1)


def is_ampere_or_newer() -> bool:
    """Whether the NVIDIA device has compute capability 8.0 or more."""
    return cuda_compute_version() >= (8, 0)


def strtobool(val: str) -> bool:
    """The truth value that a setting spells. Raises ValueError for text that spells none.

    >>> strtobool("on"), strtobool("0")
    (True, False)
    """
    text = val.lower()
    if text in ("y", "yes", "t", "true", "on", "1"):
        return True
    if text in ("n", "no", "f", "false", "off", "0"):
        return False
    raise ValueError(f"invalid truth value {text!r}")


def skip_if_32bit(reason: str) -> Callable[[Any], Any]:
    """Skip a test on 32-bit machines."""
    import pytest

    return pytest.mark.skipif(struct.calcsize("P") == 4, reason=f"Skipping test for 32bit platform: {reason}")


def skip_if_wheel_test(func: Callable[..., Any]) -> Callable[..., Any]:
    """A test that runs from an installed package as well: left as it is."""
    return func


def _marked(mark: Any, names: tuple[str, ...]) -> Callable[[Any], Any]:
    def wrap(func: Any) -> Callable[..., Any]:
        func.relaxish_marked_parametrizations = {
            **getattr(func, "relaxish_marked_parametrizations", {}),
            **dict.fromkeys(names, mark),
        }
        return func

    return wrap


def xfail_parametrizations(*names: str, reason: str) -> Callable[[Any], Any]:
    """Expect failure of the test's parameter sets with these ids."""
    import pytest

    return _marked(pytest.mark.xfail(reason=reason), names)


def skip_parametrizations(*names: str, reason: str) -> Callable[[Any], Any]:
    """Skip the test's parameter sets with these ids."""
    import pytest

    return _marked(pytest.mark.skip(reason=reason), names)
