"""StableHLO text, as JAX prints it, imported and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish.frontend.stablehlo import from_stablehlo
from relaxish.support.errors import OpNotImplemented


def run(text: str, *inputs: np.ndarray) -> Any:
    vm = relaxish.VirtualMachine(relaxish.build(from_stablehlo(text), "llvm"), relaxish.cpu())
    got = vm["main"](*[relaxish.nd.array(x) for x in inputs])
    return [g.numpy() for g in got] if isinstance(got, (tuple, list)) else got.numpy()


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype("float32")


_DENSE = """
module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<4x3xf32> {mhlo.sharding = ""}, %arg1: tensor<3x5xf32>, %arg2: tensor<5xf32>) -> (tensor<4x5xf32> {jax.result_info = ""}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x3xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
    %1 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<5xf32>) -> tensor<4x5xf32>
    %2 = stablehlo.add %0, %1 : tensor<4x5xf32>
    %3 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x5xf32>
    %4 = stablehlo.maximum %2, %3 : tensor<4x5xf32>
    return %4 : tensor<4x5xf32>
  }
}
"""


def test_dense_layer() -> None:
    x, w, b = rand(4, 3), rand(3, 5), rand(5)
    np.testing.assert_allclose(run(_DENSE, x, w, b), np.maximum(x @ w + b, 0), rtol=1e-5, atol=1e-6)


_SOFTMAX = """
func.func public @main(%arg0: tensor<2x6xf32>) -> tensor<2x6xf32> {
  %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<2x6xf32>, tensor<f32>) -> tensor<2xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<2xf32>) -> tensor<2x6xf32>
  %2 = stablehlo.subtract %arg0, %1 : tensor<2x6xf32>
  %3 = stablehlo.exponential %2 : tensor<2x6xf32>
  %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<2x6xf32>, tensor<f32>) -> tensor<2xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<2xf32>) -> tensor<2x6xf32>
  %6 = stablehlo.divide %3, %5 : tensor<2x6xf32>
  return %6 : tensor<2x6xf32>
}
"""


def test_softmax() -> None:
    x = rand(2, 6)
    want = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(run(_SOFTMAX, x), want, rtol=1e-5)


_CONV = """
func.func public @main(%arg0: tensor<1x8x8x3xf32>, %arg1: tensor<3x3x3x4xf32>) -> tensor<1x4x4x4xf32> {
  %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], rhs_dilate = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<1x8x8x4xf32>
  %1 = "stablehlo.reduce_window"(%0, %cst) <{window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
  ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
    %2 = stablehlo.maximum %arg2, %arg3 : tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) : (tensor<1x8x8x4xf32>, tensor<f32>) -> tensor<1x4x4x4xf32>
  return %1 : tensor<1x4x4x4xf32>
}
"""


def test_convolution_and_pooling() -> None:
    torch = pytest.importorskip("torch")
    x, w = rand(1, 8, 8, 3), rand(3, 3, 3, 4)
    conv = torch.nn.functional.conv2d(
        torch.tensor(x).permute(0, 3, 1, 2), torch.tensor(w).permute(3, 2, 0, 1), padding=1
    )
    want = torch.nn.functional.max_pool2d(conv, 2).permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(run(_CONV, x, w), want, rtol=1e-4, atol=1e-5)


def test_several_results_constants_and_selection() -> None:
    text = """
    func.func public @main(%arg0: tensor<3xf32>) -> (tensor<3xf32>, tensor<2x3xi32>) {
      %c = stablehlo.constant dense<[[1, 2, 3], [-4, 5, 6]]> : tensor<2x3xi32>
      %cst = stablehlo.constant dense<[0.5, -1.5, 2.0]> : tensor<3xf32>
      %0 = stablehlo.compare  GT, %arg0, %cst,  FLOAT : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
      %1 = stablehlo.select %0, %arg0, %cst : tensor<3xi1>, tensor<3xf32>
      return %1, %c : tensor<3xf32>, tensor<2x3xi32>
    }
    """
    x = np.array([1, -2, 1], "float32")
    first, second = run(text, x)
    np.testing.assert_allclose(first, np.maximum(x, [0.5, -1.5, 2.0]))
    np.testing.assert_array_equal(second, [[1, 2, 3], [-4, 5, 6]])


def test_all_gaps_in_one_error() -> None:
    text = """
    func.func public @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
      %0 = stablehlo.fft %arg0, type = FFT : tensor<3xf32>
      %1 = stablehlo.cholesky %0 : tensor<3xf32>
      return %1 : tensor<3xf32>
    }
    """
    with pytest.raises(OpNotImplemented, match="stablehlo.cholesky, stablehlo.fft"):
        from_stablehlo(text)
