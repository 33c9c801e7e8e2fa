"""Products of bfloat16 and bytes by dot-product instructions, against NumPy on random shapes and numbers."""

from __future__ import annotations

from contextlib import nullcontext

import ml_dtypes
import numpy as np
import pytest

import relaxish
from relaxish import meta_schedule as ms
from relaxish import op as R
from relaxish import te, tir
from relaxish.backend.llvm import engine
from relaxish.backend.llvm.compile import generate_text, prim_funcs_of
from relaxish.dlight import ApplyDefaultCPUSchedule
from relaxish.dlight.cpu.dot_words import packed_words
from relaxish.ir.op import Op
from relaxish.meta_schedule.verdicts.baseline import baseline_seconds, built_by_default
from relaxish.pipeline import kernel_pipeline
from relaxish.relax import BlockBuilder, TensorStructInfo, Var, const
from relaxish.support import config
from relaxish.target import Target
from relaxish.tir.intrinsics import INTRINSICS
from relaxish.tir.transform import lower_for_cpu

# A machine with both instructions; its schedules run on this one, as it can.
DOTS = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4 -num-cores=2"
BYTES = [(a, b) for a in ("int8", "uint8") for b in ("int8", "uint8")]


def values(rng, shape, dtype):
    if dtype == "bfloat16":
        return rng.standard_normal(shape, dtype="float32").astype(ml_dtypes.bfloat16)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def product(left, right, constant=True, turned=False, bias=None):
    """``left @ right``, or its transpose, the right one a constant or an input; with a bias and a relu if there is one."""
    builder, out_dtype = BlockBuilder(), "bfloat16" if str(left.dtype) == "bfloat16" else "int32"
    x, w = (Var(n, TensorStructInfo(a.shape, str(a.dtype))) for n, a in (("x", left), ("w", right)))
    with builder.function("main", [x] if constant else [x, w]):
        with builder.dataflow():
            other = const(right) if constant else w
            y = builder.emit(R.matmul(x, builder.emit(R.permute_dims(other)) if turned else other, out_dtype))
            out = builder.emit_output(y if bias is None else R.nn.relu(builder.emit(R.add(y, const(bias)))))
        builder.emit_func_output(out)
    return builder.finalize()


def scheduled(mod, target=DOTS):
    with Target(target):
        return ApplyDefaultCPUSchedule()(kernel_pipeline(target, prepack=False)(mod))


def result(mod, *inputs):
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm -num-cores 2"), relaxish.cpu())
    return vm["main"](*[relaxish.nd.array(x) for x in inputs]).numpy()


def check(made, want, dtype):
    if dtype != "bfloat16":
        np.testing.assert_array_equal(made, want)
        return
    wide = want.astype("float64")
    # Rounded once, to eight bits; sums in float32.
    np.testing.assert_allclose(made.astype("float64"), wide, rtol=2.0**-8, atol=2.0**-8 * 1e-2 * np.abs(wide).max())


@pytest.fixture(params=["native", "plain"])
def machine(request):
    """This machine, and one without the instructions."""
    without = config.DISABLE_FEATURES.override("avx512bf16,avx512vnni,avxvnni")
    with nullcontext() if request.param == "native" else without:
        yield request.param


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kinds", [("bfloat16", "bfloat16"), *BYTES])
def test_random_products(kinds, seed, machine):
    rng = np.random.default_rng([seed, *map(len, kinds), kinds == BYTES[1]])
    m, k, n = (int(rng.integers(low, high)) for low, high in ((1, 40), (8, 150), (16, 100)))
    constant, turned = seed < 4, seed % 2 == 1
    left, right = values(rng, (m, k), kinds[0]), values(rng, (n, k) if turned else (k, n), kinds[1])
    bias = values(rng, (n,), "bfloat16") if kinds[0] == "bfloat16" and seed % 3 == 0 else None
    wide = "float64" if kinds[0] == "bfloat16" else "int64"
    want = left.astype(wide) @ (right.T if turned else right).astype(wide)
    if bias is not None:
        want = np.maximum(want + bias.astype(wide), 0)
    mod = scheduled(product(left, right, constant, turned, bias))
    if constant:
        assert "T.dot_" in mod.script()
    check(result(mod, left, *([] if constant else [right])), want, kinds[0])


@pytest.mark.parametrize("shape", [(20, 33, 17), (5, 3, 64, 24), (3, 2, 7, 40, 32)])
def test_several_rows_and_batches(shape):
    """Rows of more than one axis, and batches of both operands, which the kernel packs."""
    rng = np.random.default_rng(len(shape))
    *batch, rows, depth, columns = (*shape[:-3], *shape[-3:]) if len(shape) > 3 else (4, *shape)
    left = values(rng, (*batch, rows, depth), "bfloat16")
    right = values(rng, (*batch, depth, columns), "bfloat16")
    want = left.astype("float64") @ right.astype("float64")
    check(result(scheduled(product(left, right, constant=False)), left, right), want, "bfloat16")
    shared = values(rng, (depth, columns), "bfloat16")
    mod = scheduled(product(left, shared))
    assert "T.dot_bf16x2" in mod.script()
    check(result(mod, left), left.astype("float64") @ shared.astype("float64"), "bfloat16")


@pytest.mark.parametrize("seed", range(4))
def test_convolutions(seed, machine):
    import torch

    rng = np.random.default_rng(seed)
    inside, outside, kernel = int(rng.integers(8, 40)), int(rng.integers(16, 50)), (1, 3, 3, 5)[seed]
    stride, padding = (1, 1, 2, 1)[seed], (0, 1, 0, 2)[seed]
    x, w = values(rng, (2, inside, 9, 11), "bfloat16"), values(rng, (outside, inside, kernel, kernel), "bfloat16")
    builder, var = BlockBuilder(), Var("x", TensorStructInfo(x.shape, "bfloat16"))
    with builder.function("main", [var]):
        with builder.dataflow():
            out = builder.emit_output(R.nn.conv2d(var, const(w), stride, padding))
        builder.emit_func_output(out)
    mod = scheduled(builder.finalize())
    assert "T.dot_bf16x2" in mod.script()
    wide = (torch.from_numpy(a.astype("float64")) for a in (x, w))
    want = torch.nn.functional.conv2d(*wide, stride=stride, padding=padding).numpy()
    check(result(mod, x), want, "bfloat16")


def test_a_weight_used_twice_is_packed_once_and_others_keep_theirs():
    rng = np.random.default_rng(5)
    w, x = values(rng, (32, 32), "bfloat16"), values(rng, (24, 32), "bfloat16")
    builder, var = BlockBuilder(), Var("x", TensorStructInfo(x.shape, "bfloat16"))
    with builder.function("main", [var]):
        with builder.dataflow():
            y = builder.emit(R.matmul(builder.emit(R.matmul(var, const(w))), const(w)))
            out = builder.emit_output(R.add(y, builder.emit(R.take(const(w), const(np.arange(24) % 32), axis=0))))
        builder.emit_func_output(out)
    first = (x.astype("float64") @ w.astype("float64")).astype(ml_dtypes.bfloat16).astype("float64")
    want = (first @ w.astype("float64")).astype(ml_dtypes.bfloat16).astype("float64")
    made = result(scheduled(builder.finalize()), x)
    wide = want + w.astype("float64")[np.arange(24) % 32]
    np.testing.assert_allclose(made.astype("float64"), wide, rtol=2.0**-6, atol=2.0**-7 * np.abs(wide).max())


def test_packed_words_fill_the_last_with_zeros():
    weight = np.arange(1, 11, dtype="uint16").reshape(5, 2).view(ml_dtypes.bfloat16)
    assert packed_words(weight, 0).tolist() == [[1 | 3 << 16, 2 | 4 << 16], [5 | 7 << 16, 6 | 8 << 16], [9, 10]]
    assert packed_words(weight, 1).tolist() == [[a | (a + 1) << 16] for a in range(1, 11, 2)]


@pytest.mark.parametrize("name", ["dot_bf16x2", "dot_u8s8x4"])
@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16])
def test_the_intrinsics_compute_their_meaning(name, lanes, machine):
    """Alone and added to a total, in vectors that have an instruction and others."""
    rng, record = np.random.default_rng(lanes), INTRINSICS[name]
    kind = "bfloat16" if name == "dot_bf16x2" else "int8"
    count = 48
    arrays = [
        values(rng, count * 4 // np.dtype(values(rng, 1, kind).dtype).itemsize, kind).view("uint32") for _ in "ab"
    ]
    total = values(rng, count, "int8").astype(record.result)
    a, b = (te.placeholder((count,), "uint32", name=n) for n in "ab")
    c = te.placeholder((count,), record.result, name="c")
    dot = tir.Call(record.result, Op.get(f"tir.{name}"), [a[0], b[0]])
    alone = te.compute((count,), lambda i: tir.Call(record.result, dot.op, [a[i], b[i]]), name="alone")
    added = te.compute((count,), lambda i: c[i] + tir.Call(record.result, dot.op, [a[i], b[i]]), name="added")
    sch = tir.Schedule(te.create_prim_func([a, b, c, alone, added]))
    for block in ("alone", "added"):
        _, inner = sch.split(sch.get_loops(sch.get_block(block))[0], [None, lanes])
        if lanes > 1:
            sch.vectorize(inner)
    built = relaxish.build(sch.mod, "llvm")
    outs = [relaxish.nd.array(np.zeros(count, record.result)) for _ in range(2)]
    built["main"](*[relaxish.nd.array(x) for x in (*arrays, total)], *outs)
    want = record.meaning(*arrays)
    np.testing.assert_allclose(outs[0].numpy(), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(outs[1].numpy(), want + total, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kinds, cpu, instruction", [
    (("bfloat16", "bfloat16"), "znver4", "vdpbf16ps"), (("bfloat16", "bfloat16"), "cooperlake", "vdpbf16ps"),
    (("int8", "int8"), "znver4", "vpdpbusd"), (("uint8", "int8"), "cascadelake", "vpdpbusd"),
    (("bfloat16", "bfloat16"), "skylake-avx512", None), (("int8", "int8"), "haswell", None),
])  # fmt: skip
def test_machine_code_by_target(kinds, cpu, instruction):
    rng = np.random.default_rng(1)
    target = Target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu} -num-cores=1")
    mod = scheduled(product(values(rng, (12, 40), kinds[0]), values(rng, (40, 64), kinds[1])), target)
    assert ("T.dot_" in mod.script()) == (instruction is not None)
    kernels = relaxish.IRModule({g: f for g, f in mod.functions.items() if isinstance(f, tir.PrimFunc)})
    _, text = generate_text(prim_funcs_of(lower_for_cpu(kernels, target)), target)
    assembly = engine.assembly_of(text, target)
    assert instruction is None or instruction in assembly


@pytest.mark.parametrize("kinds", [("bfloat16", "bfloat16"), ("int8", "int8")])
def test_what_tuning_compares_with_has_words(kinds, tmp_path):
    """The untuned kernel that a record must beat is the one that a build makes, with its own parameters."""
    rng = np.random.default_rng(3)
    left, right = values(rng, (24, 64), kinds[0]), values(rng, (64, 48), kinds[1])
    mod = kernel_pipeline(DOTS)(product(left, right))
    (task,) = ms.extract_tasks(mod, DOTS)
    made = built_by_default(task.mod, task.target)
    assert "T.dot_" in made.script() and len(made["main"].params) == 3 + (kinds[0] == "int8")
    here = Target("llvm -num-cores 1")
    mod = kernel_pipeline(here)(product(left, right))
    database = ms.tune_relax(
        mod, {}, here, str(tmp_path), 2, num_trials_per_iter=2, cost_model="random", seed=1, baselines=True
    )
    assert baseline_seconds(database, ms.extract_tasks(mod, here)[0].mod) is not None
    with database:
        wide = "float64" if kinds[0] == "bfloat16" else "int64"
        check(result(product(left, right), left), left.astype(wide) @ right.astype(wide), kinds[0])
