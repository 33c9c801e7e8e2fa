"""Cases in children: the dead and the stuck are counted, and the others still run."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from faults import mutation
from faults.batches import run_cases
from faults.hostile_text import PROGRAMS

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def test_the_dead_and_the_stuck_are_counted(capfd):
    def attempt(number):
        if number % 5 == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 4:
            time.sleep(60)
        if number == 6:
            raise KeyError(number)
        return ("odd", "seen") if number % 2 else ("even", "")

    figures = run_cases(attempt, ("odd", "even"), 2.5, patience=1, most=4)
    assert figures["hung"] == 1 and figures["crashed"] >= 2
    assert figures["tried"] == sum(figures[key] for key in ("hung", "crashed", "odd", "even")) > 10
    assert figures["odd"] > 1 and figures["even"] > 1
    assert "case 1: odd: seen" in capfd.readouterr().err


def test_damage_always_changes_something():
    rng = random.Random(0)
    for size in (1, 3, 1000):
        data = bytes(rng.randrange(256) for _ in range(size))
        assert all(mutation.damaged_bytes(data, rng) != data for _ in range(300))


def test_mutations_are_drawn_from_the_seed_and_mostly_parse():
    made = [[mutation.mutated_program(PROGRAMS[0], random.Random(n)) for n in range(60)] for _ in range(2)]
    assert made[0] == made[1] and len(set(made[0])) > 40
    assert sum("hacked" in text or "__" in text for text in made[0]) > 15
    for text in made[0]:
        compile(text, "x", "exec", flags=0x400, dont_inherit=True)  # to a syntax tree only
