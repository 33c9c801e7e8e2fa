"""ConvertLayout with blocked layouts (``NCHW4c``) around joins and cuts."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax, tir, transform
from relaxish.interp import run_relax
from relaxish.relax.analysis import well_formed
from relaxish.script import ir as I
from relaxish.script import relax as R


def _converted(channels, parts):
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 8, 6, 6), "float32"), w: R.Tensor((8, 8, 1, 1), "float32"),
                 y: R.Tensor((1, channels, 6, 6), "float32")):  # fmt: skip
            with R.dataflow():
                a = R.nn.conv2d(x, w)
                b = R.concat((y, a), axis=1)
                c = R.split(b, parts, axis=1)
                d = c[0]
                e = R.nn.relu(d)
                R.output(e)
            return e

    after = transform.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4o"]})(Module)
    assert well_formed(after)
    bindings = after["main"].body.blocks[0].bindings
    return [b.value.op.name.removeprefix("relax.") for b in bindings if hasattr(b.value, "op")]


@pytest.mark.parametrize(
    ("channels", "parts", "names"),
    [
        # Everything can be blocked: the result goes back at the end.
        (
            8,
            2,
            ["layout_transform"] * 2
            + ["nn.conv2d", "layout_transform", "concat", "split", "nn.relu", "layout_transform"],
        ),
        # Parts of two channels cannot: back before the cut.
        (
            8,
            8,
            ["layout_transform"] * 2
            + ["nn.conv2d", "layout_transform", "concat", "layout_transform", "split", "nn.relu"],
        ),
        # One of the joined tensors cannot: back before the join.
        (6, 7, ["layout_transform"] * 2 + ["nn.conv2d", "layout_transform", "concat", "split", "nn.relu"]),
    ],
)
def test_blocks_go_as_far_as_the_shapes_allow(channels, parts, names):
    assert _converted(channels, parts) == names


def test_index_maps_have_32_bit_indices():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 8, 6, 6), "float32"), w: R.Tensor((8, 8, 1, 1), "float32")):
            with R.dataflow():
                a = R.nn.conv2d(x, w)
                R.output(a)
            return a

    after = transform.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4o"]})(Module)
    index_map = after["main"].body.blocks[0].bindings[0].value.attrs.index_map
    assert [v.dtype for v in index_map.initial_indices] == ["int32"] * 4


def _ops(mod):
    return [
        b.value.op.name.removeprefix("relax.") for b in mod["main"].body.blocks[0].bindings if hasattr(b.value, "op")
    ]


def _tail(make):
    x, w = relax.Var("x", R.Tensor((2, 4, 6, 6), "float32")), relax.Var("w", R.Tensor((8, 4, 3, 3), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w]):
        with bb.dataflow():
            out = bb.emit_output(make(bb, bb.emit(relax.op.nn.conv2d(x, w, out_dtype="float32"))))
        bb.emit_func_output(out)
    return bb.get()


@relax.expr_functor.mutator
class _PlainProducts(relax.PyExprMutator):
    """Convolutions of blocked tensors, which no kernel is there for, by way of plain ones."""

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") != "relax.nn.conv2d" or call.attrs.data_layout != "NCHW4c":
            return call
        data, kernel = (self.builder_.normalize(a) for a in call.args)
        data = relax.op.layout_transform(data, lambda n, c, h, w, p: (n, c * 4 + p, h, w))
        kernel = relax.op.layout_transform(kernel, lambda o, i, h, w, p: (o * 4 + p, i, h, w))
        made = self.builder_.emit(relax.op.nn.conv2d(self.builder_.emit(data), self.builder_.emit(kernel)))
        return relax.op.layout_transform(made, lambda n, c, h, w: (n, c // 4, h, w, c % 4))


def _run(mod, args):
    return run_relax(relaxish.IRModule({"main": _PlainProducts().visit_expr(mod["main"])}), "main", args)


_ONES, _NONE = relax.const(np.linspace(0.5, 2, 4, dtype="float32")), relax.const(np.zeros(4, "float32"))
_BEFORE = ["layout_transform", "layout_transform", "nn.conv2d"]


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda bb, a: relax.op.sum(a, axis=[2, 3]), ["sum", "layout_transform"]),
        (lambda bb, a: relax.op.sum(a, axis=[2, 3], keepdims=True), ["sum", "layout_transform"]),
        (lambda bb, a: relax.op.mean(a, axis=[0, -1]), ["mean", "layout_transform"]),
        (lambda bb, a: relax.op.max(a, axis=[1]), ["layout_transform", "max"]),
        (lambda bb, a: relax.op.nn.layer_norm(a, _ONES, _NONE, axes=[-1]), ["nn.layer_norm", "layout_transform"]),
        (lambda bb, a: relax.op.nn.softmax(a, axis=3), ["layout_transform", "nn.softmax"]),
        (lambda bb, a: relax.op.image.resize2d(a, (8, 8)), ["layout_transform", "image.resize2d"]),
    ],
)
def test_what_leaves_the_blocks_whole_stays_blocked(make, names):
    mod = _tail(make)
    after = transform.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4o"]})(mod)
    assert well_formed(after)
    assert _ops(after) == _BEFORE + names
    rng = np.random.default_rng(4)
    args = [rng.standard_normal(s).astype("float32") for s in ((2, 4, 6, 6), (8, 4, 3, 3))]
    want, have = (_run(m, args) for m in (mod, after))
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5)


def test_a_cast_to_dimensions_that_blocks_cannot_say_is_of_the_plain_tensor():
    n, c = tir.Var("n", "int64"), tir.Var("c", "int64")

    def cast(info):
        return _tail(lambda bb, a: bb.emit(relax.op.nn.relu(bb.match_cast(a, info))))

    blocked, plain, rankless = (
        transform.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4o"]})(cast(info))
        for info in (R.Tensor((n, 8, 4, 4), "float32"), R.Tensor((n, c, 4, 4), "float32"), R.Tensor(dtype="float32"))
    )
    assert _ops(blocked) == [*_BEFORE, "nn.relu", "layout_transform"]
    assert _ops(plain) == _ops(rankless) == [*_BEFORE, "layout_transform", "nn.relu"]
    moved = transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(cast(R.Tensor(dtype="float32")))
    assert _ops(moved) == ["permute_dims", "permute_dims", "nn.conv2d", "permute_dims", "nn.relu"]
    rng = np.random.default_rng(5)
    args = [rng.standard_normal(s).astype("float32") for s in ((2, 4, 6, 6), (8, 4, 3, 3))]
    mods = [cast(R.Tensor((n, 8, 4, 4), "float32")), blocked, plain]
    outs = [_run(m, args) for m in mods]
    for have in outs[1:]:
        np.testing.assert_allclose(have, outs[0], rtol=1e-5, atol=1e-5)


def test_a_resize_takes_the_layout_asked_for():
    x = relax.Var("x", R.Tensor((2, 3, 8, 8), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            out = bb.emit_output(relax.op.image.resize2d(x, (4, 4)))
        bb.emit_func_output(out)
    after = transform.ConvertLayout({"relax.image.resize2d": ["NHWC"]})(bb.get())
    assert _ops(after) == ["permute_dims", "image.resize2d", "permute_dims"]
    (call,) = [b.value for b in after["main"].body.blocks[0].bindings if b.value.op.name == "relax.image.resize2d"]
    assert call.attrs.layout == "NHWC"
