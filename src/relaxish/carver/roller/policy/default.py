"""Tiles for threads: the smallest one is grown along divisors, best first by memory traffic times waves.

Source: Zhu et al., "Roller: fast and efficient tensor compilation for deep learning" (OSDI 2022).
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir import dtype as dt
from ....ir.errors import CheckValueError
from ....support.sequences import of_kind
from ....tir import PrimFunc
from ...arch import TileDevice
from ..hint import Hint, TileDict
from ..node import Node, OutputNode, PrimFuncNode, find_topo_sort
from ..rasterization import NoRasterization, Rasterization
from ..shapes import Length
from .common import coalesced_elements, coalesced_factor, factorize, get_all_factors, product, similarity

__all__ = ["DefaultPolicy"]

_EXTRA_STEPS = (2, 4, 8, 16, 32)
_MOST_VISITED = 2000
# Up to as many tiles are measured at once, in columns; larger spaces one by one as the search comes to them.
_MOST_AT_ONCE = 1 << 16
_VECTORS = (16, 8, 4, 2)
_LONGEST_VECTOR_BITS = 128

Steps = dict[PrimFuncNode, dict[str, int]]


@dataclass
class _Cost:
    """Columns, a row for each tile."""

    traffic: Any
    shared: Any
    grid: Any
    resident: Any
    waves: Any
    valid: Any


class DefaultPolicy:
    """Recommends tiles of functions that threads compute.

    ``tags`` may have ``opt_shapes`` (values of symbolic extents). Policies have no state besides what they are made of.
    """

    def __init__(self, arch: TileDevice, tags: Mapping[str, Any] | None = None) -> None:
        if not isinstance(arch, TileDevice) or arch.compute_max_core == 0:
            raise CheckValueError(
                f"this policy is for GPUs, got {arch!r}: make the device with carver.arch.get_arch(target); "
                "for CPUs ask carver.recommend(func, target)"
            )
        self.arch = arch
        self.tags = dict(tags or {})
        self.ordered_nodes: list[PrimFuncNode] = []
        self.output_nodes: list[PrimFuncNode] = []
        #: Whether functions are computed step by step of the reductions that use them, as attention does.
        self.streaming = False
        self.most_threads = int(arch.target.attrs.get("max_num_threads") or 1024)

    @classmethod
    def from_prim_func(
        cls, func: PrimFunc, arch: TileDevice, tags: Mapping[str, Any] | None = None, name: str = "PrimFuncNode"
    ) -> DefaultPolicy:
        """The policy for one function."""
        return cls(arch, tags)._take([OutputNode(PrimFuncNode(func, dict(tags or {}), name))])

    @classmethod
    def from_output_nodes(
        cls, nodes: Sequence[OutputNode], arch: TileDevice, tags: Mapping[str, Any] | None = None
    ) -> DefaultPolicy:
        """The policy for functions that one kernel computes together."""
        return cls(arch, tags)._take(nodes)

    def _take(self, nodes: Sequence[Node]) -> DefaultPolicy:
        self.ordered_nodes = list(of_kind(find_topo_sort(nodes), PrimFuncNode))
        if not self.ordered_nodes:
            raise CheckValueError("there is nothing to tile: give the OutputNodes of at least one PrimFuncNode")
        for node in self.ordered_nodes:
            node.update_tags(self.tags)
        self.output_nodes = [n for n in self.ordered_nodes if all(e.dst_node.is_output() for e in n.outputs)]
        return self

    # ---- the recommendation

    def emit_config(self, topk: int) -> list[Any]:
        """The ``topk`` best tilings: hints, or for several nodes ``{node: hint}``."""
        found: list[Any] = []
        if int(topk) < 1:
            return found
        for tile in self.candidates():
            if not self.check_tile_shape_isvalid(tile):
                continue
            self._expand_reduce_axis(tile)
            made = next(self._assignments(tile), None)
            if made is None:
                continue
            found.append(next(iter(made.values())) if len(made) == 1 else made)
            if len(found) >= topk:
                break
        return found

    def candidates(self) -> Iterator[TileDict]:
        """The tiles that fit, best first, with their cost."""
        base = self.get_base_tile()
        if base is not None:
            rsteps = {node: self._assign_reduce_step(node) for node in self.ordered_nodes}
            yield from (self.compute_tile_dict(tile, rsteps) for tile in self._grow(base, rsteps))

    def get_base_tile(self) -> list[int] | None:
        """The smallest tile without redundant work; None if outputs have different numbers of axes."""
        if len({len(node.get_space_dim()) for node in self.output_nodes}) > 1:
            return None
        shape = self.output_nodes[0].get_space_dim()
        base = [1] * len(shape)
        least = self.compute_workload_per_item(base)
        for dim, n in enumerate(shape):
            tile = [*base[:dim], n, *base[dim + 1 :]]
            work = self.compute_workload_per_item(tile)
            if work < least:
                least, base = work, tile
        return base

    def compute_workload_per_item(self, output_tile: Sequence[int]) -> float:
        """Results computed by all nodes for each result of the last one."""
        tiles = self.tile_map(output_tile)
        return float(sum(product(tiles[node]) for node in self.ordered_nodes) / product(output_tile))

    # ---- the cost of a tile

    def tile_map(self, output_tile: Sequence[Length], rsteps: Steps | None = None) -> dict[PrimFuncNode, list[Length]]:
        """Every node's part of a tile; when ``streaming``, of what one step of its consumers' reductions needs."""
        first = self.output_nodes[0].get_space_dim()
        tiles: dict[PrimFuncNode, list[Length]] = {}
        for node in self.output_nodes:
            tiles[node] = [t * n // m for t, n, m in zip(output_tile, node.get_space_dim(), first, strict=True)]
        for node in reversed(self.ordered_nodes):
            steps = rsteps.get(node) if self.streaming and rsteps else None
            needs = node.propagate_inputs(tiles[node], steps)
            for edge, need in zip(node.inputs, needs, strict=True):
                if isinstance(edge.src_node, PrimFuncNode):
                    tiles[edge.src_node] = edge.src_node.tile_for(need, edge.src_id)
        return tiles

    def _traffic(self, tiles: dict[PrimFuncNode, list[Length]]) -> Length:
        """Bytes moved for a tile over the whole depth of its reductions, in whole transactions."""
        write, read = self.arch.transaction_size
        total: Length = 0
        for node in reversed(self.ordered_nodes):
            for edge, part in zip(node.inputs, node.propagate_inputs(tiles[node]), strict=True):
                if edge.src_node.is_placeholder():
                    size = _bytes_of(edge.src_node.get_dtype())
                    total = total + coalesced_elements(part, edge.src_node.get_shape(), read // size) * size
            parts = node.propagate_outputs(tiles[node]) if any(e.dst_node.is_output() for e in node.outputs) else []
            for edge in node.outputs:
                if edge.dst_node.is_output():
                    size = _bytes_of(node.get_dtype(edge.src_id))
                    total = (
                        total
                        + coalesced_elements(parts[edge.src_id], node.get_shape(edge.src_id), write // size) * size
                    )
        return total

    def _shared(
        self, tiles: dict[PrimFuncNode, list[Length]], rsteps: Steps
    ) -> tuple[Length, dict[PrimFuncNode, list[str]]]:
        """Bytes of shared memory of a block: at each node those of its own tiles and of results still needed."""
        most: Length = 0
        alive: Length = 0
        cached: dict[PrimFuncNode, list[str]] = {}
        waiting: dict[PrimFuncNode, tuple[Length, set[int]]] = {}
        for node in self.ordered_nodes:
            own, cached[node] = self.infer_node_smem_usage(tiles[node], rsteps[node], node)
            most = np.maximum(most, alive + own)
            for edge in node.inputs:
                if isinstance(edge.src_node, PrimFuncNode) and edge.src_node in waiting:
                    size, users = waiting[edge.src_node]
                    users.discard(id(edge.dst_node))
                    if not users:
                        alive = alive - size
                        del waiting[edge.src_node]
            users = {id(e.dst_node) for e in node.outputs if not e.dst_node.is_output()}
            if users:
                size = product(tiles[node]) * _bytes_of(node.get_dtype())
                waiting[node] = size, users
                alive = alive + size
                most = np.maximum(most, alive)
        return most, cached

    def infer_node_smem_usage(
        self, tile: Sequence[Length], rstep: Mapping[str, Length], node: PrimFuncNode
    ) -> tuple[Length, list[str]]:
        """Bytes of shared memory of a node's tiles, and the tensors they are of."""
        return node.footprint(tile, rstep)

    def _cost(self, tile: Sequence[Length], rsteps: Steps) -> _Cost:
        arch = self.arch
        tiles = self.tile_map(tile, rsteps)
        shared, _ = self._shared(tiles, rsteps)
        shape = self.output_nodes[0].get_space_dim()
        grid = product([(n + t - 1) // t for t, n in zip(tile, shape, strict=True)])
        registers: Length = 0
        for node in self.ordered_nodes:
            registers = np.maximum(registers, product(tiles[node]) * (dt.bits(node.get_dtype()) / 32))
        registers = np.floor(2 * registers)
        valid = (shared <= arch.smem_cap) & (registers <= arch.reg_cap)
        resident = np.minimum(arch.max_smem_usage // np.maximum(shared, 1), arch.reg_cap // np.maximum(registers, 1))
        resident = np.maximum(np.minimum(resident, arch.sm_partition), 1)
        waves = np.ceil(grid / (resident * arch.compute_max_core))
        return _Cost(self._traffic(tiles), shared, grid, resident, waves, valid)

    # ---- growing tiles

    def _grow(self, base: list[int], rsteps: Steps) -> list[list[int]]:
        """Best first along the steps of each axis from the smallest tile; the valid ones that were visited, in order."""
        steps = [_steps_from(n, start) for n, start in zip(self.output_nodes[0].get_space_dim(), base, strict=True)]
        look_up = self._look_up(steps, rsteps)
        visited: dict[tuple[int, ...], tuple[float, bool]] = {}
        queue: list[tuple[float, tuple[int, ...]]] = []

        def visit(place: tuple[int, ...]) -> None:
            if place not in visited:
                priority, valid = visited[place] = look_up(place)
                if valid:
                    heapq.heappush(queue, (priority, place))

        visit((0,) * len(steps))
        while queue and len(visited) <= _MOST_VISITED:
            _, place = heapq.heappop(queue)
            for i in reversed(range(len(place))):
                if place[i] + 1 < len(steps[i]):
                    visit((*place[:i], place[i] + 1, *place[i + 1 :]))
        order = sorted((p for p, (_, valid) in visited.items() if valid), key=lambda p: visited[p][0])
        return [[s[i] for s, i in zip(steps, place, strict=True)] for place in order]

    def _look_up(self, steps: list[list[int]], rsteps: Steps) -> Callable[[tuple[int, ...]], tuple[float, bool]]:
        """A function from a tile's place in the grid of steps to its priority and whether it fits."""
        sizes = [len(s) for s in steps]
        if math.prod(sizes) > _MOST_AT_ONCE:

            def one(place: tuple[int, ...]) -> tuple[float, bool]:
                cost = self._cost([s[i] for s, i in zip(steps, place, strict=True)], rsteps)
                return float((cost.traffic + 1) * cost.waves), bool(cost.valid)

            return one
        columns = [c.ravel() for c in np.meshgrid(*(np.array(s, dtype=np.int64) for s in steps), indexing="ij")]
        cost = self._cost(columns, rsteps)
        shape = columns[0].shape
        priority = np.broadcast_to((cost.traffic + 1) * cost.waves, shape).tolist()
        valid = np.broadcast_to(cost.valid, shape).tolist()
        strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]

        def from_table(place: tuple[int, ...]) -> tuple[float, bool]:
            row = sum(i * s for i, s in zip(place, strides, strict=True))
            return priority[row], valid[row]

        return from_table

    def compute_tile_dict(self, output_tile: Sequence[int], rstep_map: Steps) -> TileDict:
        """A tile with its cost."""
        made = TileDict([int(n) for n in output_tile])
        made.rstep_map = {node: dict(steps) for node, steps in rstep_map.items()}
        cost = self._cost(made.output_tile, rstep_map)
        tiles = self.tile_map(made.output_tile, rstep_map)
        made.tile_map = {node: [int(n) for n in tile] for node, tile in tiles.items()}
        made.cached_tensors_map = self._shared(tiles, rstep_map)[1]
        made.traffic, made.smem_cost, made.grid_size = float(cost.traffic), int(cost.shared), int(cost.grid)
        made.block_per_SM, made.num_wave, made.valid = int(cost.resident), int(cost.waves), bool(cost.valid)
        return made

    def check_tile_shape_isvalid(self, td: TileDict) -> bool:
        """Whether all nodes have as many tiles as the result has."""
        for node in self.ordered_nodes:
            tile = td.get_tile(node)
            if math.prod(tile) == 0:
                return False
            streamed = self.streaming and node not in self.output_nodes
            if (
                not streamed
                and math.prod(-(-n // t) for t, n in zip(tile, node.get_space_dim(), strict=True)) != td.grid_size
            ):
                return False
        return True

    # ---- steps of the reductions

    def get_node_reduce_step_candidates(self, node: PrimFuncNode) -> dict[str, list[int]]:
        """Steps that each reduction axis may have: its divisors, powers of two where it has none."""
        found = {}
        for axis in node.raxis:
            steps = get_all_factors(axis.extent)
            if len(steps) == 2 and axis.extent > 64:
                steps = [1 << i for i in range((axis.extent - 1).bit_length())]
            found[axis.name] = steps
        return found

    def _assign_reduce_step(self, node: PrimFuncNode) -> dict[str, int]:
        """The steps that bring reads of a tile of one result closest to a whole transaction."""
        if node.reduction_stage is None:
            return {}
        steps = self.get_node_reduce_step_candidates(node)
        tile = [1] * len(node.get_space_dim())

        def score(at: dict[str, int]) -> float:
            parts = node.propagate_inputs(tile, {k: steps[k][i] for k, i in at.items()})
            total = 0.0
            for buffer, part in zip(node.input_buffers, parts, strict=True):
                whole = node._shape_of.get(buffer.name)
                if whole is not None:
                    run = int(coalesced_factor(part, whole))
                    total += similarity(run, self.arch.transaction_size[1] // _bytes_of(buffer.dtype))
            return total

        here = dict.fromkeys(steps, 0)
        best = score(here)
        while best > 0:
            grown = [{**here, k: i + 1} for k, i in here.items() if i + 1 < len(steps[k])]
            scored = [(score(at), at) for at in grown]
            top = max(scored, key=lambda pair: pair[0], default=None)
            if top is None or top[0] <= best:
                break
            best, here = top
        return {k: steps[k][i] for k, i in here.items()}

    def _expand_reduce_axis(self, td: TileDict) -> None:
        """Larger steps as long as as many blocks stay resident."""
        limit = min(self.arch.max_smem_usage // td.block_per_SM, self.arch.smem_cap)
        rsteps: Steps = {node: dict(td.rstep_map[node]) for node in self.ordered_nodes}
        for node in self.ordered_nodes:
            if node.raxis:
                rsteps[node] = self._enlarge(node, td, rsteps, limit)
        td.rstep_map = rsteps
        shared, cached = self._shared(self.tile_map(td.output_tile, rsteps), rsteps)
        td.smem_cost, td.cached_tensors_map = int(shared), cached

    def _enlarge(self, node: PrimFuncNode, td: TileDict, rsteps: Steps, limit: int) -> dict[str, int]:
        start = rsteps[node]
        steps = {k: [s for s in v if s % start[k] == 0] for k, v in self.get_node_reduce_step_candidates(node).items()}
        if any(start[k] not in v for k, v in steps.items()):
            return start
        here = {k: v.index(start[k]) for k, v in steps.items()}
        tile = td.get_tile(node)

        def chosen(at: dict[str, int]) -> dict[str, int]:
            return {k: steps[k][i] for k, i in at.items()}

        def score(at: dict[str, int]) -> float:
            parts = node.propagate_reduction_inputs(tile, chosen(at))
            return float(sum(coalesced_factor(parts[a.tensor], a.shape) for a in node.reduce_inputs()))

        while True:
            grown = [{**here, k: i + 1} for k, i in here.items() if i + 1 < len(steps[k])]
            if not grown:
                break
            best = max(grown, key=score)
            trial = {**rsteps, node: chosen(best)}
            if self._shared(self.tile_map(td.output_tile, trial), trial)[0] > limit:
                break
            here = best
        return chosen(here)

    # ---- threads

    def score_block_size(self, n: int) -> tuple[float, float]:
        """Score of a number of threads: its distance from filling a processor's parts, and the share of idle lanes."""
        warp, parts = self.arch.warp_size, self.arch.sm_partition
        warps = -(-n // warp)
        return max(warps / parts, parts / warps), (warps * warp - n) / n

    def get_block_size(self, n: int) -> int:
        """The best number of threads for ``n`` results."""
        return min((f for f in get_all_factors(n) if f <= self.most_threads), key=self.score_block_size)

    def recommend_block_size(self, td: TileDict) -> list[int]:
        """Numbers of threads, the best first: divisors of the tiles, multiples of them where the reduction is shared."""
        sizes = [math.prod(td.get_tile(node)) for node in self.ordered_nodes]
        most = functools.reduce(math.gcd, sizes)
        if most < self.arch.warp_size * self.arch.sm_partition and most == min(sizes):
            depths = [math.prod(td.get_rstep(node).values()) for node in self.ordered_nodes]
            total = functools.reduce(math.gcd, [a * b for a, b in zip(sizes, depths, strict=True)])
            found = [x for x in get_all_factors(total) if x % most == 0 and x <= self.most_threads]
            found = [x for x in found if all(x % s == 0 or s % x == 0 for s in sizes)]
        else:
            found = [x for x in get_all_factors(most) if x <= self.most_threads]
        return sorted(found, key=self.score_block_size)

    def _assignments(self, td: TileDict) -> Iterator[dict[PrimFuncNode, Hint]]:
        for threads in self.recommend_block_size(td):
            made = {}
            for node in self.ordered_nodes:
                hint = self._assign_block_size(node, td, threads)
                if hint is None:
                    break
                made[node] = hint
            else:
                yield made

    def assign_block_size(self, td: TileDict, topk: int = 1) -> Iterator[dict[PrimFuncNode, Hint]]:
        """The ``topk`` best assignments of threads to a tile."""
        return itertools.islice(self._assignments(td), topk)

    def _assign_block_size(self, node: PrimFuncNode, td: TileDict, block_size: int) -> Hint | None:
        tile, rsteps = td.get_tile(node), td.get_rstep(node)
        threads = [1] * len(tile)
        reduce_thread = dict.fromkeys(rsteps, 1)
        for factor in reversed(factorize(block_size)):
            fitting = [i for i, n in enumerate(tile) if threads[i] < n and n % (threads[i] * factor) == 0]
            if fitting:
                scored = [
                    (self._thread_score(node, tile, [*threads[:i], threads[i] * factor, *threads[i + 1 :]]), i)
                    for i in fitting
                ]
                threads[min(scored)[1]] *= factor
                continue
            axis = next((k for k, n in reversed(rsteps.items()) if n % (reduce_thread[k] * factor) == 0), None)
            if axis is None:
                return None
            reduce_thread[axis] *= factor
        hint = Hint()
        hint.block, hint.thread = list(tile), threads
        hint.rstep = [int(rsteps[axis.name]) for axis in node.raxis]
        hint.reduce_thread = [reduce_thread[axis.name] for axis in node.raxis]
        hint.step_ = self._neighbours(node, tile, threads)
        return self._complete(hint, node, td, block_size)

    def _complete(self, hint: Hint, node: PrimFuncNode, td: TileDict, block_size: int) -> Hint:
        hint.cached_tensors = list(td.cached_tensors_map[node])
        hint.rasterization_plan = self.plan_rasterization(td)
        hint.vectorize = self._plan_vectorize(node, td, block_size)
        hint.arch = self.arch
        hint.opt_shapes = dict(node.get_tag("opt_shapes") or {})
        return hint

    def _thread_score(self, node: PrimFuncNode, tile: Sequence[int], threads: Sequence[int]) -> float:
        """Relative time of a thread's reads of shared memory and of a block's writes."""
        part = [-(-n // t) for n, t in zip(tile, threads, strict=True)]
        fast, slow = self.arch.bandwidth[1], self.arch.bandwidth[0]
        score = sum(float(product(p)) / fast for p in node.propagate_inputs(part))
        for buffer in node.output_buffers:
            shape = node._shape_of[buffer.name][-len(threads) :]
            score += float(coalesced_elements(threads[-len(shape) :], shape, 8)) / slow
        return score

    @staticmethod
    def _neighbours(node: PrimFuncNode, tile: Sequence[int], threads: Sequence[int]) -> list[int]:
        """Results next to each other that a thread has: two of 16 bits, four of 8 bits."""
        wanted = {16: 2, 8: 4}.get(dt.bits(node.get_dtype()))
        steps = [1] * len(tile)
        if wanted is not None:
            for i in reversed(range(len(tile))):
                if tile[i] // threads[i] % wanted == 0:
                    steps[i] = wanted
                    break
        return steps if wanted is not None else []

    def _plan_vectorize(self, node: PrimFuncNode, td: TileDict, block_size: int) -> dict[str, int]:
        """The longest vectors with which all threads together copy each of the reduction's tensors."""
        parts = node.propagate_reduction_inputs(td.get_tile(node), td.get_rstep(node))
        found: dict[str, int] = {}
        for access in node.reduce_inputs():
            part = [int(n) for n in parts[access.tensor]]
            for lanes in _VECTORS:
                whole = math.prod(part) % (block_size * lanes) == 0
                if whole and _contiguous(part, lanes) and dt.bits(access.dtype) * lanes <= _LONGEST_VECTOR_BITS:
                    found[access.tensor] = lanes
                    break
        return found

    def plan_rasterization(self, td: TileDict) -> Rasterization:
        """The order of blocks: the usual one."""
        return NoRasterization()


def _bytes_of(dtype: str) -> int:
    return max(1, -(-dt.bits(str(dtype)) // 8))


def _steps_from(extent: int, start: int) -> list[int]:
    """The sizes an axis of a tile grows through."""
    divisors = [n for n in get_all_factors(extent) if n >= start]
    return sorted({*divisors, *(n for n in _EXTRA_STEPS if divisors[0] < n < divisors[-1])})


def _contiguous(shape: Sequence[int], lanes: int) -> bool:
    for n in reversed(shape):
        if n != 1:
            return n % lanes == 0
        lanes = lanes // n
    return lanes == 1
