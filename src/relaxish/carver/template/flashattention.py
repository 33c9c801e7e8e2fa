"""Attention as two products of which the second uses the first's tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ... import te
from ...ir.expr import PrimExpr
from ...tir import PrimFunc
from ..arch import TileDevice
from ..matmul_analysis import get_tensorized_func_and_tags
from ..roller import OutputNode, PrimFuncNode
from .base import BaseTemplate, check_sizes

if TYPE_CHECKING:
    pass

__all__ = ["FlashAttentionTemplate"]


@dataclass
class FlashAttentionTemplate(BaseTemplate):
    """``scores[b, i, j] = Q[b, i] . K[b, j]``, ``out[b, i] = sum_j scores[b, i, j] V[b, j]``, b over batches and heads.

    Hints are ``{node: hint}``: the first node's block is a tile of scores, the second's one of the result.
    """

    batch_size: int = 1
    num_heads: int = 1
    head_dim: int = 1
    seq_length: int = 1
    seq_kv_length: int = 1
    is_causal: bool = False
    in_dtype: str = "float16"
    out_dtype: str = "float16"
    accum_dtype: str = "float16"

    def initialize_function(self) -> None:
        """The two products by ``te``."""
        sizes = {k: v for k, v in self.params_as_dict().items() if k.endswith(("size", "heads", "dim", "length"))}
        check_sizes(self, **sizes)
        batch = self.batch_size * self.num_heads
        scores = self._product(batch, self.seq_length, self.seq_kv_length, self.head_dim)
        result = self._product(batch, self.seq_length, self.head_dim, self.seq_kv_length)
        self.set_function([scores, result])

    def _product(self, batch: int, rows: int, columns: int, depth: int) -> PrimFunc:
        a = te.placeholder((batch, rows, depth), self.in_dtype, name="A")
        b = te.placeholder((batch, columns, depth), self.in_dtype, name="B")
        k, accum = te.reduce_axis((0, depth), name="k"), self.accum_dtype

        def at(n: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
            return te.sum(a[n, i, k].astype(accum) * b[n, j, k].astype(accum), axis=k)

        c = te.compute((batch, rows, columns), at, name="C")
        if self.out_dtype != accum:
            wide = c
            c = te.compute(wide.shape, lambda n, i, j: wide[n, i, j].astype(self.out_dtype), name="D")
        return te.create_prim_func([a, b, c])

    @property
    def output_nodes(self) -> list[OutputNode] | None:
        """The graph of the two products, for the device that is set."""
        if self._output_nodes is None:
            nodes = []
            for name, func in zip(("MMA0", "MMA1"), self._func, strict=True):
                normal, tags = get_tensorized_func_and_tags(func, self.arch)
                nodes.append(PrimFuncNode(normal, tags, name))
            nodes[0].connect(nodes[1], 0, 0)
            self._output_nodes = [OutputNode(nodes[1])]
        return self._output_nodes

    def with_arch(self, arch: TileDevice) -> BaseTemplate:
        """Recommend for a device, or for a target; returns the template itself."""
        self._output_nodes = None
        return super().with_arch(arch)
