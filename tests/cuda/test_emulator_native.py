"""The subset of Python in which the emulator's runtime is written: compiled, it does what it does in Python."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from relaxish.backend.common.native_compile import native_compiler
from relaxish.backend.emulator import native
from relaxish.backend.emulator.native import (
    copy, fill, load8, load16, load32, load64, lowest_bit, source_of, store8, store16, store32, store64,
)  # fmt: skip

rng = np.random.default_rng(3)
LIMIT = 40


def collatz(start: int) -> int:
    """Steps to one."""
    steps = 0
    value = start
    while value != 1:
        if value % 2 == 0:
            value = value // 2
        else:
            value = 3 * value + 1
        steps += 1
        if steps > LIMIT:
            break
    return steps


def logic(a: int, b: int) -> int:
    found = 0
    if a > 0 and (b > 0 or not a == b):
        found = found | 1
    if not (a > b or b == 3) and a != 7:
        found = found | 2
    elif a == b:
        found = found | 4
    i = 0
    while i < 5:
        i += 1
        if i % 2:
            continue
        found += i << 4
    return found + (a < b) * 100 + (-a >> 60 & 1) + (~b & 7)


def memory(table: int, count: int) -> int:
    total = 0
    i = 0
    while i < count:
        total += (
            load8(table + i) + 3 * load16(table + 8 * (i // 8)) + lowest_bit(load32(table + 4 * (i // 4)) | 1 << 40)
        )
        i += 1
    store8(table, total)
    store16(table + 2, total)
    store32(table + 4, total)
    store64(table + 8, load64(table + 16) + total)
    fill(table + 24, total, 5)
    copy(table + 32, table, 16)
    return total


def compiled(function, count):
    text = native.declarations() + native.translate_source(source_of(function), {"LIMIT": LIMIT})
    code = native_compiler().compile((), text, [function.__name__])
    made = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * count)(code.addresses[function.__name__])
    made.keep = code
    return made


def test_loops():
    made = compiled(collatz, 1)
    assert [made(i) for i in range(1, 60)] == [collatz(i) for i in range(1, 60)]


def test_conditions():
    made = compiled(logic, 2)
    pairs = [(a, b) for a in range(-3, 9) for b in range(-3, 9)]
    assert [made(*p) for p in pairs] == [logic(*p) for p in pairs]


def test_memory():
    made = compiled(memory, 2)
    one = rng.integers(0, 256, 64).astype("uint8")
    two = one.copy()
    assert made(one.ctypes.data, 24) == memory(two.ctypes.data, 24)
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "text",
    [
        "def f(a):\n    return a + b",
        "def f(a):\n    return [a]",
        "def f(a):\n    a.b = 1",
        "def f(a):\n    for i in a:\n        pass",
        "def f(a):\n    return 0 < a < 3",
    ],
)
def test_what_is_outside_of_the_subset_is_refused(text):
    with pytest.raises(SyntaxError, match="outside of the subset"):
        native.translate_source(text, {})
