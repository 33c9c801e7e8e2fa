"""Conditionals of calls made for their effects alone are printed as such, and parsed back as they were."""

from __future__ import annotations

import pytest

from relaxish import relax
from relaxish.ir import assert_structural_equal
from relaxish.script import from_source
from relaxish.script import relax as R


@R.function(pure=False)
def plain(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
    if c:
        R.print(x, format="a")
        R.print(x, format="b")
    else:
        R.print(x, format="c")
    return x


@R.function(pure=False)
def nested(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
    if c:
        if c:
            R.print(x, format="a")
        else:
            R.assert_op(c)
    else:
        y = R.add(x, x)
        R.print(y, format="b")
    z = R.exp(x)
    return z


@pytest.mark.parametrize("func", [plain, nested])
def test_round_trip(func: relax.Function) -> None:
    text = func.script()
    assert "__1" not in text and "R.Tuple" not in text
    assert_structural_equal(from_source(text), func)


def test_values_keep_their_names() -> None:
    @R.function
    def func(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
        if c:
            y = R.add(x, x)
        else:
            y = R.exp(x)
        return y

    assert func.script().count('y: R.Tensor((2,), dtype="float32") = ') == 2
