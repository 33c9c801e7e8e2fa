"""Hints for GPUs by estimated time: products on matrix units by :mod:`.products`, the rest by the model of kernels."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ..ir.prim import const_int
from ..tir import PrimFunc
from .arch import CUDA, TileDevice
from .gpu import GpuModel, KernelWork
from .matmul_analysis import get_tensorized_func_and_tags
from .products import Product, hopper_hints, product_hints
from .roller import DefaultPolicy, Hint, OutputNode, PrimFuncNode, TileDict
from .utils import get_roller_hints_from_output_nodes

__all__ = ["gpu_hints"]

# Tiles of least traffic that are looked at more closely, and numbers of threads for each.
_TILES = 48
_BLOCK_SIZES = 3
_BESIDES = 24


def gpu_hints(what: PrimFunc | list[OutputNode] | Product, arch: TileDevice, topk: int) -> list[Any]:
    """The ``topk`` tilings with the least estimated time."""
    match what:
        case Product():
            return _of_product(what, arch, topk)
        case list():
            if len(what) == 1 and not any(
                isinstance(e.src_node, PrimFuncNode) for e in what[0].inputs[0].src_node.inputs
            ):
                node: Any = what[0].inputs[0].src_node
                return gpu_hints(node.prim_func, arch, topk)
            return get_roller_hints_from_output_nodes(what, arch, topk)
    normal, tags = get_tensorized_func_and_tags(what, arch, allow_gemv=False)
    if tags is not None:
        hints = _of_product(_product_of(normal, tags), arch, topk)
        for hint in hints:
            hint.intrin_info.trans_b = bool(tags["intrin_info"]["trans_b"])
        if hints:
            return hints
    return _of_threads(what, arch, topk)


def _of_product(what: Product, arch: TileDevice, topk: int) -> list[Hint]:
    wgmma = isinstance(arch, CUDA) and str(arch.target.attrs.get("arch", "")) == "sm_90a"
    return hopper_hints(what, arch, topk) if wgmma else product_hints(what, arch, topk)


def _product_of(func: PrimFunc, tags: dict[str, Any]) -> Product:
    block = PrimFuncNode(func, tags).tiled.block
    batch, rows, columns, depth = (const_int(v.dom.extent) for v in block.iter_vars)
    info = tags["intrin_info"]
    return Product(batch, rows, columns, depth, info["in_dtype"], info["out_dtype"])


def _of_threads(func: PrimFunc, arch: TileDevice, topk: int) -> list[Hint]:
    policy = DefaultPolicy.from_prim_func(func, arch)
    node = policy.ordered_nodes[0]
    model = GpuModel.of_target(arch.target)
    found: list[Hint] = []
    for tile in itertools.islice(policy.candidates(), _TILES):
        if not policy.check_tile_shape_isvalid(tile):
            continue
        policy._expand_reduce_axis(tile)
        for made in policy.assign_block_size(tile, _BLOCK_SIZES):
            hint = made[node]
            hint.cost = float(model.seconds(_work(node, tile, hint)))
            found.append(hint)
    found.sort(key=lambda hint: hint.cost or 0.0)
    return found[:topk]


def _work(node: PrimFuncNode, tile: TileDict, hint: Hint) -> KernelWork:
    """One block of a tiling: its arithmetic, what it moves, and what its threads keep in registers."""
    results = math.prod(hint.block)
    depth = math.prod(axis.extent for axis in node.raxis)
    threads = hint.threads
    work = KernelWork(tile.grid_size, threads, tile.smem_cost, multiply_adds=results * depth, global_bytes=tile.traffic)
    mine = [-(-b // t) for b, t in zip(hint.block, hint.thread, strict=True)]
    if node.raxis:
        parts = node.propagate_reduction_inputs(mine, {axis.name: 1 for axis in node.raxis})
        read = sum(math.prod(int(n) for n in part) for part in parts.values())
        # A warp's access takes a cycle of 128 bytes, whichever bytes they are.
        work.shared_traffic = read * depth * threads * 4.0 / math.prod(hint.reduce_thread)
        work.steps = math.prod(-(-axis.extent // step) for axis, step in zip(node.raxis, hint.rstep, strict=True))
    work.registers = _BESIDES + 1.3 * math.prod(mine)
    return work
