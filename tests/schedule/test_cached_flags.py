"""Affine bindings, region cover and stage pipelines, also through memory that threads share."""

from __future__ import annotations

import pytest

from relaxish.script import tir as T
from relaxish.tir.schedule import CachedFlags, ScheduleState
from relaxish.tir.schedule.state import blocks_in_order


def flags(func, name):
    state = ScheduleState(func, debug_mask="all")
    root = next(iter(state.roots))
    block = next(b for b in blocks_in_order(root.stmt) if b.name_hint == name)
    return state._get_cached_flags(state.get_sref(block))


YES = CachedFlags(affine_binding=True, region_cover=True, stage_pipeline=True)


@T.prim_func
def shared(A: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
    B = T.alloc_buffer((128, 128), scope="shared")
    for i in T.thread_binding(0, 128, thread="threadIdx.x"):
        for j in range(128):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2.0
        for j in range(128):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vj, vi] = B[vj, vi] + 1.0


@T.prim_func
def warp(A: T.Buffer((8, 4, 32), "float32"), C: T.Buffer((8, 4, 32), "float32")):
    B = T.alloc_buffer((8, 4, 32), scope="warp")
    for ko in T.thread_binding(0, 4, thread="threadIdx.y"):
        for k in T.thread_binding(0, 32, thread="threadIdx.x"):
            for i in range(8):
                with T.block("B"):
                    vw, vl, vi = T.axis.remap("SSS", [ko, k, i])
                    B[vi, vw, vl] = A[vi, vw, vl]
            for i in range(8):
                with T.block("C"):
                    vw, vl, vi = T.axis.remap("SSS", [ko, k, i])
                    C[vi, vw, vl] = B[vi, vw, 31 - vl] + 1.0


@T.prim_func
def other_warp(A: T.Buffer((8, 4), "float32"), C: T.Buffer((8, 4), "float32")):
    B = T.alloc_buffer((8, 4), scope="warp")
    for ko in T.thread_binding(0, 4, thread="threadIdx.y"):
        for i in range(8):
            with T.block("B"):
                vw, vi = T.axis.remap("SS", [ko, i])
                B[vi, vw] = A[vi, vw]
        for i, k in T.grid(8, 4):
            with T.block("C"):
                vi, vk = T.axis.remap("SS", [i, k])
                C[vi, vk] = B[vi, vk] + 1.0


@T.prim_func
def split_with_predicate(A: T.Buffer((128,), "float32"), C: T.Buffer((128,), "float32")):
    B = T.alloc_buffer((128,))
    for i0, i1 in T.grid(13, 10):
        with T.block("B"):
            v = T.axis.spatial(128, i0 * 10 + i1)
            T.where(i0 * 10 + i1 < 128)
            B[v] = A[v]
    for i in range(128):
        with T.block("C"):
            v = T.axis.spatial(128, i)
            C[v] = B[v]


@T.prim_func
def half(A: T.Buffer((128,), "float32"), C: T.Buffer((128,), "float32")):
    B = T.alloc_buffer((128,))
    for i in range(64):
        with T.block("B"):
            v = T.axis.spatial(128, i)
            B[v] = A[v]
    for i in range(128):
        with T.block("C"):
            v = T.axis.spatial(128, i)
            C[v] = B[v]


@T.prim_func
def overwrite(A: T.Buffer((128,), "float32"), C: T.Buffer((128,), "float32")):
    for i in range(128):
        with T.block("C"):
            v = T.axis.spatial(128, i)
            C[v] = A[v]
    for i in range(128):
        with T.block("A"):
            v = T.axis.spatial(128, i)
            A[v] = 0.0


@pytest.mark.parametrize(
    ("func", "name", "expected"),
    [
        (shared, "B", YES),
        (shared, "C", YES),
        (shared, "root", YES),
        (warp, "C", YES),
        (other_warp, "C", CachedFlags(True, False, True)),
        (other_warp, "root", CachedFlags(True, True, False)),
        (split_with_predicate, "B", YES),
        (split_with_predicate, "C", YES),
        (half, "C", CachedFlags(True, False, True)),
        (half, "root", CachedFlags(True, True, False)),
        (overwrite, "root", CachedFlags(True, True, False)),
    ],
)
def test_flags(func, name, expected):
    assert flags(func, name) == expected
