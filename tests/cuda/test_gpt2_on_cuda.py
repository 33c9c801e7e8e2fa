"""A GPT-2 style decoder with the paged cache on a GPU, in the emulator: the same logits as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish.runtime.nvidia import providers
from relaxish.testing.gpt2 import Config, Session, random_weights

pytest.importorskip("llvmlite")
CONFIG = Config(vocab=101, positions=96, hidden=32, layers=1, heads=2)


@pytest.mark.slow
def test_prefill_and_decode():
    weights = random_weights(CONFIG, seed=5)
    target = relaxish.Target("nvidia/nvidia-a100", host="llvm")
    with providers.use("emulator"):
        sessions = [
            Session(CONFIG, weights, batch="batch"),
            Session(CONFIG, weights, batch="batch", target=target, device=relaxish.cuda()),
        ]
        for session in sessions:
            session.add(0)
        steps = [
            lambda s: s.prefill(0, [3, 17, 55, 8, 9]),
            lambda s: s.decode([0], [7]),
            lambda s: s.prefill(0, [1, 2, 4]),
        ]
        for step in steps:
            want, got = (step(session).numpy() for session in sessions)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
