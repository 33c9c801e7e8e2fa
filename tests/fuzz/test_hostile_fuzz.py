"""Random valid and hostile calls of operators that index and divide by data."""

from __future__ import annotations

import os

import numpy as np
import pytest

from relaxish import nd
from relaxish.testing.fuzz import hostile
from relaxish.testing.fuzz.child import in_child
from relaxish.testing.fuzz.hostile import make_hostile_case, run_hostile_case


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("number", [*range(24), 79_000_842])
def test_calls_are_right_or_refused(number: int) -> None:
    # The last one takes by wrong indices into a result without elements: none is used, and no error is due.
    found = in_child(lambda: run_hostile_case(number), 300)
    assert found == [], make_hostile_case(number).name


class _Empty:
    """Stands in for a virtual machine whose functions give an empty array of one axis, whatever is asked."""

    def __init__(self, *given: object) -> None:
        pass

    def __getitem__(self, name: str) -> object:
        return lambda *args: nd.array(np.zeros(0, "float32"))


def test_an_empty_result_of_another_shape_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    number = 79_000_842
    monkeypatch.setattr(hostile, "VirtualMachine", _Empty)
    assert "call 1: a wrong result" in run_hostile_case(number)
