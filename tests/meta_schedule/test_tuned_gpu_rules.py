"""Sketches, postprocs and limits of GPU programs; nothing here needs a GPU."""

import pytest

import relaxish
from relaxish import meta_schedule as ms
from relaxish import te, tir
from relaxish.meta_schedule.testing import te_workload
from relaxish.tir.analysis import verify_gpu_code

TARGET = relaxish.Target(
    {
        "kind": "cuda",
        "arch": "sm_70",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "thread_warp_size": 32,
    }
)


def context(func, rules="cuda", postprocs="cuda"):
    space = ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=postprocs, mutator_probs="cuda")
    made = ms.TuneContext(
        func,
        target=TARGET,
        space_generator=space,
        search_strategy="replay-trace",
        task_name="gpu",
        rand_state=1,
        num_threads=1,
    )
    made.initialize()
    return made


def kinds_of(sketch):
    return [i.kind.name for i in sketch.trace.simplified(True).insts]


def test_matmul_has_one_sketch_with_shared_and_local_caches():
    (sketch,) = context(te.create_prim_func(te_workload.matmul(64, 64, 64))).generate_design_space()
    decided = [i.kind.name for i in sketch.trace.insts if i in sketch.trace.decisions]
    assert decided == ["SamplePerfectTile"] * 3 + ["SampleCategorical"] * 3
    binds = [i.attrs[0] for i in sketch.trace.insts if i.kind.name == "Bind"]
    assert binds == ["blockIdx.x", "vthread.x", "threadIdx.x"]
    kinds = kinds_of(sketch)
    assert kinds.count("CacheRead") == 2 and kinds.count("CacheWrite") == 1
    text = sketch.mod.script()
    assert '"meta_schedule.thread_extent_low_inclusive": 32' in text
    assert '"meta_schedule.thread_extent_high_inclusive": 1024' in text


def test_epilogue_is_folded_into_the_write_back():
    (sketch,) = context(te.create_prim_func(te_workload.matmul_relu(64, 64, 64))).generate_design_space()
    assert "ReverseComputeInline" in kinds_of(sketch)


def test_softmax_reductions_are_shared_by_threads():
    sketches = context(te.create_prim_func(te_workload.softmax_mn(64, 64))).generate_design_space()
    assert len(sketches) == 4
    both = max(sketches, key=lambda s: kinds_of(s).count("SetScope"))
    assert kinds_of(both).count("SetScope") == 2
    assert "shared" in both.mod.script()


def test_elementwise_is_bound():
    a = te.placeholder((64, 64), "float32", name="A")
    func = te.create_prim_func([a, te.compute((64, 64), lambda i, j: a[i, j] * 2.0, name="B")])
    (sketch,) = context(func).generate_design_space()
    loops = [sketch.get(x) for x in sketch.get_loops(sketch.get_block("B"))]
    assert [x.thread_binding.thread_tag for x in loops] == ["blockIdx.x", "threadIdx.x"]


def test_large_elementwise_walks_inside_a_thread():
    a = te.placeholder((1 << 19,), "float32", name="A")
    func = te.create_prim_func([a, te.compute((1 << 19,), lambda i: a[i] * 2.0, name="B")])
    (sketch,) = context(func).generate_design_space()
    loops = [sketch.get(x) for x in sketch.get_loops(sketch.get_block("B"))]
    assert [int(x.extent) for x in loops] == [256, 1024, 2]


def test_postprocs_share_the_fetching():
    func = te.create_prim_func(te_workload.matmul(64, 64, 64))
    made = context(func)
    (sketch,) = made.generate_design_space()
    sampled = [i for i in sketch.trace.insts if i in sketch.trace.decisions]
    decisions = dict(zip(sampled, [[2, 2, 8, 1, 2], [2, 2, 4, 2, 2], [8, 2, 4], 2, 0, 1], strict=True))
    sch = tir.Schedule(made.mod)
    tir.schedule.Trace(sketch.trace.insts, decisions).apply_to_schedule(sch)
    sch.enter_postproc()
    for postproc in made.space_generator.postprocs[:-1]:
        assert postproc.apply(sch), postproc
    text = sch.mod.script()
    assert "cooperative_fetch" not in text
    loops = [sch.get(x) for x in sch.get_loops(sch.get_block("A_shared"))]
    assert [int(x.extent) for x in loops[-2:]] == [8, 32] or int(loops[-1].extent) in (3, 4, 32)
    assert "C_init" in text


def test_unbound_blocks_are_bound_at_the_end():
    a = te.placeholder((64,), "float32", name="A")
    func = te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, name="B")])
    made = context(func, rules=[])
    sch = tir.Schedule(made.mod)
    rewrite = next(p for p in made.space_generator.postprocs if isinstance(p, ms.postproc.RewriteUnboundBlock))
    assert rewrite.apply(sch)
    assert "threadIdx.x" in sch.mod.script() and "blockIdx.x" in sch.mod.script()


def test_targets_without_limits_are_refused():
    bare = relaxish.Target("llvm")
    with pytest.raises(ValueError, match="max_threads_per_block"):
        made = ms.TuneContext(
            te.create_prim_func(te_workload.matmul(8, 8, 8)),
            target=bare,
            space_generator=ms.space_generator.PostOrderApply(
                sch_rules=[ms.schedule_rule.AutoBind()], postprocs=[], mutator_probs={}
            ),
        )
        made.initialize()


def bound(threads, scope_bytes):
    from relaxish.tir import transform

    a = te.placeholder((64, 64), "float32", name="A")
    func = te.create_prim_func([a, te.compute((64, 64), lambda i, j: a[i, j] * 2.0, name="B")])
    sch = tir.Schedule(func)
    block = sch.get_block("B")
    i, j = sch.get_loops(block)
    sch.bind(i, "blockIdx.x")
    _, inner = sch.split(j, [None, threads])
    sch.bind(inner, "threadIdx.x")
    mod = sch.mod
    for step in (
        transform.PlanAndUpdateBufferAllocationLocation(),
        transform.ConvertBlocksToOpaque(),
        transform.LowerOpaqueBlock(),
        transform.FlattenBuffer(),
        transform.Simplify(),
    ):
        mod = step(mod)
    return mod["main"]


def test_limits_of_threads():
    func = bound(32, 0)
    assert verify_gpu_code(func, {"max_threads_per_block": 32})
    assert not verify_gpu_code(func, {"max_threads_per_block": 31})
    assert not verify_gpu_code(func, {"max_thread_x": 16})


def test_rule_and_postproc_kinds():
    names = [type(r).__name__ for r in ms.schedule_rule.create("cuda")]
    assert names == [
        "ApplyCustomRule",
        "MultiLevelTiling",
        "InlineConstantScalars",
        "AutoInline",
        "CrossThreadReduction",
        "ParallelizeVectorizeUnroll",
        "AutoBind",
    ]
    names = [type(r).__name__ for r in ms.postproc.create("cuda")]
    assert names == [
        "DisallowDynamicLoop",
        "RewriteCooperativeFetch",
        "RewriteUnboundBlock",
        "RewriteParallelVectorizeUnroll",
        "RewriteReductionBlock",
        "VerifyGPUCode",
    ]
    names = [type(r).__name__ for r in ms.schedule_rule.create("hexagon")]
    assert names == [
        "ApplyCustomRule",
        "InlineConstantScalars",
        "AutoInline",
        "MultiLevelTilingWideVector",
        "ParallelizeVectorizeUnroll",
    ]
    assert type(ms.postproc.create("hexagon")[-1]).__name__ == "VerifyVTCMLimit"
    shares = {type(m).__name__: p for m, p in ms.mutator.create("cuda").items()}
    assert shares == {"MutateTileSize": 0.9, "MutateUnroll": 0.08, "MutateThreadBinding": 0.02}


def test_wide_vectors():
    from relaxish.meta_schedule.schedule_rule import MultiLevelTilingWideVector
    from relaxish.meta_schedule.testing.space_generation import generate_design_space

    rule = MultiLevelTilingWideVector("SRSRS", 1024, 128)
    (sketch,) = generate_design_space(
        "hexagon", te.create_prim_func(te_workload.matmul(64, 64, 64)), relaxish.Target("llvm"), None, sch_rules=[rule]
    )
    loops = [sketch.get(x) for x in sketch.get_loops(sketch.get_block("C"))]
    assert int(loops[-1].extent) == 32


def test_reductions_of_one_kernel_share_their_threads():
    """The second reduction moved into a consumer takes the threads that the first has split it by."""
    sketches = context(te.create_prim_func(te_workload.softmax_mn(64, 64))).generate_design_space()
    both = max(sketches, key=lambda s: kinds_of(s).count("SetScope"))
    splits = [i for i in both.trace.simplified(True).insts if i.kind.name == "Split"]
    assert len({id(i.inputs[-1]) for i in splits}) == 1


@pytest.mark.parametrize("virtual, fits", [(8, True), (9, False), (16, False)])
def test_limit_of_virtual_threads(virtual, fits):
    a = te.placeholder((virtual * 32,), "float32", name="A")
    func = te.create_prim_func([a, te.compute(a.shape, lambda i: a[i] + 1.0, name="B")])
    made = context(func)
    sch = tir.Schedule(made.mod)
    for part, tag in zip(
        sch.split(sch.get_loops(sch.get_block("B"))[0], [1, virtual, 32]),
        ("blockIdx.x", "vthread.x", "threadIdx.x"),
        strict=True,
    ):
        sch.bind(part, tag)
    verify = next(p for p in made.space_generator.postprocs if isinstance(p, ms.postproc.VerifyGPUCode))
    assert verify.apply(sch) is fits


def test_every_workload_has_its_number_of_sketches():
    expected = {"NRM": 2, "SFM": 4}
    for name, (_, sizes) in te_workload.CONFIGS.items():
        sketches = context(te_workload.create_te_workload(name, len(sizes) - 1)).generate_design_space()
        assert len(sketches) == expected.get(name, 1), name
