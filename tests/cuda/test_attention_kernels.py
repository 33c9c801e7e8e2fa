"""Attention kernels in the emulator against NumPy, and what they take of a multiprocessor."""

from __future__ import annotations

import numpy as np
import pytest
from attention_problems import error, expected, inputs, problem

from relaxish.backend.cuda.compile import nvrtc, sass
from relaxish.backend.cuda.attention.combine import combine_kernel
from relaxish.backend.cuda.attention.kernel import attention_kernel
from relaxish.backend.cuda.attention.tiling import Tiling, choose_tiling
from relaxish.backend.cuda.build import lower_for_device
from relaxish.backend.cuda.codegen.printer import cuda_source
from relaxish.ir import IRModule
from relaxish.target import Target
from relaxish.testing import emulate_cuda

A100, H100 = Target("nvidia/nvidia-a100", host="llvm"), Target("nvidia/nvidia-h100", host="llvm")

QUICK = {
    "ragged rows, keys and columns": (problem(1, 33, 70, 2, 40), Tiling(2, 1, 1, 32, 2)),
    "causal, one stage": (problem(1, 50, 50, 1, 64, causal="TopLeft"), Tiling(2, 2, 1, 32, 1)),
    "groups, warps share keys": (problem(1, 5, 100, 4, 48, 24, group=2), Tiling(1, 1, 4, 64, 2)),
    "bias in bfloat16": (
        problem(1, 20, 66, 2, 32, bias=((1, 2, 20, 66), "bfloat16"), dtype="bfloat16"), Tiling(2, 1, 1, 64, 1),
    ),
    "window": (problem(1, 70, 90, 1, 32, causal="BottomRight", window=24), Tiling(2, 1, 1, 32, 2)),
    "bias repeated for rows": (problem(2, 17, 65, 1, 32, bias=((2, 1, 1, 65), "float32")), Tiling(1, 1, 2, 64, 2)),
}  # fmt: skip
SLOW = {
    "one tile": (problem(1, 16, 16, 1, 16), Tiling(1, 1, 1, 32, 2)),
    "later corner": (problem(1, 30, 50, 2, 64, causal="BottomRight"), Tiling(2, 1, 1, 32, 2)),
    "later corner, more queries": (problem(1, 50, 30, 1, 32, causal="BottomRight"), Tiling(1, 1, 1, 32, 2)),
    "causal, warps share keys": (problem(1, 20, 100, 2, 64, causal="TopLeft"), Tiling(1, 1, 4, 128, 2)),
    "causal groups": (problem(1, 20, 40, 6, 32, group=3, causal="TopLeft"), Tiling(2, 1, 1, 32, 2)),
    "window, warps share keys": (problem(1, 20, 150, 2, 32, causal="BottomRight", window=9), Tiling(1, 1, 4, 64, 2)),
    "window of one key": (problem(1, 40, 40, 2, 32, causal="TopLeft", window=1), Tiling(1, 1, 1, 32, 1)),
    "window of groups": (problem(1, 30, 70, 4, 32, group=2, causal="TopLeft", window=17), Tiling(2, 2, 1, 32, 2)),
    "window wider than keys": (problem(1, 40, 40, 1, 32, causal="TopLeft", window=100), Tiling(2, 1, 1, 32, 2)),
    "queries read again": (problem(1, 20, 64, 1, 160), Tiling(1, 2, 1, 32, 1)),
    "256 columns": (problem(1, 20, 64, 1, 256), Tiling(1, 1, 1, 32, 2)),
    "short words": (problem(1, 20, 64, 1, 20, 12), Tiling(1, 2, 1, 32, 1)),
    "bias of groups": (problem(2, 9, 66, 4, 32, group=2, bias=((1, 4, 9, 66), "float16")), Tiling(1, 2, 1, 64, 2)),
    "bfloat16": (problem(2, 40, 90, 2, 64, dtype="bfloat16", causal="TopLeft"), Tiling(2, 1, 2, 64, 2)),
}


def tolerance(dtype: str) -> float:
    """Weights and results are rounded to the type."""
    return 2e-3 if dtype == "float16" else 2e-2


@pytest.mark.parametrize("name", QUICK)
def test_kernels_agree_with_numpy(name):
    p, tiling = QUICK[name]
    assert error(p, tiling) < tolerance(p.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_kernels_agree_with_numpy(name):
    p, tiling = SLOW[name]
    assert error(p, tiling, seed=1) < tolerance(p.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_problems(seed):
    rng = np.random.default_rng(seed)
    group = int(rng.integers(1, 4))
    p = problem(
        int(rng.integers(1, 3)), int(rng.integers(1, 150)), int(rng.integers(1, 300)), group * int(rng.integers(1, 3)),
        4 * int(rng.integers(4, 33)), group=group, causal=[None, "TopLeft", "BottomRight"][int(rng.integers(3))],
        dtype=["float16", "bfloat16"][int(rng.integers(2))],
    )  # fmt: skip
    tiling = choose_tiling(p, [A100, H100][seed % 2])
    assert tiling is not None
    assert error(p, tiling, seed) < tolerance(p.dtype)


def test_masks_of_minus_infinity_leave_no_nan():
    p = problem(1, 3, 40, 1, 32, bias=((1, 1, 3, 40), "float32"))
    q, k, v, bias = inputs(p)
    bias[...] = np.where(np.arange(40) % 3 == np.arange(3)[:, None], 0, -np.inf)
    out = np.zeros(p.out.shape, "float16")
    emulate_cuda(attention_kernel(p, Tiling(1, 1, 2, 64, 2)), q, k, v, bias, out)
    assert np.abs(out - expected(q, k, v, p.scale, bias)).max() < 2e-3


def test_rows_that_see_no_key_are_zero():
    """By one kernel, and by parts of the keys put together."""
    p = problem(1, 3, 40, 1, 32, bias=((1, 1, 3, 40), "float32"))
    q, k, v, bias = inputs(p)
    bias[0, 0, 1] = -np.inf
    bias[0, 0, 2, 7:] = -np.inf
    want = expected(q, k, v, p.scale, np.where(np.arange(3)[:, None] == 1, 0, bias))
    want[:, 1] = 0
    out = np.ones(p.out.shape, "float16")
    emulate_cuda(attention_kernel(p, Tiling(1, 1, 2, 64, 2)), q, k, v, bias, out)
    assert np.abs(out - want).max() < 2e-3
    tiling = Tiling(1, 1, 4, 64, 2, parts=2)
    sums, logarithms = (np.zeros(s, "float32") for s in ((2, 1, 1, 3, 32), (2, 1, 1, 3)))
    emulate_cuda(attention_kernel(p, tiling), q, k, v, bias, sums, logarithms)
    emulate_cuda(combine_kernel(p, tiling), sums, logarithms, out)
    assert np.abs(out - want).max() < 2e-3


def test_parts_of_the_keys_are_put_together():
    p, tiling = problem(1, 1, 300, 4, 32, group=2), Tiling(1, 1, 4, 64, 2, parts=4)  # the last part has no keys
    q, k, v = inputs(p)
    sums, logarithms = np.zeros((4, 1, 2, 2, 32), "float32"), np.zeros((4, 1, 2, 2), "float32")
    emulate_cuda(attention_kernel(p, tiling), q, k, v, sums, logarithms)
    assert np.isneginf(logarithms[3]).all() and np.isfinite(sums).all()
    out = np.zeros(p.out.shape, "float16")
    emulate_cuda(combine_kernel(p, tiling), sums, logarithms, out)
    assert np.abs(out - expected(q, k, v, p.scale)).max() < 2e-3


def test_tilings_fill_the_device():
    assert choose_tiling(problem(4, 1024, 1024, 16, 64), H100) == Tiling(4, 2, 1, 64, 2)
    bert = choose_tiling(problem(1, 128, 128, 12, 64), H100)
    assert bert is not None and (bert.rows, bert.parts) == (16, 1)  # 96 blocks for 132 multiprocessors
    step = choose_tiling(problem(1, 1, 4096, 32, 128, group=4), H100)
    assert step is not None and step.parts == 16
    wide = problem(4, 1024, 1024, 16, 512)
    assert choose_tiling(wide, H100) is None
    for p in (problem(4, 1024, 1024, 16, d) for d in (32, 64, 96, 128, 192, 256)):
        for target, limit in ((A100, 163 * 1024), (H100, 227 * 1024)):
            tiling = choose_tiling(p, target)
            assert tiling is not None and tiling.shared_bytes(p) <= limit


COMPILED = {
    "64 columns": problem(4, 1024, 1024, 16, 64),
    "64 columns, causal": problem(4, 1024, 1024, 16, 64, causal="TopLeft"),
    "128 columns": problem(4, 1024, 1024, 16, 128),
    "256 columns": problem(4, 1024, 1024, 16, 256),
    "few rows": problem(1, 128, 128, 12, 64, bias=((1, 1, 128, 128), "float32")),
    "a step of a decoder": problem(1, 1, 4096, 32, 128, group=4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize(("arch", "target"), [("sm_80", A100), ("sm_90a", H100)])
def test_machine_code_has_tensor_cores_and_no_spills(name, arch, target):
    if not nvrtc.available():
        pytest.skip("no compiler for CUDA")
    p = COMPILED[name]
    tiling = choose_tiling(p, target)
    assert tiling is not None
    _, device = lower_for_device(IRModule({"attention": attention_kernel(p, tiling)}), target)
    source = cuda_source(device)
    used = nvrtc.kernel_resources(source, arch)["attention_kernel"]
    assert used.stack_bytes == used.spill_store_bytes == used.spill_load_bytes == 0
    assert used.registers <= 255
    if not sass.available():
        pytest.skip("no disassembler")
    counts = sass.mnemonics(sass.sass_instructions(nvrtc.compile_cubin(source, arch)))
    products = tiling.row_tiles * tiling.keys // tiling.key_warps * (p.size + p.value_size) // 128
    assert counts["HMMA"] == products and counts["LDSM"] > 0 and counts["LDGSTS"] > 0
    assert counts["LDL"] == counts["STL"] == 0
