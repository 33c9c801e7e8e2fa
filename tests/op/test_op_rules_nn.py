"""Struct-info rules of neural-network, image, quantisation, memory, inspection, gradient and collective operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_op_rules_tensor import DEVICE, F32, OTHER, RANKED, VALUED, infer, k, m, n, placed, ranked, shaped, tensor, var

from relaxish import relax, tir
from relaxish.ir import assert_structural_equal
from relaxish.relax import op
from relaxish.script import relax as R
from relaxish.support.errors import InternalError, RelaxishError

h, w, kh, kw = (tir.Var(name, "int64") for name in ("h", "w", "kh", "kw"))
nn, T = op.nn, R.Tensor
IMAGE, KERNEL = (m, n, h, w), (k, n, kh, kw)


def ints(*shape: Any) -> Any:
    return tensor(*shape, dtype="int64")


RULES: list[tuple[str, Callable[[], Any], Any]] = [
    # -- convolutions
    ("conv1d", lambda: nn.conv1d(tensor(m, 3, 28), tensor(4, 3, 3), padding=(1, 2)), T((m, 4, 29), F32)),
    ("conv2d symbolic", lambda: nn.conv2d(tensor(*IMAGE), tensor(*KERNEL), strides=2, padding=1, dilation=2),
     T((m, k, (h + 3) // 2 + 1 - kh, (w + 3) // 2 + 1 - kw), F32)),
    ("conv2d NHWC", lambda: nn.conv2d(tensor(m, 28, 28, 3), tensor(3, 3, 3, 4), data_layout="NHWC",
                                      kernel_layout="HWIO"), T((m, 26, 26, 4), F32)),
    ("conv2d to NCHW", lambda: nn.conv2d(tensor(m, 28, 28, 3), tensor(4, 3, 3, 3), data_layout="NHWC",
                                         out_layout="NCHW"), T((m, 4, 26, 26), F32)),
    ("conv2d blocked", lambda: nn.conv2d(tensor(2, 4, 28, 28, 16), tensor(3, 4, 3, 3, 16, 16), data_layout="NCHW16c",
                                         kernel_layout="OIHW16o16i"), T((2, 3, 26, 26, 16), F32)),
    ("conv2d groups", lambda: nn.conv2d(tensor(2, 8, 5, 5), tensor(6, 4, 3, 3), groups=2), T((2, 6, 3, 3), F32)),
    ("conv2d ranked", lambda: nn.conv2d(ranked(-1), ranked(4)), T(dtype=F32, ndim=4)),
    ("conv2d of a valued variable", lambda: nn.conv2d(
        shaped(relax.Var("s", R.Shape((1, 3, 8, 8)))), tensor(4, 3, 3, 3)), T(dtype=F32, ndim=4)),
    ("conv2d out dtype", lambda: nn.conv2d(tensor(1, 3, 8, 8, dtype="int8"), tensor(4, 3, 3, 3, dtype="int8"),
                                           out_dtype="int32"), T((1, 4, 6, 6), "int32")),
    ("conv2d device", lambda: nn.conv2d(placed(DEVICE, 1, 3, 8, 8), tensor(4, 3, 3, 3)),
     relax.TensorStructInfo((1, 4, 6, 6), F32, DEVICE)),
    ("conv3d", lambda: nn.conv3d(tensor(m, 3, 8, 9, 10), tensor(4, 3, 3, 3, 3), strides=(1, 2, 3)),
     T((m, 4, 6, 4, 3), F32)),
    ("conv1d_transpose", lambda: nn.conv1d_transpose(tensor(m, 6, w), tensor(6, 2, 3), strides=2, groups=2,
                                                     output_padding=1), T((m, 4, w * 2 + 2), F32)),
    ("conv2d_transpose", lambda: nn.conv2d_transpose(tensor(m, 3, h, w), tensor(3, 4, 3, 3), padding=1),
     T((m, 4, h, w), F32)),
    # -- pooling
    ("max_pool1d", lambda: nn.max_pool1d(tensor(m, 3, 8), 2, 2), T((m, 3, 4), F32)),
    ("max_pool2d symbolic", lambda: nn.max_pool2d(tensor(*IMAGE), 3, 2, 1),
     T((m, n, (h - 1) // 2 + 1, (w - 1) // 2 + 1), F32)),
    ("max_pool2d upwards", lambda: nn.max_pool2d(tensor(*IMAGE), 3, 2, 1, ceil_mode=True),
     T((m, n, h // 2 + 1, w // 2 + 1), F32)),
    ("avg_pool2d blocked", lambda: nn.avg_pool2d(tensor(2, 4, 8, 8, 16), 3, layout="NCHW16c", out_layout="NHWC"),
     T((2, 6, 6, 64), F32)),
    ("avg_pool3d ranked", lambda: nn.avg_pool3d(ranked(5, "int8"), 2), T(dtype="int8", ndim=5)),
    ("adaptive all", lambda: nn.adaptive_avg_pool2d(shaped(relax.Var("s", R.Shape(ndim=4)))), None),
    ("adaptive of unknown shape", lambda: nn.adaptive_avg_pool2d(ranked(-1)), T(dtype=F32, ndim=4)),
    ("adaptive 7", lambda: nn.adaptive_avg_pool2d(tensor(*IMAGE), 7), T((m, n, 7, 7), F32)),
    ("adaptive 3d", lambda: nn.adaptive_avg_pool3d(tensor(1, 2, 3, 4, 5), (1, 2, 3)), T((1, 2, 1, 2, 3), F32)),
    # -- normalisations
    ("layer_norm", lambda: nn.layer_norm(tensor(m, n, 4), tensor(n, 4), tensor(n, 4), [1, -1]), T((m, n, 4), F32)),
    ("layer_norm unsure", lambda: nn.layer_norm(tensor(m, n), tensor(k), tensor(k), 1), T(dtype=F32, ndim=2)),
    ("layer_norm of a variable", lambda: nn.layer_norm(shaped(RANKED), tensor(3), tensor(3), 1),
     relax.TensorStructInfo(RANKED, F32)),
    ("rms_norm unsure", lambda: nn.rms_norm(tensor(m, n), tensor(k), -1), T(dtype=F32, ndim=2)),
    ("batch_norm", lambda: nn.batch_norm(tensor(m, 3, h, w), *[tensor(3)] * 4, axis=1),
     R.Tuple(T((m, 3, h, w), F32), T((3,), F32), T((3,), F32))),
    ("batch_norm unsure", lambda: nn.batch_norm(tensor(m, n, h, w), *[tensor(k)] * 4, axis=1),
     R.Tuple(T(dtype=F32, ndim=4), T(dtype=F32, ndim=1), T(dtype=F32, ndim=1))),
    ("group_norm", lambda: nn.group_norm(tensor(m, n, h, w), tensor(n), tensor(k), 2, 1, [2, 3]), T(IMAGE, F32)),
    ("softmax", lambda: nn.softmax(shaped(RANKED), 1), relax.TensorStructInfo(RANKED, F32)),
    ("relu of integers", lambda: nn.relu(tensor(m, dtype="int8")), T((m,), "int8")),
    ("dropout", lambda: nn.dropout(tensor(m)), R.Tuple(T((m,), F32), T((m,), F32))),
    ("pad", lambda: nn.pad(tensor(m, n), (0, 0, 1, 2)), T((m, n + 3), F32)),
    ("pad ranked", lambda: nn.pad(ranked(1), (0, 1)), T(dtype=F32, ndim=1)),
    # -- losses
    ("cross entropy", lambda: nn.cross_entropy_with_logits(tensor(m, 3), ranked(-1)), T((), F32)),
    ("nll_loss", lambda: nn.nll_loss(tensor(m, 5, h), ints(m, h), tensor(5)), T((), F32)),
    ("nll_loss each", lambda: nn.nll_loss(tensor(m, 5, h), ints(m, h), reduction="none"), T((m, h), F32)),
    ("nll_loss of flags", lambda: nn.nll_loss(tensor(m, 2), tensor(m, dtype="bool")), T((), F32)),
    ("resize2d of blocks", lambda: op.image.resize2d(tensor(2, k, h, w, 4), (7, 9), layout="NCHW4c"),
     T((2, k, 7, 9, 4), F32)),
    ("nll_loss of a sample", lambda: nn.nll_loss(tensor(5), ints(), reduction="none"), T((), F32)),
    ("nll_loss each ranked", lambda: nn.nll_loss(ranked(3), ints(m, h), reduction="none"), T(dtype=F32, ndim=2)),
    # -- attention
    ("attention", lambda: nn.attention(tensor(m, 8, 6, 16), tensor(m, n, 3, 16), tensor(m, n, 3, k)),
     T((m, 8, 6, k), F32)),
    ("attention bias", lambda: nn.attention(*[tensor(2, 8, 6, 16)] * 3, tensor(1, 1, 1, 8)), T((2, 8, 6, 16), F32)),
    ("attention_var_len", lambda: nn.attention_var_len(*[tensor(1, 8, 6, 16)] * 3, ints(3), ints()),
     T((1, 8, 6, 16), F32)),
    # -- images, quantisation
    ("resize2d", lambda: op.image.resize2d(tensor(m, n, 4, 4), (h, 7), out_dtype="float16"),
     T((m, n, h, 7), "float16")),
    ("resize2d NHWC", lambda: op.image.resize2d(tensor(m, 4, 4, n), 8, layout="NHWC"), T((m, 8, 8, n), F32)),
    ("resize2d to a variable", lambda: op.image.resize2d(tensor(m, n, 4, 4), VALUED), T(dtype=F32, ndim=4)),
    ("quantize", lambda: op.quantize(tensor(m, n), tensor(n), tensor(n, dtype="int8"), 1), T((m, n), "int8")),
    ("dequantize by one scale", lambda: op.dequantize(tensor(m, 2, dtype="uint8"), tensor(dtype="float16"),
                                                      tensor(dtype="int8"), out_dtype="float16"), T((m, 2), "float16")),
    # -- views
    ("view as another dtype", lambda: op.memory.view(tensor(m), dtype="int32"), T((m,), "int32")),
    ("view of a part", lambda: op.memory.view(tensor(64), [4, 4], relative_byte_offset=192), T((4, 4), F32)),
    ("view of unknown shape", lambda: op.memory.view(tensor(64), RANKED), T(dtype=F32, ndim=2)),
    ("ensure_zero_offset", lambda: op.memory.ensure_zero_offset(shaped(RANKED)), relax.TensorStructInfo(RANKED, F32)),
    # -- inspection: what is known becomes its value
    ("bits known", lambda: op.inspect.tensor_dtype_bits(tensor(m)),
     relax.PrimStructInfo(value=tir.IntImm("uint8", 32))),
    ("bits unknown", lambda: op.inspect.tensor_dtype_bits(tensor(m, dtype="")), R.Prim("uint8")),
    ("lanes unknown", lambda: op.inspect.tensor_dtype_lanes(tensor(m, dtype="")), R.Prim("uint16")),
    ("rank unknown", lambda: op.inspect.tensor_ndim(ranked(-1)), R.Prim("int32")),
    ("extent known", lambda: op.inspect.tensor_shape_i(tensor(m, n), 1), relax.PrimStructInfo(value=n)),
    ("extent unknown", lambda: op.inspect.tensor_shape_i(ranked(2), 1), R.Prim("int64")),
    ("stride known", lambda: op.inspect.tensor_stride_i(tensor(m, n, 4), 0), relax.PrimStructInfo(value=n * 4)),
    ("offset known", lambda: op.inspect.tensor_byte_offset(tensor(m)),
     relax.PrimStructInfo(value=tir.IntImm("uint64", 0))),
    ("offset unknown", lambda: op.inspect.tensor_elem_offset(ranked(1)), R.Prim("uint64")),
    # -- collectives, gradients, memory
    ("allgather", lambda: op.ccl.allgather(tensor(m, 3), 4), T((m * 4, 3), F32)),
    ("scatter symbolic", lambda: op.ccl.scatter_from_worker0(tensor(m, n), 2), T((tir.div(m, 2), n), F32)),
    ("shard symbolic", lambda: op.distributed.redistribute_replica_to_shard(tensor(2, n), 4, 1),
     T((2, tir.div(n, 4)), F32)),
    ("scatter", lambda: op.ccl.scatter_from_worker0(tensor(8, n), 4), T((2, n), F32)),
    ("no_grad", lambda: op.grad.no_grad(shaped(RANKED)), relax.TensorStructInfo(RANKED, F32)),
    ("take_backward", lambda: op.grad.take_backward(tensor(2, n), tensor(m, n), ints(2), 0), T((m, n), F32)),
    ("alloc_tensor", lambda: op.builtin.alloc_tensor((m, 2), "int8", 0), T((m, 2), "int8")),
    ("vm.alloc_tensor of a variable", lambda: op.vm.alloc_tensor(var(R.Object()), 0, VALUED, F32), T((2, 3), F32)),
    ("vm.alloc_tensor of a rank", lambda: op.vm.alloc_tensor(var(R.Object()), 0, RANKED, F32), T(dtype=F32, ndim=2)),
]  # fmt: skip


@pytest.mark.parametrize(("call", "want"), [r[1:] for r in RULES], ids=[r[0] for r in RULES])
def test_rule(call: Callable[[], Any], want: Any) -> None:
    made = call()
    # Without a wanted result, the argument's own struct info.
    assert_structural_equal(infer(made), made.args[0].struct_info if want is None else var(want).struct_info)


WRONG: list[tuple[str, type, Callable[[], Any]]] = [
    ("conv2d strides", ValueError, lambda: nn.conv2d(tensor(*IMAGE), tensor(*KERNEL), strides=(1, 2, 3))),
    ("conv2d padding", ValueError, lambda: nn.conv2d(tensor(*IMAGE), tensor(*KERNEL), padding=(1, 2, 3))),
    ("conv2d groups", ValueError, lambda: nn.conv2d(tensor(*IMAGE), tensor(*KERNEL), groups=0)),
    ("conv2d layout", ValueError, lambda: nn.conv2d(tensor(*IMAGE), tensor(*KERNEL), data_layout="OIHW")),
    ("conv2d rank", ValueError, lambda: nn.conv2d(tensor(m, n, h), tensor(*KERNEL))),
    ("conv2d channels", ValueError, lambda: nn.conv2d(tensor(*IMAGE), tensor(k, n + 1, kh, kw))),
    ("conv2d outputs", ValueError, lambda: nn.conv2d(tensor(1, 4, 8, 8), tensor(5, 2, 3, 3), groups=2)),
    ("conv2d dtypes", TypeError, lambda: nn.conv2d(tensor(1, 4, 8, 8), tensor(4, 4, 3, 3, dtype="float16"))),
    ("conv2d devices", TypeError, lambda: nn.conv2d(placed(DEVICE, 1, 4, 8, 8), placed(OTHER, 4, 4, 3, 3))),
    ("conv2d_transpose groups", ValueError, lambda: nn.conv2d_transpose(tensor(*IMAGE), tensor(*KERNEL), groups=-1)),
    ("conv2d_transpose output padding", ValueError, lambda: nn.conv2d_transpose(
        tensor(1, 4, 8, 8), tensor(4, 4, 3, 3), strides=2, output_padding=2)),
    ("max_pool2d size", ValueError, lambda: nn.max_pool2d(tensor(*IMAGE), (1, 2, 3))),
    ("max_pool2d rank", ValueError, lambda: nn.max_pool2d(tensor(m, n, h))),
    ("adaptive size", ValueError, lambda: nn.adaptive_avg_pool2d(tensor(*IMAGE), (1, 2, 3))),
    ("layer_norm rank", ValueError, lambda: nn.layer_norm(tensor(m, n), tensor(m, n), tensor(n), 1)),
    ("layer_norm unknown rank", ValueError, lambda: nn.layer_norm(tensor(m, n), ranked(-1), tensor(n), 1)),
    ("layer_norm size", ValueError, lambda: nn.layer_norm(tensor(m, n), tensor(n), tensor(n + 1), 1)),
    ("layer_norm unknown dtype", TypeError, lambda: nn.layer_norm(tensor(m, n), tensor(n, dtype=""), tensor(n), 1)),
    ("layer_norm axes", ValueError, lambda: nn.layer_norm(tensor(m, n), tensor(n, n), tensor(n, n), [1, -1])),
    ("batch_norm integers", TypeError, lambda: nn.batch_norm(
        tensor(2, 3, dtype="int8"), *[tensor(3, dtype="int8")] * 4, axis=1)),
    ("group_norm channel", ValueError, lambda: nn.group_norm(tensor(2, 4, 5), tensor(4), tensor(4), 2, 1, [1, 2])),
    ("group_norm groups", ValueError, lambda: nn.group_norm(tensor(2, 4, 5), tensor(4), tensor(4), 3, 1, [2])),
    ("softmax axis", ValueError, lambda: nn.softmax(tensor(2), 1)),
    ("softmax integers", TypeError, lambda: nn.softmax(tensor(2, dtype="int8"))),
    ("pad widths", ValueError, lambda: nn.pad(tensor(2, 3), (1, 1))),
    ("nll_loss reduction", ValueError, lambda: nn.nll_loss(tensor(2, 3), ints(2), reduction="half")),
    ("nll_loss targets", TypeError, lambda: nn.nll_loss(tensor(2, 3), tensor(2))),
    ("nll_loss scalar", ValueError, lambda: nn.nll_loss(tensor(), ints())),
    ("nll_loss ranks", ValueError, lambda: nn.nll_loss(tensor(2, 3, 4), ints(2))),
    ("nll_loss of one sample", ValueError, lambda: nn.nll_loss(tensor(3), ints(2))),
    ("nll_loss batch", ValueError, lambda: nn.nll_loss(tensor(2, 3), ints(3))),
    ("nll_loss weights", ValueError, lambda: nn.nll_loss(tensor(2, 3), ints(2), tensor(4))),
    ("attention rank", ValueError, lambda: nn.attention(*[tensor(2, 3, 4)] * 3)),
    ("attention heads", ValueError, lambda: nn.attention(tensor(2, 8, 6, 4), tensor(2, 8, 4, 4), tensor(2, 8, 4, 4))),
    ("attention lengths", ValueError, lambda: nn.attention(*[tensor(2, 8, 6, 4)] * 2, tensor(2, 9, 6, 4))),
    ("attention bias", ValueError, lambda: nn.attention(*[tensor(2, 8, 6, 4)] * 3, tensor(2, 6, 8, 1))),
    ("resize2d size", ValueError, lambda: op.image.resize2d(tensor(*IMAGE), (1, 2, 3))),
    ("resize2d to a tensor", TypeError, lambda: op.image.resize2d(tensor(*IMAGE), ints(2))),
    ("quantize scale", ValueError, lambda: op.quantize(tensor(m, 4), tensor(3), tensor(4, dtype="int8"))),
    ("quantize axis", ValueError, lambda: op.quantize(tensor(m, 4), tensor(), tensor(dtype="int8"), 2)),
    ("quantize to", TypeError, lambda: op.quantize(tensor(4), tensor(), tensor(dtype="int8"), out_dtype="int32")),
    ("dequantize from", TypeError, lambda: op.dequantize(tensor(4, dtype="int64"), tensor(), tensor(dtype="int8"))),
    ("view beyond", ValueError, lambda: op.memory.view(tensor(4), [5])),
    ("view wider", ValueError, lambda: op.memory.view(ranked(1), dtype="float64")),
    ("view moved", ValueError, lambda: op.memory.view(ranked(1, ""), relative_byte_offset=4)),
    ("view of a shape", TypeError, lambda: op.memory.view(VALUED)),
    ("view at int32", TypeError, lambda: op.memory.view(
        tensor(4), [1], relative_byte_offset=relax.PrimValue(tir.IntImm("int32", 4)))),
    ("inspect an axis", ValueError, lambda: op.inspect.tensor_shape_i(tensor(4), 1)),
    ("inspect an earlier axis", ValueError, lambda: op.inspect.tensor_shape_i(tensor(4), -1)),
    ("inspect a shape", TypeError, lambda: op.inspect.tensor_ndim(VALUED)),
    ("scatter to three", ValueError, lambda: op.ccl.scatter_from_worker0(tensor(8), 3)),
    ("checkpoint of a constant", TypeError, lambda: op.grad.start_checkpoint(relax.const(1.0))),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "call"), [c[1:] for c in WRONG], ids=[c[0] for c in WRONG])
def test_wrong(kind: type, call: Callable[[], Any]) -> None:
    with pytest.raises(RelaxishError) as caught:
        infer(call())
    assert isinstance(caught.value, kind)
    assert isinstance(caught.value, InternalError)


def test_known_facts_become_values() -> None:
    builder = relax.BlockBuilder()
    known = builder.normalize(op.inspect.tensor_ndim(tensor(m, n)))
    assert isinstance(known, relax.PrimValue)
    assert int(known.value) == 2
    assert isinstance(builder.normalize(op.inspect.tensor_ndim(ranked(-1))), relax.Call)
