"""The registered functions that tests of calls and conversions use."""

from __future__ import annotations

import pytest

import relaxish
from relaxish import tir
from relaxish.support.errors import InternalError


def _function(name: str):
    return relaxish.get_global_func(f"testing.{name}")


def test_calls_and_callbacks():
    seen = []
    _function("test_wrap_callback")(lambda *args: seen.append(args))(1, "a")
    assert seen == [(1, "a")]
    assert _function("echo")("x") == "x" and _function("nop")(1, 2) is None
    with pytest.raises(InternalError, match="no way"):
        _function("test_raise_error_callback")("no way")()
    with pytest.raises(InternalError, match="1 vs. 2 : differ"):
        _function("test_check_eq_callback")("differ")(1, 2)
    assert _function("GetShapeSize")(relaxish.runtime.ShapeTuple([4, 5])) == 2
    assert _function("GetShapeElem")(relaxish.runtime.ShapeTuple([4, 5]), 1) == 5
    assert relaxish.get_global_func("testing.none_such", True) is None


def test_conversions():
    assert _function("AcceptsVariant")("s") == "runtime.String" and _function("AcceptsVariant")(3) == "IntImm"
    with pytest.raises(TypeError, match="Variant"):
        _function("AcceptsVariant")(1.5)
    assert _function("AcceptsPrimExpr")(True).dtype == "bool"
    whole, part = _function("AcceptsArrayOfPrimExpr")([1, 2.5])
    assert isinstance(whole, tir.IntImm) and isinstance(part, tir.FloatImm) and part.dtype == "float32"
    assert _function("AcceptsMapOfPrimExpr")({"a": 1})["a"].value == 1
    assert _function("ReturnsVariant")(5) == "argument was odd" and _function("ReturnsVariant")(8).value == 4
    with pytest.raises(TypeError):
        _function("AcceptsArrayReturnsSize")(3)
