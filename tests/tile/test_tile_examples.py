"""The examples of the tile language: run as they are, and in emulation with race checks on three architectures."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from tile_programs import ARCHS, run

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "tile"
NAMES = sorted(p.stem for p in FOLDER.glob("*.py"))


def example(name):
    """The module of an example."""
    known = f"tile_example_{name}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[known] = module
        spec.loader.exec_module(module)
    return sys.modules[known]


def values(*shapes, dtype="float16"):
    """Random inputs."""
    rng = np.random.default_rng(3)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def _gemm(e):
    a, b = values((96, 80), (80, 72))
    return e.gemm(96, 72, 80, 64, 64, 32), [a, b], e.reference(a, b), "float16"


def _bias(e):
    a, b, bias = values((96, 80), (72, 80), (72,))
    return e.gemm_bias_gelu(96, 72, 80), [a, b, bias], e.reference(a, b, bias), "float16"


def _splitk(e):
    a, b = values((96, 80), (80, 72))
    return e.gemm_splitk(96, 72, 80, split=2), [a, b], e.reference(a, b), "float32"


def _streamk(e):
    a, b = values((96, 80), (80, 72))
    return e.gemm_streamk(96, 72, 80, workers=5), [a, b], e.reference(a, b), "float32"


def _grouped(e):
    sizes = [40, 7, 33]
    a, b = values((80, 48), (3, 48, 72))
    places = e.tiles_of(sizes)
    return e.grouped_gemm(80, 3, len(places[0]), 72, 48), [a, b, *places], e.reference(a, b, sizes), "float16"


def _convolution(e):
    data, weight = values((1, 7, 9, 16), (144, 40))
    return e.convolution(1, 7, 9, 16, 40, S=2), [data, weight], e.reference(data, weight, S=2), "float16"


def _softmax(e):
    (a,) = values((10, 96), dtype="float32")
    return e.softmax(10, 96), [a], e.reference(a), "float32"


def _rms_norm(e):
    a, weight = values((7, 128), (128,))
    return e.rms_norm(7, 128), [a, weight], e.reference(a, weight), "float16"


def _attention(causal):
    def case(e):
        q, k, v = values((1, 2, 80, 32), (1, 2, 96, 32), (1, 2, 96, 32))
        return e.attention(1, 2, 80, 96, 32, causal), [q, k, v], e.reference(q, k, v, causal), "float16"

    return case


def _decoding(e):
    q, k, v = values((2, 8, 32), (2, 100, 32), (2, 100, 32))
    return e.decoding(2, 8, 100, 32, split=2), [q, k, v], e.reference(q, k, v), "float16"


def _dequantized(e):
    rng = np.random.default_rng(4)
    (a,) = values((96, 128))
    b, scales = rng.integers(0, 256, (72, 64)).astype("uint8"), rng.random((72, 4)).astype("float16")
    return e.dequantized_gemm(96, 72, 128), [a, b, scales], e.reference(a, b, scales), "float16"


CASES = {
    "gemm": ("gemm", _gemm), "gemm_bias_gelu": ("gemm_bias_gelu", _bias), "gemm_splitk": ("gemm_splitk", _splitk),
    "gemm_streamk": ("gemm_streamk", _streamk), "grouped_gemm": ("grouped_gemm", _grouped),
    "convolution": ("convolution", _convolution), "softmax": ("softmax", _softmax), "rms_norm": ("rms_norm", _rms_norm),
    "attention": ("flash_attention", _attention(False)), "causal": ("flash_attention", _attention(True)),
    "decoding": ("flash_attention", _decoding), "dequantized_gemm": ("dequantized_gemm", _dequantized),
}  # fmt: skip


def test_all_examples_are_here():
    assert sorted({name for name, _ in CASES.values()}) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_as_they_are(name, capsys):
    example(name).main()
    assert capsys.readouterr().out == f"{name}: right\n"


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("case", sorted(CASES))
def test_in_emulation(case, arch):
    name, make = CASES[case]
    func, inputs, wanted, dtype = make(example(name))
    (found,) = run(func, arch, inputs, [np.zeros(wanted.shape, dtype)])
    np.testing.assert_allclose(found.astype("float32"), wanted, rtol=2e-2, atol=2e-3 * np.abs(wanted).max())


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(CASES))
def test_in_half_precision_on_the_cpu(case):
    name, make = CASES[case]
    func, inputs, wanted, dtype = make(example(name))
    (found,) = run(func, "llvm", inputs, [np.zeros(wanted.shape, dtype)])
    np.testing.assert_allclose(found.astype("float32"), wanted, rtol=2e-2, atol=2e-3 * np.abs(wanted).max())
