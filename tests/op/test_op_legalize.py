"""The loop programs that operators become, to the letter: `golden/legalize.txt` holds them as TVMScript.

To accept changed programs after review: ``python tests/op/test_op_legalize.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relaxish import relax, tir
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.relax import op
from relaxish.relax.transform import LegalizeOps
from relaxish.script import from_source

GOLDEN = Path(__file__).parent / "golden" / "legalize.txt"
nn, const = op.nn, relax.const
#: Operator call and its arguments: shapes (a name is a symbolic dimension), with a dtype where it is not float32.
Case = tuple[Callable[..., Any], tuple[Any, ...]]

CASES: dict[str, Case] = {
    "add": (op.add, ((2, 3), (1, 3))),
    "add_symbolic": (op.add, (("n", 3), ("n", 1))),
    "add_constant": (lambda x: op.add(x, const(1.0, "float32")), ((2, 3),)),
    "floor_divide": (op.floor_divide, ((2, 3), (1, 3))),
    "floor_mod": (op.floor_mod, (((2, 3), "int32"), ((1, 3), "int32"))),
    "greater_equal": (op.greater_equal, ((2, 3), (1, 3))),
    "left_shift": (op.left_shift, (((2, 3), "int32"), ((1, 3), "int32"))),
    "sigmoid": (op.sigmoid, ((2, "n"),)),
    "sign": (op.sign, ((2, 3),)),
    "negative": (op.negative, ((2, 3),)),
    "clip": (lambda x: op.clip(x, 5, 8), ((2, 3),)),
    "full": (lambda v: op.full((2, 3), v, "int32"), (((), "int32"),)),
    "ones_like": (lambda x: op.ones_like(x, "int32"), ((2, 3),)),
    "tril": (lambda x: op.tril(x, 1), ((2, 3, 4),)),
    "eye": (lambda x: op.eye_like(x, 1, "float32"), ((3, 4),)),
    "astype": (lambda x: op.astype(x, "int32"), ((2, 3),)),
    "take": (lambda x, i: op.take(x, i, 1), ((2, 3, 4), ((4,), "int64"))),
    "strided_slice": (
        lambda x: op.strided_slice(x, [0, 1, 3], [1, 8, 8], [8, 0, 4], [2, -2, -3]), ((8, 9, 10, 10),)
    ),
    "strided_slice_symbolic": (lambda x: op.strided_slice(x, [0], [1], [3]), (("m", "n"),)),
    "dynamic_strided_slice": (op.dynamic_strided_slice, ((8, 9), ((2,), "int64"), ((2,), "int64"), ((2,), "int64"))),
    "matmul_vectors": (op.matmul, ((4,), (4,))),
    "matmul_batched": (op.matmul, ((2, 3, 4, 5), (6, 2, 3, 5, 7))),
    "matmul_out_dtype": (lambda x, y: op.matmul(x, y, "float32"), (((3, 4), "float16"), ((4, 5), "float16"))),
    "broadcast_to": (lambda x: op.broadcast_to(x, (4, 2, 5, 3)), ((2, 1, 3),)),
    "concat": (lambda *x: op.concat(x, 1), ((1, 2, 3), (1, 3, 3), (1, 4, 3))),
    "expand_dims": (lambda x: op.expand_dims(x, (-1, 1, -6, 3, 5)), ((2, 3, 4),)),
    "flatten": (op.flatten, ((2, 3, 4),)),
    "permute_dims": (lambda x: op.permute_dims(x, (1, -1, 2, -4)), ((1, 2, 3, 4),)),
    "split": (lambda x: op.split(x, [3, 7], 1), ((2, 10, 4),)),
    "squeeze": (lambda x: op.squeeze(x, [1, -1]), ((2, 1, 3, 1),)),
    "collapse_sum_to": (lambda x: op.collapse_sum_to(x, (2, 1)), ((3, 2, 3),)),
    "repeat": (lambda x: op.repeat(x, 2), ((3, 2),)),
    "tile": (lambda x: op.tile(x, (2, 1, 2, 3)), ((3, 2, 3),)),
    "flip": (lambda x: op.flip(x, 0), ((2, 3),)),
    "where": (op.where, (((3, 2, 1), "bool"), (2, 3), (2, 1))),
    "argmax": (lambda x: op.argmax(x, 1), ((2, 3, 4),)),
    "mean": (lambda x: op.mean(x, [1], True), ((2, 3, 4),)),
    "variance": (lambda x: op.variance(x, [-1]), ((2, 3, 4),)),
    "conv1d": (lambda x, w: nn.conv1d(x, w, padding=1), ((2, 8, 28), (16, 8, 3))),
    "conv2d_grouped": (
        lambda x, w: nn.conv2d(x, w, strides=2, padding=1, dilation=2, groups=8), ((2, 128, 28, 28), (64, 16, 3, 3))
    ),
    "conv2d_nhwc": (
        lambda x, w: nn.conv2d(x, w, padding=1, data_layout="NHWC", kernel_layout="OHWI", out_dtype="float32"),
        (((2, 28, 28, 16), "float16"), ((32, 3, 3, 16), "float16")),
    ),
    "conv1d_transpose": (
        lambda x, w: nn.conv1d_transpose(x, w, strides=2, padding=1, output_padding=1), ((2, 8, 28), (8, 4, 3))
    ),
    "max_pool2d": (lambda x: nn.max_pool2d(x, 3, 2, 1), ((4, 6, 112, 112),)),
    "adaptive_avg_pool2d": (lambda x: nn.adaptive_avg_pool2d(x, 7), ((2, 4, 7, 7),)),
    "gelu": (nn.gelu, ((2, 3),)),
    "leakyrelu": (lambda x: nn.leakyrelu(x, 0.02), ((2, 3),)),
    "softmax": (lambda x: nn.softmax(x, -2), ((2, 3, 16),)),
    "log_softmax": (nn.log_softmax, ((2, 3),)),
    "layer_norm": (lambda x, g, b: nn.layer_norm(x, g, b, [-2, -1]), ((2, 3, 4, 5), (4, 5), (4, 5))),
    "nll_loss": (lambda p, t, w: nn.nll_loss(p, t, w, "mean", -1), ((2, 3, 4), ((2, 4), "int64"), (3,))),
    "pad": (lambda x: nn.pad(x, (0, 0, 1, 1)), ((2, 12),)),
    "resize2d_whole_factor": (
        lambda x: op.image.resize2d(
            x, (16, 16), method="nearest_neighbor", coordinate_transformation_mode="asymmetric"
        ),
        ((2, 3, 8, 8),),
    ),
    "quantize": (lambda x, s, z: op.quantize(x, s, z, 0, "int8"), ((2, 4), (2,), ((2,), "int8"))),
    "quantize_constants": (lambda x: op.quantize(x, const(2.0, "float32"), const(1, "int8"), 0), (("n", 4),)),
    "dequantize": (lambda x, s, z: op.dequantize(x, s, z, 1), (((2, 4), "int8"), (4,), ((4,), "int8"))),
    "erf_half": (op.erf, (((2, 3), "float16"),)),
    "selu": (nn.selu, ((2, 3),)),
    "softplus": (lambda x: nn.softplus(x, 2.0, 10.0), ((2, 3),)),
    "gelu_tanh": (nn.gelu_tanh, ((2, 3),)),
    "cross_entropy": (nn.cross_entropy_with_logits, (("n", 3), ("n", 3))),
    "eye_square": (lambda x: op.eye_like(x), ((3, 3),)),
    "arange_symbolic": (lambda x: op.arange(x.struct_info.shape.values[0] * 3, dtype="float32"), (("n", 2),)),
    "split_symbolic": (lambda x: op.split(x, 3, 1), (("m", "n"),)),
    "repeat_symbolic": (lambda x: op.repeat(x, 2, 0), (("m", 3),)),
    "flip_symbolic": (lambda x: op.flip(x, 1), (("m", "n"),)),
    "einsum": (lambda x, y: op.einsum((x, y), "bzj,bjc->cb"), ((2, 3, 4), (2, 4, 5))),
    "einsum_ellipsis": (lambda x, y: op.einsum((x, y), "...ij,...jk->...ik"), ((1, "n", 2, 3), (7, 1, 3, 4))),
    "gather_elements": (lambda x, i: op.gather_elements(x, i, 1), ((4, 5), ((4, 2), "int64"))),
    "gather_nd": (lambda x, i: op.gather_nd(x, i, 1), ((2, 3, 4), ((2, 1), "int64"))),
    "scatter_elements": (lambda *x: op.scatter_elements(*x, 1), ((5, 4), ((5, 2), "int64"), (5, 2))),
    "scatter_elements_symbolic": (
        lambda *x: op.scatter_elements(*x, 0, "add"), (("a", "b"), (("m", "n"), "int64"), ("m", "n"))
    ),
    "scatter_nd": (lambda *x: op.scatter_nd(*x, "add"), ((4, 5, 6), ((3, 2), "int64"), (3, 6))),
    "layout_transform": (
        lambda x: op.layout_transform(x, lambda n, c, w: (n, c // 4, w, c % 4)), ((2, 8, 5),)
    ),
    "layout_transform_pad": (lambda x: op.layout_transform(x, lambda i: (i // 8, i % 8), 2), (((20,), "int32"),)),
    "layout_transform_separated": (
        lambda x: op.layout_transform(x, lambda i, j: (j, i), axis_separators=[1]), ((6, "n"),)
    ),
    "conv2d_transpose_grouped": (
        lambda x, w: nn.conv2d_transpose(x, w, strides=2, padding=1, output_padding=1, groups=2),
        ((1, 4, 6, 7), (4, 3, 3, 5)),
    ),
    "pad_reflect": (lambda x: nn.pad(x, (0, 0, 1, 2), "reflect"), ((2, 9),)),
    "layer_norm_vector": (lambda x, g, b: nn.layer_norm(x, g, b, [0]), ((7,), (7,), (7,))),
    "group_norm_half": (
        lambda x, g, b: nn.group_norm(x, g, b, 2, 1, [2]),
        (((3, 4, 5), "float16"), ((4,), "float16"), ((4,), "float16")),
    ),
    "rms_norm": (lambda x, w: nn.rms_norm(x, w, [-1]), ((("n", 5), "float16"), ((5,), "float16"))),
    "batch_norm_training": (lambda *x: nn.batch_norm(*x, 1), ((2, 3, 5), (3,), (3,), (3,), (3,))),
    "attention_masked": (
        lambda q, k, v, b: nn.attention(q, k, v, b, 0.5, "BottomRight"),
        ((2, 3, 4, 5), (2, 6, 4, 5), (2, 6, 4, 7), (2, 4, 3, 6)),
    ),
    "nll_loss_no_weight": (lambda p, t: nn.nll_loss(p, t, reduction="sum"), ((3,), ((), "int64"))),
    "nll_loss_backward": (
        lambda g, p, t, w: op.grad.nll_loss_backward(g, p, t, w, "mean", 1), ((), (2, 3), ((2,), "int64"), (3,))
    ),
    "max_pool2d_backward": (
        lambda g, x: op.grad.max_pool2d_backward(g, x, (3, 3), (2, 2), (1, 0, 1, 0)), ((1, 2, 4, 4), (1, 2, 8, 9))
    ),
    "avg_pool2d_backward": (lambda g, x: op.grad.avg_pool2d_backward(g, x, (2, 2)), ((1, 2, 7, 8), (1, 2, 8, 9))),
    "take_backward": (
        lambda g, x, i: op.grad.take_backward(g, x, i, 1), ((3, 2, 5), (3, 4, 5), ((2,), "int64"))
    ),
}  # fmt: skip


def legalized(case: Case) -> IRModule:
    function, arguments = case
    symbols: dict[str, tir.Var] = {}
    params = []
    for index, given in enumerate(arguments):
        shape, dtype = given if given and isinstance(given[0], tuple) else (given, "float32")
        dims = [symbols.setdefault(d, tir.Var(d, "int64")) if isinstance(d, str) else d for d in shape]
        params.append(relax.Var("xyzwuv"[index], relax.TensorStructInfo(dims, dtype)))
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(function(*params)))
    return LegalizeOps()(builder.get())


def expected() -> dict[str, str]:
    parts = re.split(r"^== (\w+)$", GOLDEN.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


@pytest.mark.parametrize("name", CASES)
def test_legalized(name: str) -> None:
    assert_structural_equal(legalized(CASES[name]), from_source(expected()[name]))


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"== {name}\n{legalized(case).script()}\n\n" for name, case in CASES.items()))
