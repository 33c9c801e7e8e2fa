"""Operators of distributed runs: shapes, errors, and the packed functions they become."""

from __future__ import annotations

from typing import Any

import pytest

from relaxish import relax, tir
from relaxish.ir import assert_structural_equal
from relaxish.relax import op
from relaxish.relax.transform import LegalizeOps
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.support.errors import RelaxishError

_N = tir.Var("n", "int64")


def inferred(call: Any) -> Any:
    return relax.BlockBuilder().normalize(call).struct_info


def tensor(*shape: Any) -> Any:
    return relax.Var("x", relax.TensorStructInfo(list(shape), "float32"))


def test_shapes() -> None:
    x = tensor(10, _N)
    for call, shape in (
        (op.ccl.allreduce(x, "max"), (10, _N)),
        (op.ccl.allgather(x, 4), (40, _N)),
        (op.ccl.broadcast_from_worker0(x), (10, _N)),
        (op.ccl.scatter_from_worker0(x, 5), (2, _N)),
        (op.ccl.scatter_from_worker0(x, 2, 1), (10, tir.div(_N, 2))),
        (op.distributed.annotate_sharding(x, "mesh", "S[0]"), (10, _N)),
        (op.distributed.redistribute_replica_to_shard(x, 5, 0), (2, _N)),
    ):
        assert_structural_equal(inferred(call), relax.TensorStructInfo(list(shape), "float32"))


def test_wrong_uses_are_told() -> None:
    with pytest.raises(RelaxishError, match="divisible by the num_workers"):
        inferred(op.ccl.scatter_from_worker0(tensor(10, 3), 3))
    with pytest.raises(RelaxishError, match="divisible by num_workers"):
        inferred(op.distributed.redistribute_replica_to_shard(tensor(10, 3), 2, 1))
    with pytest.raises(RelaxishError, match="distributed tensor"):
        inferred(op.distributed.redistribute(tensor(4), "mesh", "R"))
    with pytest.raises(ValueError, match="sum"):
        op.ccl.allreduce(tensor(4), "median")


@I.ir_module
class Reduced:
    @R.function
    def main(x: R.Tensor((10, 10), "float32")) -> R.Tensor((10, 10), "float32"):
        gv = R.call_dps_packed(
            "runtime.disco.allreduce", (x, R.shape([0]), R.prim_value(True)), out_sinfo=R.Tensor((10, 10), "float32")
        )
        return gv


def test_legalized() -> None:
    x = tensor(10, 10)
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.ccl.allreduce(x, "sum")))
    assert_structural_equal(LegalizeOps()(builder.get()), Reduced)


def test_a_worker_takes_its_own_slice() -> None:
    x = tensor(10, 6)
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.distributed.redistribute_replica_to_shard(x, 3, 1)))
    text = LegalizeOps()(builder.get()).script()
    assert "runtime.disco.worker_id" in text and "worker_id" in text and "(10, 2)" in text
