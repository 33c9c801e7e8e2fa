"""Dot-product instructions of AArch64, Hexagon and AMD GPUs; the constants that name CUDA's intrinsics."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import interp, te, tir
from relaxish.tir.tensor_intrin import arm_cpu, cuda, hexagon, rocm
from relaxish.tir.tensor_intrin.cuda_names import constants


def packed_product(m, n, k, lanes, depth, a_type, b_type, out):
    """``C[i, j] += A[i, r] * B[j / lanes, r / depth, j % lanes, r % depth]``."""
    a = te.placeholder((m, k), a_type, name="A")
    b = te.placeholder((n // lanes, k // depth, lanes, depth), b_type, name="B")
    r = te.reduce_axis((0, k), name="r")

    def element(i, j):
        return te.sum(a[i, r].astype(out) * b[j // lanes, r // depth, j % lanes, r % depth].astype(out), axis=r)

    return te.create_prim_func([a, b, te.compute((m, n), element, name="C")])


def same_results(func, tensorized):
    """The interpreter emulates the instructions."""
    rng = np.random.default_rng(3)
    *inputs, output = (func.buffer_map[p] for p in func.params)
    values = []
    for buffer in inputs:
        limits = np.iinfo(buffer.dtype)
        shape = [int(d) for d in buffer.shape]
        values.append(rng.integers(max(limits.min, -1000), min(limits.max, 1000), shape, buffer.dtype, endpoint=True))
    results = [np.zeros([int(d) for d in output.shape], output.dtype) for _ in range(2)]
    for program, result in zip((func, tensorized), results, strict=True):
        interp.run_prim_func(program, [*values, result])
    np.testing.assert_array_equal(*results)
    assert results[0].any()


@pytest.mark.parametrize(
    ("name", "lanes", "depth", "types", "instruction"),
    [
        (arm_cpu.ARM_DOT_4x4_i8_NEON_INTRIN, 4, 4, ("int8", "int8", "int32"), "llvm.aarch64.neon.addp.v4i32"),
        (arm_cpu.ARM_DOT_4x4_i8_SDOT_INTRIN, 4, 4, ("int8", "int8", "int32"), "llvm.aarch64.neon.sdot.v4i32.v16i8"),
        (arm_cpu.ARM_DOT_4x4_u8_UDOT_INTRIN, 4, 4, ("uint8", "uint8", "uint32"), "llvm.aarch64.neon.udot.v4i32.v16i8"),
        (arm_cpu.ARM_DOT_4x4_u8_HDOT_INTRIN, 4, 4, ("uint8", "uint8", "int32"), "llvm.aarch64.neon.udot.v4i32.v16i8"),
        (hexagon.VRMPY_u8u8i32_INTRIN, 32, 4, ("uint8", "uint8", "int32"), "llvm.hexagon.V6.vrmpyub.acc.128B"),
        (hexagon.VRMPY_u8i8i32_INTRIN, 32, 4, ("uint8", "int8", "int32"), "llvm.hexagon.V6.vrmpybusv.acc.128B"),
        (hexagon.VDMPY_i16i16i32_INTRIN, 32, 2, ("int16", "int16", "int32"), "llvm.hexagon.V6.vdmpyhvsat.acc.128B"),
    ],
)
def test_dot_products_tensorize(name, lanes, depth, types, instruction):
    func = packed_product(8, 64, 32, lanes, depth, *types)
    sch = tir.Schedule(func, debug_mask="all")
    block = sch.get_block("C")
    i, j, r = sch.get_loops(block)
    (_, inner), (outer, step) = sch.split(j, [None, lanes]), sch.split(r, [None, depth])
    sch.reorder(outer, i, inner, step)
    sch.decompose_reduction(block, outer)
    sch.tensorize(inner, name)
    assert instruction in sch.mod.script()
    same_results(func, sch.mod["main"])


def test_rocm_sdot4():
    func = packed_product(4, 4, 8, 1, 4, "int8", "int8", "int32")
    sch = tir.Schedule(func, debug_mask="all")
    block = sch.get_block("C")
    staged = [sch.cache_read(block, index, "shared") for index in range(2)]
    sch.cache_write(block, 0, "local")
    _, _, r = sch.get_loops(block)
    outer, inner = sch.split(r, [None, 4])
    sch.decompose_reduction(block, outer)
    sch.tensorize(inner, rocm.AMDGPU_SDOT4_INTRIN)
    assert len(staged) == 2
    assert "llvm.amdgcn.sdot4" in sch.mod.script()
    same_results(func, sch.mod["main"])


@pytest.mark.parametrize("name", [hexagon.DMA_READ_128_u8, hexagon.DMA_READ_128_i8])
def test_hexagon_dma_copies_a_row(name):
    intrin = tir.TensorIntrin.get(name)
    assert [b.scope() for b in intrin.desc.buffer_map.values()] == ["global.vtcm", "global"]
    assert "device_api.hexagon.dma_copy_dltensor" in intrin.impl.script()


def test_cuda_constants_name_registered_intrinsics():
    assert cuda.WMMA_LOAD_16x16x16_F16_A_DYN_INTRIN == "wmma_load_16x16x16_f16_a_shared_dyn"
    assert cuda.MMA_store_16x16_f32_shared_dyn_INTRIN_SIMPLE == "mma_store_16x16_f32_shared_dyn_simple_"
    for constant, name in constants().items():
        assert getattr(cuda, constant) == name
        assert tir.TensorIntrin.get(name) is not None
    with pytest.raises(AttributeError):
        _ = cuda.WMMA_UNKNOWN_INTRIN
