"""What a search starts from: the analytic estimate, and code that keeps the register tile in registers."""

import numpy as np
import pytest

import relaxish
from relaxish import meta_schedule as ms
from relaxish import te
from relaxish.carver import Access, Axis, CpuModel, TilingModel
from relaxish.meta_schedule.search_strategy.decisions import DecisionTable
from relaxish.meta_schedule.space_generator.hints import estimate_sketch
from relaxish.meta_schedule.testing import te_workload
from relaxish.tir.schedule import Trace


def sketches(func, cores=1):
    context = ms.TuneContext(
        func,
        target=relaxish.Target(f"llvm -num-cores {cores} -mcpu=skylake-avx512"),
        space_generator="post-order-apply",
        search_strategy="evolutionary",
        rand_state=1,
    )
    context.initialize()
    return context, [s.trace.simplified(True) for s in context.generate_design_space()]


def estimated(context, trace, tilings):
    estimate = estimate_sketch(context, trace)
    tiles = [inst for inst, *_ in DecisionTable(trace, [-1]).tiles]
    return estimate.cycles({inst: np.array([t[i] for t in tilings]) for i, inst in enumerate(tiles)})


def test_estimate_prefers_register_tiles():
    context, traces = sketches(te.create_prim_func(te_workload.matmul(512, 512, 512)))
    good = [[16, 4, 1, 8], [8, 2, 1, 32], [8, 64]]
    tiny = [[16, 4, 8, 1], [8, 2, 32, 1], [8, 64]]
    spilled = [[8, 1, 1, 64], [8, 1, 1, 64], [8, 64]]
    assert traces
    for trace in traces:
        cycles = estimated(context, trace, [good, tiny, spilled])
        assert cycles[0] < cycles[1] / 4 and cycles[0] < cycles[2] / 1.5


def test_estimate_sees_caches():
    axes = [Axis(1024), Axis(1024), Axis(1024, reduction=True)]
    accesses = [
        Access((({0: 1}, 1), ({2: 1}, 1)), 4, row_bytes=4096),
        Access((({2: 1}, 1), ({1: 1}, 1)), 4, packed=True),
        Access((({0: 1}, 1), ({1: 1}, 1)), 4, written=True, row_bytes=4096),
    ]
    model = TilingModel(axes, accesses, "SSRSRS", CpuModel(caches=(32 << 10, 1 << 20, 16 << 20)))
    blocked = [[4, 32, 1, 8], [16, 1, 2, 32], [16, 64]]
    streaming = [[1024, 1, 1, 1], [1, 1, 32, 32], [1024, 1]]
    cycles = model.cycles([np.array([a, b]) for a, b in zip(blocked, streaming, strict=True)])
    assert cycles[0] < cycles[1] / 2


def test_more_cores_want_more_tasks():
    context, traces = sketches(te.create_prim_func(te_workload.matmul(256, 256, 256)), cores=4)
    one = [[1, 1, 32, 8], [1, 1, 8, 32], [4, 64]]
    four = [[4, 1, 8, 8], [1, 1, 8, 32], [4, 64]]
    cycles = estimated(context, traces[-1], [one, four])
    assert cycles[1] < cycles[0] / 2


def test_convolution_has_an_estimate_and_elementwise_has_none():
    context, traces = sketches(te.create_prim_func(te_workload.conv2d_nhwc(1, 14, 14, 16, 32, 3, 3, 1, 1)))
    assert all(estimate_sketch(context, t) is not None for t in traces if "SamplePerfectTile" in str(t.as_json()))
    a = te.placeholder((64,), "float32", name="A")
    context, traces = sketches(te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, name="B")]))
    assert [estimate_sketch(context, t) for t in traces] == [None]


@pytest.mark.parametrize("unroll", [0, 3])
def test_register_tiles_stay_in_registers_whatever_the_unroll_depth(unroll):
    from relaxish.backend.llvm.compile import compile_primfuncs
    from relaxish.tir import Schedule
    from relaxish.tir.transform import lower_for_cpu

    context, traces = sketches(te.create_prim_func(te_workload.matmul(64, 64, 64)))
    trace = traces[-1]
    sampled = [i for i in trace.insts if i.kind.name.startswith("Sample")]
    tiles = [[2, 4, 1, 8], [1, 2, 1, 32], [2, 32], unroll]
    sch = Schedule(context.mod)
    Trace(trace.insts, dict(zip(sampled, tiles, strict=True))).apply_to_schedule(sch, remove_postproc=True)
    sch.enter_postproc()
    assert all(p.apply(sch) for p in context.space_generator.postprocs)
    text = compile_primfuncs(lower_for_cpu(sch.mod, context.target), context.target).assembly(context.target)
    # Eight rows of two vectors, updated in place; the loop stores nothing.
    loop = text[text.index("vfmadd") :]
    loop = loop[: loop.index("\tj")]
    assert loop.count("vfmadd") + text[: text.index("vfmadd")].count("vfmadd") >= 16
    assert "zmm" in loop and not any(
        line.split()[0].startswith("vmov") and line.rstrip().endswith(")") for line in loop.splitlines() if line.strip()
    )


def test_first_round_is_near_the_best(tmp_path):
    """Without any training data the first candidates already use whole vectors and many accumulators."""
    func = te.create_prim_func(te_workload.matmul(128, 128, 128)).with_attr("layout_free_buffers", [1])
    database = ms.tune_tir(func, relaxish.Target("llvm -num-cores 1"), str(tmp_path), 4, seed=0)
    for record in database.get_all_tuning_records():
        tiles = [v for v in record.trace.decisions.values() if isinstance(v, (list, tuple))]
        assert int(tiles[1][-1]) >= 16 or not record.run_secs
    assert any(r.numerically_valid for r in database.get_all_tuning_records())


def test_hopeless_candidates_get_less_time():
    runner = ms.runner.LocalRunner(timeout_sec=30)
    assert runner._limit("x") == 30
    runner._note("x", 0.001)
    assert runner._limit("x") < 4
    assert runner._limit("y") == 30
