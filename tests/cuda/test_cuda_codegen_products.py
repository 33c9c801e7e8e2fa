"""Matrix products for tensor cores: machine code uses the instructions that the schedule chose, whole-width and in registers."""

from __future__ import annotations

import pytest
from programs.gpu import typed_product

import relaxish
from relaxish import dlight, te, tir
from relaxish import meta_schedule as ms
from relaxish.backend.cuda.compile import nvrtc, sass
from relaxish.ir import IRModule
from relaxish.ir.transform import PassContext
from relaxish.meta_schedule.schedule_rule import MultiLevelTilingTensorCore
from relaxish.target import Target
from relaxish.tir.schedule import Trace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (sass.available() and nvrtc.available()),
        reason="no compiler or no disassembler (the triton package has one)",
    ),
]
A100 = Target("nvidia/nvidia-a100", host="llvm")
H100 = Target("nvidia/nvidia-h100", host="llvm")


def looked_at(func, target, arch, **config):
    """(resources, instructions, their mnemonics) of a scheduled function's one kernel."""
    with PassContext(config=config):
        module = relaxish.compile(IRModule({"main": func.with_attr("global_symbol", "main")}), target)
    image = nvrtc.compile_image(module.imported_modules[0].get_source("cu"), arch, "cubin")
    [resources] = image.resources().values()
    found = sass.sass_instructions(image.data)
    return resources, found, sass.mnemonics(found)


def stays_in_registers(resources, short):
    return not resources.spills and resources.stack_bytes == 0 and not short["LDL"] and not short["STL"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_default_schedule_with_fragments(arch):
    func = typed_product(1024, 1024, 1024, "float16", "float32")
    sch = dlight.gpu.Matmul().apply(func.with_attr("global_symbol", "main"), A100, False)
    resources, found, short = looked_at(sch.mod["main"], A100, arch)
    assert stays_in_registers(resources, short)
    assert found["HMMA.16816.F32"] == 64 and 16 <= short["LDSM"] <= 64
    # The loop over k is a loop, and results leave by 16 bytes.
    assert found["STG.E.128"] == 8 and sum(short.values()) < 600


def candidates(rule, func):
    """Random candidates of one rule's sketch, as tuning makes them."""
    space = ms.space_generator.PostOrderApply(
        sch_rules=[rule, *ms.ScheduleRule.create("cuda")[2:]], postprocs="cuda-tensorcore", mutator_probs={}
    )
    context = ms.TuneContext(mod=func, target=A100, space_generator=space, task_name="t", rand_state=1)
    for sketch in context.generate_design_space():
        for postproc in space.postprocs:
            postproc._initialize_with_tune_context(context)
        for seed in range(1, 400):
            sch = tir.Schedule(func, seed=seed)
            Trace(sketch.trace.insts, {}).apply_to_schedule(sch, remove_postproc=True)
            sch.enter_postproc()
            if all(postproc.apply(sch) for postproc in space.postprocs):
                yield sch.mod["main"]


def test_tuned_candidates_with_mma():
    """``cp.async`` by 16 bytes, ``ldmatrix`` by four matrices, ``mma.sync``, and nothing in local memory."""
    a, b = (te.placeholder((1024, 1024), name=name, dtype="float16") for name in "AB")
    r = te.reduce_axis((0, 1024), name="r")
    product = te.compute((1024, 1024), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    func = te.create_prim_func([a, b, product])
    rule = [r for r in ms.ScheduleRule.create("cuda-tensorcore") if isinstance(r, MultiLevelTilingTensorCore)][1]
    seen = 0
    for candidate in candidates(rule, func):
        try:
            resources, found, short = looked_at(
                candidate, A100, "sm_80", **{"tir.use_async_copy": True, "tir.merge_static_smem": True}
            )
        except ValueError as err:  # tiles too narrow to be permuted
            assert "Permuted Layout" in str(err)
            continue
        assert stays_in_registers(resources, short), resources
        assert short["HMMA"] >= 8 and found["LDSM.16.M88.4"] >= 1 and found["LDSM.16.MT88.4"] >= 1
        copies = {name for name in found if name.startswith("LDGSTS")}
        assert copies and all(name.endswith(".128") for name in copies)
        assert short["LDGDEPBAR"] >= 1 and short["LDG"] == 0
        seen += 1
        if seen == 2:
            return
    raise AssertionError("the sketch has no candidates")


def test_hopper():
    from relaxish.dlight.gpu.matmul_hopper import MatmulHopper

    func = typed_product(4096, 4096, 4096, "float16", "float32")
    sch = MatmulHopper().apply(func.with_attr("global_symbol", "main"), H100, False)
    resources, found, short = looked_at(sch.mod["main"], H100, "sm_90a")
    assert stays_in_registers(resources, short)
    assert short["HGMMA"] >= 4 and short["HMMA"] == 0 and short["UTMALDG"] >= 2
    # One thread's loop of copies is not unrolled.
    assert short["UTMALDG"] <= 8


@pytest.mark.parametrize("dtype, instruction", [("float16", "HADD2"), ("bfloat16", "HFMA2")])
def test_pairs(dtype, instruction):
    from programs.cuda_elementwise import elementwise

    func = elementwise("pairs", lambda x, y: x + y, (dtype, dtype), 8, 4096)
    resources, found, short = looked_at(func, A100, "sm_80")
    assert found["LDG.E.128.CONSTANT"] == 2 and found["STG.E.128"] == 1
    assert 4 <= short["HADD2"] + short["HFMA2"] <= 8 and short[instruction] >= 2 and short["PRMT"] == 0
    del resources


@pytest.mark.parametrize(
    "dtype, lanes", [("float32", 4), ("int8", 16), ("float64", 2), ("float8_e4m3fn", 16), ("int32", 4)]
)
def test_sixteen_bytes(dtype, lanes):
    from programs.cuda_elementwise import elementwise

    func = elementwise("copy", lambda x: x, (dtype,), lanes, 4096)
    _, found, _ = looked_at(func, H100, "sm_90a")
    assert found["LDG.E.128.CONSTANT"] == 1 and found["STG.E.128"] == 1
