"""What the CUDA pipeline does to the graph: merged projections, channels last, normalisations with two results."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax, topi
from relaxish.backend.cuda.graph.passes import ChannelsLast, graph_passes
from relaxish.backend.cuda.codegen.hoist_split import HoistOverSplit
from relaxish.backend.cuda.codegen.norm_cast import NormWithCast
from relaxish.backend.cuda.graph.pad_channels import PadFewChannels
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.ir.transform import PassContext, Sequential
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.target import Target
from relaxish.testing import use_cuda_provider

TARGET = Target("nvidia/nvidia-h100", host="llvm")


def run(mod, *inputs, target="llvm"):
    """The results of ``main``, by the default pipeline of a target."""
    if target == "llvm":
        machine, device = relax.VirtualMachine(relaxish.build(mod, target), relaxish.cpu()), relaxish.cpu()
        found = machine["main"](*[relaxish.nd.array(x, device) for x in inputs])
        return [x.numpy() for x in (found if not hasattr(found, "numpy") else [found])]
    with use_cuda_provider("emulator"):
        device = relaxish.cuda()
        machine = relax.VirtualMachine(relaxish.build(mod, target), device)
        found = machine["main"](*[relaxish.nd.array(x, device) for x in inputs])
        return [x.numpy() for x in (found if not hasattr(found, "numpy") else [found])]


def kernels(mod):
    """Calls of tensor programs in ``main`` after fusion."""
    with TARGET, PassContext(opt_level=3):
        made = relaxish.pipeline.kernel_pipeline(TARGET)(mod)
    return [
        binding.value.args[0].name_hint
        for block in made["main"].body.blocks
        for binding in block.bindings
        if getattr(getattr(binding.value, "op", None), "name", "") == "relax.call_tir"
    ]


rng = np.random.default_rng(0)


def weights(*shape):
    return relax.const((rng.normal(size=shape) / 8).astype("float32"))


def attention_inputs():
    """Three dense layers of one input, in mixed precision."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((1, 32, 64), "float32"))
    gamma, beta = weights(64), weights(64)
    with builder.function("main", [x]):
        with builder.dataflow():
            normed = builder.emit(relax.op.nn.layer_norm(x, gamma, beta, [-1]))
            out = []
            for _ in range(3):
                weight, bias = (builder.emit(relax.op.astype(w, "float16")) for w in (weights(48, 64), weights(48)))
                half = builder.emit(relax.op.astype(normed, "float16"))
                product = builder.emit(relax.op.matmul(half, builder.emit(relax.op.permute_dims(weight)), "float32"))
                narrow = builder.emit(relax.op.astype(product, "float16"))
                out.append(builder.emit(relax.op.add(narrow, bias)))
            both = builder.emit(relax.op.add(relax.op.add(out[0], out[1]), out[2]))
            result = builder.emit_output(
                relax.op.add(relax.op.astype(both, "float32"), relax.op.mean(normed, [-1], True))
            )
        builder.emit_func_output(result)
    return builder.get()


def test_projections_are_one_product():
    mod = attention_inputs()
    found = kernels(mod)
    assert sum("matmul" in name for name in found) == 1 and "layer_norm_cast" in found
    assert not any(
        "cast" in name and "matmul" not in name and "norm" not in name and "add" not in name for name in found
    )
    x = rng.normal(size=(1, 32, 64)).astype("float32")
    np.testing.assert_allclose(run(mod, x, target=TARGET)[0], run(mod, x)[0], rtol=0.02, atol=0.02)


def test_projections_with_weights_from_outside_stay():
    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor((32, 64), "float16"), a: R.Tensor((64, 48), "float16"), b: R.Tensor((64, 48), "float16")
        ) -> R.Tensor((32, 48), "float16"):
            with R.dataflow():
                p = R.matmul(x, a)
                q = R.matmul(x, b)
                out = R.add(p, q)
                R.output(out)
            return out

    assert "R.concat" not in Sequential(graph_passes())(Module).script()


def test_steps_of_all_parts_are_steps_of_the_whole():
    @I.ir_module
    class Before:
        @R.function
        def main(y: R.Tensor((2, 6), "float32")) -> R.Tensor((2, 3), "float16"):
            with R.dataflow():
                parts = R.split(y, 2, axis=-1)
                p = parts[0]
                q = parts[1]
                p1 = R.astype(p, "float16")
                q1 = R.astype(q, "float16")
                p2 = R.add(p1, R.const([1, 2, 3], "float16"))
                q2 = R.add(q1, R.const([4, 5, 6], "float16"))
                out = R.multiply(p2, q2)
                R.output(out)
            return out

    @I.ir_module
    class Expected:
        @R.function
        def main(y: R.Tensor((2, 6), "float32")) -> R.Tensor((2, 3), "float16"):
            with R.dataflow():
                narrow = R.astype(y, "float16")
                bias = R.concat((R.const([1, 2, 3], "float16"), R.const([4, 5, 6], "float16")), axis=0)
                whole = R.add(narrow, bias)
                parts = R.split(whole, 2, axis=-1)
                p2 = parts[0]
                q2 = parts[1]
                out = R.multiply(p2, q2)
                R.output(out)
            return out

    assert_structural_equal(HoistOverSplit()(Before), Expected)


@pytest.mark.parametrize("axis, other", [(-1, "relu"), (0, "sigmoid")])
def test_parts_that_differ_stay(axis, other):
    builder = relax.BlockBuilder()
    y = relax.Var("y", R.Tensor((4, 6), "float32"))
    with builder.function("main", [y]):
        with builder.dataflow():
            parts = builder.emit(relax.op.split(y, 2, axis))
            p = builder.emit(relax.TupleGetItem(parts, 0))
            q = builder.emit(relax.TupleGetItem(parts, 1))
            p1 = builder.emit(relax.op.astype(p, "float16"))
            unlike = relax.op.nn.relu(q) if other == "relu" else relax.op.sigmoid(q)
            out = builder.emit_output(relax.Tuple([p1, builder.emit(unlike)]))
        builder.emit_func_output(out)
    mod = builder.get()
    assert_structural_equal(HoistOverSplit()(mod), mod)


@I.ir_module
class Normed:
    @R.function
    def main(
        x: R.Tensor((3, 40, 96), "float32"), g: R.Tensor((96,), "float32"), b: R.Tensor((96,), "float32")
    ) -> R.Tuple(R.Tensor((3, 40, 96), "float32"), R.Tensor((3, 40, 96), "float16")):
        with R.dataflow():
            y = R.nn.layer_norm(x, g, b, axes=[-1])
            h = R.astype(y, "float16")
            R.output(y, h)
        return (y, h)


def test_norm_in_two_types_is_one_kernel():
    assert kernels(Normed) == ["layer_norm_cast"]
    inputs = [rng.normal(size=shape).astype("float32") for shape in ((3, 40, 96), (96,), (96,))]
    x, g, b = inputs
    wanted = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b
    wide, narrow = run(Normed, *inputs, target=TARGET)
    np.testing.assert_allclose(wide, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(narrow, wanted, rtol=2e-3, atol=2e-3)


def test_norm_in_one_type_stays():
    """A conversion of anything but a normalisation's result is no second result of one."""

    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor((3, 96), "float32"), g: R.Tensor((96,), "float32"), b: R.Tensor((96,), "float32")
        ) -> R.Tuple(R.Tensor((3, 96), "float32"), R.Tensor((3, 96), "float16")):
            with R.dataflow():
                y = R.nn.layer_norm(x, g, b, axes=[-1])
                h = R.astype(x, "float16")
                R.output(y, h)
            return (y, h)

    assert_structural_equal(NormWithCast()(Module), Module)


def convolutions(dtype):
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((1, 16, 10, 10), dtype))
    weight = [relax.const((rng.normal(size=s) / 8).astype(dtype)) for s in ((32, 16, 3, 3), (16, 32, 1, 1))]
    bias = relax.const(rng.normal(size=(1, 32, 1, 1)).astype(dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, weight[0], padding=1, out_dtype="float32"))
            z = builder.emit(relax.op.nn.relu(relax.op.add(relax.op.astype(y, dtype), bias)))
            pooled = builder.emit(relax.op.nn.max_pool2d(z, (3, 3), (2, 2), (1, 1)))
            out = builder.emit_output(relax.op.nn.conv2d(pooled, weight[1], out_dtype="float32"))
        builder.emit_func_output(out)
    return builder.get()


def test_convolutions_for_tensor_cores_have_channels_last():
    mod = convolutions("float16")
    text = ChannelsLast()(mod).script()
    assert text.count('data_layout="NHWC"') == 2 and 'layout="NCHW"' not in text
    x = rng.normal(size=(1, 16, 10, 10)).astype("float16")
    np.testing.assert_allclose(run(mod, x, target=TARGET)[0], run(mod, x)[0], rtol=0.02, atol=0.02)
    single = convolutions("float32")
    assert ChannelsLast()(single) is single


def test_windows_are_summed_by_one_thread():
    """A block of threads for each 3 x 3 window would be 200,000 blocks for the pooling of ResNet-50."""
    from relaxish import dlight, te

    x = te.placeholder((1, 56, 56, 64), "float16", name="x")
    made = topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max", layout="NHWC")
    with TARGET:
        mod = dlight.ApplyDefaultSchedule(*dlight.default_gpu_rules(TARGET))(
            IRModule({"main": te.create_prim_func([x, made])})
        )
    assert 'T.thread_binding(49, thread="blockIdx.x")' in mod["main"].script()


@pytest.mark.parametrize("known", [True, False])
def test_pixels_of_an_image_become_16_bytes(known):
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((1, 9, 9, 3), "float16"))
    w = relax.Var("w", R.Tensor((32, 3, 3, 3), "float16"))
    kernel = relax.const((rng.normal(size=(32, 3, 3, 3)) / 8).astype("float16")) if known else w
    with builder.function("main", [x, w]):
        with builder.dataflow():
            conv = relax.op.nn.conv2d(
                x, kernel, (2, 2), 1, data_layout="NHWC", kernel_layout="OHWI", out_dtype="float32"
            )
            out = builder.emit_output(conv)
        builder.emit_func_output(out)
    mod = builder.get()
    made = PadFewChannels()(mod)
    assert made["main"].script().count("R.nn.pad") == (2 if known else 0)
    if known:
        image, unused = (rng.normal(size=s).astype("float16") for s in ((1, 9, 9, 3), (32, 3, 3, 3)))
        np.testing.assert_allclose(
            run(mod, image, unused, target=TARGET)[0], run(mod, image, unused)[0], rtol=1e-3, atol=1e-3
        )
