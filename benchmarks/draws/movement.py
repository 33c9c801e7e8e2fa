"""Elementwise chains, and programs that mostly move data."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .base import Draw, Rng, dtype, floats, lengths, of, size

__all__ = ["MOVEMENT"]

_MOST = 6e6  # elements of an input


def elementwise(rng: Rng) -> Draw:
    """A chain of operators with broadcast operands, sometimes transposed at the end."""
    rank = int(rng.integers(1, 5))
    shape = lengths(rng, [(1, 64)] + [(1, 3000 // 4**r) for r in range(rank - 1)], _MOST)
    whole = rng.integers(8) == 0
    kind = dtype(rng, (torch.int64, 0.5), (torch.int32, 0.3), (torch.int8, 0.2)) if whole else dtype(rng)
    other = [s if rng.integers(2) else 1 for s in shape]
    real = ["exp", "tanh", "sigmoid", "gelu", "silu"]
    names = [str(n) for n in rng.choice(["relu", "abs", "add", "mul"] + real * (not whole), 4)]
    turned = [int(a) for a in rng.permutation(rank)] if rng.integers(3) == 0 else None

    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for name in names:
            if name == "exp":
                x = torch.exp(-torch.abs(x))
            elif name in ("add", "mul"):
                x = x + y if name == "add" else x * y
            else:
                x = getattr(F, name)(x) if hasattr(F, name) else getattr(torch, name)(x)
        return x.permute(turned).contiguous() if turned else x

    text = f"{'-'.join(names)} of {shape} with {other} turned {turned} {kind}"
    inputs = tuple(
        torch.from_numpy(rng.integers(-2, 3, s)).to(kind) if whole else floats(rng, s, kind) for s in (shape, other)
    )
    return Draw(text, of(run), inputs, terms=16, rounded=8)


def gather(rng: Rng) -> Draw:
    """Rows of a table, elements along an axis, or rows of a batch."""
    which = str(rng.choice(["embedding", "index_select", "gather"]))
    rows, width, count = lengths(rng, [(4, 50000), (1, 1024), (1, 4096)], 5e10)
    rows = max(4, min(rows, int(1e7 / width)))
    count = max(1, min(count, int(_MOST / width)))
    kind = dtype(rng, (torch.float32, 0.6), (torch.bfloat16, 0.15), (torch.float16, 0.15), (torch.int64, 0.1))
    table = floats(rng, (rows, width)).mul(100).to(kind)
    if which == "gather":
        index = torch.from_numpy(rng.integers(0, rows, (count, width)))
        return Draw(
            f"gather {count}x{width} of {rows} {kind}", of(lambda t, i: t.gather(0, i)), (table, index), exact=True
        )
    index = torch.from_numpy(rng.integers(0, rows, (count,)))
    function: Any = (lambda i, t: t[i]) if which == "embedding" else (lambda t, i: t.index_select(0, i))
    module = of(function, table) if which == "embedding" else of(function)
    inputs = (index,) if which == "embedding" else (table, index)
    return Draw(f"{which} {count} of {rows}x{width} {kind}", module, inputs, exact=True)


def scatter(rng: Rng) -> Draw:
    """Sums into rows, or rows replaced."""
    rows, width, count = lengths(rng, [(4, 20000), (1, 256), (1, 2000)], 2e9)
    rows = max(4, min(rows, int(4e6 / width)))
    count = min(count, rows)
    target, values = floats(rng, (rows, width)), floats(rng, (count, width))
    replaced = bool(rng.integers(2))
    index = torch.from_numpy(rng.permutation(rows)[:count] if replaced else rng.integers(0, rows, count))

    def run(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return x.index_copy(0, i, v) if replaced else x.index_add(0, i, v)

    return Draw(
        f"{'copy' if replaced else 'add'} {count} rows into {rows}x{width}",
        of(run),
        (target, index, values),
        terms=count,
    )


def rearrangement(rng: Rng) -> Draw:
    """Transposes, concatenations, padding, flips, slices, repeats: copies, whatever their name."""
    rank = int(rng.integers(2, 5))
    shape = lengths(rng, [(1, 64)] + [(2, 3000 // 4**r) for r in range(rank - 1)], _MOST)
    kind = dtype(rng, (torch.float32, 0.6), (torch.float16, 0.2), (torch.int64, 0.1), (torch.int8, 0.1))
    axis, turned = int(rng.integers(rank)), [int(a) for a in rng.permutation(rank)]
    which = str(rng.choice(["permute", "cat", "pad", "flip", "slice", "repeat"]))
    functions: dict[str, Any] = {
        "permute": lambda x: x.permute(turned).contiguous(),
        "cat": lambda x: torch.cat([x, x[..., :1], x], -1),
        "pad": lambda x: F.pad(x, (1, 2, 3, 0)),
        "flip": lambda x: x.flip(axis),
        "slice": lambda x: x[..., 1::2].contiguous(),
        "repeat": lambda x: x.repeat_interleave(2, axis),
    }
    x = floats(rng, shape).mul(50).to(kind)
    return Draw(f"{which} of {shape} axis {axis} order {turned} {kind}", of(functions[which]), (x,), exact=True)


def resize(rng: Rng) -> Draw:
    """Images to another size."""
    batch, channels, height, width = lengths(rng, [(1, 4), (1, 128), (4, 256), (4, 256)], 1e6)
    to = [size(rng, 4, 300) for _ in range(2)]
    mode = str(rng.choice(["nearest", "bilinear", "bicubic"]))
    options: dict[str, Any] = {} if mode == "nearest" else {"align_corners": bool(rng.integers(2))}
    module = of(lambda x: F.interpolate(x, tuple(to), mode=mode, **options))
    text = f"resize {batch}x{channels}x{height}x{width} to {to} {mode} {options}"
    # Positions are computed in single precision: what they lose, the weights lose.
    return Draw(text, module, (floats(rng, (batch, channels, height, width)),), terms=(8 * max(height, width)) ** 2)


MOVEMENT = (elementwise, gather, scatter, rearrangement, resize)
