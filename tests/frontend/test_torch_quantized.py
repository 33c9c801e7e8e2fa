"""Quantised programs: the operators of PyTorch's exports, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators

from torch_checks import check

_Q = torch.ops.quantized_decomposed
_ROWS = {"args": ({0: torch.export.Dim("n", min=2, max=64)},)}


def rows(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))) * scale


def scales(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3)) * 0.03 + 0.005


def zeros(*shape: int) -> torch.Tensor:
    return torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("kind, low, high, zero", [(torch.int8, -128, 127, -3), (torch.uint8, 0, 255, 131),
                                                   (torch.int8, -8, 7, 2)])  # fmt: skip
def test_one_scale(kind: torch.dtype, low: int, high: int, zero: int) -> None:
    def run(x: torch.Tensor) -> Any:
        q = _Q.quantize_per_tensor(x, 0.0237, zero, low, high, kind)
        return q, _Q.dequantize_per_tensor(q, 0.0237, zero, low, high, kind)

    check(run, rows(7, 33, scale=2.0), dynamic_shapes=_ROWS)


@pytest.mark.parametrize("axis", [0, 1])
def test_scales_of_channels(axis: int) -> None:
    def run(x: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> Any:
        q = _Q.quantize_per_channel(x, s, z, axis, -128, 127, torch.int8)
        return q, _Q.dequantize_per_channel(q, s, z, axis, -128, 127, torch.int8)

    count = (6, 5)[axis]
    check(run, rows(6, 5, 4), scales(count), zeros(count))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("shift", [0.0, 3.0, -3.0])
def test_scales_of_the_range(symmetric: bool, shift: float) -> None:
    def run(x: torch.Tensor) -> Any:
        choose = _Q.choose_qparams_symmetric if symmetric else _Q.choose_qparams
        low, high, kind = (-127, 127, torch.int8) if symmetric else (0, 255, torch.uint8)
        s, z = choose(x, low, high, 1e-7, kind)
        q = _Q.quantize_per_tensor(x, s, z, low, high, kind)
        return s, z, _Q.dequantize_per_tensor(q, s, z, low, high, kind)

    check(run, rows(5, 17) + shift, dynamic_shapes=_ROWS)


@pytest.mark.parametrize("asymmetric", [False, True])
def test_scales_of_rows(asymmetric: bool) -> None:
    def run(x: torch.Tensor) -> Any:
        choose = _Q.choose_qparams_per_token_asymmetric if asymmetric else _Q.choose_qparams_per_token
        s, z = choose(x, torch.int8)
        q = _Q.quantize_per_token(x, s, z, -128, 127, torch.int8)
        return q, _Q.dequantize_per_token(q, s, z, -128, 127, torch.int8, torch.float32)

    check(run, rows(5, 3, 17), dynamic_shapes=_ROWS)


@pytest.mark.parametrize("asymmetric", [False, True])
def test_weights_of_groups(asymmetric: bool) -> None:
    w = torch.randint(-8, 8, (12, 64), generator=torch.Generator().manual_seed(1)).to(torch.int8)
    s, z = scales(12, 2), zeros(12, 2) if asymmetric else None

    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", w)
            self.register_buffer("s", s)
            if z is not None:
                self.register_buffer("z", z)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            zero = self.z if asymmetric else None
            full = _Q.dequantize_per_channel_group(self.w, self.s, zero, -8, 7, torch.int8, 32, torch.float32)
            return torch.nn.functional.linear(x, full)

    check(Linear(), rows(3, 64), dynamic_shapes={"x": {0: torch.export.Dim("n", min=2, max=9)}})


def test_quantising_groups() -> None:
    check(lambda x, s, z: _Q.quantize_per_channel_group(x, s, z, -8, 7, torch.int8, 16), rows(6, 32, scale=0.1),
          scales(6, 2), zeros(6, 2))  # fmt: skip


def test_fake_quantisation() -> None:
    def run(x: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> Any:
        whole = torch.fake_quantize_per_tensor_affine(x, 0.031, 3, -128, 127)
        given = torch.fake_quantize_per_tensor_affine(x, s[0], z[0], -8, 7)
        return whole, given, torch.fake_quantize_per_channel_affine(x, s, z, 1, -8, 7)

    check(run, rows(4, 6), scales(6), (zeros(6) % 8).to(torch.int32))


def test_products_with_rows_of_bytes() -> None:
    w = torch.randint(-128, 128, (12, 64), generator=torch.Generator().manual_seed(1)).to(torch.int8)
    check(lambda x, s: torch.ops.aten._weight_int8pack_mm(x, w, s), rows(3, 64), scales(12), rtol=1e-4, atol=1e-4)


class Network(torch.nn.Module):
    """What a quantised network is after ``convert_pt2e``: weights of channels, activations of one scale."""

    def __init__(self) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(2)
        self.register_buffer("kernel", torch.randint(-127, 128, (8, 3, 3, 3), generator=g).to(torch.int8))
        self.register_buffer("weight", torch.randint(-127, 128, (10, 8 * 36), generator=g).to(torch.int8))
        self.register_buffer("kernel_scale", scales(8))
        self.register_buffer("weight_scale", scales(10))
        self.register_buffer("bias", torch.randn(8, generator=g))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kernel = _Q.dequantize_per_channel(
            self.kernel, self.kernel_scale, torch.zeros_like(self.kernel_scale, dtype=torch.int64), 0, -128, 127,
            torch.int8,
        )  # fmt: skip
        weight = _Q.dequantize_per_channel(
            self.weight, self.weight_scale, torch.zeros_like(self.weight_scale, dtype=torch.int64), 0, -128, 127,
            torch.int8,
        )  # fmt: skip
        x = _Q.dequantize_per_tensor(
            _Q.quantize_per_tensor(x, 0.02, 121, 0, 255, torch.uint8), 0.02, 121, 0, 255, torch.uint8
        )
        x = torch.relu(torch.nn.functional.conv2d(x, kernel, self.bias, padding=1))
        x = _Q.dequantize_per_tensor(
            _Q.quantize_per_tensor(x.flatten(1), 0.1, 7, 0, 255, torch.uint8), 0.1, 7, 0, 255, torch.uint8
        )
        return torch.nn.functional.linear(x, weight)


@pytest.mark.parametrize("dynamic", [False, True])
def test_networks_of_bytes(dynamic: bool) -> None:
    options = {"dynamic_shapes": {"x": {0: torch.export.Dim("n", min=2, max=9)}}} if dynamic else {}
    # A number between two integers may be rounded either way: one step of 10 x 288 products.
    check(Network(), rows(3, 3, 6, 6), rtol=1e-3, atol=2e-2, **options)
