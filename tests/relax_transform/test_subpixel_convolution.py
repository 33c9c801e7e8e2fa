"""Transposed convolutions rewritten to plain ones, against torch, for random windows, strides, paddings, groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import relax, tir
from relaxish.transform.subpixel_convolution import SubPixelConvTranspose

torch = pytest.importorskip("torch")


def operators(mod: Any) -> list[str]:
    """Names of the operators called, in order."""
    found: list[str] = []
    relax.analysis.post_order_visit(
        mod["main"], lambda e: found.append(e.op.name) if isinstance(e, relax.Call) and hasattr(e.op, "name") else None
    )
    return found


def program(dims: int, shape: tuple[Any, ...], weight: Any, **attrs: Any) -> Any:
    """A transposed convolution of a parameter, and of a constant or (for a shape) a second parameter."""
    x = relax.Var("x", relax.TensorStructInfo(shape, "float32"))
    constant = isinstance(weight, np.ndarray)
    w = relax.const(weight) if constant else relax.Var("w", relax.TensorStructInfo(weight, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x] if constant else [x, w]):
        with builder.dataflow():
            y = builder.emit_output(
                (relax.op.nn.conv1d_transpose, relax.op.nn.conv2d_transpose)[dims - 1](x, w, **attrs)
            )
        builder.emit_func_output(y)
    return builder.get()


def drawn(seed: int) -> tuple[int, tuple[int, ...], np.ndarray, dict[str, Any], Any]:
    """(dims, data shape, kernel, attributes, torch's result as a function of the data)."""
    rng = np.random.default_rng(seed)
    dims, groups = int(rng.integers(1, 3)), int(rng.choice([1, 1, 2, 3]))
    window = [int(k) for k in rng.integers(1, 6, dims)]
    strides = [int(s) for s in rng.integers(1, 4, dims)]
    padding = [int(rng.integers(0, k)) for k in window]
    extra = [int(rng.integers(0, s)) for s in strides]
    size = [int(s) for s in rng.integers(6, 11, dims)]
    weight = rng.standard_normal((groups * 2, 3, *window)).astype("float32")
    attrs = {"strides": strides, "padding": padding, "output_padding": extra, "groups": groups}
    function = (torch.nn.functional.conv_transpose1d, torch.nn.functional.conv_transpose2d)[dims - 1]

    def reference(x: np.ndarray) -> np.ndarray:
        arguments = (
            torch.from_numpy(x).double(),
            torch.from_numpy(weight).double(),
            None,
            strides,
            padding,
            extra,
            groups,
        )
        return function(*arguments).numpy()

    return dims, (2, groups * 2, *size), weight, attrs, reference


@pytest.mark.parametrize("seed", range(24))
def test_results_are_those_of_torch(seed: int) -> None:
    dims, shape, weight, attrs, reference = drawn(seed)
    x = np.random.default_rng(seed + 100).standard_normal(shape).astype("float32")
    constant = seed % 2 == 0
    mod = SubPixelConvTranspose()(program(dims, shape, weight if constant else weight.shape, **attrs))
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    arrays = [relaxish.nd.array(a) for a in ([x] if constant else [x, weight])]
    np.testing.assert_allclose(vm["main"](*arrays).numpy(), reference(x), rtol=1e-4, atol=1e-4)


def test_four_pixels_of_a_cell_are_channels_of_one_convolution() -> None:
    weight = np.random.default_rng(1).standard_normal((8, 3, 4, 4)).astype("float32")
    mod = SubPixelConvTranspose()(program(2, (1, 8, 5, 5), weight, strides=(2, 2), padding=(1, 1)))
    assert operators(mod) == [
        "relax.nn.conv2d",
        "relax.reshape",
        "relax.permute_dims",
        "relax.reshape",
        "relax.strided_slice",
    ]
    assert relax.analysis.well_formed(mod)


def test_stride_one_is_one_convolution() -> None:
    weight = np.random.default_rng(2).standard_normal((4, 6, 3, 3)).astype("float32")
    mod = SubPixelConvTranspose()(program(2, (1, 4, 7, 7), weight, padding=(1, 1)))
    assert operators(mod) == ["relax.nn.conv2d"]


def test_sizes_that_are_only_known_when_it_runs() -> None:
    h = tir.Var("h", "int64")
    weight = np.random.default_rng(3).standard_normal((4, 2, 3, 3)).astype("float32")
    mod = program(2, (1, 4, h, 6), weight, strides=(2, 2), padding=(1, 1), output_padding=(1, 1))
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    for height in (2, 5):
        x = np.random.default_rng(height).standard_normal((1, 4, height, 6)).astype("float32")
        want = torch.nn.functional.conv_transpose2d(torch.from_numpy(x), torch.from_numpy(weight), None, 2, 1, 1)
        np.testing.assert_allclose(vm["main"](relaxish.nd.array(x)).numpy(), want.numpy(), rtol=1e-4, atol=1e-4)


def test_dilation_and_other_layouts_are_left_alone() -> None:
    weight = np.ones((4, 2, 3, 3), "float32")
    assert operators(SubPixelConvTranspose()(program(2, (1, 4, 6, 6), weight, dilation=(2, 2)))) == [
        "relax.nn.conv2d_transpose"
    ]


@pytest.mark.parametrize("seed", range(12))
def test_volumes_from_torch(seed: int) -> None:
    """There is no operator for them: the importer makes the convolution."""
    from relaxish.frontend.torch import from_exported_program

    rng = np.random.default_rng(seed)
    window, strides = ([int(v) for v in rng.integers(1, most, 3)] for most in (5, 4))
    padding = [int(rng.integers(0, k)) for k in window]
    extra = [int(rng.integers(0, s)) for s in strides]
    groups, outside = int(rng.choice([1, 2, 3])), int(rng.integers(1, 5))
    dilation = 1 if seed % 4 else 2
    module = torch.nn.ConvTranspose3d(
        groups * 2, groups * outside, window, strides, padding, extra if dilation == 1 else 0, groups, True, dilation
    ).eval()
    x = torch.from_numpy(rng.standard_normal((2, groups * 2, *rng.integers(4, 8, 3)), dtype=np.float32))
    with torch.no_grad():
        mod = from_exported_program(torch.export.export(module, (x,)))
        want = module.double()(x.double()).numpy()
    called = operators(mod)
    assert called.count("relax.nn.conv3d") == 1
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    got = vm["main"](relaxish.nd.array(x.numpy()))
    np.testing.assert_allclose(got[0].numpy(), want, rtol=1e-4, atol=1e-5)
