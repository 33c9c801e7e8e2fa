"""The kernels that are checked and timed: a program, fresh inputs, what is right, and who else can do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

NT_TYPES = {  # name: (element of A and B, element of C, accumulator)
    "f16": ("float16", "float16", "float32"),
    "bf16": ("bfloat16", "bfloat16", "float32"),
    "int8": ("int8", "int32", "int32"),
    "fp8": ("float8_e4m3fn", "float16", "float32"),
}


# From the inputs on the device to functions that compute the case with them.
Peers = Callable[[list[Any]], dict[str, Callable[[], Any]]]


@dataclass
class Case:
    """One kernel. ``module`` makes the program; ``inputs`` are torch tensors on the CPU; ``expected`` is in float64.

    ``peers`` start at once; ``compiled`` ones compile for long first. Both return what the program returns.
    """

    name: str
    module: Callable[[], Any]
    inputs: list[Any]
    expected: Callable[[list[Any]], np.ndarray]
    tolerance: float
    flop: float = 0.0
    nbytes: float = 0.0
    peers: Peers = field(default=lambda _: {})
    compiled: Peers = field(default=lambda _: {})


def gemm_program(kind: str, m: int, n: int | None = None, depth: int | None = None) -> Any:
    """``C[i, j] = sum_k A[i, k] * B[j, k]`` of ``m`` x ``n`` results; sides that are not given are ``m``."""
    from relaxish import IRModule, te

    n, depth = n or m, depth or m
    element, out, accumulator = NT_TYPES[kind]
    a = te.placeholder((m, depth), element, name="A")
    b = te.placeholder((n, depth), element, name="B")
    k = te.reduce_axis((0, depth), name="k")
    total = te.compute(
        (m, n), lambda i, j: te.sum(a[i, k].astype(accumulator) * b[j, k].astype(accumulator), axis=k), name="C"
    )
    if out != accumulator:
        wide = total
        total = te.compute((m, n), lambda i, j: wide[i, j].astype(out), name="D")
    return IRModule({"main": te.create_prim_func([a, b, total]).with_attr("global_symbol", "main")})


def gemm(kind: str, size: int) -> Case:
    """A square matrix product with B transposed, as the weight of a linear layer is."""
    import torch

    generator = torch.Generator().manual_seed(size)

    def draw() -> Any:
        if kind == "int8":
            return torch.randint(-128, 128, (size, size), dtype=torch.int8, generator=generator)
        values = torch.randn(size, size, generator=generator)
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}[kind]
        return values.to(dtype)

    width = {"f16": 2, "bf16": 2, "int8": 1, "fp8": 1}[kind]
    # The tensor cores keep some 14 bits of the sums of fp8 products.
    tolerance = {"f16": 2e-3, "bf16": 1e-2, "int8": 0.0, "fp8": 1e-2}[kind]
    return Case(
        f"gemm {kind} {size}", lambda: gemm_program(kind, size), [draw(), draw()],
        lambda x: x[0].double().numpy() @ x[1].double().numpy().T, tolerance,
        flop=2.0 * size**3, nbytes=3.0 * width * size**2, peers=lambda x: _cublas(kind, x),
        compiled=lambda x: _triton(kind, x),
    )  # fmt: skip


def _cublas(kind: str, x: list[Any]) -> dict[str, Callable[[], Any]]:
    import torch

    a, b = x
    if kind == "int8":
        return {"cublas": lambda: torch._int_mm(a, b.T)}
    if kind == "fp8":
        one = torch.ones((), device=a.device)
        return {"cublas": lambda: torch._scaled_mm(a, b.T, one, one, out_dtype=torch.float16)}
    return {"cublas": lambda: torch.nn.functional.linear(a, b)}


def _triton(kind: str, x: list[Any]) -> dict[str, Callable[[], Any]]:
    import torch

    try:
        from .triton_gemm import gemm as triton_gemm
    except ImportError:
        return {}
    a, b = x
    dtype = {"int8": torch.int32, "bf16": torch.bfloat16}.get(kind, torch.float16)
    out = torch.empty(a.shape[0], b.shape[0], dtype=dtype, device=a.device)
    return {"triton": lambda: triton_gemm(a, b, out)}


def _graph(shapes: list[tuple[int, ...]], dtype: str, emit: Callable[..., Any]) -> Any:
    """A graph function ``main`` of one operator."""
    from relaxish import relax

    bb = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(s, dtype)) for i, s in enumerate(shapes)]
    with bb.function("main", params):
        with bb.dataflow():
            out = bb.emit_output(bb.emit(emit(*params)))
        bb.emit_func_output(out)
    return bb.get()


def _random(shapes: list[tuple[int, ...]], seed: int) -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*s, generator=generator).half() for s in shapes]


def _torch(eager: Callable[[list[Any]], Any]) -> dict[str, Peers]:
    """torch as it is, and compiled."""

    def compiled(x: list[Any]) -> dict[str, Callable[[], Any]]:
        import torch

        function = torch.compile(eager, mode="max-autotune-no-cudagraphs")
        return {"torch.compile": lambda: function(x)}

    return {"peers": lambda x: {"torch": lambda: eager(x)}, "compiled": compiled}


def conv2d(batch: int, size: int, channels: int) -> Case:
    """A 3x3 convolution, channels last."""
    from relaxish import relax

    shapes = [(batch, size, size, channels), (channels, 3, 3, channels)]

    def emit(x: Any, w: Any) -> Any:
        # Sums in float32, as torch has them.
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
        return relax.op.astype(relax.op.nn.conv2d(x, w, padding=1, out_dtype="float32", **layouts), "float16")

    def reference(x: list[Any]) -> np.ndarray:
        import torch

        out = torch.nn.functional.conv2d(x[0].permute(0, 3, 1, 2).float(), x[1].permute(0, 3, 1, 2).float(), padding=1)
        return out.permute(0, 2, 3, 1).numpy()

    def eager(x: list[Any]) -> Any:
        import torch

        data, weight = (t.permute(0, 3, 1, 2) for t in x)
        return torch.nn.functional.conv2d(data, weight, padding=1).permute(0, 2, 3, 1)

    return Case(
        f"conv2d f16 {batch}x{size}x{size}x{channels}", lambda: _graph(shapes, "float16", emit), _random(shapes, 1),
        reference, 3e-3, flop=2.0 * batch * size**2 * channels**2 * 9, **_torch(eager),
    )  # fmt: skip


def softmax(rows: int, columns: int) -> Case:
    """Softmax over the last axis."""
    from relaxish import relax

    shapes = [(rows, columns)]
    return Case(
        f"softmax f16 {rows}x{columns}", lambda: _graph(shapes, "float16", lambda x: relax.op.nn.softmax(x, -1)),
        _random(shapes, 2), lambda x: x[0].double().softmax(-1).numpy(), 2e-3, nbytes=4.0 * rows * columns,
        **_torch(lambda x: x[0].softmax(-1)),
    )  # fmt: skip


def layer_norm(rows: int, columns: int) -> Case:
    """Layer normalisation with scale and shift."""
    from relaxish import relax

    shapes = [(rows, columns), (columns,), (columns,)]

    def reference(x: list[Any]) -> np.ndarray:
        import torch

        out: np.ndarray = torch.nn.functional.layer_norm(
            x[0].double(), (columns,), x[1].double(), x[2].double()
        ).numpy()
        return out

    def eager(x: list[Any]) -> Any:
        import torch

        return torch.nn.functional.layer_norm(x[0], (columns,), x[1], x[2])

    return Case(
        f"layer norm f16 {rows}x{columns}",
        lambda: _graph(shapes, "float16", lambda x, g, b: relax.op.nn.layer_norm(x, g, b, axes=[-1])),
        _random(shapes, 3), reference, 4e-3, nbytes=4.0 * rows * columns, **_torch(eager),
    )  # fmt: skip


def attention(batch: int, length: int, heads: int, width: int) -> Case:
    """Scaled dot-product attention; heads are the third axis."""
    from relaxish import relax

    shapes = [(batch, length, heads, width)] * 3

    def reference(x: list[Any]) -> np.ndarray:
        q, k, v = (t.permute(0, 2, 1, 3).double() for t in x)
        weights = (q @ k.transpose(-1, -2) / width**0.5).softmax(-1)
        out: np.ndarray = (weights @ v).permute(0, 2, 1, 3).numpy()
        return out

    def eager(x: list[Any]) -> Any:
        import torch

        q, k, v = (t.permute(0, 2, 1, 3) for t in x)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).permute(0, 2, 1, 3)

    return Case(
        f"attention f16 {batch}x{length}x{heads}x{width}",
        lambda: _graph(shapes, "float16", lambda q, k, v: relax.op.nn.attention(q, k, v)), _random(shapes, 4),
        reference, 4e-3, flop=4.0 * batch * heads * length**2 * width, **_torch(eager),
    )  # fmt: skip


def all_cases(small: bool) -> dict[str, Callable[[], Case]]:
    """What is measured, by name; ``small`` shapes exercise the flow on a machine without a GPU."""
    if small:
        return {
            "gemm f16 64": partial(gemm, "f16", 64),
            "gemm int8 64": partial(gemm, "int8", 64),
            "conv2d f16 1x8x8x16": partial(conv2d, 1, 8, 16),
            "softmax f16 8x64": partial(softmax, 8, 64),
            "layer norm f16 8x64": partial(layer_norm, 8, 64),
            "attention f16 1x16x2x16": partial(attention, 1, 16, 2, 16),
        }
    return {
        **{f"gemm f16 {size}": partial(gemm, "f16", size) for size in (1024, 2048, 4096, 8192)},
        **{f"gemm {kind} 4096": partial(gemm, kind, 4096) for kind in ("bf16", "int8", "fp8")},
        "conv2d f16 16x56x56x64": partial(conv2d, 16, 56, 64),
        "conv2d f16 16x14x14x256": partial(conv2d, 16, 14, 256),
        "softmax f16 4096x4096": partial(softmax, 4096, 4096),
        "layer norm f16 4096x4096": partial(layer_norm, 4096, 4096),
        "attention f16 4x1024x16x64": partial(attention, 4, 1024, 16, 64),
    }
