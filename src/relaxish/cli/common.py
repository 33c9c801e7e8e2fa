"""Shared parts of commands: targets, tensors from files, shapes on the command line, output places."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TYPE_CHECKING

import click
import numpy as np

from ..runtime.bytecode.plan import TensorSpec
from ..runtime.arrays.ndarray import NDArray
from ..support.errors import RelaxishError

if TYPE_CHECKING:
    from ..target import Target

#: For every command that reads a model.
trust_option = click.option(
    "--trust-pickle",
    is_flag=True,
    help="Read .pt2 files that can run code while they are read: only if you trust them.",
)
_SHAPE = re.compile(r"^(?P<name>[^=:]+?)\s*[=:]\s*\[?(?P<dims>[\d,x\s]*)\]?$")


def resolve_target(text: str) -> Target:
    """A target from its text; one line of complaint for an unknown one."""
    from ..target import Target

    try:
        return Target(text)
    except Exception as err:
        raise RelaxishError(f"unknown target {text!r}: {' '.join(str(err).split())}") from None


def parse_shapes(items: Sequence[str], option: str = "--shape") -> dict[str, list[int]]:
    """``("x=1,3,224,224", ...)`` to ``{"x": [1, 3, 224, 224]}``."""
    shapes = {}
    for item in items:
        match = _SHAPE.match(item)
        if match is None:
            raise click.BadParameter(f"{item!r}: write NAME=D0,D1,...", param_hint=option)
        shapes[match["name"]] = [int(d) for d in re.split(r"[,x\s]+", match["dims"]) if d]
    return shapes


def tuning_shape_option(command: Callable[..., object]) -> Callable[..., object]:
    """``--tuning-shape``, for commands that tune models and that compile what was tuned."""
    return click.option(
        "--tuning-shape",
        "tuning_shapes",
        multiple=True,
        metavar="NAME=S0,S1,...",
        help="Sizes of a symbolic dimension that the model has tuned copies for; give tune and compile the same.",
    )(command)


def writable_directory(path: str | os.PathLike[str]) -> Path:
    """The directory, made if needed; an error when nothing can be written there."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise RelaxishError(f"cannot use directory {folder}: {err.strerror}") from None
    if not os.access(folder, os.W_OK):
        raise RelaxishError(f"cannot write to directory {folder}: permission denied")
    return folder


def writable_file(path: str | os.PathLike[str]) -> Path:
    """The path of a file to be written; its directory is made if needed."""
    target = Path(path)
    if target.is_dir():
        raise RelaxishError(f"cannot write {target}: it is a directory")
    writable_directory(target.parent)
    return target


def random_input(spec: TensorSpec, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """A plausible tensor: normal numbers for floats, small ones for integers (they may be token numbers)."""
    from ..runtime.arrays.dtype import numpy_dtype

    kind = numpy_dtype(spec.dtype)
    if kind.kind in "iu":
        return rng.integers(0, 2, spec.shape).astype(kind)
    if kind.kind == "b":
        return rng.integers(0, 2, spec.shape).astype(bool)
    return rng.standard_normal(spec.shape).astype(kind)


def load_inputs(files: Sequence[str], specs: Sequence[TensorSpec]) -> list[Any]:
    """Inputs from ``.npy``/``.npz`` files: ``file.npz`` with names, or ``name=file.npy``, or files in order."""
    found: dict[str, Any] = {}
    positional: list[Any] = []
    for item in files:
        name, equals, path = item.rpartition("=")
        try:
            data = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as err:
            reason = getattr(err, "strerror", None) or str(err).splitlines()[0]
            raise RelaxishError(f"cannot read input {path}: {reason}") from None
        if isinstance(data, np.lib.npyio.NpzFile):
            found.update({k: data[k] for k in data.files})
        elif equals:
            found[name] = data
        else:
            positional.append(data)
    names = [s.name for s in specs]
    unknown = [n for n in found if n not in names]
    if unknown:
        raise RelaxishError(f"the model has no input {unknown[0]!r}; its inputs are {', '.join(names) or 'none'}")
    rest = iter(positional)
    values = [found[s.name] if s.name in found else next(rest, None) for s in specs]
    missing = [s.name for s, v in zip(specs, values, strict=True) if v is None]
    if missing:
        raise RelaxishError(f"no value is given for input {missing[0]!r}")
    if next(rest, None) is not None:
        raise RelaxishError(f"{len(positional)} inputs are given, the model has {len(specs)}")
    return [check_input(s, v) for s, v in zip(specs, values, strict=True)]


def check_input(spec: TensorSpec, value: Any) -> np.ndarray[Any, Any]:
    """The value, if shape and dtype are what the model declares."""
    name = str(value.dtype)
    if name != spec.dtype:
        raise RelaxishError(f"input {spec.name!r} must have dtype {spec.dtype}, got {name}")
    if len(value.shape) != len(spec.shape) or any(
        want >= 0 and have != want for have, want in zip(value.shape, spec.shape, strict=True)
    ):
        raise RelaxishError(f"input {spec.name!r} must have shape {show_shape(spec.shape)}, got {list(value.shape)}")
    return np.ascontiguousarray(value)


def show_shape(shape: Sequence[int]) -> str:
    """A shape for people; dynamic dimensions (-1) as ``?``."""
    return "[" + ", ".join("?" if d < 0 else str(d) for d in shape) + "]"


def flatten_result(value: NDArray) -> list[Any]:
    """All tensors of a result as NumPy arrays."""
    from ..runtime.arrays.container import flatten

    return [t.numpy() for t in flatten(value)]


def format_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Aligned text columns."""
    cells = [[str(c) for c in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def print_mapping(title: str, values: Mapping[str, Any]) -> None:
    """A titled list of names and values."""
    click.echo(title)
    width = max((len(k) for k in values), default=0)
    for key, value in values.items():
        click.echo(f"  {key:<{width}}  {value}")
