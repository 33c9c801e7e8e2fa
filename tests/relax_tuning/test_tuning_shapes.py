"""Models of symbolic sizes tuned for some of them: which copy runs, a call's arguments decide."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relaxish
from relaxish import meta_schedule as ms
from relaxish import relax, tir
from relaxish.relax import op
from relaxish.relax.transform import SpecializeSizes

_rng = np.random.default_rng(7)
TARGET = "llvm -num-cores 1"
W = _rng.standard_normal((24, 16)).astype("float32")


def model(*names: str) -> relaxish.IRModule:
    """``relu(x @ w) + 1`` of ``x`` whose leading dimensions have these names."""
    x = relax.Var("x", relax.TensorStructInfo([*(tir.Var(n, "int64") for n in names), 24], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            lv = builder.emit(op.nn.relu(builder.emit(op.matmul(x, relax.const(W)))))
            out = builder.emit_output(op.add(lv, relax.const(np.float32(1))))
        builder.emit_func_output(out)
    return builder.get()


def agrees(built: relaxish.runtime.Executable, *shapes: tuple[int, ...]) -> None:
    vm = relaxish.VirtualMachine(built, relaxish.cpu())
    for shape in shapes:
        x = _rng.standard_normal((*shape, 24)).astype("float32")
        for _ in range(3):  # a size met before goes another way
            have = vm["main"](relaxish.nd.array(x)).numpy()
            np.testing.assert_allclose(have, np.maximum(x @ W, 0) + 1, rtol=1e-4, atol=1e-5)


def test_copies_for_sizes() -> None:
    made = SpecializeSizes({"batch": [1, 3], "seq": range(4, 13, 4)})(model("batch", "seq"))
    assert relax.analysis.well_formed(made)
    names = {v.name_hint for v in made.functions}
    assert {"main", "main_any", "main_batch1_seq4", "main_batch3_seq12"} <= names and len(names) == 8
    info = made["main_batch3_seq8"].params[0].struct_info
    assert [int(d) for d in info.shape.values] == [3, 8, 24]
    agrees(relaxish.build(made, TARGET), (1, 4), (3, 8), (3, 12), (2, 4), (1, 5), (7, 9))


def test_the_copy_runs() -> None:
    """The static copy and no other: it is marked by another result."""
    made = SpecializeSizes({"n": [5]})(model("n"))
    x = relax.Var("x", relax.TensorStructInfo([5, 24], "float32"))
    builder, info = relax.BlockBuilder(made), relax.TensorStructInfo([5, 16], "float32")
    builder.update_func(
        made.get_global_var("main_n5"),
        relax.Function([x], relax.SeqExpr([], relax.const(np.full((5, 16), 8, "float32"))), info),
    )
    vm = relaxish.VirtualMachine(relaxish.build(builder.get(), TARGET), relaxish.cpu())
    assert (vm["main"](relaxish.nd.array(np.zeros((5, 24), "float32"))).numpy() == 8).all()
    assert (vm["main"](relaxish.nd.array(np.zeros((4, 24), "float32"))).numpy() == 1).all()


def test_names_and_sizes_that_are_none() -> None:
    with pytest.raises(ValueError, match="no symbolic size m; it has n"):
        SpecializeSizes({"m": [1]})(model("n"))
    for sizes in ([], [1.5], [-1]):
        with pytest.raises(ValueError, match="list or a range"):
            SpecializeSizes({"n": sizes})(model("n"))


def test_tune_relax_and_compile_relax(tmp_path: Path) -> None:
    shapes = {"n": [8, 32]}
    database = ms.relax_integration.tune_relax(
        model("n"), None, TARGET, str(tmp_path), 4, num_trials_per_iter=2, seed=1, tuning_shapes=shapes
    )
    assert len(database) >= 2
    sizes = {int(w.mod["main"].buffer_map[w.mod["main"].params[0]].shape[0]) for w in _workloads(database)}
    assert sizes == {8, 32}
    agrees(
        ms.relax_integration.compile_relax(database, model("n"), TARGET, None, tuning_shapes=shapes), (8,), (32,), (9,)
    )


def _workloads(database: ms.database.Database) -> list[ms.database.Workload]:
    return [record.workload for record in database.get_all_tuning_records()]


def test_static_shape_tuning(tmp_path: Path) -> None:
    pipeline = relax.get_pipeline(
        "static_shape_tuning", total_trials=4, target=TARGET, work_dir=str(tmp_path), tuning_shapes={"n": [8]}
    )
    tuned = pipeline(model("n"))
    assert len(ms.database.JSONDatabase(work_dir=str(tmp_path))) == 4
    agrees(relaxish.build(tuned, TARGET, relax_pipeline="default_build"), (8,), (5,))
