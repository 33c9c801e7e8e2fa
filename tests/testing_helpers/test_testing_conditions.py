"""Helpers of ``relaxish.testing`` for integer systems, types and parameter sets."""

from __future__ import annotations

import pytest

import relaxish
from relaxish import arith, ir, testing, tir


def test_solver_transforms_are_consistent():
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    ranges = {x: ir.Range(0, 9), y: ir.Range(-2, 4)}
    testing.check_int_constraints_trans_consistency(
        arith.solve_linear_equations([tir.EQ(x + y * 2, 4)], [x, y], ranges)
    )
    solved = arith.solve_linear_inequalities([x + y <= 5, x - y >= 1], [x, y], ranges, deskew_range=True)
    testing.check_int_constraints_trans_consistency(solved)


def test_a_wrong_transform_is_found():
    x, z = tir.Var("x", "int32"), tir.Var("z", "int32")
    src = arith.IntConstraints([x], {x: ir.Range(0, 4)}, [])
    dst = arith.IntConstraints([z], {z: ir.Range(0, 3)}, [])
    with pytest.raises(AssertionError):
        testing.check_int_constraints_trans_consistency(arith.IntConstraintsTransform(src, dst, {x: z}, {z: x}))


def test_small_helpers():
    assert testing.get_dtype_range("uint8") == (0, 255)
    assert testing.strtobool("Yes") and not testing.strtobool("off")
    with pytest.raises(ValueError, match="invalid truth value"):
        testing.strtobool("maybe")
    assert testing.identity_after(3, 0.0) == 3
    assert testing.skip_if_wheel_test(test_small_helpers) is test_small_helpers
    assert relaxish._ffi.get_global_func is relaxish.get_global_func


def test_parameter_sets_are_marked_by_id():
    @testing.skip_parametrizations("two", reason="slow")
    @testing.xfail_parametrizations("one", reason="wrong")
    def probe(): ...

    assert {case: mark.name for case, mark in probe.relaxish_marked_parametrizations.items()} == {
        "one": "xfail", "two": "skip",
    }  # fmt: skip
