"""ConvertLayout with blocked layouts (``NCHW4c``) around joins and cuts."""

from __future__ import annotations

import pytest

from relaxish import transform
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
