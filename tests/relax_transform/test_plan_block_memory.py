"""StaticPlanBlockMemory: which allocations share storage, and of what size."""

from __future__ import annotations

import pytest

from relaxish import relax
from relaxish.ir import assert_structural_equal
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import RelaxishError


def _plan(mod):
    return relax.transform.StaticPlanBlockMemory()(mod)


def test_a_freed_tensor_lends_its_storage_and_grows():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tensor((16,), "float32"):
            R.func_attr({"relax.force_pure": True})
            a = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
            _ = R.call_packed("k0", x, a, sinfo_args=R.Tuple())
            b = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
            _1 = R.call_packed("k1", a, b, sinfo_args=R.Tuple())
            c = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0))
            _2 = R.call_packed("k2", b, c, sinfo_args=R.Tuple())
            d = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0))
            _3 = R.call_packed("k3", c, d, sinfo_args=R.Tuple())
            return d

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tensor((16,), "float32"):
            R.func_attr({"relax.force_pure": True})
            s = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("float32"))
            a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([8]), R.dtype("float32"))
            _ = R.call_packed("k0", x, a, sinfo_args=R.Tuple())
            s1 = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("float32"))
            b = R.memory.alloc_tensor(s1, R.prim_value(0), R.shape([4]), R.dtype("float32"))
            _1 = R.call_packed("k1", a, b, sinfo_args=R.Tuple())
            c = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([16]), R.dtype("float32"))
            _2 = R.call_packed("k2", b, c, sinfo_args=R.Tuple())
            d = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0))
            _3 = R.call_packed("k3", c, d, sinfo_args=R.Tuple())
            return d

    assert_structural_equal(_plan(Before), Expected)


def test_other_dtypes_and_scopes_do_not_share():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tuple():
            R.func_attr({"relax.force_pure": True})
            a = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
            _ = R.call_packed("k0", x, a, sinfo_args=R.Tuple())
            b = R.builtin.alloc_tensor(R.shape([8]), R.dtype("int32"), R.prim_value(0))
            _1 = R.call_packed("k1", x, b, sinfo_args=R.Tuple())
            c = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0), "texture")
            _2 = R.call_packed("k1", x, c, sinfo_args=R.Tuple())
            d = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
            _3 = R.call_packed("k1", x, d, sinfo_args=R.Tuple())
            return _3

    text = _plan(Before).script()
    assert text.count("alloc_storage") == 3
    assert 'R.str("texture")' in text


def test_unused_allocations_take_memory_of_their_own():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tuple():
            R.func_attr({"relax.force_pure": True})
            a = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
            _ = R.call_packed("k0", x, a, sinfo_args=R.Tuple())
            b = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
            c = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
            _1 = R.call_packed("k0", x, c, sinfo_args=R.Tuple())
            return _1

    assert _plan(Before).script().count("alloc_storage") == 2


def test_symbolic_sizes_share_where_they_are_equal():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")) -> R.Tuple():
            n = T.int64()
            m = T.int64()
            R.func_attr({"relax.force_pure": True})
            a = R.builtin.alloc_tensor(R.shape([n, m]), R.dtype("float32"), R.prim_value(0))
            _ = R.call_packed("k0", x, a, sinfo_args=R.Tuple())
            b = R.builtin.alloc_tensor(R.shape([m, 3, n]), R.dtype("float32"), R.prim_value(0))
            _1 = R.call_packed("k0", x, b, sinfo_args=R.Tuple())
            c = R.builtin.alloc_tensor(R.shape([m * n]), R.dtype("float32"), R.prim_value(0))
            _2 = R.call_packed("k0", x, c, sinfo_args=R.Tuple())
            return _2

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")) -> R.Tuple():
            n = T.int64()
            m = T.int64()
            R.func_attr({"relax.force_pure": True})
            s = R.memory.alloc_storage(R.shape([4 * (n * m)]), R.prim_value(0), R.str("global"), R.dtype("float32"))
            a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([n, m]), R.dtype("float32"))
            _ = R.call_packed("k0", x, a, sinfo_args=R.Tuple())
            s1 = R.memory.alloc_storage(R.shape([12 * (m * n)]), R.prim_value(0), R.str("global"), R.dtype("float32"))
            b = R.memory.alloc_tensor(s1, R.prim_value(0), R.shape([m, 3, n]), R.dtype("float32"))
            _1 = R.call_packed("k0", x, b, sinfo_args=R.Tuple())
            c = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([m * n]), R.dtype("float32"))
            _2 = R.call_packed("k0", x, c, sinfo_args=R.Tuple())
            return _2

    assert_structural_equal(_plan(Before), Expected)


def test_upper_bounds_and_dynamic_outputs():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n + 2",), "float32"):
            n = T.int64()
            R.func_attr(
                {
                    "relax.force_pure": True,
                    "relax.memory_plan_dynamic_func_output": 1,
                    "tir_var_upper_bound": {"n": 6},
                }
            )
            a = R.builtin.alloc_tensor(R.shape([n * 2]), R.dtype("float32"), R.prim_value(0))
            _ = R.call_packed("k0", x, a, sinfo_args=R.Tuple())
            b = R.builtin.alloc_tensor(R.shape([n + 2]), R.dtype("float32"), R.prim_value(0))
            _1 = R.call_packed("k0", a, b, sinfo_args=R.Tuple())
            return b

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n + 2",), "float32"):
            n = T.int64()
            R.func_attr({"relax.force_pure": True, "tir_var_upper_bound": {"n": 6}})
            s = R.memory.alloc_storage(R.shape([48]), R.prim_value(0), R.str("global"), R.dtype("float32"))
            a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([n * 2]), R.dtype("float32"))
            _ = R.call_packed("k0", x, a, sinfo_args=R.Tuple())
            s1 = R.memory.alloc_storage(R.shape([32]), R.prim_value(0), R.str("global"), R.dtype("float32"))
            b = R.memory.alloc_tensor(s1, R.prim_value(0), R.shape([n + 2]), R.dtype("float32"))
            _1 = R.call_packed("k0", a, b, sinfo_args=R.Tuple())
            return b

    assert_structural_equal(_plan(Before), Expected)


def test_what_another_callee_may_keep_is_left_alone():
    @I.ir_module
    class Before:
        @R.function
        def other(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            R.func_attr({"relax.force_pure": True})
            return x

        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            R.func_attr({"relax.force_pure": True})
            a = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
            b = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
            _ = R.call_packed("k0", x, a, b, sinfo_args=R.Tuple())
            view: R.Tensor((2, 4), "float32") = R.reshape(b, R.shape([2, 4]))
            both = (a, view)
            whole = both[0]
            c: R.Tensor((8,), "float32") = Before.other(whole)
            return c

    text = _plan(Before).script()
    assert text.count("R.builtin.alloc_tensor") == 1
    assert text.count("R.memory.alloc_storage") == 1


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"tir_var_upper_bound": {"n": 0}}, "positive integer, while 0 is got"),
        ({"tir_var_upper_bound": {"n": "many"}}, "should be integer"),
    ],
)
def test_wrong_bounds_are_refused(attrs, message):
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            return x

    mod = relax.transform.StaticPlanBlockMemory()
    func = Before["main"].with_attrs(attrs)
    module = Before.clone()
    module["main"] = func
    with pytest.raises(RelaxishError, match=message):
        mod(module)
