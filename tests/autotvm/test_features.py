"""Features: by columns what reading each program gives, and no programs where sizes say everything."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import autotvm, te
from relaxish.autotvm.feature import (
    assemble,
    get_buffer_curve_sample_flatten,
    get_itervar_feature,
    get_itervar_feature_flatten,
    read_program,
)
from relaxish.autotvm.quantities import QuantityColumns
from relaxish.autotvm.tuner import XGBTuner


def define(name, options):
    @autotvm.template(f"tests/features/{name}")
    def product(n, m, depth):
        A = te.placeholder((n, depth), name="A")
        B = te.placeholder((depth, m), name="B")
        k = te.reduce_axis((0, depth), name="k")
        C = te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
        s = te.create_schedule(C.op)
        y, x = s[C].op.axis
        cfg = autotvm.get_config()
        cfg.define_split("y", y, num_outputs=3)
        cfg.define_split("x", x, num_outputs=2, policy="power2" if "tails" in options else "factors")
        cfg.define_split("k", k, num_outputs=2)
        ys = cfg["y"].apply(s, C, y)
        xo, xi = cfg["x"].apply(s, C, x)
        ko, ki = cfg["k"].apply(s, C, k)
        s[C].reorder(ys[0], xo, ys[1], ko, ys[2], ki, xi)
        s[C].vectorize(xi)
        if "annotate" in options:
            cfg.define_annotate("a", [ki], "try_unroll")
            cfg["a"].apply(s, C, [ki])
        if "reorder" in options:
            cfg.define_knob("inner", [0, 1])
            s[C].reorder(*([ki, ys[2]] if cfg["inner"].val else [ys[2], ki]))
        return s, [A, B, C]


@pytest.fixture(scope="module")
def tasks():
    made = {}
    for name, options in (("plain", ""), ("kinds", "annotate reorder"), ("tails", "tails")):
        define(name, options)
        made[name] = autotvm.task.create(f"tests/features/{name}", args=(24, 36, 40), target="llvm")
    return made


def reader(task):
    def read(index):
        read.count += 1
        return read_program(task.program(task.config_space.get(index)))

    read.count = 0
    return read


@pytest.mark.parametrize("name", ["plain", "kinds"])
@pytest.mark.parametrize("kind", ["itervar", "curve"])
def test_columns_equal_programs(tasks, name, kind):
    task = tasks[name]
    read = reader(task)
    columns = QuantityColumns(task.config_space, read)
    rng = np.random.default_rng(5)
    points = [int(p) for p in rng.integers(0, task.config_space.range_length, 400)]
    first = columns.rows(points, kind)
    assert first is not None
    made = read.count
    assert made < 100
    rows = columns.rows(points, kind)
    assert read.count == made, "features of further configurations made programs"
    for row, point in zip(rows[:60], points):
        program = read(point)
        want = assemble(program.structure, program.quantities[None, :], kind)[0]
        np.testing.assert_allclose(row[: len(want)], want, rtol=1e-5, atol=1e-5)
        assert not row[len(want) :].any()


def test_programs_that_are_no_products_of_sizes_have_no_columns(tasks):
    task = tasks["tails"]
    columns = QuantityColumns(task.config_space, reader(task))
    points = list(range(50))
    found = columns.rows(points, "itervar")
    if found is not None:  # tails round up: only where none was met may the products stand
        for row, point in zip(found, points):
            program = read_program(task.program(task.config_space.get(point)))
            np.testing.assert_allclose(
                row[: program.structure.width * 4],
                assemble(program.structure, program.quantities[None, :], "itervar")[0],
                rtol=1e-5,
            )
    else:
        assert columns.failed
    model = XGBTuner(task).cost_model
    assert model.features.rows(points).shape[0] == 50


def test_what_a_loop_is_like(tasks):
    A = te.placeholder((8, 16), name="A")
    B = te.compute((8, 16), lambda i, j: A[i, j] * 2.0 + A[i, j], name="B")
    s = te.create_schedule(B.op)
    i, j = s[B].op.axis
    jo, ji = s[B].split(j, factor=4)
    s[B].vectorize(ji)
    loops = get_itervar_feature(s, [A, B])
    assert [row[:3] for row in loops] == [[8, 8, 128], [4, 32, 16], [4, 128, 4]]  # length, down to it, below it
    # A is read twice and B written: stride, span, elements moved over, reuse
    assert all(row[3:7] == want for row, want in zip(loops, [[16, 128, 128, 1], [4, 16, 16, 1], [1, 4, 4, 1]]))
    flat = get_itervar_feature_flatten(s, [A, B])
    marks = flat.reshape(3, -1)[:, 4:24]
    assert marks.sum(axis=1).tolist() == [1, 1, 1] and marks[2, 2] == 1  # the last is vectorised
    curves = get_buffer_curve_sample_flatten(s, [A, B], sample_n=7)
    assert curves.shape == (3 * 3 * 7,)
