"""Kernels of unknown shape on CUDA: one kernel for a normalisation, and offsets without divisions by sizes."""

import numpy as np
import pytest

import relaxish
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.target import Target
from relaxish.testing import use_cuda_provider

TAG = "nvidia/nvidia-a100"


@I.ir_module
class GroupNorm:
    @R.function
    def main(
        x: R.Tensor(("n", 12, "h", "w"), "float32"), g: R.Tensor((12,), "float32"), b: R.Tensor((12,), "float32")
    ):  # fmt: skip
        with R.dataflow():
            y = R.nn.group_norm(x, g, b, num_groups=3, channel_axis=1, axes=[2, 3])
            z = R.nn.silu(y)
            R.output(z)
        return z


@I.ir_module
class FixedGroupNorm:
    @R.function
    def main(x: R.Tensor((2, 12, 5, 7), "float32"), g: R.Tensor((12,), "float32"), b: R.Tensor((12,), "float32")):
        return R.nn.group_norm(x, g, b, num_groups=3, channel_axis=1, axes=[2, 3])


@I.ir_module
class InstanceNorm:
    @R.function
    def main(
        x: R.Tensor(("n", 12, "h", "w"), "float32"), g: R.Tensor((12,), "float32"), b: R.Tensor((12,), "float32")
    ):  # fmt: skip
        return R.nn.instance_norm(x, g, b, channel_axis=1, axes=[2, 3])


@I.ir_module
class ImageLayerNorm:
    @R.function
    def main(
        x: R.Tensor(("n", 12, "h", 7), "float32"), g: R.Tensor((12,), "float32"), b: R.Tensor((12,), "float32")
    ):  # fmt: skip
        y = R.permute_dims(x, [0, 2, 3, 1])
        return R.nn.layer_norm(y, g, b, axes=[-1])


@I.ir_module
class Elementwise:
    @R.function
    def main(x: R.Tensor(("n", 12, "h", "w"), "float16"), y: R.Tensor(("n", 12, "h", "w"), "float16")):
        n, h, w = T.int64(), T.int64(), T.int64()
        with R.dataflow():
            a = R.nn.relu(R.add(x, y))
            b = R.exp(R.reshape(a, (n, 4, 3, h * w)))
            c = R.sin(R.reshape(b, (n * 12, h, w)))
            R.output(c)
        return c


@I.ir_module
class Heads:
    @R.function
    def main(x: R.Tensor(("n", "t", 24), "float32")):
        n, t = T.int64(), T.int64()
        with R.dataflow():
            y = R.permute_dims(R.reshape(R.sin(x), (n, t, 3, 8)), [0, 2, 1, 3])
            z = R.cos(R.reshape(y, (n * 3, t, 8)))
            R.output(z)
        return z


def normalized(x, groups, g, b):
    rows = x.reshape(x.shape[0], groups, -1).astype("float64")
    rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    return rows.reshape(x.shape) * g[:, None, None] + b[:, None, None]


def run(mod, *arrays):
    """(result, source of the kernels)"""
    with use_cuda_provider("emulator"):
        built = relaxish.build(mod, Target(TAG))
        machine = relaxish.VirtualMachine(built, relaxish.cuda())
        result = machine["main"](*[relaxish.nd.array(a, relaxish.cuda()) for a in arrays]).numpy()
    return result, "".join(m.get_source() for m in built.device_modules)


def parameters(*shape):
    rng = np.random.default_rng(len(shape))
    return (
        rng.normal(size=shape).astype("float32"),
        rng.normal(size=12).astype("float32"),
        rng.normal(size=12).astype("float32"),
    )


@pytest.mark.parametrize(("mod", "groups"), [(GroupNorm, 3), (FixedGroupNorm, 3), (InstanceNorm, 12)])
def test_normalization_is_one_kernel(mod, groups):
    x, g, b = parameters(2, 12, 5, 7)
    result, source = run(mod, x, g, b)
    want = normalized(x, groups, g, b)
    want = want / (1 + np.exp(-want)) if mod is GroupNorm else want
    np.testing.assert_allclose(result, want, rtol=2e-4, atol=2e-5)
    assert source.count("__global__") == 1
    assert "__shfl_down_sync" in source  # threads of a block share a row


def test_offsets_of_elements_are_not_divided():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(2, 12, 5, 7)).astype("float16") for _ in range(2))
    result, source = run(Elementwise, x, y)
    want = np.sin(np.exp(np.maximum((x + y).astype("float32"), 0)).astype("float16").astype("float32"))
    np.testing.assert_allclose(result.reshape(x.shape), want, rtol=1e-2, atol=2e-2)
    kernels = source[source.index('extern "C"') :]
    assert " % " not in kernels
    assert " / " not in kernels


def test_a_permutation_divides_by_each_size_once():
    x = np.random.default_rng(0).normal(size=(2, 5, 24)).astype("float32")
    result, source = run(Heads, x)
    want = np.cos(np.sin(x).reshape(2, 5, 3, 8).transpose(0, 2, 1, 3)).reshape(6, 5, 8)
    np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)
    kernels = source[source.index('extern "C"') :]
    assert "rmod" not in kernels  # no remainder whose sign is in doubt


def test_layer_norm_of_permuted_channels():
    x, g, b = parameters(3, 12, 4, 7)
    result, _ = run(ImageLayerNorm, x, g, b)
    rows = x.transpose(0, 2, 3, 1).astype("float64")
    rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(result, rows * g + b, rtol=2e-4, atol=2e-5)
