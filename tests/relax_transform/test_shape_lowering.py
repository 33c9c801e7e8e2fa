"""VMShapeLower: the heap of dimensions, the checks and their order; kills after last uses; the machine's builtins."""

from __future__ import annotations

import pytest

from relaxish import IRModule, relax, tir
from relaxish.ir import assert_structural_equal
from relaxish.relax import transform
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import InternalError

IMM, STORE, NO_OP, LOAD = range(4)


def _lower(mod):
    return transform.VMShapeLower(emit_err_ctx=False)(mod)


def test_static_shapes_need_no_heap():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((), "int32")) -> R.Tensor((2, 3), "float32"):
            R.func_attr({"relax.force_pure": True})
            return x

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((), "int32")) -> R.Tensor((2, 3), "float32"):
            R.func_attr({"relax.force_pure": True})
            heap = R.null_value()
            _ = R.call_packed(
                "vm.builtin.check_tensor_info", x, R.prim_value(2), R.dtype("float32"), R.str(""), sinfo_args=R.Tuple()
            )
            _1 = R.call_packed(
                "vm.builtin.check_tensor_info", y, R.prim_value(0), R.dtype("int32"), R.str(""), sinfo_args=R.Tuple()
            )
            _2 = R.call_packed(
                "vm.builtin.match_shape", x, heap, R.prim_value(2), R.prim_value(IMM), R.prim_value(2),
                R.prim_value(IMM), R.prim_value(3), R.str(""), sinfo_args=R.Tuple(),
            )  # fmt: skip
            return x

    assert_structural_equal(_lower(Before), Expected)


def test_expressions_are_computed_by_a_host_function():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")) -> R.Shape(ndim=2):
            n = T.int64()
            m = T.int64()
            R.func_attr({"relax.force_pure": True})
            return R.shape([m + 1, n * 2])

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def shape_func(H: T.Buffer((T.int64(4),), "int64")):
            T.func_attr({"tir.is_host_func": 1})
            H[T.int64(3)] = H[T.int64(0)] * T.int64(2)
            H[T.int64(2)] = H[T.int64(1)] + T.int64(1)

        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")) -> R.Shape(["m + 1", "n * 2"]):
            R.func_attr({"relax.force_pure": True})
            heap = R.call_builtin_with_ctx(
                "vm.builtin.alloc_shape_heap", (R.prim_value(4),), sinfo_args=(R.Tensor(ndim=1, dtype="int64"),)
            )
            _ = R.call_packed(
                "vm.builtin.check_tensor_info", x, R.prim_value(2), R.dtype("float32"), R.str(""), sinfo_args=R.Tuple()
            )
            _1 = R.call_packed(
                "vm.builtin.match_shape", x, heap, R.prim_value(2), R.prim_value(STORE), R.prim_value(0),
                R.prim_value(STORE), R.prim_value(1), R.str(""), sinfo_args=R.Tuple(),
            )  # fmt: skip
            _2 = Expected.shape_func(heap)
            s = R.call_packed(
                "vm.builtin.make_shape", heap, R.prim_value(2), R.prim_value(1), R.prim_value(2), R.prim_value(1),
                R.prim_value(3), sinfo_args=R.Shape(ndim=2),
            )  # fmt: skip
            _3 = R.call_packed(
                "vm.builtin.match_shape", s, heap, R.prim_value(2), R.prim_value(LOAD), R.prim_value(2),
                R.prim_value(LOAD), R.prim_value(3), R.str(""), sinfo_args=R.Tuple(),
            )  # fmt: skip
            return s

    assert_structural_equal(_lower(Before), Expected)


def test_weights_are_checked_where_they_are_symbolic():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32"), v: R.Tensor(("k",), "float32")
        ) -> R.Tensor((4,), "float32"):
            R.func_attr({"relax.force_pure": True, "num_input": 1})
            return x

    text = _lower(Before).script()
    assert text.count("check_tensor_info") == 2 and '"vm.builtin.check_tensor_info", w' not in text
    assert text.count("match_shape") == 2


def test_only_fields_that_need_it_are_read():
    @I.ir_module
    class Before:
        @R.function
        def main(t: R.Tuple(R.Object, R.Tuple(R.Tensor((4,), "float32"), R.Object))) -> R.Object:
            R.func_attr({"relax.force_pure": True})
            return t

    main = _lower(Before)["main"]
    reads = [
        str(b.value)
        for block in main.body.blocks
        for b in block.bindings
        if b.value.__class__.__name__ == "TupleGetItem"
    ]
    assert len(reads) == 2
    assert main.script().count("check_tuple_info") == 2


def test_intermediate_tensors_have_cells_too():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Object:
            n = T.int64()
            R.func_attr({"relax.force_pure": True})
            y = R.call_packed("make", x, sinfo_args=R.Tensor((n * 2,), "float32"))
            z = R.call_packed("use", y, sinfo_args=R.Object())
            return z

    assert "R.prim_value(2)" in _lower(Before)["main"].body.blocks[0].bindings[0].value.script()


def test_undefined_dimensions_and_local_functions_are_refused():
    @I.ir_module
    class Local:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"relax.force_pure": True})

            @R.function
            def inner(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                return y

            z = inner(x)
            return z

    with pytest.raises(InternalError, match="LambdaLift"):
        _lower(Local)

    x = relax.Var("x", relax.TensorStructInfo([tir.Var("n", "int64") + 1], "float32"))
    func = relax.Function([x], x, attrs={"relax.force_pure": True})
    with pytest.raises(InternalError, match="not defined in the function"):
        _lower(IRModule({"main": func}))


def test_tuples_end_too_and_branches_free_their_own():
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
            t = R.call_packed("pair", x, sinfo_args=R.Tuple(R.Object, R.Object))
            a = R.call_packed("first", t, sinfo_args=R.Tensor((4,), "float32"))
            if c:
                s = R.call_packed("inside", x, sinfo_args=R.Object())
                b = R.call_packed("outside", s, sinfo_args=R.Tensor((4,), "float32"))
            else:
                b = x
            r = R.call_packed("last", a, b, sinfo_args=R.Tensor((4,), "float32"))
            return r

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
            t = R.call_packed("pair", x, sinfo_args=R.Tuple(R.Object, R.Object))
            a = R.call_packed("first", t, sinfo_args=R.Tensor((4,), "float32"))
            _ = R.vm.kill_object(t)
            if c:
                s = R.call_packed("inside", x, sinfo_args=R.Object())
                b0 = R.call_packed("outside", s, sinfo_args=R.Tensor((4,), "float32"))
                _1 = R.vm.kill_object(s)
                b = b0
            else:
                b = x
            r = R.call_packed("last", a, b, sinfo_args=R.Tensor((4,), "float32"))
            _2 = R.memory.kill_tensor(a)
            _3 = R.memory.kill_tensor(b)
            return r

    assert_structural_equal(transform.KillAfterLastUse()(Before), Expected)


def test_builtins_of_the_machine():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), f: R.Object) -> R.Object:
            R.func_attr({"relax.force_pure": True})
            s = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("float32"))
            a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([4]), R.dtype("float32"))
            v = R.memory.view(x, R.shape([2, 2]))
            same = R.memory.view(v)
            r = R.invoke_closure(f, (a, same), sinfo_args=R.Tensor((4,), "float32"))
            return r

    after = transform.LowerRuntimeBuiltin()(Before)
    text = after.script()
    assert 'R.vm.alloc_storage(R.shape([16]), R.prim_value(0), R.dtype("uint8"), R.str("global"))' in text
    bindings = after["main"].body.blocks[0].bindings
    view = bindings[2].value
    assert view.op.global_symbol == "runtime.TVMArrayCreateView" and not view.sinfo_args and len(view.args) == 4
    assert [int(d) for d in view.struct_info.shape.values] == [2, 2]
    assert bindings[3].value is bindings[2].var
    assert str(bindings[4].value.sinfo_args[0]) == "R.Object"

    @I.ir_module
    class TooEarly:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
            return a

    with pytest.raises(InternalError, match="LowerAllocTensor"):
        transform.LowerRuntimeBuiltin()(TooEarly)
