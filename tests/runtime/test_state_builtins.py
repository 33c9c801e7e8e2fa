"""Recurrent states, the simple key-value cache, token sampling, the array cache and its folders."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish.contrib import tvmjs
from relaxish.runtime import ShapeTuple, cpu, get_global_func, nd


def builtin(name):
    return get_global_func("vm.builtin." + name)


# ---- recurrent states


def getter(storage, seqs, slots, out):
    for row, (seq, slot) in enumerate(zip(seqs.numpy(), slots.numpy())):
        out[row] = storage[seq, slot]


def setter(storage, seqs, slots, value, max_history):
    for row, (seq, slot) in enumerate(zip(seqs.numpy(), slots.numpy())):
        storage[seq, (slot + 1) % max_history] = value[row]


@pytest.fixture
def state():
    init = nd.array(np.array([5.0, 6.0], "float32"))
    return builtin("rnn_state_create")(2, 4, 3, (getter,), (setter,), (init,))


def step(state, seqs, value, length=1):
    builtin("kv_state_begin_forward")(state, ShapeTuple(seqs), ShapeTuple([length] * len(seqs)))
    seen = []
    for layer in range(2):
        out = nd.empty((len(seqs), 2))
        seen.append(builtin("rnn_state_get")(state, layer, 0, out).numpy())
        data = nd.array(np.full((len(seqs), 2), value + layer, "float32"))
        assert builtin("rnn_state_set")(state, layer, 0, data) is state
    builtin("kv_state_end_forward")(state)
    return seen


def last(state, seq, layer=0):
    return builtin("rnn_state_debug_get")(state, layer, 0, seq).numpy().tolist()


def test_rnn_state_steps_and_goes_back(state):
    builtin("kv_state_add_sequence")(state, 3)
    assert last(state, 3) == [5, 6]
    assert step(state, [3], 10.0)[0].tolist() == [[5, 6]]
    assert step(state, [3], 20.0)[1].tolist() == [[11, 11]]
    assert last(state, 3) == [20, 20] and last(state, 3, 1) == [21, 21]
    builtin("kv_state_popn")(state, 3, 1)
    assert last(state, 3) == [10, 10]
    builtin("kv_state_popn")(state, 3, 1)
    assert last(state, 3) == [5, 6]
    with pytest.raises(RuntimeError, match="0 states to go back"):
        builtin("kv_state_popn")(state, 3, 1)
    step(state, [3], 1.0)
    step(state, [3], 2.0, length=4)
    with pytest.raises(RuntimeError, match="go back"):  # what came as one piece stays
        builtin("kv_state_popn")(state, 3, 1)


def test_rnn_state_fork_remove_and_errors(state):
    builtin("kv_state_add_sequence")(state, 0)
    step(state, [0], 7.0)
    builtin("kv_state_fork_sequence")(state, 0, 1)
    step(state, [1], 8.0)
    assert last(state, 0) == [7, 7] and last(state, 1) == [8, 8]
    builtin("kv_state_popn")(state, 1, 1)
    assert last(state, 1) == [7, 7]
    with pytest.raises(RuntimeError, match="forked at its end"):
        builtin("kv_state_fork_sequence")(state, 0, 2, 0)
    with pytest.raises(RuntimeError, match="already"):
        builtin("kv_state_add_sequence")(state, 1)
    builtin("kv_state_remove_sequence")(state, 1)
    with pytest.raises(RuntimeError, match="cannot be found"):
        last(state, 1)
    builtin("kv_state_clear")(state)
    with pytest.raises(RuntimeError, match="greater than 0"):
        builtin("rnn_state_create")(1, 1, 0, (), (), ())


# ---- the simple key-value cache


def test_window_override_keeps_the_sink():
    cache = builtin("attention_kv_cache_create")(nd.empty((1, 2)), ShapeTuple([2, 2]), 0)
    want: list[float] = []
    position = 0
    for value in range(12):
        builtin("attention_kv_cache_window_override_with_sinks")(
            cache, nd.array(np.full((1, 2), value, "float32")), 5, 2
        )
        if len(want) < 5:
            want.append(value)
            position = len(want)
        else:
            position = 2 if position >= 5 else position
            want[position] = value
            position += 1
        view = builtin("attention_kv_cache_view")(cache, ShapeTuple([len(want), 2]))
        assert view.numpy()[:, 0].tolist() == want
    plain = builtin("attention_kv_cache_create")(nd.empty((1, 1)), ShapeTuple([1, 1]), 0)
    for begin in (0, 3, 6):
        data = np.arange(begin, begin + 3, dtype="float32").reshape(3, 1)
        builtin("attention_kv_cache_window_override")(plain, nd.array(data), 4)
    assert sorted(builtin("attention_kv_cache_view")(plain, ShapeTuple([4, 1])).numpy()[:, 0]) == [5, 6, 7, 8]
    with pytest.raises(ValueError, match="window of 4"):
        builtin("attention_kv_cache_window_override")(plain, nd.empty((5, 1)), 4)
    with pytest.raises(ValueError, match="filled count"):
        builtin("attention_kv_cache_view")(plain, ShapeTuple([3, 1]))


# ---- sampling


def test_top_p_from_logits_and_from_probabilities_agree_with_their_definition():
    rng = np.random.default_rng(2)
    logits = rng.standard_normal(50).astype("float32")
    prob = np.exp(logits / 0.7) / np.exp(logits / 0.7).sum()
    order = np.argsort(-prob)
    kept = order[: int(np.searchsorted(np.cumsum(prob[order]), 0.8)) + 1]
    counts = np.zeros(50)
    for uniform in np.linspace(0, 1, 2000, endpoint=False):
        a = builtin("sample_top_p_from_logits")(nd.array(logits[None]), 0.7, 0.8, uniform)
        b = builtin("sample_top_p_from_prob")(nd.array(prob.astype("float32")[None, None]), 0.8, uniform)
        assert a == b
        counts[a] += 1
    assert set(np.flatnonzero(counts)) == set(kept)
    np.testing.assert_allclose(counts[kept] / 2000, prob[kept] / prob[kept].sum(), atol=2e-3)
    assert builtin("sample_top_p_from_logits")(nd.array(logits), 0.0, 0.1, 0.9) == int(np.argmax(logits))
    with pytest.raises(ValueError, match="float32"):
        builtin("sample_top_p_from_logits")(nd.array(logits.astype("float64")), 1.0, 1.0, 0.5)


def test_multinomial_penalties_and_softmax():
    prob = nd.array(np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]], "float32"))
    ids = builtin("multinomial_from_uniform")(prob, nd.array(np.array([[0.25], [0.5]], "float32")))
    assert ids.dtype == "int64" and ids.numpy().tolist() == [[1], [1]]
    logits = nd.array(np.array([[1.0, -1.0, 2.0, 0.0]], "float32"))
    tokens = nd.array(np.array([0, 1], "int32"))
    builtin("apply_repetition_penalty")(logits, tokens, 2.0)
    assert logits.numpy().tolist() == [[0.5, -2.0, 2.0, 0.0]]
    freqs = nd.array(np.array([3, 1], "int32"))
    builtin("apply_presence_and_frequency_penalty")(logits, tokens, freqs, 0.5, 0.25)
    assert logits.numpy().tolist() == [[-0.75, -2.75, 2.0, 0.0]]
    before = logits.numpy()
    builtin("apply_softmax_with_temperature")(logits, 0.5)
    want = np.exp(before * 2) / np.exp(before * 2).sum()
    np.testing.assert_allclose(logits.numpy(), want, rtol=1e-5)


# ---- the array cache


def test_array_cache_and_folders(tmp_path):
    rng = np.random.default_rng(0)
    params = {f"param_{i}": rng.standard_normal((4, i + 1)).astype("float32") for i in range(3)}
    params["ids"] = np.arange(5, dtype="int32")
    tvmjs.dump_ndarray_cache(params, tmp_path, "raw", {"model": "m"}, shard_cap_mb=1, show_progress=False)
    loaded, metadata = tvmjs.load_ndarray_cache(tmp_path / "ndarray-cache.json", cpu())
    assert metadata == {"model": "m"}
    for name, value in params.items():
        np.testing.assert_array_equal(loaded[name].numpy(), value)

    builtin("ndarray_cache.clear")()
    builtin("ndarray_cache.load")(str(tmp_path), 1, 0)
    np.testing.assert_array_equal(builtin("ndarray_cache.get")("ids").numpy(), params["ids"])
    assert builtin("ndarray_cache.get")("absent") is None
    for found in (
        builtin("param_array_from_cache")("param", -1),
        builtin("param_array_from_cache")("param", 3),
        builtin("param_array_from_cache_by_name")(["param_0", "param_1", "param_2"]),
        builtin("param_array_from_cache_by_name_unpacked")("param_0", "param_1", "param_2"),
        builtin("param_module_from_cache")("param", -1)["get_params"](),
        builtin("param_module_from_cache_by_name")(["param_0", "param_1", "param_2"])["get_params"](),
    ):
        assert [a.shape for a in found] == [(4, 1), (4, 2), (4, 3)]
    with pytest.raises(ValueError, match="Cannot find parameter in cache: param_3"):
        builtin("param_array_from_cache")("param", 4)
    with pytest.raises(ValueError, match="already exists"):
        builtin("ndarray_cache.update")("ids", nd.empty((1,)), False)
    builtin("ndarray_cache.update")("ids", nd.empty((1,)), True)
    builtin("ndarray_cache.remove")("ids")
    assert builtin("ndarray_cache.get")("ids") is None
    builtin("ndarray_cache.clear")()


def test_bfloat16_folders_shards_and_updates(tmp_path):
    values = {str(i): np.float32(np.random.default_rng(i).standard_normal(300_000)) for i in range(3)}
    tvmjs.dump_ndarray_cache(values, tmp_path, shard_cap_mb=1, show_progress=False)
    assert len(list(tmp_path.glob("params_shard_*.bin"))) == 3
    loaded, _ = tvmjs.load_ndarray_cache(tmp_path, cpu())
    for name, value in values.items():
        np.testing.assert_allclose(loaded[name].numpy(), value, rtol=2**-8)
    tvmjs.dump_ndarray_cache({"new": np.ones(2, "float32")}, tmp_path, update_if_exists=True, show_progress=False)
    assert set(tvmjs.load_ndarray_cache(tmp_path, cpu())[0]) == {"0", "1", "2", "new"}
    (tmp_path / "params_shard_0.bin").write_bytes(b"short")
    with pytest.raises(RuntimeError, match="bytes instead of"):
        tvmjs.load_ndarray_cache(tmp_path, cpu())
    with pytest.raises(ValueError, match="Invalid encode_format"):
        tvmjs.dump_ndarray_cache({}, tmp_path, "f16")


# ---- numbers that are out of bounds


@pytest.mark.parametrize("token", [7, -1, 10**8, -(2**31)])
def test_tokens_outside_the_vocabulary_are_errors(token):
    logits = nd.array(np.random.default_rng(0).random((1, 7), "float32"))
    before = logits.numpy().copy()
    tokens, counts = nd.array(np.array([2, token], "int32")), nd.array(np.array([1, 1], "int32"))
    with pytest.raises(IndexError, match=f"token {token} is out of bounds"):
        builtin("apply_repetition_penalty")(logits, tokens, 1.5)
    with pytest.raises(IndexError, match=f"token {token} is out of bounds"):
        builtin("apply_presence_and_frequency_penalty")(logits, tokens, counts, 0.5, 0.5)
    np.testing.assert_array_equal(logits.numpy(), before)


def test_negative_counts_are_errors(state):
    builtin("kv_state_add_sequence")(state, 3)
    with pytest.raises(ValueError, match="-2 steps back"):
        builtin("kv_state_popn")(state, 3, -2)
    with pytest.raises(ValueError, match="append lengths"):
        builtin("kv_state_begin_forward")(state, ShapeTuple([3]), ShapeTuple([-4]))
    step(state, [3], 1.0)
    for layer, number in ((-1, 0), (2, 0), (0, 1), (0, -1)):
        with pytest.raises(ValueError, match="has no state"):
            builtin("rnn_state_get")(state, layer, number, nd.empty((1, 2)))
    cache = builtin("attention_kv_cache_create")(nd.array(np.ones((2, 3), "float32")), ShapeTuple([4, 3]), 2)
    with pytest.raises(ValueError, match="cannot drop -9"):
        builtin("attention_kv_cache_array_popn")([cache], -9)
    with pytest.raises(ValueError, match="-1 sinks"):
        builtin("attention_kv_cache_window_override_with_sinks")(cache, nd.array(np.ones((1, 3), "float32")), 4, -1)
    for rows, count in ((2, 3), (6, 6)):
        with pytest.raises(ValueError, match="cannot begin with"):
            data = nd.array(np.ones((rows, 3), "float32"))
            builtin("attention_kv_cache_create")(data, ShapeTuple([4, 3]), count)
