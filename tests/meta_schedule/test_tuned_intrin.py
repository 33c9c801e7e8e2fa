"""Tiling around tensor intrinsics, from sketch to tuned kernel."""

import numpy as np
import pytest

import relaxish
from relaxish import meta_schedule as ms
from relaxish import te, tir
from relaxish.meta_schedule.postproc import RewriteReductionBlock, RewriteTensorize
from relaxish.meta_schedule.schedule_rule import MultiLevelTilingWithIntrin
from relaxish.meta_schedule.testing import te_workload
from relaxish.meta_schedule.testing.space_generation import check_sketches, generate_design_space
from relaxish.tir.tensor_intrin.amx import AMX_DOT_16x16x32_BF16_INTRIN
from relaxish.tir.tensor_intrin.x86 import VNNI_DOT_16x4_INTRIN


def quantized(m=32, n=64, k=64):
    """C[m, n] = A[m, k] B[k / 4, n, k % 4], uint8 by int8 to int32."""
    a, b = te.placeholder((m, k), "uint8", name="A"), te.placeholder((k // 4, n, 4), "int8", name="B")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, axis].astype("int32") * b[axis // 4, j, axis % 4].astype("int32"), axis=axis),
        name="C",
    )
    return te.create_prim_func([a, b, c])


def sketches(func, name=VNNI_DOT_16x4_INTRIN, write=None):
    rule = MultiLevelTilingWithIntrin(name, "SSRSRS", max_innermost_factor=64, reuse_write=write)
    return generate_design_space("vnni", func, relaxish.Target("llvm -num-cores 4"), None, sch_rules=[rule])


def by_hand(decisions):
    """The sketch, written with primitives."""
    sch = tir.Schedule(quantized())
    block = sch.get_block("C")
    sch.annotate(block, "meta_schedule.tiling_structure", "SSRSRS")
    i, j, k = sch.get_loops(block)
    k, ki = sch.split(k, [None, 4])
    j, ji = sch.split(j, [None, 16])
    sch.reorder(k, ji, ki)
    outer = sch.blockize(ji)
    sch.annotate(outer, "meta_schedule.auto_tensorize", VNNI_DOT_16x4_INTRIN)
    i0, i1, i2, i3 = sch.split(i, decisions[0])
    j0, j1, j2, j3 = sch.split(j, decisions[1])
    k0, k1 = sch.split(k, decisions[2])
    sch.reorder(i0, j0, i1, j1, k0, i2, j2, k1, i3, j3)
    return sch.mod


def test_sketch_is_the_expected_program():
    decisions = [[2, 4, 2, 2], [1, 2, 1, 2], [4, 4]]
    check_sketches(
        quantized(), sketches(quantized()), [by_hand(decisions)], [[("SamplePerfectTile", d) for d in decisions]]
    )


def test_instructions_come_in_order():
    (sketch,) = sketches(quantized())
    kinds = [i.kind.name for i in sketch.trace.insts]
    tail = [
        "Annotate", "GetLoops", "Split", "Split", "GetLoops", "Reorder", "Blockize", "Annotate", "GetLoops",
        "SamplePerfectTile", "Split", "SamplePerfectTile", "Split", "SamplePerfectTile", "Split", "Reorder",
    ]  # fmt: skip
    assert kinds[kinds.index("Annotate") :] == tail


def test_write_cache_gives_three_sketches():
    reuse = ms.schedule_rule.ReuseType("may", [1, 2], "global")
    made = sketches(quantized(), write=reuse)
    assert len(made) == 3
    assert sum(any(i.kind.name == "CacheWrite" for i in s.trace.insts) for s in made) == 2


@pytest.mark.parametrize(
    "func", [te.create_prim_func(te_workload.matmul(32, 32, 32)), quantized(32, 40, 64)], ids=["float", "indivisible"]
)
def test_what_does_not_fit_is_left_alone(func):
    (sketch,) = sketches(func)
    assert not any(i.kind.name in ("Annotate", "Blockize") for i in sketch.trace.insts)


def test_unknown_intrinsic_is_an_error():
    with pytest.raises(ValueError, match="no_such_intrinsic"):
        MultiLevelTilingWithIntrin("no_such_intrinsic", "SSRSRS")


def tensorized(vectorize):
    sch = tir.Schedule(by_hand([[2, 4, 2, 2], [1, 2, 1, 2], [4, 4]]))
    assert RewriteReductionBlock().apply(sch)
    assert RewriteTensorize(vectorize_init_loop=vectorize).apply(sch)
    return sch


def test_reduction_block_is_decomposed_before_its_outermost_reduction_loop():
    sch = tir.Schedule(by_hand([[2, 4, 2, 2], [1, 2, 1, 2], [4, 4]]))
    assert RewriteReductionBlock().apply(sch)
    init, update = sch.get_block("C_o_init"), sch.get_block("C_o_update")
    assert [sch.get(x).loop_var.name for x in sch.get_loops(update)][4] == "k_0_0"
    assert len(sch.get_loops(init)) == 8
    assert sch.get(init).annotations["meta_schedule.auto_tensorize"] == ""
    assert sch.get(update).annotations["meta_schedule.auto_tensorize"] == VNNI_DOT_16x4_INTRIN


@pytest.mark.parametrize("vectorize", [True, False])
def test_tensorize_and_the_loop_that_starts_the_sum(vectorize):
    sch = tensorized(vectorize)
    text = sch.mod.script()
    assert "vpdpbusd" in text or "call_llvm_pure_intrin" in text
    # The mark of a start that nothing tensorises goes with its vectorisation.
    assert ('"meta_schedule.auto_tensorize": ""' in text) is not vectorize
    (inner,) = sch.get_child_blocks(sch.get_block("C_o_init"))
    kind = sch.get(sch.get_loops(inner)[-1]).kind
    assert (kind == tir.ForKind.VECTORIZED) is vectorize


def test_tensorized_program_computes():
    from relaxish.driver import build_tir

    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (32, 64)).astype("uint8"), rng.integers(-128, 128, (16, 64, 4)).astype("int8")
    out = relaxish.nd.empty((32, 64), "int32")
    build_tir(tensorized(True).mod, "llvm")["main"](relaxish.nd.array(a), relaxish.nd.array(b), out)
    flat = b.transpose(0, 2, 1).reshape(64, 64)
    np.testing.assert_array_equal(out.numpy(), a.astype("int32") @ flat.astype("int32"))


def test_amx_tiles_fit_the_rule():
    a, b = te.placeholder((64, 64), "bfloat16", name="A"), te.placeholder((32, 64, 2), "bfloat16", name="B")
    axis = te.reduce_axis((0, 64), name="k")
    c = te.compute(
        (64, 64),
        lambda i, j: te.sum(a[i, axis].astype("float32") * b[axis // 2, j, axis % 2].astype("float32"), axis=axis),
        name="C",
    )
    (sketch,) = sketches(te.create_prim_func([a, b, c]), AMX_DOT_16x16x32_BF16_INTRIN)
    assert [len(d) for d in sketch.trace.decisions.values()] == [4, 4, 2]


@pytest.mark.parametrize("kind", ["vnni", pytest.param("avx512", marks=pytest.mark.slow)])
def test_default_rules_tune_a_quantized_product(kind, tmp_path):
    target = relaxish.Target("llvm -num-cores 1")
    func = quantized()
    space = ms.space_generator.PostOrderApply(sch_rules=kind, postprocs=kind, mutator_probs=kind)
    database = ms.tune_tir(func, target, str(tmp_path), 4, space=space, seed=0)
    records = [r for r in database.get_all_tuning_records() if r.run_secs]
    assert any(i.kind.name == "Tensorize" for r in records for i in r.trace.insts)
    assert any(r.numerically_valid for r in records)
