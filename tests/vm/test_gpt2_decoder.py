"""A GPT-2 style decoder on the paged cache: the same logits as torch, greedy and top-p generation, several sequences."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish.testing.gpt2 import Config, Session, random_weights

pytest.importorskip("llvmlite")
CONFIG = Config(vocab=101, positions=96, hidden=64, layers=2, heads=4)


@pytest.fixture(scope="module")
def weights():
    return random_weights(CONFIG, seed=5)


@pytest.fixture(scope="module")
def session(weights):
    return Session(CONFIG, weights, batch="batch")


def torch_logits(weights, tokens):
    """Logits of every position, in torch."""
    torch = pytest.importorskip("torch")
    w = {k: torch.from_numpy(v) for k, v in weights.items()}
    f = torch.nn.functional
    x = w["wte.weight"][tokens] + w["wpe.weight"][: len(tokens)]
    for i in range(CONFIG.layers):
        p = lambda n: w[f"h.{i}.{n}"]
        y = f.layer_norm(x, (CONFIG.hidden,), p("ln_1.weight"), p("ln_1.bias"))
        qkv = f.linear(y, p("c_attn.weight"), p("c_attn.bias")).reshape(len(tokens), 3, CONFIG.heads, -1)
        q, k, v = qkv.permute(1, 2, 0, 3)
        out = f.scaled_dot_product_attention(q, k, v, is_causal=True).permute(1, 0, 2).reshape(len(tokens), -1)
        x = x + f.linear(out, p("c_proj.weight"), p("c_proj.bias"))
        y = f.layer_norm(x, (CONFIG.hidden,), p("ln_2.weight"), p("ln_2.bias"))
        y = f.gelu(f.linear(y, p("c_fc.weight"), p("c_fc.bias")), approximate="tanh")
        x = x + f.linear(y, p("c_out.weight"), p("c_out.bias"))
    x = f.layer_norm(x, (CONFIG.hidden,), w["ln_f.weight"], w["ln_f.bias"])
    return (x @ w["wte.weight"].T).numpy()


def test_prefill_and_decode_give_torch_logits(session, weights):
    tokens = np.random.default_rng(0).integers(0, CONFIG.vocab, 40).tolist()
    want = torch_logits(weights, tokens)
    session.add(7)
    got = [session.prefill(7, tokens[:20]).numpy()[0, 0]]
    got += [session.decode([7], [t]).numpy()[0, 0] for t in tokens[20:30]]
    got += [session.prefill(7, tokens[30:]).numpy()[0, 0]]
    session.remove(7)
    for row, position in zip(got, [19, *range(20, 30), 39]):
        np.testing.assert_allclose(row, want[position], rtol=1e-3, atol=1e-4)


def test_a_batch_decodes_like_its_sequences_alone(session, weights):
    rng = np.random.default_rng(1)
    prompts = {0: rng.integers(0, CONFIG.vocab, 5).tolist(), 1: rng.integers(0, CONFIG.vocab, 33).tolist()}
    for seq, prompt in prompts.items():
        session.add(seq)
        session.prefill(seq, prompt)
    for _ in range(3):
        step = rng.integers(0, CONFIG.vocab, 2).tolist()
        logits = session.decode([1, 0], step).numpy()
        for row, seq in enumerate((1, 0)):
            prompts[seq].append(step[row])
            want = torch_logits(weights, prompts[seq])[-1]
            np.testing.assert_allclose(logits[row, 0], want, rtol=1e-3, atol=1e-4)
    session.remove(0)
    session.remove(1)


def test_greedy_and_top_p_generation(session, weights):
    prompt = [3, 1, 4, 1, 5]
    greedy = session.generate(prompt, 12)
    known = list(prompt)
    for token in greedy:
        scores = torch_logits(weights, known)[-1]
        assert scores[token] >= scores.max() - 1e-4
        known.append(token)
    assert session.generate(prompt, 12, temperature=1.0, top_p=0.9, seed=3) == session.generate(
        prompt, 12, temperature=1.0, top_p=0.9, seed=3
    )
    assert session.generate(prompt, 12, temperature=1.0, top_p=1e-6) == greedy
