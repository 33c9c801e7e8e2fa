"""Nodes: roles, equality both ways, hash, JSON, immutability, modules."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import relaxish
from relaxish import ir, tir
from relaxish.support.errors import InternalError


def loop(name="A", extent=16):
    buf = tir.decl_buffer((extent,), "float32", name)
    i = tir.Var("i", "int32")
    body = tir.For(i, 0, extent, tir.ForKind.SERIAL, tir.BufferStore(buf, buf[i] + 1.0, [i]))
    return tir.PrimFunc([buf], body)


def test_equal_up_to_names_and_hash_alike():
    a, b = loop("A"), loop("B")
    ir.assert_structural_equal(a, b)
    assert ir.structural_hash(a) == ir.structural_hash(b)
    assert not ir.structural_equal(a, loop(extent=8))


def test_variables_map_both_ways():
    x, y, z = (tir.Var(n, "int32") for n in "xyz")
    assert ir.structural_equal(x + y, y + z, map_free_vars=True)
    # x and y are two variables on the left; z twice on the right is one.
    assert not ir.structural_equal(tir.Add(x, y), tir.Add(z, z), map_free_vars=True)
    assert not ir.structural_equal(tir.Add(z, z), tir.Add(x, y), map_free_vars=True)


def test_mismatch_names_the_path():
    found = ir.get_first_structural_mismatch(loop(), loop(extent=8))
    assert found is not None and "buffer_map" in str(found.lhs_path)
    with pytest.raises(ValueError, match="StructuralEqual check failed"):
        ir.assert_structural_equal(loop(), loop(extent=8))


@pytest.mark.skipif(not ir.node.CHECK, reason="RELAXISH_CHECK is not set")
def test_nodes_are_immutable_when_checked():
    with pytest.raises(AttributeError, match="immutable"):
        loop().body = None


def test_json_round_trip_of_functions_and_arrays():
    func = loop()
    back = ir.load_json(ir.save_json(func))
    ir.assert_structural_equal(func, back)
    mod = ir.IRModule({"main": func}).with_attr("note", "x")
    ir.assert_structural_equal(mod, ir.load_json(ir.save_json(mod)))
    data = np.random.rand(3, 2).astype("float32")
    np.testing.assert_array_equal(np.asarray(ir.load_json(ir.save_json([data]))[0]), data)
    with pytest.raises(ValueError, match="not a relaxish IR JSON"):
        ir.load_json("{}")


def test_module_lookup_and_update():
    mod = ir.IRModule({"f": loop()})
    assert "f" in mod and mod["f"] is mod[mod.get_global_var("f")]
    with pytest.raises(ValueError, match="Cannot find global var"):
        mod.get_global_var("g")
    copy = mod.clone()
    copy["g"] = loop()
    assert "g" not in mod and len(copy) == 2


def test_integer_division_needs_a_choice():
    x = tir.Var("x", "int32")
    with pytest.raises(RuntimeError, match="ambiguous"):
        x / 2
    assert isinstance(x // 2, tir.FloorDiv)
    with pytest.raises(ValueError, match="Divide by zero"):
        x // 0


def test_comparison_is_identity_until_used():
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    assert not (x == y) and (x == x)
    assert isinstance((x == y).asobject(), tir.EQ)
    with pytest.raises(ValueError, match="truth value"):
        bool(x < y)


small = st.integers(-50, 50)


@settings(max_examples=200, deadline=None)
@given(a=small, b=small.filter(bool))
def test_folding_agrees_with_python(a, b):
    ea, eb = tir.const(a, "int32"), tir.const(b, "int32")
    assert int(ea // eb) == a // b and int(ea % eb) == a % b
    assert int(tir.truncdiv(ea, eb)) == int(a / b) and int(ea * eb - ea) == a * b - a


@settings(max_examples=50, deadline=None)
@given(st.integers(-(2**40), 2**40))
def test_folding_wraps_like_the_machine(value):
    folded = int(tir.const(value, "int64").astype("int32"))
    assert folded == int(np.int64(value).astype(np.int32))


def test_pass_context_and_sequential():
    seen = []

    @relaxish.ir.transform.module_pass(opt_level=2, name="Note")
    def note(mod, ctx):
        seen.append(ctx.opt_level)
        return mod

    mod = ir.IRModule({"f": loop()})
    with ir.transform.PassContext(opt_level=3):
        ir.transform.Sequential([note])(mod)
    with ir.transform.PassContext(opt_level=1):
        ir.transform.Sequential([note])(mod)
    assert seen == [3]
    with pytest.raises(AttributeError, match="Invalid config option"):
        ir.transform.PassContext(config={"no.such": 1})


def test_instruments_see_every_pass():
    log = []

    @ir.instrument.pass_instrument
    class Log:
        def enter_pass_ctx(self):
            log.append("enter")

        def exit_pass_ctx(self):
            log.append("exit")

        def should_run(self, mod, info):
            return info.name != "skipped"

        def run_before_pass(self, mod, info):
            log.append(info.name)

    def named(name):
        return ir.transform.module_pass(lambda mod, ctx: mod, opt_level=0, name=name)

    timing = ir.instrument.PassTimingInstrument()
    with ir.transform.PassContext(instruments=[Log(), timing]):
        ir.transform.Sequential([named("one"), named("skipped")], name="all")(ir.IRModule({"f": loop()}))
        assert "one" in timing.render()
    assert log == ["enter", "all", "one", "exit"]


def test_apply_pass_to_function():
    @ir.transform.module_pass(opt_level=0)
    def mark(mod, ctx):
        return ir.IRModule({v: f.with_attr("seen", 1) for v, f in mod.functions.items()})

    mod = ir.IRModule({"a1": loop(), "b1": loop()})
    out = ir.transform.ApplyPassToFunction(mark, "a.*")(mod)
    assert "seen" in out["a1"].attrs and "seen" not in out["b1"].attrs
    with pytest.raises(InternalError, match="No function matched"):
        ir.transform.ApplyPassToFunction(mark, "zzz", True)(mod)


def test_layouts():
    conv = tir.bijective_layout("NCHW", "NCHW16c")
    assert [int(d) for d in conv.forward_shape([1, 32, 7, 7])] == [1, 2, 7, 7, 16]
    assert [int(d) for d in conv.backward_shape([1, 2, 7, 7, 16])] == [1, 32, 7, 7]
    with pytest.raises(ValueError, match="missing axis"):
        tir.layout("NHW16c")


def test_index_map_inverse():
    index_map = tir.IndexMap.from_func(lambda i, j: [i // 4, j, i % 4])
    assert [int(d) for d in index_map.map_shape([16, 8])] == [4, 8, 4]
    inverse = index_map.inverse([16, 8])
    data = np.arange(128, dtype="int32").reshape(16, 8)
    moved = index_map.map_ndarray(data)
    np.testing.assert_array_equal(inverse.map_ndarray(moved), data)


def test_missing_attributes():
    attrs = ir.DictAttrs({"kind": 1})
    assert attrs["kind"] == attrs.kind == 1 and not hasattr(attrs, "other")
    with pytest.raises(KeyError):
        attrs["other"]
    with pytest.raises(AttributeError):
        ir.DictAttrs({"kind": 1}, "relax.attrs.OtherAttrs")["other"]


def test_no_attributes_are_false() -> None:
    func = tir.PrimFunc([], tir.Evaluate(0))
    assert not func.attrs and len(func.attrs) == 0
    named = func.with_attr("global_symbol", "main")
    assert named.attrs and len(named.attrs) == 1


def test_states_are_copies() -> None:
    x = tir.Var("x", "int32")
    buffer = tir.decl_buffer((x, 4), "float32")
    store = tir.BufferStore(buffer, 1.0, [0, 0])
    shape, before = buffer.shape, store.script()
    store.__setstate__(store.__getstate__())
    assert store.script() == before
    assert not store.buffer.same_as(buffer) and not store.buffer.shape[0].same_as(shape[0])
    with pytest.raises(TypeError, match="BufferStore"):
        x.__setstate__(store.__getstate__())
