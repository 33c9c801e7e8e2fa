"""Operators on tensors spread over a mesh: the result lies as its operands do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relaxish import relax, tir
from relaxish.ir import Range, assert_structural_equal
from relaxish.relax import op
from relaxish.relax.distributed import DeviceMesh, DTensorStructInfo
from relaxish.support.errors import RelaxishError

MESH = DeviceMesh((2, 2), Range(0, 4))
n = tir.Var("n", "int64")


def info(shape: Any, placement: str, mesh: Any = MESH, dtype: str = "float32") -> Any:
    return DTensorStructInfo(relax.TensorStructInfo(shape, dtype), mesh, placement)


def spread(shape: Any, placement: str, mesh: Any = MESH) -> Any:
    return relax.Var("x", info(shape, placement, mesh))


def infer(call: Any) -> Any:
    return relax.BlockBuilder().normalize(call).struct_info


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (lambda: op.exp(spread((n, 8), "S[1], R")), info((n, 8), "S[1], R")),
        (lambda: op.add(spread((4, 8), "S[0], R"), spread((8,), "R, S[0]")), info((4, 8), "S[0], S[1]")),
        (lambda: op.add(spread((4, 8), "R, R"), spread((1, 8), "S[1], R")), info((4, 8), "S[1], R")),
        (lambda: op.equal(spread((4,), "S[0], R"), spread((4,), "R, R")), info((4,), "S[0], R", dtype="bool")),
        (lambda: op.matmul(spread((4, 6), "S[0], S[1]"), spread((6, 8), "R, S[0]")), info((4, 8), "S[0], R")),
        (lambda: op.matmul(spread((2, 4, 6), "S[0], R"), spread((6, 8), "R, S[1]")), info((2, 4, 8), "S[0], S[2]")),
        (lambda: op.permute_dims(spread((4, 6, 8), "S[0], S[2]"), [2, 0, 1]), info((8, 4, 6), "S[1], S[0]")),
        (lambda: op.sum(spread((4, 6, 8), "S[0], S[2]"), [0]), info((6, 8), "R, S[1]")),
        (lambda: op.mean(spread((4, 6), "S[1], R"), [0], True), info((1, 6), "S[1], R")),
        (lambda: op.reshape(spread((4, 6, 8), "S[0], S[2]"), (24, 2, 4)), info((24, 2, 4), "S[0], S[1]")),
        (lambda: op.reshape(spread((24, 8), "S[0], R"), (4, 6, 8)), info((4, 6, 8), "S[0], R")),
    ],
)
def test_placement(call: Callable[[], Any], want: Any) -> None:
    assert_structural_equal(infer(call()), want)


@pytest.mark.parametrize(
    "call",
    [
        lambda: op.add(spread((4, 8), "S[0], R"), spread((4, 8), "S[1], R")),
        lambda: op.add(spread((4, 8), "S[0], R"), spread((4, 8), "R, S[0]")),
        lambda: op.add(spread((4,), "R, R"), spread((4,), "R, R", DeviceMesh((2, 2), Range(4, 8)))),
        lambda: op.add(spread((4,), "R, R"), relax.Var("y", relax.TensorStructInfo((4,), "float32"))),
    ],
)
def test_conflicts(call: Callable[[], Any]) -> None:
    with pytest.raises(RelaxishError):
        infer(call())
