"""ConvertLayout and ToMixedPrecision."""

from __future__ import annotations


import numpy as np

from relaxish import transform
from relaxish.ir import assert_structural_equal
from relaxish.relax import Call, Constant
from relaxish.relax.analysis import well_formed
from relaxish.script import ir as I
from relaxish.script import relax as R

NHWC = {"relax.nn.conv2d": ["NHWC", "OHWI"]}


@I.ir_module
class Conv:
    @R.function
    def main(x: R.Tensor((2, 3, 28, 28), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
        with R.dataflow():
            gv = R.nn.conv2d(x, w, out_dtype="float32")
            R.output(gv)
        return gv


def check(run, before, expected):
    after = run(before)
    assert_structural_equal(after, expected)
    assert well_formed(after)


def test_layout_of_one_operator():
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3, 28, 28), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
            with R.dataflow():
                lv = R.permute_dims(x, axes=[0, 2, 3, 1])
                lv1 = R.permute_dims(w, axes=[0, 2, 3, 1])
                lv2 = R.nn.conv2d(
                    lv, lv1, data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC", out_dtype="float32"
                )
                gv = R.permute_dims(lv2, axes=[0, 3, 1, 2])
                R.output(gv)
            return gv

    check(transform.ConvertLayout(NHWC), Conv, Expected)


def test_layout_spreads():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 3, 28, 28), "float32"),
            w: R.Tensor((4, 3, 3, 3), "float32"),
            b: R.Tensor((2, 4, 1, 1), "float32"),
        ):
            with R.dataflow():
                a = R.nn.conv2d(x, w)
                c = R.nn.relu(a)
                d = R.add(c, b)
                e = R.nn.max_pool2d(d)
                f = R.sum(e, axis=[2, 3])
                R.output(f)
            return f

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 3, 28, 28), "float32"),
            w: R.Tensor((4, 3, 3, 3), "float32"),
            b: R.Tensor((2, 4, 1, 1), "float32"),
        ):
            with R.dataflow():
                lv = R.permute_dims(x, axes=[0, 2, 3, 1])
                lv1 = R.permute_dims(w, axes=[0, 2, 3, 1])
                a = R.nn.conv2d(lv, lv1, data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC")
                c = R.nn.relu(a)
                lv2 = R.permute_dims(b, axes=[0, 2, 3, 1])
                d = R.add(c, lv2)
                e = R.nn.max_pool2d(d, layout="NHWC", out_layout="NHWC")
                f = R.sum(e, axis=[1, 2])
                R.output(f)
            return f

    check(transform.ConvertLayout(NHWC), Before, Expected)


def test_layout_of_tuples_and_unknown_operators():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3, 28, 28), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
            with R.dataflow():
                a = R.nn.conv2d(x, w)
                t = (a, a)
                b = t[0]
                c = R.reshape(b, (2, 4 * 26 * 26))
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3, 28, 28), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
            with R.dataflow():
                lv = R.permute_dims(x, axes=[0, 2, 3, 1])
                lv1 = R.permute_dims(w, axes=[0, 2, 3, 1])
                a = R.nn.conv2d(lv, lv1, data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC")
                t = (a, a)
                b = t[0]
                lv2 = R.permute_dims(b, axes=[0, 3, 1, 2])
                c = R.reshape(lv2, (2, 4 * 26 * 26))
                R.output(c)
            return c

    check(transform.ConvertLayout(NHWC), Before, Expected)


def test_blocked_layout():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 16, 28, 28), "float32"), w: R.Tensor((4, 16, 3, 3), "float32")):
            with R.dataflow():
                a = R.nn.conv2d(x, w)
                b = R.nn.relu(a)
                R.output(b)
            return b

    after = transform.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4o"]})(Before)
    assert well_formed(after)
    text = after["main"].script()
    assert 'data_layout="NCHW4c"' in text and text.count("R.layout_transform") == 3


def test_layout_only_in_dataflow():
    @I.ir_module
    class Plain:
        @R.function
        def main(x: R.Tensor((2, 3, 28, 28), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
            gv = R.nn.conv2d(x, w)
            return gv

    check(transform.ConvertLayout(NHWC), Plain, Plain)


def test_precision_of_one_operator():
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3, 28, 28), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
            with R.dataflow():
                lv = R.astype(x, dtype="float16")
                lv1 = R.astype(w, dtype="float16")
                gv = R.nn.conv2d(lv, lv1, out_dtype="float32")
                R.output(gv)
            return gv

    check(transform.ToMixedPrecision(), Conv, Expected)


def test_precision_with_low_output():
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3, 28, 28), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
            with R.dataflow():
                lv = R.astype(x, dtype="float16")
                lv1 = R.astype(w, dtype="float16")
                lv2 = R.nn.conv2d(lv, lv1, out_dtype="float16")
                gv = R.astype(lv2, dtype="float32")
                R.output(gv)
            return gv

    check(transform.ToMixedPrecision(out_dtype="float16"), Conv, Expected)


def test_precision_through_following_operators():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 3, 28, 28), "float32"),
            w: R.Tensor((4, 3, 3, 3), "float32"),
            v: R.Tensor((4, 4, 3, 3), "float32"),
        ):
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.nn.conv2d(a, w, out_dtype="float32")
                c = R.nn.conv2d(b, v, out_dtype="float32")
                d = R.nn.relu(c)
                e = R.nn.softmax(d)
                R.output(e)
            return e

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 3, 28, 28), "float32"),
            w: R.Tensor((4, 3, 3, 3), "float32"),
            v: R.Tensor((4, 4, 3, 3), "float32"),
        ):
            with R.dataflow():
                lv = R.astype(w, dtype="float16")
                lv1 = R.astype(v, dtype="float16")
                a = R.nn.relu(x)
                lv2 = R.astype(a, dtype="float16")
                lv3 = R.nn.conv2d(lv2, lv, out_dtype="float32")
                b = R.astype(lv3, dtype="float16")
                lv4 = R.nn.conv2d(b, lv1, out_dtype="float32")
                c = R.astype(lv4, dtype="float16")
                d = R.nn.relu(c)
                lv5 = R.astype(d, dtype="float32")
                e = R.nn.softmax(lv5)
                R.output(e)
            return e

    check(transform.ToMixedPrecision(), Before, Expected)


def test_precision_in_tuples():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8, 8), "float32"), w: R.Tensor((8, 8), "float32")):
            with R.dataflow():
                parts = R.split(x, 2, axis=0)
                left = parts[0]
                a = R.matmul(left, w, out_dtype="float32")
                R.output(a)
            return a

    after = transform.ToMixedPrecision()(Before)
    assert well_formed(after)
    text = after["main"].script()
    assert 'out_dtype="float32"' in text and text.count("R.astype") >= 2


def test_low_inputs():
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3, 28, 28), "float32"), w: R.Tensor((4, 3, 3, 3), "float16")):
            with R.dataflow():
                lv = R.astype(x, dtype="float16")
                gv = R.nn.conv2d(lv, w, out_dtype="float32")
                R.output(gv)
            return gv

    check(transform.ToMixedPrecision(fp16_input_names=["w"]), Conv, Expected)


def test_constants_are_converted_at_once():
    """One constant for all uses; what float16 cannot hold is infinite, as the cast says; other types stay."""
    rng = np.random.default_rng(7)
    weight = rng.uniform(-2, 2, (4, 3, 3, 3)).astype("float32")
    weight[0, 0, 0, 0] = 1e6
    shift = rng.uniform(-2, 2, (4, 1, 1)).astype("float32")

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3, 28, 28), "float32")):
            with R.dataflow():
                a = R.nn.conv2d(x, R.const(weight))
                b = R.nn.conv2d(x, R.const(weight))
                c = R.add(R.add(a, b), R.const(shift))
                R.output(c)
            return c

    after = transform.ToMixedPrecision(out_dtype="float16")(Before)
    assert well_formed(after)
    calls = [b.value for b in after["main"].body.blocks[0].bindings if isinstance(b.value, Call)]
    assert sum(c.op.name == "relax.astype" for c in calls) == 2  # of the argument and of the result
    constants = [a for c in calls for a in c.args if isinstance(a, Constant)]
    with np.errstate(over="ignore"):
        wanted = [weight.astype("float16")] * 2 + [shift.astype("float16")]
    assert len(constants) == 3
    for made, want in zip(constants, wanted):
        assert made.struct_info.dtype == "float16"
        np.testing.assert_array_equal(made.data.numpy(), want)
