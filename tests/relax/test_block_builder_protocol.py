"""BlockBuilder: scopes, normal form, names, duplicates, and the errors of misuse."""

from __future__ import annotations

import pytest

from relaxish import TVMError, relax, te, tir, topi
from relaxish.ir import VDevice, structural_equal
from relaxish.script import relax as R

n, m = tir.Var("n", "int64"), tir.Var("m", "int64")


def _tensor(name="x", shape=(n, m), dtype="float32"):
    return relax.Var(name, R.Tensor(shape, dtype))


def _built(write, *params, **options):
    bb = relax.BlockBuilder()
    with bb.function("main", list(params), **options):
        bb.emit_func_output(write(bb))
    return bb.get()


def test_blocks_of_one_kind_merge():
    x = _tensor()

    def write(bb):
        value = x
        for _ in range(2):
            with bb.dataflow():
                value = bb.emit_output(bb.emit(R.add(value, x)))
        return bb.emit(R.nn.relu(value))

    blocks = _built(write, x)["main"].body.blocks
    assert [(type(b).__name__, len(b.bindings)) for b in blocks] == [("DataflowBlock", 4), ("BindingBlock", 1)]


def test_misuse_raises():
    x, bb = _tensor(), relax.BlockBuilder()
    for write in (lambda: bb.emit(x), lambda: bb.dataflow().__enter__(), bb.current_block_is_dataflow):
        with pytest.raises(TVMError):
            write()
    with pytest.raises(RuntimeError):
        bb.emit_func_output(x)
    with pytest.raises(RuntimeError), bb.function("f"):
        bb.emit_func_output(x)
    with pytest.raises(RuntimeError), bb.function("f", [x]):
        bb.emit_func_output(x, [x])
    with pytest.raises(RuntimeError), bb.function("f", [x]):
        bb.emit(R.add(x, x))
    with pytest.raises(TVMError), bb.function("f", [x]):
        bb.emit_output(x)
    with pytest.raises(TypeError):
        bb.function("f", [x, 3])
    assert relax.BlockBuilder.current() is None
    with bb.function("f", [x]):
        bb.emit_func_output(x)
    assert bb.get()["f"].params[0] is x


def test_functions_may_nest():
    x, y, bb = _tensor(), _tensor("y"), relax.BlockBuilder()
    with bb.function("outer", [x]):
        value = bb.emit(R.add(x, x))
        with bb.function("inner", [y], private=True):
            bb.emit_func_output(bb.emit(R.nn.relu(y)))
        bb.emit_func_output(value)
    mod = bb.get()
    assert [v.name_hint for v in mod.get_global_vars()] == ["inner", "outer"]
    assert mod["outer"].body.blocks[0].bindings[0].value.op.name == "relax.add"


def test_impure_functions_and_void_values():
    x = _tensor()

    def write(bb):
        return bb.emit(R.print(x, format="{}"))

    func = _built(write, x, pure=False)["main"]
    assert not func.is_pure
    # Nothing depends on a value that is not there.
    assert isinstance(func.body.body, relax.Tuple) and len(func.body.body) == 0


def test_python_sequences_and_none_are_emitted():
    x = _tensor()
    body = _built(lambda bb: [bb.emit([x, [x, x]]), bb.emit(None)], x)["main"].body
    first, second = body.blocks[0].bindings
    assert isinstance(first.value, relax.Tuple) and isinstance(first.value[1], relax.Tuple)
    assert second.value.op.name == "relax.null_value"


def test_match_cast_is_checked_and_not_looked_up():
    x = _tensor()
    with pytest.raises(TVMError):
        _built(lambda bb: bb.match_cast(x, R.Tensor((3, 4), "int8")), x)

    def write(bb):
        cast = bb.match_cast(R.nn.relu(x), R.Tensor((3, 4), "float32"), name_hint="sized")
        assert bb.lookup_binding(cast) is None and cast.name_hint == "sized"
        total = bb.emit(R.add(cast, cast))
        assert bb.lookup_binding(total).op.name == "relax.add"
        return total

    func = _built(write, x)["main"]
    assert isinstance(func.body.blocks[0].bindings[0].value, relax.Call)
    assert structural_equal(func.ret_struct_info, R.Tensor((3, 4), "float32").as_struct_info())


def test_normalize_demands_struct_info():
    bb = relax.BlockBuilder()
    with pytest.raises(TVMError):
        bb.normalize(relax.Var("x"))
    x = _tensor()
    assert bb.normalize(x) is x


def test_a_sequence_splits_the_block_that_binds_it():
    x = _tensor()

    def nested(value):
        inner = relax.VarBinding(relax.Var("inner"), R.add(value, x))
        return relax.SeqExpr([relax.BindingBlock([inner])], x)

    def outside(bb):
        with bb.dataflow():
            out = bb.emit_output(bb.emit(nested(x)))
        return out

    blocks = _built(outside, x)["main"].body.blocks
    assert [type(b).__name__ for b in blocks] == ["BindingBlock", "DataflowBlock"]

    def leaking(bb):
        with bb.dataflow():
            out = bb.emit_output(bb.emit(nested(bb.emit(R.nn.relu(x)))))
        return out

    with pytest.raises(TVMError):
        _built(leaking, x)


def test_testing_scope_opens_a_dataflow_block():
    bb = relax.BlockBuilder()
    with bb.testing_scope(def_vars=[n]):
        assert bb.current_block_is_dataflow()
        assert isinstance(bb.emit(relax.ShapeExpr([n])), relax.DataflowVar)
    with pytest.raises(ValueError):
        bb.testing_scope(def_vars=["n"])


def test_blocks_by_hand():
    x, bb = _tensor(), relax.BlockBuilder()
    bb._begin_dataflow_block()
    var = bb.emit(R.add(x, x))
    block = bb._end_block()
    assert isinstance(block, relax.DataflowBlock) and block.bindings[0].var is var
    bb._begin_binding_block()
    with pytest.raises(TVMError):
        bb.emit_normalized(block.bindings[0])
    assert len(bb._end_block().bindings) == 0


def test_equal_functions_are_added_once_under_the_first_name():
    x, bb = _tensor(), relax.BlockBuilder()
    first = bb.add_func(relax.Function([x], x), "z")
    assert bb.add_func(relax.Function([_tensor("y")], relax.Var("q", x.struct_info)), "a") is not first
    assert bb.add_func(relax.Function([x], x), "b") is first
    bb.update_func(first, relax.Function([x], relax.Tuple([x])))
    assert isinstance(bb.get()["z"].body.body, relax.Tuple)


def test_te_arguments_become_parameters():
    x, scalar = _tensor(shape=(n + 1,)), relax.Var("s", R.Prim("int64"))

    def scaled(a, count):
        return te.compute(a.shape, lambda i: a[i] * count.astype("float32"), name="scaled")

    mod = _built(lambda bb: bb.emit_te(scaled, x, scalar), x, scalar)
    call = mod["main"].body.blocks[0].bindings[0].value
    assert [a.name_hint for a in call.args[1]] == ["x", "s"] and call.args[2].values[0].name == "n"
    kernel = mod["scaled"]
    assert [p.dtype for p in kernel.params] == ["handle", "int64", "handle", "int64"]
    assert str(kernel.buffer_map[kernel.params[0]].shape[0].a) == "n"


def test_te_needs_known_shapes():
    unknown, shape = relax.Var("u", R.Tensor(ndim=2, dtype="float32")), relax.Var("sh", R.Shape([n, m]))
    x = _tensor()
    for args in ((unknown,), (shape,), ({1: x},)):
        with pytest.raises(AssertionError):
            _built(lambda bb, args=args: bb.emit_te(lambda a: a, *args), unknown, shape, x)
    with pytest.raises(AssertionError):
        _built(lambda bb: bb.emit_te(lambda a: 3, x), x)
    with pytest.raises(TypeError):
        _built(lambda bb: bb.emit_te(lambda a, b: a, x, object()), x)
    with pytest.raises(ValueError):
        relax.expr.te_tensor(unknown, {})


def test_outputs_are_where_the_first_placed_argument_is():
    device = VDevice("cuda", 1)
    placed = relax.Var("x", relax.TensorStructInfo([4], "float32", device))
    plain = relax.Var("y", R.Tensor((4,), "float32"))
    func, args, infos, tir_vars = relax.utils.gen_call_tir_inputs(topi.add, plain, placed)
    assert isinstance(func, tir.PrimFunc) and args == [plain, placed] and tir_vars is None
    assert len(infos) == 1 and infos[0].vdevice is device


def test_what_cannot_be_normalized():
    x, bb = _tensor(), relax.BlockBuilder()
    # Nested calls need a block to be bound in.
    with pytest.raises(TVMError):
        bb.normalize(R.nn.relu(R.add(x, x)))
    with pytest.raises(TVMError):
        bb.normalize(relax.TupleGetItem(relax.Var("o", relax.ObjectStructInfo()), 0))
    # What a variable holds may become known after the projection was written.
    late, last = relax.Var("late"), relax.Var("last")
    lines = [relax.VarBinding(late, relax.Tuple([x])), relax.VarBinding(last, relax.TupleGetItem(late, 0))]
    assert structural_equal(bb.normalize(relax.SeqExpr([relax.BindingBlock(lines)], last)).struct_info.ndim, 2)
