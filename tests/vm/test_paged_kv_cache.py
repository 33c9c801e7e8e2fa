"""The paged key-value cache with its CPU kernels, against attention in NumPy: all histories, positions and trees."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish.relax.frontend.nn.llm import kv_cache as kv
from relaxish.relax.frontend.nn.llm.kv_cache import RopeMode
from relaxish.runtime import ShapeTuple, get_global_func, nd

pytest.importorskip("llvmlite")
LAYERS, HEADS, KV_HEADS, DIM, PAGE = 2, 6, 2, 32, 16
SCALE = DIM**-0.5
NONE = ()


def builtin(name):
    return get_global_func("vm.builtin." + name)


@pytest.fixture(scope="module")
def kernels():
    functions = {
        "append": kv._kv_cache_transpose_append(KV_HEADS, DIM, "float32"),
        "ragged": kv._attention_prefill_ragged_cpu(KV_HEADS, HEADS, DIM, DIM, "float32", {}),
        "prefill": kv._attention_prefill_cpu(KV_HEADS, HEADS, DIM, "float32", False, {}),
        "decode": kv._attention_decode_cpu(KV_HEADS, HEADS, DIM, "float32", False, {}),
        "prefill_sliding": kv._attention_prefill_cpu(KV_HEADS, HEADS, DIM, "float32", True, {}),
        "decode_sliding": kv._attention_decode_cpu(KV_HEADS, HEADS, DIM, "float32", True, {}),
        "tree_paged": kv.tree_attn_with_paged_kv_cache_cpu(KV_HEADS, HEADS, DIM, "float32", {}),
        "tree": kv.tree_attn_cpu(KV_HEADS, HEADS, DIM, "float32", {}),
        "merge": kv._merge_state_inplace_cpu("float32"),
        "rotary": kv.llama_rope_with_position_map(1e4, 1.0, DIM, HEADS, KV_HEADS, "float32", {}),
        "copy": kv._copy_single_page_cpu(KV_HEADS, PAGE, DIM, "float32"),
        "debug": kv._kv_cache_debug_get_kv(LAYERS, KV_HEADS, DIM, "float32"),
        "compact": kv._compact_kv_copy_cpu(KV_HEADS, DIM, "float32"),
    }
    return {name: relaxish.tir.build(f, "llvm").entry_func for name, f in functions.items()}


def rotate(x, positions):
    """Rows (n, heads, DIM) turned by their positions."""
    d = np.arange(DIM)
    angle = positions[:, None] / 1e4 ** ((2 * d % DIM) / DIM)
    partner = np.concatenate([-x[..., DIM // 2 :], x[..., : DIM // 2]], -1)
    return x * np.cos(angle)[:, None] + partner * np.sin(angle)[:, None]


class Model:
    """A cache beside plain lists of every sequence's keys and values."""

    def __init__(self, kernels, rope=RopeMode.NONE, sliding=False, tokens=1024, trees=("tree_paged", "tree")):
        f = kernels
        self.cache = builtin("paged_attention_kv_cache_create")(
            ShapeTuple([8, tokens, 256, PAGE, int(sliding)]), ShapeTuple([0, LAYERS]), HEADS, KV_HEADS, DIM, DIM,
            ShapeTuple([0] * LAYERS), 0, int(rope), 1.0, 1e4, 0, nd.empty((), "float32"), f["append"], 0,
            ("tir", f["ragged"]), ("tir", f["prefill"]), ("tir", f["decode"]), ("tir", f["prefill_sliding"]),
            ("tir", f["decode_sliding"]), ("tir", f[trees[0]]), ("tir", f[trees[1]]), NONE, (f["merge"],), f["rotary"],
            f["copy"], f["debug"], f["compact"],
        )  # fmt: skip
        self.rope = rope
        self.inline = rope == RopeMode.INLINE or (sliding and rope != RopeMode.NONE)
        self.known: dict[int, list] = {}  # sequence -> one (k, v) for each layer
        self.windows: dict[int, tuple[int, int]] = {}
        self.rng = np.random.default_rng(3)

    def add(self, seq):
        builtin("kv_state_add_sequence")(self.cache, seq)
        self.known[seq] = [(np.zeros((0, KV_HEADS, DIM), "float32"),) * 2 for _ in range(LAYERS)]

    def forward(self, batch, trees=None):
        """Attend with random data; ``batch`` is (sequence, new tokens)...; compares every layer."""
        seqs, counts = [b[0] for b in batch], [b[1] for b in batch]
        flat = None if trees is None else ShapeTuple([p for t in trees for p in t])
        extra = () if flat is None else (flat,)
        builtin("kv_state_begin_forward")(self.cache, ShapeTuple(seqs), ShapeTuple(counts), *extra)
        parents = trees or [list(range(-1, n - 1)) for n in counts]
        depths = [np.array([len(path(t, i)) - 1 for i in range(len(t))]) for t in parents]
        starts = [len(self.known[s][0][0]) for s in seqs]
        want_positions = np.concatenate([s + d for s, d in zip(starts, depths)])
        got = builtin("attention_kv_cache_get_query_positions")(self.cache)
        np.testing.assert_array_equal(got.numpy(), want_positions)
        for layer in range(LAYERS):
            qkv = self.rng.standard_normal((sum(counts), HEADS + 2 * KV_HEADS, DIM)).astype("float32")
            out = nd.empty((sum(counts), HEADS, DIM))
            builtin("attention_kv_cache_attention_with_fused_qkv")(self.cache, layer, SCALE, nd.array(qkv), out)
            want = self._reference(layer, qkv, seqs, counts, parents, starts, depths)
            np.testing.assert_allclose(out.numpy(), want, rtol=2e-4, atol=2e-5)
        builtin("kv_state_end_forward")(self.cache)
        self._slide(seqs)
        if trees is None:
            self.verify()

    def _reference(self, layer, qkv, seqs, counts, parents, starts, depths):
        at, outs = 0, []
        for seq, count, tree, start, depth in zip(seqs, counts, parents, starts, depths):
            rows = qkv[at : at + count]
            at += count
            q, k, v = rows[:, :HEADS], rows[:, HEADS : HEADS + KV_HEADS], rows[:, HEADS + KV_HEADS :]
            if self.rope == RopeMode.NORMAL and not self.inline:
                q, k = rotate(q, start + depth), rotate(k, start + depth)
            old_k, old_v = self.known[seq][layer]
            keys, values = np.concatenate([old_k, k]), np.concatenate([old_v, v])
            self.known[seq][layer] = keys.astype("float32"), values
            if self.inline:
                q, keys = rotate(q, start + depth), rotate(keys, np.arange(len(keys)))
            seen = np.zeros((count, len(keys)), bool)
            seen[:, :start] = True
            for i in range(count):
                seen[i, [start + n for n in path(tree, i)]] = True
            group = HEADS // KV_HEADS
            scores = np.einsum("ihd,jhd->hij", q, np.repeat(keys, group, 1)) * SCALE
            scores = np.where(seen, scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            outs.append(np.einsum("hij,jhd->ihd", weights, np.repeat(values, group, 1)))
        return np.concatenate(outs)

    def _slide(self, seqs):
        for seq in seqs:
            if seq in self.windows:
                size, sink = self.windows[seq]
                self.known[seq] = [
                    tuple(np.concatenate([x[:sink], x[sink + max(0, len(x) - size) :]]) for x in pair)
                    for pair in self.known[seq]
                ]

    def verify(self):
        """What is stored is what went in."""
        for seq, layers in self.known.items():
            count = len(layers[0][0])
            if not count:
                continue
            k, v = (nd.empty((LAYERS, count, KV_HEADS, DIM)) for _ in range(2))
            builtin("attention_kv_cache_debug_get_kv")(self.cache, seq, 0, count, k, v)
            np.testing.assert_allclose(k.numpy(), np.stack([x for x, _ in layers]), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(v.numpy(), np.stack([x for _, x in layers]), rtol=1e-6)
        total = sum(len(layers[0][0]) for layers in self.known.values())
        assert builtin("attention_kv_cache_get_total_sequence_length")(self.cache) == total

    def fork(self, parent, child, position=-1):
        builtin("kv_state_fork_sequence")(self.cache, parent, child, position)
        cut = None if position < 0 else position
        self.known[child] = [(k[:cut], v[:cut]) for k, v in self.known[parent]]
        self.verify()

    def pop(self, seq, count):
        builtin("kv_state_popn")(self.cache, seq, count)
        self.known[seq] = [(k[: len(k) - count], v[: len(v) - count]) for k, v in self.known[seq]]
        self.verify()

    def remove(self, seq):
        builtin("kv_state_remove_sequence")(self.cache, seq)
        del self.known[seq]

    def free(self):
        return builtin("attention_kv_cache_get_num_available_pages")(self.cache)


def path(tree, node):
    nodes = []
    while node >= 0:
        nodes.append(node)
        node = tree[node]
    return nodes[::-1]


@pytest.mark.parametrize("rope", list(RopeMode))
def test_prefill_and_decode(kernels, rope):
    model = Model(kernels, rope)
    for seq in range(3):
        model.add(seq)
    model.forward([(0, 7)])
    model.forward([(1, 33), (2, 16)])
    for _ in range(3):
        model.forward([(0, 1), (2, 1), (1, 1)])
    model.forward([(2, 5), (0, 20)])
    model.forward([(1, 1)])


def test_fork_pop_and_remove(kernels):
    model = Model(kernels, RopeMode.NORMAL, tokens=20 * PAGE)
    assert builtin("attention_kv_cache_empty")(model.cache) and model.free() == 20
    model.add(0)
    model.forward([(0, 40)])
    assert model.free() == 17
    model.fork(0, 1)
    model.fork(0, 2, 18)
    model.fork(1, 3, 32)
    assert model.free() == 15  # sequences 1 and 2 each own one page, 3 shares all of its two
    model.forward([(0, 1), (1, 1), (2, 1), (3, 1)])
    model.forward([(3, 9), (1, 3)])
    model.pop(1, 20)
    model.pop(0, 1)
    model.forward([(1, 4), (0, 1)])
    for seq in (0, 2, 1):
        model.remove(seq)
        model.verify()
    model.forward([(3, 2)])
    builtin("kv_state_clear")(model.cache)
    assert builtin("attention_kv_cache_empty")(model.cache) and model.free() == 20


def test_sliding_window_with_and_without_sink(kernels):
    for rope in (RopeMode.NONE, RopeMode.NORMAL):
        model = Model(kernels, rope, sliding=True)
        for seq, window in ((0, (20, 3)), (1, (25, 0)), (2, (40, 18))):
            model.add(seq)
            builtin("attention_kv_cache_enable_sliding_window_for_seq")(model.cache, seq, *window)
            model.windows[seq] = window
        model.forward([(0, 30), (1, 10), (2, 21)])
        for _ in range(24):
            model.forward([(0, 1), (1, 1), (2, 1)])
        model.forward([(1, 40), (0, 9), (2, 30)])
        model.forward([(2, 1), (0, 2)])
        used = builtin("attention_kv_cache_get_num_available_pages")(model.cache)
        assert used > 64  # the window's pages only


@pytest.mark.parametrize("order", [("tree_paged", "tree"), ("tree", "tree_paged")])
def test_token_trees(kernels, order):
    model = Model(kernels, RopeMode.NORMAL, trees=order)
    model.add(0)
    model.add(1)
    model.forward([(0, 14), (1, 3)])
    trees = [[-1, 0, 0, 1, 1, 2, 4], [-1, 0, 1]]
    model.forward([(0, 7), (1, 3)], trees)
    with pytest.raises(RuntimeError, match="has not been committed"):
        builtin("kv_state_begin_forward")(model.cache, ShapeTuple([0]), ShapeTuple([1]))
    leaves = [6, 1]
    builtin("attention_kv_cache_commit_accepted_token_tree_nodes")(model.cache, ShapeTuple([0, 1]), ShapeTuple(leaves))
    for seq, tree, leaf in zip((0, 1), trees, leaves):
        start = len(model.known[seq][0][0]) - len(tree)
        rows = [*range(start), *(start + n for n in path(tree, leaf))]
        model.known[seq] = [(k[rows], v[rows]) for k, v in model.known[seq]]
    model.verify()
    model.forward([(0, 1), (1, 1)])
    model.forward([(0, 3)], [[-1, 0, 0]])
    builtin("attention_kv_cache_commit_accepted_token_tree_nodes")(model.cache, ShapeTuple([0]), ShapeTuple([-1]))
    model.known[0] = [(k[:-3], v[:-3]) for k, v in model.known[0]]
    model.verify()


def test_errors(kernels):
    model = Model(kernels, tokens=2 * PAGE)
    model.add(0)
    call = {
        r"already in the KV cache": lambda: builtin("kv_state_add_sequence")(model.cache, 0),
        r'"5" cannot be found': lambda: builtin("kv_state_remove_sequence")(model.cache, 5),
        r"parent sequence .5. cannot": lambda: builtin("kv_state_fork_sequence")(model.cache, 5, 6),
        r"should not exceed the total length": lambda: builtin("kv_state_fork_sequence")(model.cache, 0, 6, 3),
        r"only has length 0": lambda: builtin("kv_state_popn")(model.cache, 0, 1),
        r"mismatch": lambda: builtin("kv_state_begin_forward")(model.cache, ShapeTuple([0]), ShapeTuple([1, 2])),
        r"length 0": lambda: builtin("kv_state_begin_forward")(model.cache, ShapeTuple([0]), ShapeTuple([0])),
        r"No page can be allocated": lambda: builtin("kv_state_begin_forward")(
            model.cache, ShapeTuple([0]), ShapeTuple([33])),
        r"sliding window": lambda: builtin("attention_kv_cache_enable_sliding_window_for_seq")(model.cache, 0, 4, 1),
        r"28": lambda: builtin("paged_attention_kv_cache_create")(1, 2),
    }  # fmt: skip
    for text, action in call.items():
        with pytest.raises(RuntimeError, match=text):
            action()


def test_merged_self_and_cross_attention_is_attention_over_both(kernels):
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((5, HEADS, DIM)).astype("float32") for _ in range(2)]
    sums = [rng.standard_normal((5, HEADS)).astype("float32") for _ in range(2)]
    v, s, v2, s2 = (nd.array(x) for x in (parts[0], sums[0], parts[1], sums[1]))
    kernels["merge"](v, s, v2, s2)
    weights = np.exp2(np.stack(sums))
    total = weights.sum(0)
    np.testing.assert_allclose(s.numpy(), np.log2(total), rtol=1e-5, atol=1e-6)
    want = (parts[0] * weights[0][..., None] + parts[1] * weights[1][..., None]) / total[..., None]
    np.testing.assert_allclose(v.numpy(), want, rtol=1e-5, atol=1e-6)


def test_a_sequence_moves_to_another_cache(kernels):
    from relaxish.runtime.caches.kv_transfer import compressed, expanded

    sender, receiver = Model(kernels), Model(kernels)
    get_global_func("relaxish.kv_transfer.register_receiver")(7, receiver.cache)
    receiver.add(1)
    receiver.forward([(1, 5)])  # so that places differ
    sender.add(0)
    sender.forward([(0, 20)])
    receiver.add(2)
    places = builtin("kv_cache_disagg_prepare_recv")(receiver.cache, 2, 27)
    assert expanded(places).tolist() == expanded(compressed(expanded(places).tolist())).tolist()
    builtin("kv_cache_disagg_mark_send")(sender.cache, 0, 3, places, 7)  # 17 tokens now, 10 with what comes
    sender.forward([(0, 6)])
    sender.forward([(0, 9)])  # more than there is room for
    receiver.known[2] = [tuple(x[3:30] for x in layer) for layer in sender.known[0]]
    receiver.forward([(2, 4), (1, 2)])  # attends to what was sent
    with pytest.raises(relaxish.TVMError, match="no cache with the number 9"):
        builtin("kv_cache_disagg_mark_send")(sender.cache, 0, 0, ShapeTuple([1, 0, 4]), 9)
    with pytest.raises(relaxish.TVMError, match="not \\(count, begin, length"):
        builtin("kv_cache_disagg_mark_send")(sender.cache, 0, 0, ShapeTuple([2, 0, 4]), 7)


@pytest.mark.parametrize(
    "wrong",
    [
        kv._kv_cache_transpose_append(DIM, KV_HEADS, "float32"),  # heads and dimension the wrong way round
        kv._kv_cache_transpose_append(KV_HEADS, DIM // 2, "float32"),
        kv._kv_cache_transpose_append(KV_HEADS, DIM, "float32", 2 * PAGE),
        kv._kv_cache_transpose_append(KV_HEADS, DIM, "float16"),
    ],
    ids=["swapped", "dimension", "page size", "type"],
)
def test_kernels_made_for_other_shapes_are_refused(kernels, wrong):
    made = dict(kernels, append=relaxish.tir.build(wrong, "llvm").entry_func)
    model = Model(made)
    builtin("kv_state_add_sequence")(model.cache, 0)
    builtin("kv_state_begin_forward")(model.cache, ShapeTuple([0]), ShapeTuple([3]))
    before = [p.numpy().copy() for p in model.cache.pages]
    qkv = nd.array(np.random.default_rng(1).standard_normal((3, HEADS + 2 * KV_HEADS, DIM)).astype("float32"))
    with pytest.raises(ValueError, match="is expected to"):
        builtin("attention_kv_cache_attention_with_fused_qkv")(
            model.cache, 0, SCALE, qkv, nd.empty((3, HEADS, DIM), "float32")
        )
    for page, kept in zip(model.cache.pages, before, strict=True):
        np.testing.assert_array_equal(page.numpy(), kept)


def test_arrays_of_other_shapes_are_refused(kernels):
    model = Model(kernels)
    builtin("kv_state_add_sequence")(model.cache, 0)
    builtin("kv_state_begin_forward")(model.cache, ShapeTuple([0]), ShapeTuple([3]))
    attend = builtin("attention_kv_cache_attention_with_fused_qkv")
    qkv = nd.array(np.random.default_rng(1).standard_normal((3, HEADS + 2 * KV_HEADS, DIM)).astype("float32"))
    for bad_qkv, bad_out in (
        (nd.empty((2, HEADS + 2 * KV_HEADS, DIM), "float32"), nd.empty((2, HEADS, DIM), "float32")),
        (nd.empty((3, HEADS + 2 * KV_HEADS, DIM), "float16"), nd.empty((3, HEADS, DIM), "float32")),
        (qkv, nd.empty((2, HEADS, DIM), "float32")),
        (qkv, nd.empty((3, HEADS, DIM // 2), "float32")),
        (qkv, nd.empty((3, HEADS, DIM), "float64")),
        (qkv, nd.empty((3 * HEADS, DIM), "float32")),
    ):
        with pytest.raises(ValueError):
            attend(model.cache, 0, SCALE, bad_qkv, bad_out)
    attend(model.cache, 0, SCALE, qkv, nd.empty((3, HEADS, DIM), "float32"))
    places = builtin("attention_kv_cache_debug_get_kv")
    k = nd.empty((LAYERS, 3, KV_HEADS, DIM), "float32")
    for bad in (nd.empty((LAYERS, 2, KV_HEADS, DIM), "float32"), nd.empty((LAYERS, 3, KV_HEADS, DIM), "float16")):
        with pytest.raises(ValueError):
            places(model.cache, 0, 0, 3, k, bad)


def test_orders_of_parameters():
    import inspect

    def names(function):
        return list(inspect.signature(function).parameters)

    assert names(kv._kv_cache_transpose_append) == ["num_key_value_heads", "head_dim", "dtype", "page_size"]
    assert names(kv._kv_cache_transpose_append_mla) == ["d_qk", "dtype", "page_size"]
    layers = ["num_hidden_layers", "num_key_value_heads", "head_dim", "dtype"]
    assert names(kv._kv_cache_debug_get_kv) == layers
    assert names(kv._copy_single_page) == ["num_heads", "page_size", "head_dim", "dtype", "target"]
    assert names(kv._copy_single_page_cpu) == ["num_heads", "page_size", "head_dim", "dtype"]
    assert names(kv._compact_kv_copy) == ["num_heads", "head_dim", "dtype", "target", "page_size"]
