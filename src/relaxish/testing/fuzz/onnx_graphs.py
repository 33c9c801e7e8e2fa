"""Random ONNX graphs whose dimensions may be symbols: the subjects of the differential fuzzer.

A graph is made from a number. Every dimension is a sum of named sizes and a constant, so that one graph gives a model
of static shapes and one of dynamic shapes. Operators that jump (rounding, comparisons, conversions to integers) only
read values that every implementation computes exactly, so that rounding cannot be taken for a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

__all__ = ["Dim", "Graph", "NODE_MAKERS", "Value", "node_maker", "random_graph"]

Array = np.ndarray[Any, Any]
_DRAWN_DTYPES = ("float32",) * 6 + ("int64", "int64", "int32", "int8", "uint8", "bool", "bool")


@dataclass(frozen=True)
class Dim:
    """A dimension: named sizes with their factors, and a constant.

    >>> (Dim.symbol("n") + Dim.of(2)).value({"n": 3})
    5
    """

    terms: tuple[tuple[str, int], ...] = ()
    const: int = 0

    @staticmethod
    def of(value: int) -> Dim:
        """A constant dimension."""
        return Dim((), value)

    @staticmethod
    def symbol(name: str) -> Dim:
        """A named size."""
        return Dim(((name, 1),), 0)

    def __add__(self, other: Dim) -> Dim:
        total = dict(self.terms)
        for name, factor in other.terms:
            total[name] = total.get(name, 0) + factor
        return Dim(tuple(sorted((n, f) for n, f in total.items() if f)), self.const + other.const)

    def times(self, factor: int) -> Dim:
        """The dimension repeated ``factor`` times."""
        if factor == 0:
            return Dim()
        return Dim(tuple((n, f * factor) for n, f in self.terms), self.const * factor)

    def value(self, sizes: Mapping[str, int]) -> int:
        """The size for given values of the named sizes."""
        return self.const + sum(sizes[n] * f for n, f in self.terms)

    @property
    def fixed(self) -> bool:
        """Whether no named size takes part."""
        return not self.terms


@dataclass(frozen=True)
class Value:
    """A tensor of the graph.

    ``exact``: every implementation computes the same bits. ``bound``: no element of it is larger in magnitude, unless
    it comes from inputs that are not finite.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    exact: bool
    bound: float

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether the elements are floating-point numbers."""
        return self.dtype.startswith("float")

    @property
    def is_int(self) -> bool:
        """Whether the elements are integers."""
        return "int" in self.dtype


@dataclass
class GraphInput:
    """Distribution of an input: element type, dimensions, and the kind of numbers."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    kind: str


@dataclass
class Graph:
    """A graph in the making; ``sizes`` are the values of the named sizes the static model has."""

    rng: Random
    number: int
    opset: int
    sizes: dict[str, int]
    special: bool
    values: list[Value] = field(default_factory=list)
    inputs: list[GraphInput] = field(default_factory=list)
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = field(default_factory=list)
    initializers: dict[str, Array] = field(default_factory=dict)
    counter: int = 0

    # ---- values

    def fresh(self, prefix: str = "v") -> str:
        """A name that is not taken."""
        self.counter += 1
        return f"{prefix}{self.counter}"

    def add_input(self, dtype: str, shape: Sequence[Dim], kind: str | None = None) -> Value:
        """A new graph input. Integers and half of the floats are small whole numbers (exact)."""
        if kind is None:
            kind = "whole" if dtype != "float32" or self.rng.random() < 0.4 else "real"
        name = self.fresh("x")
        self.inputs.append(GraphInput(name, dtype, tuple(shape), kind))
        bound = 1.0 if dtype == "bool" else 4.0
        return self.keep(Value(name, dtype, tuple(shape), kind != "real", bound))

    def constant(self, array: Array, exact: bool = True) -> Value:
        """An initializer; not offered to other operators."""
        name = self.fresh("c")
        self.initializers[name] = array
        bound = float(np.max(np.abs(array.astype("float64")), initial=0.0))
        return Value(name, str(array.dtype), tuple(Dim.of(d) for d in array.shape), exact, bound)

    def ints(self, *numbers: int) -> str:
        """The name of a new int64 vector initializer."""
        return self.constant(np.array(numbers, "int64")).name

    def weight(self, *shape: int) -> Value:
        """An initializer of float32 with random numbers."""
        drawn = np.random.default_rng(self.rng.getrandbits(32)).standard_normal(shape).astype("float32")
        return self.constant(drawn, exact=False)

    def keep(self, value: Value) -> Value:
        """Offer a value to the operators that follow."""
        self.values.append(value)
        return value

    def add(
        self,
        op: str,
        inputs: Sequence[Value | str],
        dtype: str,
        shape: Sequence[Dim],
        *,
        exact: bool,
        bound: float,
        **attrs: Any,
    ) -> Value:
        """Append a node with one result."""
        (made,) = self.add_many(op, inputs, [(dtype, shape, exact)], bound=bound, **attrs)
        return made

    def add_many(
        self,
        op: str,
        inputs: Sequence[Value | str],
        results: Sequence[tuple[str, Sequence[Dim], bool]],
        *,
        bound: float,
        **attrs: Any,
    ) -> list[Value]:
        """Append a node; ``results`` are (element type, dimensions, exact)."""
        names = [self.fresh() for _ in results]
        read = [i.name if isinstance(i, Value) else i for i in inputs]
        self.nodes.append((op, read, names, {k: v for k, v in attrs.items() if v is not None}))
        return [self.keep(Value(n, d, tuple(s), e, bound)) for n, (d, s, e) in zip(names, results)]

    # ---- choices

    def pick(self, accept: Callable[[Value], bool]) -> Value | None:
        """One of the values that qualify; late ones are likelier, so that graphs grow deep."""
        found = [v for v in self.values if accept(v)]
        if not found:
            return None
        return found[max(self.rng.randrange(len(found)), self.rng.randrange(len(found)))]

    def partner(self, value: Value, dtype: str | None = None) -> Value:
        """A value that broadcasts with another: one there is, or a new input with some dimensions dropped or one."""
        wanted = dtype or value.dtype
        there = self.pick(lambda v: v.dtype == wanted and broadcast(value.shape, v.shape) is not None)
        if there is not None and self.rng.random() < 0.6:
            return there
        shape = list(value.shape[self.rng.randint(0, value.rank) :])
        for axis, dim in enumerate(shape):
            plain = dim.fixed or (dim.const == 0 and len(dim.terms) == 1 and dim.terms[0][1] == 1)
            if not plain or self.rng.random() < 0.3:
                shape[axis] = Dim.of(1)
        if self.rng.random() < 0.15:
            shape.insert(0, Dim.of(self.rng.choice([1, 2])))
            if len(shape) <= value.rank:
                shape[0] = Dim.of(1)
        if self.rng.random() < 0.3 and all(d.fixed for d in shape):
            drawn = np.random.default_rng(self.rng.getrandbits(32)).integers(0, 4, [d.const for d in shape])
            return self.constant(drawn.astype(wanted))
        return self.add_input(wanted, shape)

    def axis(self, value: Value) -> int:
        """An axis of a value, counted from either end."""
        return self.rng.randrange(-value.rank, value.rank)

    def dim(self) -> Dim:
        """A dimension for a new input."""
        if self.rng.random() < 0.45:
            return Dim.symbol(self.rng.choice(sorted(self.sizes)))
        return Dim.of(self.rng.choice([1, 2, 3, 4, 5, 8, 17]))


def broadcast(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """The broadcast shape of two, None if it depends on the sizes or there is none."""
    rank = max(len(a), len(b))
    one = Dim.of(1)
    wide_a = [one] * (rank - len(a)) + list(a)
    wide_b = [one] * (rank - len(b)) + list(b)
    out = []
    for x, y in zip(wide_a, wide_b):
        if x == y or y == one:
            out.append(x)
        elif x == one:
            out.append(y)
        else:
            return None
    return tuple(out)


NodeMaker = Callable[[Graph], Value | list[Value] | None]
NODE_MAKERS: dict[str, NodeMaker] = {}


def node_maker(make: NodeMaker) -> NodeMaker:
    """Decorator: register a function that appends one random node, or returns None if nothing there fits it."""
    NODE_MAKERS[make.__name__] = make
    return make


def random_graph(number: int, nodes: int = 12) -> Graph:
    """Graph ``number``: the same number always gives the same graph.

    >>> len(random_graph(3).nodes) > 0
    True
    """
    from . import onnx_nodes  # noqa: F401  (fills the table)

    rng = Random(f"onnx graph {number}")
    sizes = {name: rng.choice([1, 2, 3, 4, 5, 7, 9, 16]) for name in ("n", "s", "t")}
    if rng.random() < 0.04:
        sizes[rng.choice(sorted(sizes))] = 0
    graph = Graph(rng, number, rng.choice([13, 17, 18, 21]), sizes, special=rng.random() < 0.15)
    for _ in range(rng.randint(1, 3)):
        graph.add_input(rng.choice(_DRAWN_DTYPES), [graph.dim() for _ in range(rng.choice([0, 1, 2, 2, 3, 3, 4]))])
    names = sorted(NODE_MAKERS)
    wanted = rng.randint(1, nodes)
    for _ in range(20 * nodes):
        if len(graph.nodes) >= wanted:
            break
        NODE_MAKERS[rng.choice(names)](graph)
    return graph
