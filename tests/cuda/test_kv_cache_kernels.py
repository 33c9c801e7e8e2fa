"""The paged cache's GPU kernels against their CPU versions: the one interpreted, the other emulated (races are found)."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish.frontend.nn.llm import _page_kernels as pages
from relaxish.frontend.nn.llm import kv_cache as kv
from relaxish.interp import run_prim_func
from relaxish.target import Target

pytest.importorskip("llvmlite")
CUDA = Target("cuda", host="llvm")
HEADS, QUERIES, DIM, PAGE = 2, 4, 40, 4


def numbers(*shape, dtype="float16", seed=0):
    return np.random.default_rng(seed + len(shape)).standard_normal(shape).astype(dtype)


def ints(*values):
    return np.array(values, "int32")


def compare(on_cpu, on_gpu, args):
    """Run both on copies of the arguments; all arrays must end up the same."""
    from relaxish.testing import emulate_cuda

    mine, other = ([a.copy() for a in args] for _ in range(2))
    run_prim_func(on_cpu, mine)
    emulate_cuda(on_gpu.with_attr("global_symbol", "main"), *other, target=CUDA)
    for got, want in zip(other, mine):
        np.testing.assert_allclose(np.float64(got), np.float64(want), rtol=1e-2, atol=2e-3)
    changed = [i for i, (before, after) in enumerate(zip(args, mine)) if not np.array_equal(before, after)]
    assert changed  # something was computed


CACHE = numbers(5, 2, HEADS, PAGE, DIM)
PAGES = [ints(0, 2, 5), ints(3, 1, 0, 2, 4), ints(3, 2)]  # page_indptr, page_values, filling of the last page
ROPE = [np.float32(1.0), np.float32(10000.0), np.float32(DIM**-0.5)]


@pytest.mark.parametrize("mode", [0, 1])
def test_decode(mode):
    out, sums = np.zeros((2, QUERIES, DIM), "float16"), np.zeros((2, QUERIES), "float32")
    args = [numbers(2, QUERIES, DIM), CACHE, *PAGES, ints(0, 0), ints(6, 9), out, sums, np.int32(mode), *ROPE]
    compare(
        kv._attention_decode_cpu(HEADS, QUERIES, DIM, "float16", False, {}, page_size=PAGE),
        kv._attention_decode(HEADS, QUERIES, DIM, "float16", False, {}, CUDA, page_size=PAGE),
        args,
    )


@pytest.mark.slow
def test_decode_in_a_window():
    out, sums = np.zeros((2, QUERIES, DIM), "float16"), np.zeros((2, QUERIES), "float32")
    window = np.array([[3, 2], [1, 2], [1, 0]], "int32")  # filling, offset and sinks of each sequence
    args = [numbers(2, QUERIES, DIM), CACHE, *PAGES[:2], window, ints(0, 0), ints(6, 9), out, sums, np.int32(0), *ROPE]
    compare(
        kv._attention_decode_cpu(HEADS, QUERIES, DIM, "float16", True, {}, page_size=PAGE),
        kv._attention_decode(HEADS, QUERIES, DIM, "float16", True, {}, CUDA, page_size=PAGE),
        args,
    )


@pytest.mark.parametrize("causal", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_prefill(causal):
    rows = 5
    out, sums = np.zeros((rows, QUERIES, DIM), "float16"), np.zeros((rows, QUERIES), "float32")
    args = [
        numbers(rows, QUERIES, DIM), ints(0, 2, 5), CACHE, *PAGES, ints(0, 0), ints(5, 6, 7, 8, 9), out, sums,
        np.int32(causal), np.int32(0), *ROPE,
    ]  # fmt: skip
    compare(
        kv._attention_prefill_cpu(HEADS, QUERIES, DIM, "float16", False, {}, PAGE),
        kv._attention_prefill(HEADS, QUERIES, DIM, "float16", False, {}, CUDA, PAGE),
        args,
    )


@pytest.mark.slow
def test_ragged_prefill():
    rows = 5
    out, sums = np.zeros((rows, QUERIES, 24), "float16"), np.zeros((rows, QUERIES), "float32")
    args = [
        numbers(rows, QUERIES, DIM), ints(0, 2, 5), numbers(7, HEADS, DIM, seed=1), numbers(7, HEADS, 24, seed=2),
        ints(0, 3, 7), ints(1, 2, 1, 2, 3), ints(0, 0), out, sums, np.int32(1), np.int32(1), *ROPE,
    ]  # fmt: skip
    compare(
        kv._attention_prefill_ragged_cpu(HEADS, QUERIES, DIM, 24, "float16", {}),
        kv._attention_prefill_ragged(HEADS, QUERIES, DIM, 24, "float16", {}, CUDA),
        args,
    )


@pytest.mark.slow
def test_latent_prefill():
    rows, latent = 3, 48
    out, sums = np.zeros((rows, QUERIES, 32), "float16"), np.zeros((rows, QUERIES), "float32")
    args = [
        numbers(rows, QUERIES, latent), ints(0, 1, 3), numbers(5, PAGE, latent), *PAGES, out, sums, np.int32(1),
        np.float32(0.2),
    ]  # fmt: skip
    made = [kv._attention_prefill_mla(QUERIES, 32, 16, "float16", False, t, PAGE) for t in (Target("llvm"), CUDA)]
    compare(*made, args)


def test_merging_of_states():
    args = [numbers(3, QUERIES, DIM), numbers(3, QUERIES, dtype="float32"), numbers(3, QUERIES, DIM, seed=1),
            numbers(3, QUERIES, dtype="float32", seed=1)]  # fmt: skip
    compare(kv._merge_state_inplace_cpu("float16"), kv._merge_state_inplace(QUERIES, DIM, "float16", CUDA), args)


def test_appending():
    args = [CACHE, numbers(3, HEADS, DIM, seed=1), numbers(3, HEADS, DIM, seed=2), ints(2, -1, 17)]
    compare(pages.append(DIM, HEADS, "float16", PAGE), pages.append(DIM, HEADS, "float16", PAGE, True), args)


@pytest.mark.slow
def test_moving_pages():
    args = [CACHE, np.int64(1), np.int64(4), np.int64(3)]
    compare(
        kv._copy_single_page_cpu(HEADS, PAGE, DIM, "float16"),
        kv._copy_single_page(HEADS, PAGE, DIM, "float16", CUDA),
        args,
    )
    moves = np.array([[3, 5, 9], [2, 4, 8]], "int32")
    args = [CACHE, ints(0, 2, 3), moves, np.int32(2)]
    compare(
        kv._compact_kv_copy_cpu(HEADS, DIM, "float16", PAGE),
        kv._compact_kv_copy(HEADS, DIM, "float16", CUDA, PAGE),
        args,
    )


def made_cache(on_gpu):
    """A cache of one layer, and where it lives."""
    import relaxish
    from relaxish.runtime import ShapeTuple, get_global_func, nd

    target = CUDA if on_gpu else Target("llvm")
    device = relaxish.cuda() if on_gpu else relaxish.cpu()
    both = {True: (kv._attention_prefill_ragged, kv._attention_prefill, kv._attention_decode), False: (
        kv._attention_prefill_ragged_cpu, kv._attention_prefill_cpu, kv._attention_decode_cpu)}[on_gpu]  # fmt: skip
    last = (target,) if on_gpu else ()
    functions = {
        "append": pages.append(DIM, HEADS, "float32", PAGE, on_gpu),
        "ragged": both[0](HEADS, QUERIES, DIM, DIM, "float32", {}, *last),
        "prefill": both[1](HEADS, QUERIES, DIM, "float32", False, {}, *last, page_size=PAGE),
        "decode": both[2](HEADS, QUERIES, DIM, "float32", False, {}, *last, page_size=PAGE),
        "merge": kv._merge_state_inplace(QUERIES, DIM, "float32", target)
        if on_gpu
        else kv._merge_state_inplace_cpu("float32"),
        "rotary": kv.llama_rope_with_position_map(1e4, 1.0, DIM, QUERIES, HEADS, "float32", {}, threads=on_gpu),
    }
    f = {}
    for name, func in functions.items():
        f[name] = relaxish.compile(relaxish.IRModule({name: func.with_attr("global_symbol", name)}), target=target)[
            name
        ]
    none = ()
    cache = get_global_func("vm.builtin.paged_attention_kv_cache_create")(
        ShapeTuple([4, 64, 16, PAGE, 0]), ShapeTuple([0, 1]), QUERIES, HEADS, DIM, DIM, ShapeTuple([0]), 0, 1, 1.0, 1e4, 0,
        nd.empty((), "float32", device), f["append"], 0, ("tir", f["ragged"]), ("tir", f["prefill"]), ("tir", f["decode"]),
        none, none, none, none, none, (f["merge"],), f["rotary"], 0, 0, 0,
    )  # fmt: skip
    return cache, device


@pytest.mark.slow
def test_a_cache_on_a_gpu():
    from relaxish.runtime import ShapeTuple, get_global_func, nd
    from relaxish.runtime.nvidia import providers

    def builtin(name):
        return get_global_func("vm.builtin." + name)

    with providers.use("emulator"):
        caches = [made_cache(False), made_cache(True)]
        for cache, _ in caches:
            for seq in (0, 1):
                builtin("kv_state_add_sequence")(cache, seq)
        for counts in ((3, 5), (1, 1), (2, 1)):
            qkv = numbers(sum(counts), QUERIES + 2 * HEADS, DIM, dtype="float32", seed=sum(counts))
            outs = []
            for cache, device in caches:
                builtin("kv_state_begin_forward")(cache, ShapeTuple([0, 1]), ShapeTuple(counts))
                out = nd.empty((sum(counts), QUERIES, DIM), "float32", device)
                builtin("attention_kv_cache_attention_with_fused_qkv")(cache, 0, DIM**-0.5, nd.array(qkv, device), out)
                builtin("kv_state_end_forward")(cache)
                outs.append(out.numpy())
            np.testing.assert_allclose(outs[1], outs[0], rtol=1e-3, atol=1e-4)
