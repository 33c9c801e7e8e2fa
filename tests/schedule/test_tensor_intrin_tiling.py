"""Fitting tensor intrinsics to blocks: tiling, padding, and the index maps of einsum-like blocks."""

from __future__ import annotations

from relaxish import te
from relaxish.script import tir as T
from relaxish.tir import TensorIntrin
from relaxish.tir.schedule import Schedule
from relaxish.tir.schedule.analysis import get_auto_tensorize_mapping_info
from relaxish.tir.schedule.transform import tile_with_tensor_intrin


@T.prim_func
def desc(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (4, 4), "float32", offset_factor=4)
    B = T.match_buffer(b, (4, 4), "float32", offset_factor=4)
    C = T.match_buffer(c, (4, 4), "float32", offset_factor=4)
    with T.block("root"):
        T.reads(C[0:4, 0:4], A[0:4, 0:4], B[0:4, 0:4])
        T.writes(C[0:4, 0:4])
        for i, j, k in T.grid(4, 4, 4):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def impl(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (4, 4), "float32", offset_factor=4)
    B = T.match_buffer(b, (4, 4), "float32", offset_factor=4)
    C = T.match_buffer(c, (4, 4), "float32", offset_factor=4)
    with T.block("root"):
        T.reads(C[0:4, 0:4], A[0:4, 0:4], B[0:4, 0:4])
        T.writes(C[0:4, 0:4])
        T.evaluate(T.call_extern("int32", "mm4x4", A.data, B.data, C.data))


TensorIntrin.register("test.mm4x4", desc, impl, override=True)


def product(n, m, k):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.create_prim_func([a, b, c])


def extents(sch, block):
    return [int(sch.get(loop).extent) for loop in sch.get_loops(block)]


def test_tile_and_tensorize():
    sch = Schedule(product(16, 8, 12), debug_mask="all")
    block = sch.get_block("C")
    loop = tile_with_tensor_intrin(sch, block, "test.mm4x4")
    assert extents(sch, block) == [4, 2, 3, 4, 4, 4]
    sch.decompose_reduction(block, sch.get_loops(block)[2])
    sch.tensorize(loop, "test.mm4x4")
    assert "mm4x4" in sch.mod.script()


def test_no_fit_without_padding():
    sch = Schedule(product(15, 8, 12))
    assert tile_with_tensor_intrin(sch, sch.get_block("C"), "test.mm4x4") is None
    block = sch.get_block("C")
    assert tile_with_tensor_intrin(sch, block, "test.mm4x4", allow_padding=True) is not None
    assert extents(sch, block) == [4, 2, 3, 4, 4, 4]


def convolution(batch, size, window):
    """``size`` by ``size`` results of 16 features from 8 channels."""
    x = te.placeholder((batch, size + window - 1, size + window - 1, 8), name="X")
    w = te.placeholder((window, window, 8, 16), name="W")
    rh, rw, rc = (te.reduce_axis((0, n), name=name) for n, name in ((window, "rh"), (window, "rw"), (8, "rc")))
    y = te.compute(
        (batch, size, size, 16),
        lambda n, h, v, c: te.sum(x[n, h + rh, v + rw, rc] * w[rh, rw, rc, c], axis=[rh, rw, rc]),
        name="Y",
    )
    return te.create_prim_func([x, w, y])


def test_mapping_of_a_convolution_to_a_product():
    sch = Schedule(convolution(2, 16, 3))
    info = get_auto_tensorize_mapping_info(sch, sch.get_block("Y"), desc)
    assert len(info.mappings) == 1
    index_map = info.mappings[0]
    assert [int(d) for d in index_map.map_shape([2, 16, 16, 16, 3, 3, 8])] == [512, 16, 72]


def test_a_batch_of_one_is_fused_like_any_other():
    """An index that is one number keeps its variable, which tells where it belongs; windows of one are left apart."""
    sch = Schedule(convolution(1, 8, 1))
    info = get_auto_tensorize_mapping_info(sch, sch.get_block("Y"), desc)
    (index_map,) = info.mappings
    assert [str(e) for e in index_map.final_indices] == ["v_rh", "v_rw", "v_n * 64 + v_h * 8 + v_v", "v_c", "v_rc"]
