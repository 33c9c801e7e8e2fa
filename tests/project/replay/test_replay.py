"""The tree emits what was recorded: a sample with every run of the tests, all of it with the slow ones."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from corpus import GROUPS, texts_of  # beside this file
from run import differences, hash_of, recorded, replay

#: Of so many cases one is run each time; models and searches take seconds each.
_SAMPLED = {"operators": 100, "schedules": 10, "public_names": 1}


@pytest.mark.parametrize("group", _SAMPLED)
def test_sample_of_the_corpus_is_emitted_as_recorded(group: str) -> None:
    got = {
        name: {stage: hash_of(text) for stage, text in texts_of(make).items()}
        for name, make in GROUPS[group]()
        if zlib.crc32(name.encode()) % _SAMPLED[group] == 0
    }
    assert got
    assert not differences(recorded(group), got, complete=False), "see tests/project/replay/run.py"


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_all_of_the_corpus_is_emitted_as_recorded(group: str) -> None:
    assert not differences(recorded(group), dict(replay(group))), "see tests/project/replay/run.py"


def test_differences_name_case_and_stage() -> None:
    want = {"a": {"lowered": "1", "source": "2"}, "b": {"lowered": "3"}}
    got = {"a": {"lowered": "1", "source": "4"}, "c": {"lowered": "5"}}
    assert differences(want, got) == ["a: source", "c: new", "b: gone"]
    assert differences(want, want) == []
