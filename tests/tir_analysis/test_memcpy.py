"""Loops that copy memory: verdicts on random nests against what the loops do, and the reasons of refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from relaxish import tir
from relaxish.script import from_source
from relaxish.tir.analysis import _ffi_api, identify_memcpy


def _found(params, *lines):
    body = "\n".join("    " + line for line in lines)
    func = from_source(f"@T.prim_func\ndef main({params}):\n{body}\n")
    return [str(f.value) if isinstance(f, tir.StringImm) else tuple(map(str, f)) for f in identify_memcpy(func.body)]


A, B = 'A: T.Buffer((64, 32), "float32"), ', 'B: T.Buffer((64, 32), "float32")'


def test_copies_of_whole_and_of_rows():
    assert _found(A + B, "for i, j in T.grid(64, 32):", "    B[i, j] = A[i, j]") == [
        ("A[0:64, 0:32]", "B[0:64, 0:32]"),
        ("A[i, 0:32]", "B[i, 0:32]"),
    ]
    flat = 'B: T.Buffer((2048,), "float32")'
    assert _found(A + flat, "for i in range(2048):", "    B[i] = A[i // 32, i % 32]") == [
        ("A[0:64, 0:32]", "B[0:2048]")
    ]
    assert _found(A + flat, "for i, j in T.grid(64, 32):", "    B[i * 32 + j] = A[i, j]")[0] == (
        "A[0:64, 0:32]",
        "B[0:2048]",
    )


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["for i, j in T.grid(64, 32):", "    B[i, j] = A[i, j] + T.float32(1)"], "value to be BufferLoad"),
        (["for i in range(64):", "    if i < 9:", "        B[i, 0] = A[i, 0]"], "to have BufferStore body"),
        (["for i in range(16):", "    B[0, i] = A[0, i * 2]"], "Mismatch between loop iterations .* of src indices"),
        (["for i in range(16):", "    B[0, i * 2] = A[0, i]"], "Mismatch between loop iterations .* of dst indices"),
        (["for i, j in T.grid(32, 32):", "    B[i, j] = A[j, i]"], "different source"),
        (["for i in range(32):", "    B[0, i] = A[0, 31 - i]"], "different scale"),
        (["for i in range(32):", "    B[0, i] = A[0, T.abs(i - 16)]"], r"DetectIterMap\(src\)"),
        (["for i, j in T.grid(64, 16):", "    B[i, j] = A[i, j]"], r"DetectIterMap\(src\)"),
        (["for i in range(32):", "    B[0, i] = A[0, 0]"], "src"),
    ],
)
def test_reasons(lines, reason):
    import re

    assert re.search(reason, _found(A + B, *lines)[0])


def test_the_name_that_scripts_use():
    assert _ffi_api._identify_memcpy is identify_memcpy


def _is_copy(extents, source, target):
    """Whether the offsets of all steps, as the program runs, go through memory together and without gaps."""
    steps = list(itertools.product(*(range(n) for n in extents)))
    offsets = [(source(*s), target(*s)) for s in steps]
    if len({b for _, b in offsets}) != len(steps) or len({a for a, _ in offsets}) != len(steps):
        return False
    whole = all(max(o) - min(o) + 1 == len(steps) for o in zip(*offsets, strict=True))
    return whole and len({a - b for a, b in offsets}) == 1


@pytest.mark.parametrize("seed", range(120))
def test_random_nests(seed):
    rng = np.random.default_rng([seed, 5])
    extents = [int(n) for n in rng.integers(2, 5, rng.integers(1, 4))]
    names = "ijk"[: len(extents)]
    strides = np.array([math.prod(extents[n + 1 :]) for n in range(len(extents))])

    def side():
        row = strides.copy()
        if rng.random() < 0.3:
            row = row[rng.permutation(len(row))]
        if rng.random() < 0.2:
            row[rng.integers(len(row))] += 1
        return row, int(rng.integers(0, 4))

    (source, at), (target, to) = side(), side()
    text = [" + ".join(f"{n} * {int(s)}" for n, s in zip(names, row)) for row in (source, target)]
    heads = [f"{'    ' * n}for {v} in range({e}):" for n, (v, e) in enumerate(zip(names, extents))]
    lines = [*heads, f"{'    ' * len(names)}B[{text[1]} + {to}] = A[{text[0]} + {at}]"]
    found = _found('A: T.Buffer((4096,), "int8"), B: T.Buffer((4096,), "int8")', *lines)[0]
    due = _is_copy(extents, lambda *s: int(np.dot(source, s)) + at, lambda *s: int(np.dot(target, s)) + to)
    assert isinstance(found, tuple) == due, (lines, found)
    if due:
        count = math.prod(extents)
        assert found == (f"A[{at}:{at + count}]", f"B[{to}:{to + count}]")
