"""Fourier transforms and mel filters against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_node import Case, ours, reference

_rng = np.random.default_rng(29)


def f(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype("float32")


def pairs(x: np.ndarray) -> np.ndarray:
    return np.stack([x.real, x.imag], -1)


def complex_of(x: np.ndarray) -> np.ndarray:
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]


@pytest.mark.parametrize("length", [None, 7, 12])
@pytest.mark.parametrize(("inverse", "onesided", "parts"), [(0, 0, 1), (0, 1, 1), (0, 0, 2), (1, 0, 2)])
def test_transform(length: int | None, inverse: int, onesided: int, parts: int) -> None:
    x = f(3, 10, 4, parts)
    given: list[Any] = [x, None if length is None else np.array(length), np.array(-3)]
    case = Case("DFT", given, [1], opset=20, inverse=inverse, onesided=onesided)
    (have,) = ours(case.model(), case.feeds())
    z = complex_of(x)
    want = (np.fft.ifft if inverse else np.fft.rfft if onesided else np.fft.fft)(z, length, axis=1)
    np.testing.assert_allclose(have, pairs(want), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [9, 10])
def test_real_values_of_half_a_spectrum(length: int) -> None:
    spectrum = np.fft.rfft(f(2, length), axis=1)
    x = pairs(spectrum).astype("float32")
    case = Case("DFT", [x, np.array(length), np.array(1)], [1, 2], opset=20, inverse=1, onesided=1)
    (have,) = ours(case.model(), case.feeds())
    np.testing.assert_allclose(have[..., 0], np.fft.irfft(spectrum, length, axis=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("known", "window", "onesided"), [(True, True, 1), (False, True, 1), (True, False, 0)])
def test_windows_of_a_signal(known: bool, window: bool, onesided: int) -> None:
    x = f(2, 64, 1)
    shape = np.hanning(16).astype("float32") if window else None
    given = [x, np.array(8), shape, None if window else np.array(16)]
    case = Case("STFT", given, [1, 3] if known else [], onesided=onesided, opset=17)
    (have,) = ours(case.model(), case.feeds())
    frames = np.stack([x[:, k : k + 16, 0] for k in range(0, 49, 8)], 1) * (1 if shape is None else shape)
    want = (np.fft.rfft if onesided else np.fft.fft)(frames, axis=-1)
    np.testing.assert_allclose(have, pairs(want), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("known", [True, False])
def test_mel_filters(known: bool) -> None:
    numbers = [np.array(v) for v in (20, 128, 8000)] + [np.array(v, "float32") for v in (20.0, 3600.0)]
    case = Case("MelWeightMatrix", numbers, list(range(5)) if known else [], opset=17)
    (have,) = ours(case.model(), case.feeds())
    (want,) = reference(case.model(), case.feeds())
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.filterwarnings("ignore")
def test_shape_of_a_window(name: str, periodic: int) -> None:
    case = Case(name, [np.array(11)], opset=17, periodic=periodic)
    (have,), (want,) = ours(case.model(), case.feeds()), reference(case.model(), case.feeds())
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
