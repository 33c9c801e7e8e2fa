"""Arguments are checked against annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional, Union

import pytest

from relaxish.ir.object_generic import ObjectGeneric, convert_to_object
from relaxish.tir import IntImm, const
from relaxish.tir.schedule._type_checker import type_checked


@pytest.mark.parametrize(("kind", "good", "bad"), [
    (int, [1], ["1", None]), (str, [""], [0]), (Any, [1, "x", None], []), (None, [None], [0]),
    (Optional[int], [1, None], ["x"]), (Union[int, str], [1, "x"], [1.5, None]), (int | None, [None, 2], ["x"]),
    (list[int], [[], [1], (1, 2)], [1, ["x"], {1}]), (dict[str, int], [{}, {"a": 1}], [{1: 1}, {"a": "b"}, []]),
    (tuple[int, str], [(1, "x")], [(1,), ("x", 1), [1, "x"]]), (tuple[int, ...], [(), (1, 2)], [(1, "x")]),
    (list[Optional[int]], [[1, None]], [["x"]]), (Callable, [len], [1]), (Callable[[int], int], [len], ["x"]),
    (IntImm, [IntImm("int32", 1)], [1]), (list[Union[int, list[str]]], [[1, ["x"]]], [[[1]]]),
])  # fmt: skip
def test_kinds(kind, good, bad):
    def plain(x):
        return x

    plain.__annotations__["x"] = kind
    checked = type_checked(plain)
    for value in good:
        assert checked(value) == value
    for value in bad:
        with pytest.raises(TypeError, match="plain"):
            checked(value)


def test_defaults_and_other_parameters():
    @type_checked
    def func(a: int, b, *, c: str = "x") -> str:
        return f"{a}{b}{c}"

    assert func(1, None) == "1Nonex" and func.__name__ == "func"
    with pytest.raises(TypeError, match=r'"c" has to be of type "str", not "int"'):
        func(1, 2, c=3)


def test_objects_that_stand_for_values():
    class Half(ObjectGeneric):
        def asobject(self):
            return const(0.5, "float32")

    assert convert_to_object([Half(), 2])[0].value == 0.5
