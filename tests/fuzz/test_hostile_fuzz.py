"""Random valid and hostile calls of operators that index and divide by data."""

from __future__ import annotations

import os

import pytest

from relaxish.testing.fuzz.child import in_child
from relaxish.testing.fuzz.hostile import make_hostile_case, run_hostile_case


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("number", [*range(24), 79_000_842])
def test_calls_are_right_or_refused(number: int) -> None:
    # The last one takes by wrong indices into a result without elements: none is used, and no error is due.
    found = in_child(lambda: run_hostile_case(number), 300)
    assert found == [], make_hostile_case(number).name
