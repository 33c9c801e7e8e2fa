"""Helpers of ``topi.utils`` that users of the field's API call."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import te, tir, topi
from relaxish.arith import Analyzer
from relaxish.ir import assert_structural_equal
from relaxish.target import Target
from relaxish.topi import utils

N = te.var("n")


def test_constants():
    assert utils.get_const_float(tir.FloatImm("float32", 0.5)) == 0.5
    assert utils.get_float_tuple([0.25, tir.FloatImm("float32", 2)]) == (0.25, 2.0)
    with pytest.raises(ValueError, match="constant float"):
        utils.get_const_float(te.var("x", "float32"))
    assert utils.equal_const_int(tir.IntImm("int32", 3) - 3, 0) and not utils.equal_const_int(N, 0)
    assert utils.is_dynamic_shape((2, N)) and not utils.is_dynamic_shape((2, 3))
    assert utils.swap([1, 2, 3], 0) == [3, 2, 1]
    assert utils.ceil_div(7, 2) == 4 and utils.get_max_power2_factor(7) == 1
    with Target("cuda -arch=sm_80", host="llvm"):
        assert utils.is_target(["gpu", "cpu"]) and not utils.is_target("cpu")
    assert [int(d) for d in utils.get_shape((1, 8, 5, 6), "NCHW", "NCHW4c")] == [1, 2, 5, 6, 4]
    assert issubclass(utils.InvalidShapeError, ValueError)


def test_steps_of_slices():
    number = Analyzer().simplify
    for begin, end, step in ((1, 9, 3), (8, 0, -2)):
        wanted = list(range(begin, end, step))
        for index in range(10):
            b, e, s, i = (tir.IntImm("int32", x) for x in (begin, end, step, index))
            assert bool(number(utils.within_index(b, e, s, i)).value) == (index in wanted)
            if index in wanted:
                place = utils.make_idx(b, e, s, tir.IntImm("int32", 10), i)
                assert int(number(place).value) == wanted.index(index)


def test_matrices():
    table = topi.utils.const_matrix(np.eye(2, dtype="float32"), "identity")
    assert table.op.attrs["schedule_rule"] == "None" and table.dtype == "float32"
    func = te.create_prim_func([table])
    assert "const_matrix" not in func.body.block.body.body.body.block.annotations


def test_logaddexp():
    x, y = te.var("x", "float32"), te.var("y", "float64")
    assert_structural_equal(te.logaddexp(x, x), tir.log(tir.exp(x) + tir.exp(x)))
    assert te.logaddexp(x, y).dtype == "float64"
    with pytest.raises(RuntimeError, match="floating"):
        te.logaddexp(N, N)


def test_clip_takes_its_bounds_from_scalar_tensors() -> None:
    data = te.placeholder((4, 5), "float32", "data")
    low, high = te.placeholder((), "float32", "low"), te.placeholder((), "float32", "high")
    clipped = topi.clip(data, low, high)
    func = relaxish.build(te.create_prim_func([data, low, high, clipped]), target="llvm")
    rng = np.random.default_rng(7)
    values = rng.normal(size=(4, 5)).astype("float32")
    bounds = [np.asarray(bound, "float32") for bound in (-0.4, 0.3)]
    out = relaxish.nd.empty((4, 5), "float32")
    func(relaxish.nd.array(values), *map(relaxish.nd.array, bounds), out)
    np.testing.assert_array_equal(out.numpy(), np.clip(values, *bounds))
