"""Functions that targets have implementations of."""

from __future__ import annotations

import pytest

from relaxish.target import Target, generic_func, get_native_generic_func, override_native_generic_func

GPU = Target("cuda -arch=sm_80", host="llvm")


def test_keys_are_tried_in_order():
    @generic_func
    def width():
        return "default"

    width.register("gpu", lambda: "gpu")

    @width.register(["cuda"])
    def _():
        return "cuda"

    assert width() == "default" == width.fdefault()
    with GPU:
        assert width() == "cuda"
    with Target("llvm"):
        assert width() == "default"
    with pytest.raises(ValueError, match="already registered"):
        width.register("cuda", lambda: "again")
    width.register("cuda", lambda: "again", override=True)
    with GPU:
        assert width() == "again"


def test_named_functions_are_shared():
    @override_native_generic_func("test.generic.depth")
    def depth(x):
        return x

    @depth.register("cuda")
    def _(x):
        return 2 * x

    assert depth(3) == get_native_generic_func("test.generic.depth")(3) == 3
    with GPU:
        assert depth(3) == get_native_generic_func("test.generic.depth")(3) == 6


def test_without_default():
    with pytest.raises(ValueError, match="no generic function"):
        get_native_generic_func("test.generic.nothing")()
