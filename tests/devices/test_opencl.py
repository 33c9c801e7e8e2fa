"""OpenCL programs really run: on PoCL, or on whatever OpenCL device is there."""

from __future__ import annotations

import numpy as np
import pytest
from programs.device_models import MODELS
from programs.gpu import CASES, typed_product

import relaxish
from relaxish import dlight
from relaxish.runtime import enabled
from relaxish.runtime.opencl_driver.addresses import AddressBook
from relaxish.script import tir as T
from relaxish.support.errors import RelaxishError
from relaxish.target import Target

TARGET = Target("opencl", host="llvm")
QUICK = ("rows, dynamic", "softmax", "transpose", "fallback", "gemv, tall", "rms norm")


def run(device, func, arrays, target=TARGET):
    """Build a scheduled program, run it on copies of the arrays, and give the last one back."""
    built = relaxish.build(func.with_attr("global_symbol", "main"), target=target)
    placed = [relaxish.nd.array(a, device) for a in arrays]
    built["main"](*placed)
    return placed[-1].numpy()


def check_case(device, name):
    rule, func, shapes = CASES[name]
    schedule = rule.apply(func.with_attr("global_symbol", "main"), TARGET, False)
    rng = np.random.default_rng(len(name))
    arrays = [rng.standard_normal(s).astype("float32") for s in shapes[:-1]] + [np.zeros(shapes[-1], "float32")]
    reference = relaxish.build(func.with_attr("global_symbol", "main"), target="llvm")
    got = run(device, schedule.mod["main"], arrays)
    reference["main"](*arrays)
    np.testing.assert_allclose(got, arrays[-1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", QUICK)
def test_default_schedules(opencl, name):
    check_case(opencl, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CASES if n not in QUICK])
def test_all_default_schedules(opencl, name):
    check_case(opencl, name)


def bound(func, threads=64):
    """A schedule of one fused loop over blocks and threads."""
    schedule = relaxish.tir.Schedule(func)
    for block in schedule.get_child_blocks(schedule.get_block("root")):
        loops = schedule.get_loops(block)
        outer, inner = schedule.split(schedule.fuse(*loops), [None, threads])
        schedule.bind(outer, "blockIdx.x")
        schedule.bind(inner, "threadIdx.x")
    return schedule.mod["main"]


@pytest.mark.parametrize("lanes", [2, 3, 4, 5, 8, 16])
def test_vectors(opencl, lanes):
    n = 64 * lanes

    @T.prim_func
    def main(A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "float32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for v in T.vectorized(lanes):
                with T.block("B"):
                    i = T.axis.spatial(n, tx * lanes + v)
                    B[i] = T.exp(A[i]) * T.float32(0.5) + T.max(A[i], T.float32(0))

    a = np.random.default_rng(lanes).standard_normal(n).astype("float32")
    got = run(opencl, main, [a, np.zeros(n, "float32")])
    np.testing.assert_allclose(got, np.exp(a) * 0.5 + np.maximum(a, 0), rtol=1e-5)


def test_vector_choices_and_comparisons(opencl):
    @T.prim_func
    def main(A: T.Buffer((256,), "float32"), B: T.Buffer((256,), "int32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for v in T.vectorized(4):
                with T.block("B"):
                    i = T.axis.spatial(256, tx * 4 + v)
                    B[i] = T.Select(A[i] > T.float32(0.25), T.Cast("int32", A[i] * T.float32(8)), -1)

    a = np.random.default_rng(0).standard_normal(256).astype("float32")
    got = run(opencl, main, [a, np.zeros(256, "int32")])
    np.testing.assert_array_equal(got, np.where(a > 0.25, (a * 8).astype("int32"), -1))


def test_strided_vectors(opencl):
    @T.prim_func
    def main(A: T.Buffer((4, 64), "float32"), B: T.Buffer((64, 4), "float32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for v in T.vectorized(4):
                with T.block("B"):
                    i, j = T.axis.remap("SS", [tx, v])
                    B[i, j] = A[j, i]

    a = np.random.default_rng(0).standard_normal((4, 64)).astype("float32")
    np.testing.assert_array_equal(run(opencl, main, [a, np.zeros((64, 4), "float32")]), a.T)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_wrap_around(opencl, dtype):
    @T.prim_func
    def main(A: T.Buffer((96,), dtype), B: T.Buffer((96,), dtype), C: T.Buffer((96,), dtype)):
        for i in range(96):
            with T.block("C"):
                v = T.axis.spatial(96, i)
                C[v] = T.max(A[v] * B[v] + A[v], B[v]) // T.Cast(dtype, 3)

    rng = np.random.default_rng(1)
    info = np.iinfo(dtype)
    a, b = (rng.integers(info.min, info.max, 96, dtype=dtype, endpoint=True) for _ in range(2))
    want = np.maximum(a * b + a, b) // np.array(3, dtype)
    np.testing.assert_array_equal(run(opencl, bound(main, 32), [a, b, np.zeros(96, dtype)]), want)


def test_halves_on_any_device(opencl):
    """PoCL has no halves: they are stored, and computed with as floats."""
    func = typed_product(32, 32, 24, "float16", "float16")
    schedule = dlight.gpu.Matmul().apply(func.with_attr("global_symbol", "main"), TARGET, False)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((32, 24)).astype("float16") for _ in range(2))
    got = run(opencl, schedule.mod["main"], [a, b, np.zeros((32, 32), "float16")])
    np.testing.assert_allclose(got, a.astype("float32") @ b.T.astype("float32"), rtol=2e-2, atol=2e-2)


def test_booleans_and_doubles(opencl):
    @T.prim_func
    def main(A: T.Buffer((64,), "float64"), M: T.Buffer((64,), "bool"), B: T.Buffer((64,), "float64")):
        for i in range(64):
            with T.block("B"):
                v = T.axis.spatial(64, i)
                B[v] = T.if_then_else(M[v] and A[v] > T.float64(0), T.sqrt(T.abs(A[v])), T.float64("inf"))

    rng = np.random.default_rng(0)
    a, m = rng.standard_normal(64), rng.random(64) > 0.5
    got = run(opencl, bound(main, 16), [a, m, np.zeros(64)])
    np.testing.assert_allclose(got, np.where(m & (a > 0), np.sqrt(np.abs(a)), np.inf))


@pytest.mark.parametrize("function, reference", [
    ("tanh", np.tanh), ("log1p", np.log1p), ("rsqrt", lambda x: 1 / np.sqrt(x)), ("exp2", np.exp2), ("atan", np.arctan),
    ("sigmoid", lambda x: 1 / (1 + np.exp(-x))), ("floor", np.floor), ("nearbyint", np.rint), ("erf", None),
])  # fmt: skip
def test_mathematics(opencl, function, reference):
    operator = getattr(T, function)

    @T.prim_func
    def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(64):
            with T.block("B"):
                v = T.axis.spatial(64, i)
                B[v] = operator(A[v])

    if reference is None:
        from math import erf

        reference = np.vectorize(erf)
    a = np.random.default_rng(0).random(64).astype("float32") * 3
    np.testing.assert_allclose(run(opencl, bound(main, 16), [a, np.zeros_like(a)]), reference(a), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["mlp", pytest.param("cnn", marks=pytest.mark.slow), pytest.param("attention", marks=pytest.mark.slow)]
)
def test_models_untuned(opencl, name):
    module, inputs, result = MODELS[name]
    built = relaxish.build(module, TARGET)
    vm = relaxish.VirtualMachine(built, opencl)
    given = inputs(np.random.default_rng(3))
    got = vm["main"](*[relaxish.nd.array(a, opencl) for a in given])
    assert got.device == opencl
    np.testing.assert_allclose(got.numpy(), result(*given), rtol=1e-3, atol=1e-4)


def test_texture(opencl):
    """Images are read and written by pixels of four numbers."""
    from relaxish.backend.opencl.printer import opencl_source
    from relaxish.ir import IRModule, PointerType, PrimType

    source = relaxish.tir.Var("source", PointerType(PrimType("float32"), "global.texture"))
    target = relaxish.tir.Var("target", PointerType(PrimType("float32"), "global.texture"))
    tx = relaxish.tir.Var("tx", "int32")
    lanes = relaxish.tir.Ramp(0, 1, 4)
    pixel = relaxish.tir.call_intrin("float32x4", "tir.texture2d_load", source, tx, 1, lanes)
    one = relaxish.tir.call_intrin("float32", "tir.texture2d_load", source, tx, 0, 2)
    value = pixel * relaxish.tir.Broadcast(one, 4)
    body = relaxish.tir.Evaluate(relaxish.tir.call_intrin("handle", "tir.texture2d_store", target, tx, 0, value))
    axis = relaxish.tir.IterVar((0, 8), tx, 1, "threadIdx.x")
    body = relaxish.tir.AttrStmt(axis, "thread_extent", 8, body)
    kernel = relaxish.tir.PrimFunc([source, target], body).with_attr("global_symbol", "scale_pixels")
    text = opencl_source(IRModule({"scale_pixels": kernel}))
    assert "__read_only image2d_t source" in text and "__write_only image2d_t target" in text
    import pyopencl as cl

    from relaxish.runtime.opencl_driver.state import state

    device = state().device(0)
    data = np.random.default_rng(0).standard_normal((2, 8, 4)).astype("float32")
    form = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
    flags = cl.mem_flags.READ_WRITE
    given = cl.Image(device.context, flags | cl.mem_flags.COPY_HOST_PTR, form, shape=(8, 2), hostbuf=data)
    made = cl.Image(device.context, flags, form, shape=(8, 1))
    cl.Program(device.context, text).build().scale_pixels(device.queue, (8,), (8,), given, made)
    got = np.empty((1, 8, 4), "float32")
    cl.enqueue_copy(device.queue, got, made, origin=(0, 0), region=(8, 1))
    np.testing.assert_allclose(got[0], data[1] * data[0, :, 2:3], rtol=1e-6)


def test_views_at_odd_offsets(opencl):
    """A part of a tensor may begin where the device allows no buffer to begin."""

    @T.prim_func
    def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.block("B"):
                v = T.axis.spatial(16, i)
                B[v] = A[v] + T.float32(1)

    built = relaxish.build(bound(main, 16), target=TARGET)
    base = relaxish.nd.array(np.arange(64, dtype="float32"), opencl)
    a, b = base._create_view((16,), "float32", 4 * 3), base._create_view((16,), "float32", 4 * 33)
    built["main"](a, b)
    want = np.arange(64, dtype="float32")
    want[33:49] = want[3:19] + 1
    np.testing.assert_array_equal(base.numpy(), want)


def test_device(opencl):
    assert enabled("opencl") and opencl.max_threads_per_block >= 1 and opencl.device_name
    found = Target.from_device(opencl)
    assert found.kind.name == "opencl" and found.max_num_threads == opencl.max_threads_per_block
    a = relaxish.nd.array(np.arange(5, dtype="int64"), opencl)
    np.testing.assert_array_equal(a.copyto(opencl).numpy(), np.arange(5))
    opencl.sync()


def test_time_evaluator(opencl):
    rule, func, shapes = CASES["fallback"]
    schedule = rule.apply(func.with_attr("global_symbol", "main"), TARGET, False)
    built = relaxish.build(schedule.mod, target=TARGET)
    arrays = [relaxish.nd.array(np.zeros(s, "float32"), opencl) for s in shapes]
    assert built.time_evaluator("main", opencl, number=2, repeat=2)(*arrays).mean > 0


def test_bad_source_is_an_error(opencl):
    from relaxish.runtime.opencl_driver.program import OpenCLProgram

    with pytest.raises(RelaxishError, match="does not compile"):
        OpenCLProgram("__kernel void f(__global float* a) { a[0] = b; }", 0).launch("f", (1, 1, 1), (1, 1, 1), [])


def test_wrong_device(opencl):
    rule, func, shapes = CASES["fallback"]
    schedule = rule.apply(func.with_attr("global_symbol", "main"), TARGET, False)
    built = relaxish.build(schedule.mod, target=TARGET)
    with pytest.raises(RelaxishError, match="opencl"):
        built["main"](*[np.zeros(s, "float32") for s in shapes])


def test_addresses():
    book = AddressBook()
    first, second = book.add("first", 10, 0), book.add("second", 5000, 0)
    assert book.find(first.address + 9) == ("first", 9, 10)
    assert book.find(second.address + 4096) == ("second", 4096, 5000)
    gone = first.address
    del first
    with pytest.raises(RelaxishError, match="no memory"):
        book.find(gone)
    assert book.find(second.address)[0] == "second"


def test_export(opencl, tmp_path):
    """Source and host programs go into the exported files; a model runs from them without the compiler's help."""
    module, inputs, result = MODELS["mlp"]
    path = str(tmp_path / "model.so")
    relaxish.build(module, TARGET).export_library(path)
    vm = relaxish.VirtualMachine(relaxish.runtime.load_module(path), opencl)
    given = inputs(np.random.default_rng(4), rows=3)
    got = vm["main"](*[relaxish.nd.array(a, opencl) for a in given]).numpy()
    np.testing.assert_allclose(got, result(*given), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_adreno_pipeline(opencl):
    """The pipeline that phones use; its programs run on any OpenCL device."""
    target = Target("opencl -device=adreno", host="llvm")
    module, inputs, result = MODELS["cnn"]
    vm = relaxish.VirtualMachine(relaxish.build(module, target), opencl)
    given = inputs(np.random.default_rng(6))
    got = vm["main"](*[relaxish.nd.array(a, opencl) for a in given]).numpy()
    np.testing.assert_allclose(got, result(*given), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_default_pipeline_by_name(opencl):
    module, inputs, result = MODELS["mlp"]
    lowered = relaxish.get_default_pipeline(TARGET)(module)
    built = relaxish.build(module, TARGET, relax_pipeline=relaxish.get_default_pipeline(TARGET))
    assert lowered.functions and built.imported_modules
    given = inputs(np.random.default_rng(7), rows=2)
    got = relaxish.VirtualMachine(built, opencl)["main"](*[relaxish.nd.array(a, opencl) for a in given]).numpy()
    np.testing.assert_allclose(got, result(*given), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_tuning(opencl, tmp_path):
    """Candidates are built and measured on the device in a process of its own, and the best one is right."""
    from programs.gpu import matmul

    from relaxish import meta_schedule as ms

    func = matmul(32, 48, 40).with_attr("global_symbol", "main")
    database = ms.tune_tir(func, TARGET, work_dir=str(tmp_path), max_trials_global=8, num_trials_per_iter=8, seed=1)
    measured = [r for r in database.get_all_tuning_records() if float(r.run_secs[0]) < 1e9]
    assert measured
    schedule = ms.tir_integration.compile_tir(database, func, TARGET)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((32, 40)).astype("float32"), rng.standard_normal((40, 48)).astype("float32")
    got = run(opencl, schedule.mod["main"], [a, b, np.zeros((32, 48), "float32")])
    np.testing.assert_allclose(got, a @ b, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rows", "softmax", "matmul, transposed", "matmul, convolution"])
def test_candidates_of_the_search(opencl, name):
    """Random candidates compute what the program says."""
    from relaxish import meta_schedule as ms

    _, func, shapes = CASES[name]
    func = func.with_attr("global_symbol", "main")
    space = ms.space_generator.PostOrderApply()
    context = ms.TuneContext(func, target=TARGET, space_generator=space, search_strategy="replay-trace", rand_state=3)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype("float32") for s in shapes[:-1]] + [np.zeros(shapes[-1], "float32")]
    given = [a.copy() for a in arrays]
    relaxish.build(func, target="llvm")["main"](*arrays)
    tried = 0
    for seed, sketch in enumerate(context.generate_design_space() * 4, 1):
        schedule = relaxish.tir.Schedule(relaxish.IRModule({"main": func}), seed=seed)
        relaxish.tir.schedule.Trace(sketch.trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        if tried < 3 and all(p.apply(schedule) for p in context.space_generator.postprocs):
            np.testing.assert_allclose(run(opencl, schedule.mod["main"], given), arrays[-1], rtol=1e-3, atol=1e-4)
            tried += 1
    assert tried
