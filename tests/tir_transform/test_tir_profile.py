"""InstrumentProfileIntrinsics: what is framed, and under which number."""

from __future__ import annotations

import re
from typing import Any

import pytest

from relaxish.ir import IRModule
from relaxish.ir.transform import PassContext
from relaxish.script import tir as T
from relaxish.tir import transform


@T.prim_func(private=True)
def two_nests(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for _ in range(8):
        for j, k in T.grid(8, 8):
            A[j] = A[j] + B[k]
        for j, k in T.grid(8, 8):
            C[j] = C[j] + B[k]


@T.prim_func(private=True)
def parallel_inside(A: T.Buffer((8,), "float32")):
    for _ in range(8):
        for j in T.parallel(8):
            for k in range(8):
                A[j] = A[j] + T.Cast("float32", k)


def framed(func: Any, **options: Any) -> list[int]:
    """The numbers of what is framed, in the order of the program."""
    config = {"tir.reset_start_id": True, **{f"tir.{k}": v for k, v in options.items()}}
    with PassContext(config=config):
        text = transform.InstrumentProfileIntrinsics()(IRModule({"main": func})).script()
    starts, ends = (re.findall(rf"{word}_profile_intrinsic\((\d+)\)", text) for word in ("start", "end"))
    assert sorted(starts) == sorted(ends)
    return [int(n) for n in starts]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({}, [0, 2, 4]),
        ({"lwp_max_depth": 3}, [0, 2, 4]),
        ({"lwp_disable_func_prof": True}, [2, 4]),
        ({"instr_siblings": False}, [0, 1]),
        ({"instr_siblings": False, "lwp_max_depth": 1}, [0, 1, 2, 4]),
        ({"instr_siblings": False, "lwp_max_depth": 3, "lwp_min_height": 2}, [0, 1]),
        ({"instr_siblings": False, "lwp_max_depth": 3, "lwp_min_height": 0}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_options(options: dict[str, Any], numbers: list[int]) -> None:
    assert framed(two_nests, **options) == numbers


def test_nothing_inside_parallel_loops() -> None:
    assert framed(parallel_inside, instr_siblings=False, lwp_max_depth=3, lwp_min_height=0) == [0, 1, 2]


def test_numbers_go_on() -> None:
    assert framed(two_nests) == [0, 2, 4]
    assert framed(two_nests, reset_start_id=False) == [6, 8, 10]
