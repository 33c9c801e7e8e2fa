"""Softmax and norms of contiguous rows: each thread moves 16 bytes at a time, sums are float32, every input is read once."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import relaxish
from relaxish import dlight, relax, tir
from relaxish.backend.common import stages
from relaxish.backend.cuda.compile import nvrtc, sass
from relaxish.dlight.gpu import WideRows
from relaxish.target import Target
from relaxish.testing import emulate_cuda, use_cuda_provider
from relaxish.tir.transform.base import StmtExprMutator

TARGET = Target("nvidia/nvidia-h100", host="llvm")
needs_tools = pytest.mark.skipif(
    not (sass.available() and nvrtc.available()), reason="no compiler or no disassembler (the triton package has one)"
)
needs_compiler = pytest.mark.skipif(not nvrtc.available(), reason="neither NVRTC nor nvcc is installed")
NUMPY = {"bfloat16": ml_dtypes.bfloat16}


def graph(shapes, emit, dtype="float16"):
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(shape, dtype)) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(emit(*params)))
        builder.emit_func_output(out)
    return builder.get()


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x, gamma, beta):
    mean, var = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-5) * gamma + beta


def rms_norm(x, gamma):
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5) * gamma


nn = relax.op.nn
CASES = {
    "softmax": (lambda n: [n], lambda x: nn.softmax(x, axis=-1), softmax),
    "log_softmax": (lambda n: [n], lambda x: nn.log_softmax(x, axis=-1), lambda x: np.log(softmax(x))),
    "layer_norm": (lambda n: [n, n[-1:], n[-1:]], lambda x, g, b: nn.layer_norm(x, g, b, axes=[-1], epsilon=1e-5), layer_norm),
    "rms_norm": (lambda n: [n, n[-1:]], lambda x, g: nn.rms_norm(x, g, axes=[-1], epsilon=1e-5), rms_norm),
}  # fmt: skip


def scheduled(mod, rule=None):
    """The one kernel of a module as the default pipeline schedules it, or by one rule."""
    rules = dlight.default_gpu_rules(TARGET) if rule is None else [rule]
    with TARGET:
        mod = stages.with_wide_sums(dlight.ApplyDefaultSchedule(*rules))(relax.transform.LegalizeOps()(mod))
    [func] = [f for f in mod.functions.values() if isinstance(f, tir.PrimFunc)]
    return func


def is_wide(func):
    return "T.vectorized" in func.script() and 'scope="local"' in func.script()


def check(name, shape, dtype, seed=0):
    shapes, emit, reference = CASES[name]
    func = scheduled(graph(shapes(shape), emit, dtype))
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(s).astype(NUMPY.get(dtype, dtype)) for s in shapes(shape)]
    output = np.zeros(shape, NUMPY.get(dtype, dtype))
    emulate_cuda(func, *inputs, output, target=TARGET, check=True)
    wanted = reference(*[x.astype("float64") for x in inputs])
    error = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype] * max(1.0, np.abs(wanted).max())
    np.testing.assert_allclose(output.astype("float64"), wanted, atol=error, rtol=0)
    return func


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "shape, dtype, block, lanes",
    [
        ((3, 4096), "float16", 256, 8),
        ((2, 1000), "bfloat16", 128, 8),  # 125 threads have a vector
        ((8, 64), "float16", 8, 8),  # rows that share a block
        ((2, 3, 2, 96), "float32", 24, 4),
        ((2, 4104), "float32", 544, 4),  # the last threads have one vector of two, or none
        ((2, 16), "float16", 2, 8),
        ((1, 1, 2048), "float16", 256, 8),  # one row
    ],
)
def test_rows(name, shape, dtype, block, lanes):
    func = check(name, shape, dtype)
    text = func.script()
    assert is_wide(func) and f"T.vectorized(T.int64({lanes}))" in text
    assert set(re.findall(r'T\.thread_binding\(T\.int64\((\d+)\), thread="threadIdx.x"\)', text)) == {str(block)}


@pytest.mark.parametrize(
    "shape, together", [((8, 64), 8), ((6, 64), 2), ((7, 64), 1), ((64, 128), 16), ((2, 2048), 1), ((64, 2048), 1)]
)
def test_short_rows_share_a_block(shape, together):
    text = scheduled(graph([shape], CASES["softmax"][1])).script()
    rows = re.findall(r'T\.thread_binding\(T\.int64\((\d+)\), thread="threadIdx.y"\)', text)
    assert rows == ([str(together)] if together > 1 else [])


@pytest.mark.parametrize("shape, dtype", [((4, 1001), "float16"), ((4, 4), "float32"), ((2, 1 << 20), "float16")])
def test_other_rows_are_left_alone(shape, dtype):
    """Rows of no whole vectors, of one, and rows that do not fit registers."""
    assert not is_wide(scheduled(graph([shape], CASES["softmax"][1], dtype)))


def test_rows_that_do_not_lie_together():
    columns = graph([(64, 128)], lambda x: nn.softmax(x, axis=0))
    assert not is_wide(scheduled(columns))
    func = scheduled(columns)
    x = np.random.default_rng(1).standard_normal((64, 128)).astype("float16")
    out = np.zeros_like(x)
    emulate_cuda(func, x, out, target=TARGET, check=True)
    np.testing.assert_allclose(out.astype("float64"), softmax(x.astype("float64").T).T, atol=1e-3)


def test_other_targets_and_rules_keep_their_form():
    mod = graph([(64, 4096)], CASES["softmax"][1])
    with TARGET:
        func = next(
            iter(f for f in relax.transform.LegalizeOps()(mod).functions.values() if isinstance(f, tir.PrimFunc))
        )
    assert WideRows().apply(func, Target("opencl"), False) is None
    assert WideRows().apply(func, TARGET, False) is not None
    assert "T.vectorized" not in scheduled(mod, dlight.gpu.GeneralReduction()).script()


class _Loads(StmtExprMutator):
    """Counts what is read of each buffer."""

    def __init__(self):
        self.found = []

    def visit_BufferLoad(self, load):
        self.found.append(load.buffer.name)
        return self.default_visit(load)


def test_every_input_is_read_once():
    func = scheduled(graph(CASES["layer_norm"][0]((8, 4096)), CASES["layer_norm"][1]))
    loads = _Loads()
    loads.visit(func.body)
    assert sorted(name for name in loads.found if name in ("x0", "x1", "x2")) == ["x0", "x1", "x2"]


def test_fused_scores():
    """What comes before and after is computed on the way: scaled scores with a mask of each column."""

    def emit(x, mask):
        return relax.op.multiply(nn.softmax(relax.op.add(relax.op.multiply(x, relax.const(0.125, "float16")), mask)), x)

    mod = graph([(2, 3, 16, 128), (2, 1, 1, 128)], emit)
    rng = np.random.default_rng(3)
    x, mask = (rng.standard_normal(s).astype("float16") for s in ((2, 3, 16, 128), (2, 1, 1, 128)))
    with use_cuda_provider("emulator"):
        built = relaxish.build(mod, target=TARGET)
        text = built.mod.imported_modules[0].imported_modules[0].get_source("cu")
        made = relax.VirtualMachine(built, relaxish.cuda(0))["main"](
            *(relaxish.nd.array(a, relaxish.cuda(0)) for a in (x, mask))
        ).numpy()
    assert "load<Vec<__half, 8>>" in text
    wanted = softmax(x.astype("float64") * 0.125 + mask) * x
    np.testing.assert_allclose(made.astype("float64"), wanted, atol=5e-3 * np.abs(wanted).max())


def test_any_number_of_rows():
    mod = graph([(tir.Var("n", "int64"), 256)], CASES["softmax"][1])
    with use_cuda_provider("emulator"):
        machine = relax.VirtualMachine(relaxish.build(mod, target=TARGET), relaxish.cuda(0))
        for n in (1, 5, 0):
            x = np.random.default_rng(n).standard_normal((n, 256)).astype("float16")
            made = machine["main"](relaxish.nd.array(x, relaxish.cuda(0))).numpy()
            np.testing.assert_allclose(made, softmax(x.astype("float64")) if n else x, atol=1e-3)
    assert is_wide(scheduled(mod))


def source(mod):
    with TARGET:
        [module] = relaxish.compile(mod, TARGET, relax_pipeline=relax.get_default_pipeline(TARGET)).device_modules
    return module.get_source("cu")


@pytest.mark.parametrize("name", CASES)
def test_sums_are_wide(name):
    """Nothing is summed up in float16."""
    text = source(graph(CASES[name][0]((64, 4096)), CASES[name][1]))
    body = text[text.index('extern "C"') :]
    shared = re.findall(r"__shared__ (?:__align__\(\d+\) )?(\S+)", body)
    assert shared and set(shared) == {"float"}
    assert not re.search(r"__half (red_buf|in_thread|t0)", body)


@needs_tools
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_machine_code(name, dtype):
    """Global memory in pieces of 16 bytes, everything in registers."""
    image = nvrtc.compile_image(source(graph(CASES[name][0]((4096, 4096)), CASES[name][1], dtype)), "sm_90a", "cubin")
    for used in image.resources().values():
        assert not used.spills and used.stack_bytes == 0 and used.registers <= 128, used
    found = sass.sass_instructions(image.data)
    loads = {n: c for n, c in found.items() if n.startswith("LDG")}
    stores = {n: c for n, c in found.items() if n.startswith("STG")}
    per_thread = {"float16": 2, "float32": 2}[dtype]
    assert all(".128" in n for n in (*loads, *stores)), (loads, stores)
    assert sum(loads.values()) == per_thread * len(CASES[name][0]((4096, 4096)))
    assert sum(stores.values()) == per_thread
