"""Random calls of single ONNX operators: attributes, shapes, types and special values, each from one seed.

``operator_case(name, seed)`` is always the same case.  Shapes have no dimensions, dimensions of zero and of one, and
broadcast; values are NaN, infinities, both zeros, halves and the extremes of integer types among ordinary numbers; some
inputs that an exporter would store as weights are inputs of the graph instead.  :mod:`.onnx_judges` runs a case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, TYPE_CHECKING
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    import onnx

__all__ = ["OPERATORS", "Draw", "OperatorCase", "operator_case", "operator_names", "register"]

_T = TypeVar("_T")

FLOATS = ("float32", "float32", "float32", "float64", "float16")
INTS = ("int32", "int64", "int8", "uint8", "int16")
NUMBERS = (*FLOATS, "int32", "int64")

_SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0]


@dataclass
class OperatorCase:
    """One node with its inputs.

    ``weights`` are the positions of inputs stored in the model; the others are inputs of the graph. ``rtol`` and
    ``atol`` say how far results of floating-point types may be off, relative to the larger of the two.
    """

    op: str
    inputs: Sequence[np.ndarray[Any, Any] | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 18
    domain: str = ""
    weights: set[int] = field(default_factory=set)
    rtol: float | None = None
    atol: float | None = None
    seed: int = 0

    def model(self) -> onnx.ModelProto:
        """The model with this node only (an ``onnx.ModelProto``)."""
        import onnx

        helper = onnx.helper
        names = [f"x{k}" if v is not None else "" for k, v in enumerate(self.inputs)]
        node = helper.make_node(
            self.op, names, [f"y{k}" for k in range(self.outputs)], domain=self.domain, **self.attrs
        )
        values = [(k, f"x{k}", v) for k, v in enumerate(self.inputs) if v is not None]
        given = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for k, n, v in values
            if k not in self.weights
        ]
        stored = [onnx.numpy_helper.from_array(v, n) for k, n, v in values if k in self.weights]
        outs = [onnx.ValueInfoProto(name=f"y{k}") for k in range(self.outputs)]
        opsets = [helper.make_opsetid("", self.opset)]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, 1))
        graph = helper.make_graph([node], "operator", given, outs, stored)
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def feeds(self) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays for the inputs of the graph, by name."""
        return {f"x{k}": v for k, v in enumerate(self.inputs) if v is not None and k not in self.weights}

    def __str__(self) -> str:
        parts = []
        for k, v in enumerate(self.inputs):
            if v is None:
                parts.append("-")
                continue
            shown = np.array2string(v, threshold=40, precision=9, separator=",").replace("\n", "")
            parts.append(f"{'weight ' if k in self.weights else ''}{v.dtype}{list(v.shape)}={shown}")
        return f"{self.op}-{self.opset} seed {self.seed} {self.attrs} outputs={self.outputs}: " + "; ".join(parts)


class Draw:
    """A stream of random choices for one case."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, options: Sequence[_T]) -> _T:
        """One of ``options``."""
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        """True that often."""
        return bool(self.rng.random() < share)

    def integer(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, both included."""
        return int(self.rng.integers(low, high + 1))

    def real(self, low: float, high: float) -> float:
        """A number that float32 holds exactly."""
        return float(np.float32(self.rng.uniform(low, high)))

    def shape(self, low: int = 0, high: int = 4, empty: float = 0.06) -> list[int]:
        """A shape of ``low`` to ``high`` dimensions; one in ``1 / empty`` has a dimension of zero."""
        rank = self.integer(low, high)
        dims = [self.pick([1, 1, 2, 3, 4, 5, 7, 17] if rank < 3 else [1, 2, 3, 4, 5]) for _ in range(rank)]
        if rank and self.chance(empty):
            dims[self.integer(0, rank - 1)] = 0
        return dims

    def broadcast(self, shape: Sequence[int]) -> list[int]:
        """A shape that broadcasts to ``shape``: some dimensions one, some leading ones absent."""
        dims = [1 if self.chance(0.3) else d for d in shape]
        return dims[self.integer(0, len(dims)) :] if self.chance(0.4) else dims

    def pair(self, low: int = 0, high: int = 4) -> tuple[list[int], list[int]]:
        """Two shapes that broadcast with each other."""
        shape = self.shape(low, high)
        left, right = self.broadcast(shape), self.broadcast(shape)
        return (left, right) if self.chance(0.5) else (shape, right)

    def axis(self, rank: int) -> int:
        """An axis, counted from either end."""
        axis = self.integer(0, max(rank, 1) - 1)
        return axis - rank if rank and self.chance(0.4) else axis

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Different axes in any order, each counted from either end."""
        count = self.integer(min(least, rank), rank)
        chosen = self.rng.permutation(rank)[:count]
        return [int(a) - rank if self.chance(0.3) else int(a) for a in chosen]

    def values(
        self, shape: Sequence[int], dtype: str, special: float = 0.15, wide: float = 2.0, nan: bool = True
    ) -> np.ndarray[Any, Any]:
        """An array of ``dtype``: ordinary numbers, of which a share of ``special`` ones in half of the cases."""
        if dtype == "bool":
            return np.asarray(self.rng.random(shape) > 0.5)
        mixed = special > 0 and self.chance(0.5)
        if dtype.startswith(("int", "uint")):
            info = np.iinfo(dtype)
            low = 0 if info.min == 0 else -9
            made = np.asarray(self.rng.integers(low, 10, shape)).astype(dtype)
            if mixed:
                extreme = self.rng.choice(np.array([info.min, info.max, 0, 1, info.max - 1], dtype), shape)
                made = np.where(self.rng.random(shape) < special, extreme, made)
            return np.asarray(made, dtype)
        made = np.asarray(self.rng.normal(0, wide, shape))
        if self.chance(0.3):
            made = np.round(made * 2) / 2  # ties, also of rounding
        if mixed:
            made = np.where(self.rng.random(shape) < special, self.rng.choice(_SPECIAL, shape), made)
        if not nan:
            made = np.where(np.isnan(made), -np.inf, made)
        return np.asarray(made).astype(dtype)

    def stored(self, *positions: int) -> set[int]:
        """Those of ``positions`` that become weights; mostly all of them."""
        return {p for p in positions if self.chance(0.8)}


Make = Callable[[Draw], OperatorCase]
OPERATORS: dict[str, Make] = {}
"""By name of the case family (the operator's, or that with a variant behind a hyphen)."""


def register(*names: str) -> Callable[[Make], Make]:
    """Say how cases of these names are made."""

    def add(make: Make) -> Make:
        for name in names:
            OPERATORS[name] = make
        return make

    return add


def operator_names() -> list[str]:
    """All names that :func:`operator_case` takes, sorted."""
    from . import onnx_operator_table  # noqa: F401  (fills the table)

    return sorted(OPERATORS)


def operator_case(name: str, seed: int) -> OperatorCase:
    """Case number ``seed`` of an operator. Raises KeyError for names :func:`operator_names` does not list."""
    operator_names()
    made = OPERATORS[name](Draw(crc32(name.encode()) + seed))
    made.seed = seed
    return made
