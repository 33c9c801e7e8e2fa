"""A product of tiles, taken apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....arith.affine import coefficient
from ....ir.prim import Var, uncast
from ...buffer import Buffer
from ...expr import BufferLoad
from ...stmt import BufferStore
from .names import CLEAR, POLICY
from .program import Nest, as_int
from ....ir.plain import plain_int

__all__ = ["Product", "operands_of", "product_of"]


@dataclass(frozen=True)
class Product:
    """``c[i, j] += a * b`` over i < m, j < n, k < depth; ``turned_a``, ``turned_b``: stored as [k, i] and [j, k]."""

    i: Var
    j: Var
    k: Var
    m: int
    n: int
    depth: int
    store: BufferStore
    a: BufferLoad
    b: BufferLoad
    turned_a: bool
    turned_b: bool
    policy: int
    clear: bool

    @property
    def c(self) -> Buffer:
        """The result."""
        made: Buffer = self.store.buffer
        return made


def operands_of(nest: Nest) -> tuple[BufferLoad, BufferLoad]:
    """The elements that a product multiplies."""
    terms: Any = nest.store.value
    return uncast(terms.b.a), uncast(terms.b.b)


def product_of(nest: Nest) -> Product:
    """The parts of a product. Raises TileLoweringError where a side is not constant."""
    (i, m), (j, n), (k, depth) = nest.loops
    a, b = operands_of(nest)
    policy = plain_int(nest.attrs[POLICY])
    return Product(
        i, j, k, as_int(m, "a side of T.gemm"), as_int(n, "a side of T.gemm"), as_int(depth, "the depth of T.gemm"),
        nest.store, a, b, coefficient(a.indices[-1], k) == 0, coefficient(b.indices[-1], k) == 1, policy, CLEAR in nest.attrs,
    )  # fmt: skip
