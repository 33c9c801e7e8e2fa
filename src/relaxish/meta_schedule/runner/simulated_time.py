"""Simulated time of a scheduled GPU program, for runs without a GPU: the same program always takes the same."""

from __future__ import annotations

import math
from typing import Any

from ...ir.op import op_name_of
from ...carver import GpuModel, KernelWork
from ...ir import IRModule
from ...ir.node import Node
from ...target import Target
from ...tir import Call, For, PrimFunc
from ..feature_extractor.program import Program, StoreInfo, extract_program
from ...ir.prim import const_int

__all__ = ["simulated_seconds"]

# Multiply-adds of a matrix instruction whose name says nothing about its shape.
_MATRIX_WORK = {"tir.tvm_mma_sync": 16 * 16 * 16}
_THREAD_KINDS = ("blockIdx", "threadIdx")


def simulated_seconds(mod: IRModule, target: Target) -> float:
    """Seconds by :class:`~relaxish.carver.GpuModel`: the kernels of a module, one after the other."""
    machine = GpuModel.of_target(target)
    total = 0.0
    for func in mod.functions.values():
        if isinstance(func, PrimFunc):
            total += sum(float(machine.seconds(work)) for work in _kernels(func))
    return total


def _kernels(func: PrimFunc) -> list[KernelWork]:
    program = extract_program([func])
    nests: dict[int, list[StoreInfo]] = {}
    for store in program.stores:
        if store.loops:
            nests.setdefault(store.loops[0], []).append(store)
    matrix = _matrix_work(func)
    return [_work(program, stores, matrix.get(program.loops[head].var, 0.0)) for head, stores in nests.items()]


def _work(program: Program, stores: list[StoreInfo], products: float) -> KernelWork:
    threads: dict[str, int] = {}
    for store in stores:
        for i in store.loops:
            if program.loops[i].kind.startswith(_THREAD_KINDS):
                threads[program.loops[i].kind] = program.loops[i].extent
    blocks = math.prod(n for tag, n in threads.items() if tag.startswith("blockIdx"))
    work = KernelWork(blocks, math.prod(n for tag, n in threads.items() if tag.startswith("threadIdx")))
    shared: dict[int, float] = {}
    for store in stores:
        inside = math.prod(
            program.loops[i].extent for i in store.loops if not program.loops[i].kind.startswith("blockIdx")
        )
        if any(store.ops[:7]):
            work.multiply_adds += inside * max(1.0, sum(store.ops[:7]) / 2)
        for access in store.accesses:
            amount = inside * access.itemsize
            scope = access.buffer.scope()
            if scope.startswith("shared"):
                work.shared_traffic += amount / 4
                if access.kind == 2:
                    turns = math.prod(program.loops[i].extent for i in store.loops if program.loops[i].kind == "serial")
                    shared[id(access.buffer)] = amount / max(1, turns)
            elif scope in ("", "global"):
                work.global_bytes += amount
    work.shared = sum(shared.values())
    work.tensor_multiply_adds = products / max(1, blocks)
    return work


def _matrix_work(func: PrimFunc) -> dict[Any, float]:
    """Multiply-adds of matrix instructions under each outermost loop."""
    found: dict[Any, float] = {}
    around: list[For] = []

    def walk(stmt: Node) -> None:
        match stmt:
            case For():
                around.append(stmt)
                walk(stmt.body)
                around.pop()
                return
            case Call():
                work = _instruction_work(stmt)
                if work and around:
                    times = math.prod(const_int(loop.extent, 1) for loop in around)
                    head = around[0].loop_var
                    # The lanes of a warp are one instruction.
                    lanes = 32 if any(_is_lane(loop) for loop in around) else 1
                    found[head] = found.get(head, 0.0) + work * times / lanes
                return
        for child in stmt.iter_children():
            for item in child if isinstance(child, tuple | list) else (child,):
                if hasattr(item, "iter_children"):
                    walk(item)

    walk(func.body)
    return found


def _is_lane(loop: For) -> bool:
    return loop.thread_binding is not None and loop.thread_binding.thread_tag == "threadIdx.x"


def _instruction_work(call: Call) -> float:
    name = op_name_of(call)
    if name in _MATRIX_WORK:
        return float(_MATRIX_WORK[name])
    if name.startswith(("tir.ptx_mma", "tir.ptx_wgmma")) and call.args:
        shape = str(getattr(call.args[0], "value", ""))
        if shape.startswith("m") and "n" in shape and "k" in shape:
            m, _, rest = shape[1:].partition("n")
            n, _, k = rest.partition("k")
            return float(int(m) * int(n) * int(k))
    return 0.0
