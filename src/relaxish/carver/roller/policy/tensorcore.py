"""Tiles for matrix units: whole fragments that divide the product, warps along the axis with least operand traffic.

Source: Wang et al., "Ladder: enabling efficient low-precision deep learning computing" (OSDI 2024).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....ir import dtype as dt
from ....ir.errors import CheckValueError
from ...arch import CUDA, TileDevice
from ..hint import Hint, IntrinInfo, TileDict
from ..node import Node, PrimFuncNode
from ..rasterization import NoRasterization, Rasterization, Rasterization2DColumn
from ..shapes import Length
from .common import factorize, get_all_factors, product
from .default import DefaultPolicy

__all__ = ["TensorCorePolicy"]

_DEPTH = 16
# Only tiles with a side as short take larger steps of the reduction.
_SMALL_SIDE = 32


class TensorCorePolicy(DefaultPolicy):
    """Recommends tiles of products on matrix units.

    Nodes with the tag ``tensorcore_config`` (numbers of the axes of rows and columns) are such products. Tags
    ``pipeline_stage``, ``use_async_copy`` and ``block_reduction_depth`` overrule what the architecture suggests.
    """

    def __init__(self, arch: TileDevice, tags: Mapping[str, Any] | None = None) -> None:
        super().__init__(arch, tags)
        if not arch.get_avaliable_tensorintrin_shapes():
            raise CheckValueError(f"{arch!r} has no matrix instructions; use DefaultPolicy")
        self.pipeline_stage = 1
        self.use_async_copy = False
        self.block_reduction_depth: int | None = None

    def _take(self, nodes: Sequence[Node]) -> DefaultPolicy:
        super()._take(nodes)
        if not any(node.get_tag("tensorcore_config") for node in self.ordered_nodes):
            raise CheckValueError(
                "no node is a product for matrix units: normalize it first with "
                "carver.matmul_analysis.get_tensorized_func_and_tags(func, target), or use DefaultPolicy"
            )
        overlapped = isinstance(self.arch, CUDA) and self.arch.sm_version in (80, 90)
        tags = self.ordered_nodes[-1]
        self.pipeline_stage = int(tags.get_tag("pipeline_stage") or (2 if overlapped else 1))
        self.use_async_copy = bool(tags.get_tag("use_async_copy") or overlapped)
        depth = tags.get_tag("block_reduction_depth")
        self.block_reduction_depth = int(depth) if depth else None
        return self

    def infer_node_smem_usage(
        self, tile: Sequence[Length], rstep: Mapping[str, Length], node: PrimFuncNode
    ) -> tuple[Length, list[str]]:
        """As of threads, for every tile in flight."""
        used, cached = super().infer_node_smem_usage(tile, rstep, node)
        return used * self.pipeline_stage, cached

    def _assign_reduce_step(self, node: PrimFuncNode) -> dict[str, int]:
        if not node.get_tag("tensorcore_config"):
            return super()._assign_reduce_step(node)
        basic = self.arch.transaction_size[0] * 2 * 8 // dt.bits(node.reduce_inputs()[0].dtype)
        found = {}
        for axis in node.raxis:
            if axis.extent % _DEPTH:
                found[axis.name] = _DEPTH if axis.extent < basic else basic
            elif axis.extent % basic == 0:
                found[axis.name] = basic
            else:
                return super()._assign_reduce_step(node)
        return found

    def get_node_reduce_step_candidates(self, node: PrimFuncNode) -> dict[str, list[int]]:
        """Multiples of the depth of a fragment."""
        if not node.get_tag("tensorcore_config"):
            return super().get_node_reduce_step_candidates(node)
        return {axis.name: [n * _DEPTH for n in get_all_factors(max(1, axis.extent // _DEPTH))] for axis in node.raxis}

    def _expand_reduce_axis(self, td: TileDict) -> None:
        if any(n <= _SMALL_SIDE for node in self.ordered_nodes for n in self._sides(node, td.get_tile(node))):
            super()._expand_reduce_axis(td)
        if self.block_reduction_depth is not None:
            deeper = self.block_reduction_depth
            td.rstep_map = {n: {k: v * deeper for k, v in steps.items()} for n, steps in td.rstep_map.items()}

    @staticmethod
    def _sides(node: PrimFuncNode, tile: Sequence[int]) -> Sequence[int]:
        """The sides of a tile that fragments are laid along."""
        axes = node.get_tag("tensorcore_config")
        return [tile[i] for i in axes] if axes else tile

    def check_tile_shape_isvalid(self, td: TileDict) -> bool:
        """Whether tiles are made of whole fragments and divide the product."""
        shapes = self.arch.get_avaliable_tensorintrin_shapes()
        for node in self.ordered_nodes:
            if node.get_tag("tensorcore_config"):
                tile = td.get_tile(node)
                rows, columns = self._sides(node, tile)
                if all(rows < m or columns < n for m, n in shapes):
                    return False
                if any(n % t for t, n in zip(tile, node.get_space_dim(), strict=True)):
                    return False
        return super().check_tile_shape_isvalid(td)

    def _assign_block_size(self, node: PrimFuncNode, td: TileDict, block_size: int) -> Hint | None:
        axes = node.get_tag("tensorcore_config")
        if not axes:
            return super()._assign_block_size(node, td, block_size)
        if block_size % self.arch.warp_size:
            return None
        tile, rsteps = td.get_tile(node), td.get_rstep(node)
        warp = self._warp_tile(node, tile, axes, block_size // self.arch.warp_size)
        if warp is None:
            return None
        hint = Hint()
        hint.use_tc = True
        hint.block, hint.warp = list(tile), warp
        hint.rstep = [int(rsteps[axis.name]) for axis in node.raxis]
        hint.pipeline_stage, hint.use_async = self.pipeline_stage, self.use_async_copy
        hint.block_reduction_depth = self.block_reduction_depth
        info = node.get_tag("intrin_info")
        if info:
            hint.intrin_info = IntrinInfo(**info)
        hint.shared_scope = "shared.dyn"
        return self._complete(hint, node, td, block_size).complete_config(node).tensorcore_legalization()

    def _warp_tile(self, node: PrimFuncNode, tile: Sequence[int], axes: Sequence[int], warps: int) -> list[int] | None:
        """The part of one of ``warps`` warps, grown from a fragment along the axis with least operand traffic."""
        warp = [1] * len(tile)
        for axis, size in zip(axes, self.arch.get_avaliable_tensorintrin_shapes()[-1], strict=True):
            warp[axis] = size
        if any(n % w for n, w in zip(tile, warp, strict=True)):
            return None
        fragments = math.prod(n // w for n, w in zip(tile, warp, strict=True))
        if fragments % warps:
            return None
        for factor in reversed(factorize(fragments // warps)):
            scored = []
            for i, n in enumerate(tile):
                if n % (warp[i] * factor) == 0:
                    trial = [*warp[:i], warp[i] * factor, *warp[i + 1 :]]
                    blocks = [-(-a // b) for a, b in zip(tile, trial, strict=True)]
                    parts = node.propagate_reduction_inputs(blocks)
                    scored.append((sum(float(product(p)) for p in parts.values()) / self.arch.bandwidth[1], i))
            if not scored:
                return None
            warp[min(scored)[1]] *= factor
        return warp

    def plan_rasterization(self, td: TileDict) -> Rasterization:
        """Panels where the operands of one product do not fit the second-level cache."""
        if len(self.ordered_nodes) > 1 or not isinstance(self.arch, CUDA) or self.arch.sm_version < 80:
            return NoRasterization()
        total = 0
        for node in self.ordered_nodes:
            for edge in node.inputs:
                total += math.prod(edge.src_node.get_shape()) * dt.bits(edge.src_node.get_dtype()) // 8
        if total < self.arch.l2_cache_size_bytes:
            return NoRasterization()
        return Rasterization2DColumn(int(self.arch.compute_max_core**0.5))
