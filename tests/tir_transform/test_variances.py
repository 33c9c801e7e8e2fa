"""Variances of compiled normalisations, against float64: large means, outliers, equal elements, narrow types, schedules."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import build, cpu, dlight, nd, relax, target, tir
from relaxish.driver import build_tir
from relaxish.ir.structural import structural_equal
from relaxish.runtime import VirtualMachine
from relaxish.script import from_source
from relaxish.script import relax as R
from relaxish.testing import emulate_cuda
from relaxish.tir.schedule import Schedule
from relaxish.tir.transform.numerics.centered_variances import CenterVariances, center_variances
from relaxish.tir.transform.numerics.exact_variances import exact_variances

LLVM = target.Target("llvm")
ROWS = """@T.prim_func(private=True)
def main(x: T.Buffer((8, 96), "{0}"), y: T.Buffer((8, 96), "{0}")):
    T.func_attr({{"tir.noalias": True}})
    s = T.alloc_buffer((8,), "{0}")
    q = T.alloc_buffer((8,), "{0}")
    for i, k in T.grid(8, 96):
        with T.block("sums"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                s[vi] = T.{0}(0)
                q[vi] = T.{0}(0)
            v_s: T.{0} = s[vi] + x[vi, vk]
            v_q: T.{0} = q[vi] + x[vi, vk] * x[vi, vk]
            s[vi] = v_s
            q[vi] = v_q
    for i, k in T.grid(8, 96):
        with T.block("y"):
            vi, vk = T.axis.remap("SS", [i, k])
            y[vi, vk] = (x[vi, vk] - s[vi] / T.{0}(96)) * T.rsqrt(
                q[vi] / T.{0}(96) - s[vi] / T.{0}(96) * (s[vi] / T.{0}(96)) + T.{0}(1e-5)
            )
"""


def _module(kind, shape, dtype="float32", symbolic=()):
    """A graph of one normalisation; the axes in ``symbolic`` have sizes known at run time only."""
    builder = relax.BlockBuilder()
    sizes = [tir.Var(f"n{i}", "int64") if i in symbolic else n for i, n in enumerate(shape)]
    x = relax.Var("x", R.Tensor(sizes, dtype))
    weights = sizes[-1:] if kind == "layer" else sizes[1:2]
    g, b = (relax.Var(name, R.Tensor(weights, dtype)) for name in "gb")
    axes = list(range(2, len(shape)))
    with builder.function("main", [x, g, b]):
        with builder.dataflow():
            if kind == "layer":
                made = relax.op.nn.layer_norm(x, g, b, axes=[-1])
            elif kind == "group":
                made = relax.op.nn.group_norm(x, g, b, num_groups=2, channel_axis=1, axes=axes)
            else:
                made = relax.op.nn.instance_norm(x, g, b, channel_axis=1, axes=axes)
            out = builder.emit_output(builder.emit(made))
        builder.emit_func_output(out)
    return builder.get()


def _rows(kind, x):
    if kind == "layer":
        return x.reshape(-1, x.shape[-1])
    return x.reshape(x.shape[0] * (2 if kind == "group" else x.shape[1]), -1)


def _wanted(kind, x, g, b):
    rows = _rows(kind, x.astype("float64"))
    made = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    made = made.reshape(x.shape)
    weights = (-1,) if kind == "layer" else (1, -1) + (1,) * (x.ndim - 2)
    return made * g.astype("float64").reshape(weights) + b.astype("float64").reshape(weights)


def _data(rng, content, kind, shape, dtype="float32"):
    x = rng.standard_normal(shape)
    if content == "equal":
        x = np.broadcast_to(rng.uniform(1, 3000, (_rows(kind, x).shape[0], 1)), _rows(kind, x).shape).reshape(shape)
    elif content == "first":
        rows = _rows(kind, x) + 1e4
        rows[:, 0] = 0.0
        x = rows.reshape(shape)
    elif content == "far":
        rows = _rows(kind, x).copy()
        rows[:, 0] = 1e6
        x = rows.reshape(shape)
    else:
        x = x + content
    channels = shape[-1] if kind == "layer" else shape[1]
    return x.astype(dtype), rng.uniform(0.5, 1.5, channels).astype(dtype), rng.standard_normal(channels).astype(dtype)


def _largest(kind, x):
    return float(np.sqrt(_rows(kind, x).shape[1]))


CONTENTS = [0.0, 1e3, 1e4, -1e6, "equal", "first", "far"]


def _run(executable, *given):
    machine = VirtualMachine(executable, cpu())
    return machine["main"](*(nd.array(a) for a in given)).numpy()


@pytest.mark.parametrize("pipeline", [None, "zero", "default_build"])
@pytest.mark.parametrize(
    ("kind", "shape", "symbolic"),
    [
        ("layer", (5, 96), ()),
        ("layer", (3, 7, 33), (0,)),
        ("layer", (4, 50), (0, 1)),
        ("layer", (40,), ()),
        ("group", (2, 6, 5, 7), ()),
        ("group", (2, 4, 9, 3), (2, 3)),
        ("instance", (2, 3, 8, 8), ()),
        ("instance", (2, 3, 17), (2,)),
        ("layer", (2, 20000), ()),
        ("group", (1, 4, 100, 101), ()),
    ],
)
def test_normalisations_keep_their_digits(kind, shape, symbolic, pipeline):
    rng = np.random.default_rng(len(shape) * 100 + shape[-1])
    mod = _module(kind, shape, symbolic=symbolic)
    if pipeline == "zero":
        mod, pipeline = relax.get_pipeline("zero")(mod), None
    executable = build(mod, LLVM, relax_pipeline=pipeline)
    for content in CONTENTS:
        given = _data(rng, content, kind, shape)
        rounding = 1e-5 * _largest(kind, given[0])
        made = _run(executable, *given)
        np.testing.assert_allclose(made, _wanted(kind, *given), rtol=2e-4, atol=rounding, err_msg=str(content))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize(("kind", "shape"), [("layer", (5, 96)), ("group", (2, 6, 5, 7)), ("instance", (2, 3, 8, 8))])
def test_other_types(kind, shape, dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    of = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    rng = np.random.default_rng(11)
    executable = build(_module(kind, shape, dtype), LLVM)
    eps = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-7}[dtype]
    for content in (0.0, 1e3, 1e8 if dtype == "float64" else 1e4, "equal"):
        given = _data(rng, content, kind, shape, of)
        made = _run(executable, *given).astype("float64")
        np.testing.assert_allclose(made, _wanted(kind, *given), rtol=eps, atol=2 * eps, err_msg=str(content))


def _scheduled(kind, shape):
    """The one kernel of a normalisation, as it is legalised."""
    mod = relax.transform.LegalizeOps()(_module(kind, shape))
    (func,) = (f for f in mod.functions.values() if isinstance(f, tir.PrimFunc))
    return func


def _sums_block(sch):
    return next(b for b in sch.get_child_blocks(sch.get_block("root")) if sch.get(b).init is not None)


def _as_it_is(sch):
    pass


def _rfactored(sch):
    rv = _sums_block(sch)
    reduced = [i for i, iv in enumerate(sch.get(rv).iter_vars) if iv.iter_type == tir.IterVar.CommReduce]
    loops = [sch.get_loops(rv)[i] for i in reduced]
    fused = loops[0] if len(loops) == 1 else sch.fuse(*loops)
    _, inner = sch.split(fused, [None, 4])
    sch.rfactor(inner, 0)


def _decomposed(sch):
    rv = _sums_block(sch)
    loops = sch.get_loops(rv)
    sch.parallel(loops[0])
    sch.decompose_reduction(rv, loops[1])


def _by_default_rules(sch):
    with LLVM:
        return dlight.ApplyDefaultSchedule(*dlight.default_cpu_rules(LLVM))(sch.mod)["main"]


@pytest.mark.parametrize("schedule", [_as_it_is, _rfactored, _decomposed, _by_default_rules])
@pytest.mark.parametrize(("kind", "shape"), [("layer", (5, 96)), ("group", (2, 6, 4, 8)), ("instance", (2, 3, 8, 8))])
def test_scheduled_as_legalised(kind, shape, schedule):
    sch = Schedule(_scheduled(kind, shape).without_attr("tir.is_scheduled"))
    func = schedule(sch) or sch.mod["main"]
    kernel = build_tir(func.with_attr("tir.is_scheduled", True), LLVM)
    rng = np.random.default_rng(5)
    for content in CONTENTS:
        given = _data(rng, content, kind, shape)
        made = nd.array(np.full(shape, np.nan, "float32"))
        kernel(*(nd.array(a) for a in given), made)
        # A float32 mean has a rounding error of its own, which is felt where it is as large as what is normalised.
        mean = abs(content) if isinstance(content, float) else 0.0
        rounding = 1e-7 * (mean + 100 * _largest(kind, given[0]))
        np.testing.assert_allclose(made.numpy(), _wanted(kind, *given), rtol=2e-4, atol=rounding, err_msg=str(content))


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(
    ("kind", "shape"), [("layer", (4, 128)), ("layer", (3, 50)), ("group", (2, 4, 6, 8)), ("instance", (2, 2, 8, 8))]
)
def test_on_gpus(kind, shape, centred):
    cuda = target.Target({"kind": "cuda", "arch": "sm_80"})
    mod = relax.transform.LegalizeOps()(_module(kind, shape))
    if centred:
        mod = CenterVariances(for_device=True)(mod)
    with cuda:
        mod = dlight.ApplyDefaultSchedule(*dlight.default_gpu_rules(cuda))(mod)
    (func,) = (f for f in mod.functions.values() if isinstance(f, tir.PrimFunc))
    rng = np.random.default_rng(6)
    for content in (1e3, 1e4, "equal", "first"):
        given = _data(rng, content, kind, shape)
        made = np.full(shape, np.nan, "float32")
        emulate_cuda(func, *given, made, target=cuda)
        mean = abs(content) if isinstance(content, float) else 0.0
        rounding = 1e-7 * (mean + 300 * _largest(kind, given[0]))
        np.testing.assert_allclose(made, _wanted(kind, *given), rtol=2e-4, atol=rounding, err_msg=str(content))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_deviations_from_the_first_element(dtype):
    wanted = """@T.prim_func(private=True)
def main(x: T.Buffer((8, 96), "{0}"), y: T.Buffer((8, 96), "{0}")):
    T.func_attr({{"tir.noalias": True}})
    s = T.alloc_buffer((8,), "{0}")
    q = T.alloc_buffer((8,), "{0}")
    for i, k in T.grid(8, 96):
        with T.block("sums_mean"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(x[vi, 0:96])
            T.writes(s[vi])
            with T.init():
                s[vi] = T.{0}(0)
            s[vi] = s[vi] + (x[vi, vk] - x[vi, 0])
    for i, k in T.grid(8, 96):
        with T.block("sums"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(x[vi, 0:96], s[vi])
            T.writes(q[vi])
            with T.init():
                q[vi] = T.{0}(0)
            q[vi] = q[vi] + (x[vi, vk] - x[vi, 0] - s[vi] * T.{0}({1})) * (x[vi, vk] - x[vi, 0] - s[vi] * T.{0}({1}))
    for i, k in T.grid(8, 96):
        with T.block("y"):
            vi, vk = T.axis.remap("SS", [i, k])
            T.reads(x[vi, 0:96], s[vi], q[vi])
            T.writes(y[vi, vk])
            y[vi, vk] = (x[vi, vk] - x[vi, 0] - s[vi] * T.{0}({1})) * T.rsqrt(q[vi] / T.{0}(96) + T.{0}(1e-5))
"""
    made = center_variances(from_source(ROWS.format(dtype)))
    assert structural_equal(made, from_source(wanted.format(dtype, 1 / 96)), map_free_vars=True), made.script()


@pytest.mark.parametrize(
    ("old", "new", "form"),
    [
        # The mean of the output's own first row would be read after it is written.
        ('T.func_attr({"tir.noalias": True})', "pass", "float64"),
        ("y[vi, vk] = (x[vi, vk]", "x[vi, vk] = (x[vi, vk]", "float64"),
        # Not the mean of these elements.
        ("T.float32(96)", "T.float32(95)", None),
        # The sum is used in another way, too.
        ("+ T.float32(1e-5)", "+ s[vi]", None),
    ],
)
def test_what_is_not_rewritten_from_the_first_element(old, new, form):
    source = ROWS.format("float32")
    assert old in source
    func = from_source(source.replace(old, new))
    made = center_variances(func)
    assert (made is func) if form is None else (f'"{form}"' in made.script() and "0:96" not in made.script())


def test_centred_sums_stay_in_float32():
    for for_device in (False, True):
        made = center_variances(from_source(ROWS.format("float32")), for_device)
        assert exact_variances(made) is made


def test_a_variance_clamped_by_hand_is_exact_too():
    source = (
        ROWS.format("float32")
        .replace("T.rsqrt(", "T.rsqrt(T.max(")
        .replace("+ T.float32(1e-5)", ", T.float32(0)) + T.float32(1e-5)")
    )
    kernel = build_tir(from_source(source).with_attr("tir.is_scheduled", True), LLVM)
    x = (np.random.default_rng(8).standard_normal((8, 96)) + 1e4).astype("float32")
    made = nd.array(np.zeros((8, 96), "float32"))
    kernel(nd.array(x), made)
    ones = np.ones(96)
    np.testing.assert_allclose(made.numpy(), _wanted("layer", x, ones, 0 * ones), rtol=1e-3, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_normalisations(seed):
    rng = np.random.default_rng([seed, 21])
    kind = str(rng.choice(["layer", "group", "instance"]))
    shape = [int(n) for n in rng.integers(1, 40, rng.integers(2, 5) if kind == "layer" else rng.integers(3, 5))]
    if kind == "group":
        shape[1] *= 2
    symbolic = tuple(int(i) for i in range(len(shape)) if rng.random() < 0.3 and (kind == "layer" or i != 1))
    executable = build(_module(kind, shape, symbolic=symbolic), LLVM)
    for content in CONTENTS:
        given = _data(rng, content, kind, tuple(shape))
        made, rounding = _run(executable, *given), 1e-5 * _largest(kind, given[0])
        message = f"{kind} {shape} {symbolic} {content}"
        np.testing.assert_allclose(made, _wanted(kind, *given), rtol=2e-4, atol=rounding, err_msg=message)
