"""Where structural comparison finds the first difference, and what the error says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish.support.errors import RelaxishError
from relaxish import ir, tir
from relaxish.runtime import ObjectPath, object_path
from relaxish.script import tir as T

ROOT = ObjectPath.root()


def test_paths_as_text_and_by_class() -> None:
    path = ROOT.attr("body").array_index(2).missing_array_element(3).map_value('k"').missing_map_entry().attr(None)
    assert str(path) == '<root>.body[2][<missing element #3>]["k\\""][<missing entry>].<unknown attribute>'
    kinds = [type(path.get_prefix(i)).__name__ for i in range(1, len(path) + 1)]
    assert kinds == [
        "RootPath", "AttributeAccessPath", "ArrayIndexPath", "MissingArrayElementPath", "MapValuePath",
        "MissingMapEntryPath", "UnknownAttributeAccessPath",
    ]  # fmt: skip
    assert isinstance(ROOT, object_path.RootPath) and ROOT.parent is None and path.get_prefix(2).parent == ROOT
    assert str(ObjectPath.root("mod").attr("x")) == "mod.x"


def test_paths_are_values() -> None:
    assert ROOT.attr("a") == ObjectPath.root().attr("a") != ROOT.attr("b")
    assert ROOT.array_index(1) != ROOT.missing_array_element(1) and ROOT.map_value("a") != ROOT.attr("a")
    assert len({ROOT.attr("a"), ROOT.attr("a"), ROOT.array_index(0)}) == 2
    x, y = tir.Var("x", "int32"), tir.Var("x", "int32")
    assert ROOT.map_value(x) == ROOT.map_value(x) != ROOT.map_value(y)
    assert ROOT.is_prefix_of(ROOT.attr("a")) and not ROOT.attr("a").is_prefix_of(ROOT)
    with pytest.raises(IndexError, match="at least 1"):
        ROOT.get_prefix(0)
    with pytest.raises(IndexError, match="longer than the path"):
        ROOT.get_prefix(2)


@pytest.mark.parametrize(
    ("lhs", "rhs", "lhs_path", "rhs_path"),
    [
        ([1, 2], [1, 3], ROOT.array_index(1).attr("value"), ROOT.array_index(1).attr("value")),
        ([1], [1, 2], ROOT.missing_array_element(1), ROOT.array_index(1)),
        ([2], [1, 2], ROOT.array_index(0).attr("value"), ROOT.array_index(0).attr("value")),
        ({"a": 1}, {"a": 1, "b": 2}, ROOT.missing_map_entry(), ROOT.map_value("b")),
        ({"a": "x"}, {"a": "y"}, ROOT.map_value("a"), ROOT.map_value("a")),
        ({"a": [1]}, {"a": [2]}, ROOT.map_value("a").array_index(0).attr("value"), ROOT.map_value("a").array_index(0).attr("value")),
    ],
)  # fmt: skip
def test_containers(lhs: Any, rhs: Any, lhs_path: ObjectPath, rhs_path: ObjectPath) -> None:
    assert ir.get_first_structural_mismatch(lhs, rhs) == (lhs_path, rhs_path)
    assert ir.get_first_structural_mismatch(rhs, lhs) == (rhs_path, lhs_path)
    assert ir.get_first_structural_mismatch(lhs, lhs) is None


def _expect(lhs: Any, rhs: Any, path: ObjectPath, rhs_path: ObjectPath | None = None) -> None:
    assert ir.get_first_structural_mismatch(lhs, rhs) == (path, rhs_path or path)
    with pytest.raises(ValueError) as caught:
        ir.assert_structural_equal(lhs, rhs)
    assert str(caught.value) == (
        f"ValueError: StructuralEqual check failed, caused by lhs at {path}:\n"
        f"{lhs.script(path_to_underline=[path], syntax_sugar=False)}\nand rhs at {rhs_path or path}:\n"
        f"{rhs.script(path_to_underline=[rhs_path or path], syntax_sugar=False)}"
    )


def test_function_bodies_and_parameters() -> None:
    @T.prim_func
    def f1(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (8, 4))
        A[0, 1] = T.float32(1)

    @T.prim_func
    def f2(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (8, 4))
        A[0, 2] = T.float32(1)

    @T.prim_func
    def f3(a: T.handle, b: T.int32):
        A = T.match_buffer(a, (8, 4))
        A[0, 1] = T.float32(1)

    @T.prim_func
    def f4(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (8, 5))
        A[0, 1] = T.float32(1)

    @T.prim_func
    def f5(a: T.handle):
        A = T.match_buffer(a, (8, 4))
        A[0, 1] = T.float32(1)

    one, two, three, four, five = (f.with_attr("global_symbol", "main") for f in (f1, f2, f3, f4, f5))
    _expect(one, two, ROOT.attr("body").attr("indices").array_index(1).attr("value"))
    _expect(one, three, ROOT.attr("params").array_index(1).attr("dtype"))
    left, right = (
        ROOT.attr("buffer_map").map_value(f.params[0]).attr("shape").array_index(1).attr("value") for f in (one, four)
    )
    _expect(one, four, left, right)
    _expect(five, one, ROOT.attr("params").missing_array_element(1), ROOT.attr("params").array_index(1))
    _expect(f1, one, ROOT.attr("attrs").attr("__dict__").map_value("global_symbol"))


def test_what_a_node_says_of_itself_comes_before_its_children() -> None:
    def loop(extent: int, kind: tir.ForKind, **notes: Any) -> tir.For:
        return tir.For(tir.Var("i", "int32"), 0, extent, kind, tir.Evaluate(0), annotations=notes)

    _expect(loop(4, tir.ForKind.SERIAL), loop(8, tir.ForKind.PARALLEL), ROOT.attr("kind"))
    _expect(loop(4, tir.ForKind.SERIAL), loop(8, tir.ForKind.SERIAL), ROOT.attr("extent").attr("value"))
    notes = ROOT.attr("annotations")
    _expect(
        loop(4, tir.ForKind.SERIAL),
        loop(4, tir.ForKind.SERIAL, key=1),
        notes.missing_map_entry(),
        notes.map_value("key"),
    )


def test_modules_are_compared_by_function_name() -> None:
    a = ir.IRModule({"f": tir.PrimFunc([], tir.Evaluate(0)), "g": tir.PrimFunc([], tir.Evaluate(1))})
    b = ir.IRModule({"g": tir.PrimFunc([], tir.Evaluate(1)), "f": tir.PrimFunc([], tir.Evaluate(2))})
    tail = ("body", "value", "value")
    paths = [ROOT.attr("functions").map_value(m.get_global_var("f")) for m in (a, b)]
    for name in tail:
        paths = [p.attr(name) for p in paths]
    _expect(a, b, paths[0], paths[1])


def test_error_text() -> None:
    with pytest.raises(ValueError) as caught:
        ir.assert_structural_equal(tir.PrimFunc([], tir.Evaluate(3)), tir.PrimFunc([], tir.Evaluate(44)))
    assert (
        str(caught.value)
        == """\
ValueError: StructuralEqual check failed, caused by lhs at <root>.body.value.value:
# from relaxish.script import tir as T

@T.prim_func(private=True)
def main():
    T.evaluate(3)
               ^
and rhs at <root>.body.value.value:
# from relaxish.script import tir as T

@T.prim_func(private=True)
def main():
    T.evaluate(44)
               ^^"""
    )


def test_arrays_and_floats() -> None:
    ones = relaxish.nd.array(np.ones(4, "float32"))
    assert ir.structural_equal(ones, relaxish.nd.array(np.ones(4, "float32")))
    assert not ir.structural_equal({"w": ones}, {"w": relaxish.nd.array(np.ones(4, "float64"))})
    assert ir.structural_equal(tir.FloatImm("float32", 0.1), tir.FloatImm("float32", 0.1 + 1e-10))
    assert not ir.structural_equal(tir.FloatImm("float32", 0.1), tir.FloatImm("float32", 0.1 + 1e-8))
    nan = tir.FloatImm("float32", float("nan"))
    assert ir.structural_equal(nan, tir.FloatImm("float32", float("nan")))


def test_constants_keep_the_value_given() -> None:
    assert tir.const(0.1, "float32").value == 0.1
    assert (tir.const(0.1, "float32") + tir.const(0.2, "float32")).value == float(np.float32(0.1) + np.float32(0.2))
    back = ir.load_json(ir.save_json(tir.const(0.1, "float16")))
    assert back.value == 0.1 and back.dtype == "float16"


def test_make_node() -> None:
    made = ir.make_node("IntImm", dtype="int8", value=3, span=None)
    assert isinstance(made, tir.IntImm) and made.dtype == "int8"
    i = tir.Var("i", "int32")
    ir.assert_structural_equal(ir.make_node("tir.Add", a=i, b=made.astype("int32")), i + 3)
    attrs = ir.make_node("DictAttrs", x=1, y=[1, 2], name="n")
    assert isinstance(attrs, ir.DictAttrs) and attrs.name == attrs["name"] == "n" and "x" in attrs and len(attrs) == 3
    ir.assert_structural_equal(attrs, ir.load_json(ir.save_json(attrs)))
    with pytest.raises(RelaxishError, match="Cannot find type NoSuchNode"):
        ir.make_node("NoSuchNode", x=1)
    for fields in ({"dtype": "int32"}, {"dtype": "int32", "value": 1, "more": 2}, {}):
        with pytest.raises(RelaxishError, match="IntImm is not made of"):
            ir.make_node("IntImm", **fields)


def test_attributes_of_functions_and_modules() -> None:
    func = tir.PrimFunc([], tir.Evaluate(0)).with_attrs({"a": 1}).with_attrs({"b": "x"})
    assert dict(func.attrs) == {"a": 1, "b": "x"} and dict(func.without_attr("a").attrs) == {"b": "x"}
    mod = ir.IRModule({"f": func})
    assert len(mod.attrs) == 0 and mod.get_attr("z") is None
    assert dict(mod.with_attr("z", 1).with_attrs({"y": 2}).without_attr("z").attrs) == {"y": 2}
