"""Matrix and dot-product instructions: meaning (interpreter), vector code, and the instructions themselves."""

import numpy as np
import pytest

from programs.products import packed_product, random_values
import relaxish
from relaxish import interp, tir
from relaxish.driver import build_tir
from relaxish.support import config
from relaxish.tir.tensor_intrin.amx import AMX_DOT_16x16x32_BF16_INTRIN, AMX_DOT_16x16x64_INTRINS
from relaxish.tir.tensor_intrin.x86 import AVX512_DOT_16x4_INTRIN, VNNI_DOT_16x4_INTRIN

AMX = {AMX_DOT_16x16x32_BF16_INTRIN: ("bfloat16", "bfloat16", "float32", 2)}
AMX |= {name: (a, b, "int32", 4) for name, (a, b, _) in AMX_DOT_16x16x64_INTRINS.items()}


def amx_schedule(func, name, pack, block=(2, 2)):
    """Tiles of 16 x 16, ``block`` of them updated together over the whole reduction."""
    sch = tir.Schedule(func)
    update = sch.get_block("C")
    i, j, k = sch.get_loops(update)
    i0, i1, i2 = sch.split(i, [None, block[0], 16])
    j0, j1, j2 = sch.split(j, [None, block[1], 16])
    k0, k1 = sch.split(k, [None, 16 * pack])
    sch.reorder(i0, j0, k0, i1, j1, i2, j2, k1)
    sch.parallel(i0)
    init = sch.decompose_reduction(update, k0)
    sch.vectorize(sch.get_loops(init)[-1])
    sch.tensorize(i2, name)
    return sch.mod


def unpack(b):
    k, n, pack = b.shape
    return b.transpose(0, 2, 1).reshape(k * pack, n)


def expected(a, b, c_type):
    wide = "float64" if c_type == "float32" else "int64"
    return (a.astype(wide) @ unpack(b).astype(wide)).astype(c_type)


@pytest.mark.parametrize("name", AMX)
def test_interpreter_multiplies_tiles(name):
    a_type, b_type, c_type, pack = AMX[name]
    mod = amx_schedule(packed_product(32, 32, 32 * pack, a_type, b_type, c_type, pack), name, pack)
    rng = np.random.default_rng(0)
    a, b = random_values(rng, (32, 32 * pack), a_type), random_values(rng, (32, 32, pack), b_type)
    c = np.empty((32, 32), c_type)
    interp.run_prim_func(mod["main"], [a, b, c])
    np.testing.assert_allclose(c, expected(a, b, c_type), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", AMX)
@pytest.mark.parametrize("without", ["amx", "amx,avx512bf16,avx512vnni", "amx,avx512"])
def test_vector_code_multiplies_tiles(name, without):
    a_type, b_type, c_type, pack = AMX[name]
    mod = amx_schedule(packed_product(64, 96, 64 * pack, a_type, b_type, c_type, pack), name, pack, (1, 3))
    rng = np.random.default_rng(1)
    a, b = random_values(rng, (64, 64 * pack), a_type), random_values(rng, (64, 96, pack), b_type)
    out = relaxish.nd.empty((64, 96), c_type)
    with config.DISABLE_FEATURES.override(without):
        build_tir(mod, "llvm")["main"](relaxish.nd.array(a), relaxish.nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), expected(a, b, c_type), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", AMX)
def test_instructions_of_sapphire_rapids(name):
    from relaxish.backend.llvm.compile import compile_primfuncs
    from relaxish.tir.transform.pipeline import lower_for_cpu

    a_type, b_type, c_type, pack = AMX[name]
    target = relaxish.Target("llvm -mcpu=sapphirerapids")
    mod = amx_schedule(packed_product(64, 64, 64 * pack, a_type, b_type, c_type, pack), name, pack)
    text = compile_primfuncs(lower_for_cpu(mod, target), target).assembly(target)
    instruction = "tdpbf16ps" if pack == 2 else AMX_DOT_16x16x64_INTRINS[name][2].removeprefix("amx.")
    loop = [line.split()[0] for line in text.splitlines() if line.strip() and line.startswith("\t")]
    # Four results stay in tiles: one step loads two tiles of each operand and stores nothing.
    assert loop.count(instruction) == 4
    assert loop.count("tileloadd") == 4 + 4 and loop.count("tilestored") == 4
    assert loop.count("ldtilecfg") == 1 and loop.count("tilerelease") == 1


def test_tiles_that_move_are_stored_at_once():
    from relaxish.backend.llvm.compile import compile_primfuncs
    from relaxish.tir.transform.pipeline import lower_for_cpu

    target = relaxish.Target("llvm -mcpu=sapphirerapids")
    # Nine results do not fit the four tiles kept for them.
    mod = amx_schedule(
        packed_product(96, 96, 64, "bfloat16", "bfloat16", "float32", 2), AMX_DOT_16x16x32_BF16_INTRIN, 2, (3, 3)
    )
    text = compile_primfuncs(lower_for_cpu(mod, target), target).assembly(target)
    assert text.count("tdpbf16ps") == text.count("tilestored")


@pytest.mark.parametrize("name", [VNNI_DOT_16x4_INTRIN, AVX512_DOT_16x4_INTRIN])
@pytest.mark.parametrize("without", ["none", "avx512vnni", "avx512bw,avx512vnni", "avx512"])
def test_dot_16x4(name, without):
    rng = np.random.default_rng(2)
    func = packed_product(8, 32, 64, "uint8", "int8", "int32", 4)
    sch = tir.Schedule(func)
    update = sch.get_block("C")
    _, j, k = sch.get_loops(update)
    j0, j1 = sch.split(j, [None, 16])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(j0, k0, j1, k1)
    sch.decompose_reduction(update, k0)
    sch.tensorize(j1, name)
    # Small enough that the sums of pairs of the AVX-512BW form do not saturate.
    a, b = rng.integers(0, 100, (8, 64)).astype("uint8"), rng.integers(-100, 100, (16, 32, 4)).astype("int8")
    want = expected(a, b, "int32")
    c = np.empty((8, 32), "int32")
    interp.run_prim_func(sch.mod["main"], [a, b, c])
    np.testing.assert_array_equal(c, want)
    out = relaxish.nd.empty((8, 32), "int32")
    with config.DISABLE_FEATURES.override(without):
        kernel = build_tir(sch.mod, "llvm")
        kernel["main"](relaxish.nd.array(a), relaxish.nd.array(b), out)
    np.testing.assert_array_equal(out.numpy(), want)
