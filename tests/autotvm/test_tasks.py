"""Templates and tasks: what they are given, what they count, and what contexts choose for them."""

from __future__ import annotations

import logging
import pickle

import numpy as np
import pytest

import relaxish
from relaxish import autotvm, te, tir
from relaxish.autotvm.task import (
    ApplyConfig,
    ConfigSpace,
    FallbackConfigEntity,
    args_to_workload,
    clear_fallback_cache,
    compute_flop,
    deserialize_args,
    serialize_args,
)
from relaxish.target import Target


@autotvm.template("tests/matmul")
def matmul(n, m, depth, dtype):
    A = te.placeholder((n, depth), name="A", dtype=dtype)
    B = te.placeholder((depth, m), name="B", dtype=dtype)
    k = te.reduce_axis((0, depth), name="k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    y, x = s[C].op.axis
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    cfg.define_reorder("ord", [k, *s[C].op.axis], "interval_all", interval=(0, 2))
    cfg.define_annotate("ann", [x], "try_unroll_vec")
    if cfg.is_fallback:
        cfg.fallback_split("tile_y", [-1, 8])
    yo, yi = cfg["tile_y"].apply(s, C, y)
    xo, xi = cfg["tile_x"].apply(s, C, x)
    inner = cfg["ord"].apply(s, C, [s[C].op.reduce_axis[0], yi, xi])
    s[C].reorder(yo, xo, *inner)
    cfg["ann"].apply(s, C, [xi], axis_lens=[cfg["tile_x"].size[-1]], max_unroll=16, cfg=cfg)
    return s, [A, B, C]


@autotvm.template("tests/blocks")
def by_blocks(n, dtype):
    A = te.placeholder((n, n), name="A", dtype=dtype)
    B = te.compute((n, n), lambda i, j: A[i, j] * 2.0, name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    block = sch.get_block("B")
    i, j = sch.get_loops(block)
    cfg = autotvm.get_config()
    cfg.define_split("i", cfg.axis(sch.get(i).extent), num_outputs=3)
    cfg.define_annotate("ann", [cfg.axis(n)] * 2, "try_unroll_vec")
    cfg.define_knob("wide", [False, True])
    parts = cfg["i"].apply(sch, block, i)
    order = [*parts, j]
    sch.reorder(*order)
    cfg["ann"].apply(sch, block, [parts[-1], j] if cfg["wide"].val else [j, parts[-1]])
    return sch, [A, B]


def judge(task, config, *shapes, expect):
    rng = np.random.default_rng(int(config.index))
    arrays = [rng.uniform(-1, 1, s).astype("float32") for s in shapes]
    with task.target:
        built = relaxish.build(task.program(config), target=task.target)
    want = expect(*arrays)
    out = relaxish.nd.array(np.full(want.shape, np.nan, "float32"))
    built(*[relaxish.nd.array(a) for a in arrays], out)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-5)


def test_configurations_compute_the_same():
    task = autotvm.task.create("tests/matmul", args=(12, 18, 10, "float32"), target="llvm")
    assert task.flop == 2 * 12 * 18 * 10 and task.workload == ("tests/matmul", 12, 18, 10, "float32")
    assert repr(task) == (
        "Task(func_name=tests/matmul, args=(12, 18, 10, 'float32'), kwargs={}, "
        "workload=('tests/matmul', 12, 18, 10, 'float32'))"
    )
    space = task.config_space
    assert len(space) == 6 * 6 * 2 * 3
    checked = 0
    for index in [int(i) for i in space.sample_ints(24)]:
        config = space.get(index)
        sch, args = task.instantiate(config)
        assert isinstance(sch, te.Schedule) and len(args) == 3
        if config.valid():
            judge(task, space.get(index), (12, 10), (10, 18), expect=lambda a, b: a @ b)
            checked += 1
        else:
            assert config["ann"].anns == ["unroll"] and config["tile_x"].size[-1] == 18
    assert checked >= 12


def test_templates_may_be_written_for_blocks():
    task = autotvm.task.create("tests/blocks", args=(12, "float32"), target=Target("llvm"))
    assert task.flop == 144
    for index in [int(i) for i in task.config_space.sample_ints(12)]:
        judge(task, task.config_space.get(index), (12, 12), expect=lambda a: a * 2)


def test_a_configuration_that_is_refused_is_no_program():
    task = autotvm.task.create("tests/matmul", args=(8, 32, 8, "float32"), target="llvm")
    names = list(task.config_space.space_map)
    knob = [0] * 4
    knob[names.index("tile_x")] = 5
    knob[names.index("ann")] = 1
    config = task.config_space.get(task.config_space.knob2point(knob))
    with pytest.raises(autotvm.task.InstantiationError, match="Too large factor for unrolling"):
        task.program(config)


def test_what_a_template_may_be_called_with():
    assert serialize_args((1, "a", 2.5, None, [1, (2, 3)], tir.IntImm("int32", 4), tir.StringImm("s"))) == (
        1, "a", 2.5, None, (1, (2, 3)), 4, "s",
    )  # fmt: skip
    A = te.placeholder((3, 4), dtype="float16")
    assert args_to_workload((A, 1), "name") == ("name", ("TENSOR", (3, 4), "float16"), 1)
    (again, one) = deserialize_args(serialize_args((A, 1)))
    assert [int(n) for n in again.shape] == [3, 4] and again.dtype == "float16" and one == 1
    with pytest.raises(RuntimeError, match="Do not support type"):
        serialize_args([object()])
    with pytest.raises(TypeError, match="Do not support kwargs"):
        matmul(n=1, m=1, depth=1, dtype="float32")
    with pytest.raises(ValueError, match="registered already"):
        autotvm.template("tests/matmul", lambda: None)
    with pytest.raises(RuntimeError, match="no template 'tests/nothing'; registered are: .*tests/matmul"):
        autotvm.task.create("tests/nothing", args=(), target="llvm")
    with pytest.raises(TypeError):
        autotvm.task.create("tests/matmul", args=(1, 2), target="llvm")


def test_outside_of_tuning_the_context_chooses(caplog):
    task = autotvm.task.create("tests/matmul", args=(16, 16, 16, "float32"), target="llvm")
    config = task.config_space.get(7)
    with ApplyConfig(config):
        s, args = matmul(16, 16, 16, "float32")
    relaxish.ir.assert_structural_equal(relaxish.lower(s, args), task.program(task.config_space.get(7)))
    with Target("llvm"), caplog.at_level(logging.WARNING, logger="relaxish.autotvm"):
        matmul(16, 16, 24, "float32")
        matmul(16, 16, 24, "float32")
    warned = [r for r in caplog.records if "Cannot find config for target=" in r.getMessage()]
    assert len(warned) == 1 and "A fallback configuration is used" in warned[0].getMessage()
    with Target("llvm"):
        workload = args_to_workload((16, 16, 24, "float32"), "tests/matmul")
        fallback = autotvm.DispatchContext.current.query(Target.current(), workload)
        assert isinstance(fallback, FallbackConfigEntity) and fallback["tile_y"].size == [2, 8]
        clear_fallback_cache(Target.current(), workload)
        assert autotvm.DispatchContext.current.query(Target.current(), workload) is not fallback


def test_contexts_nest():
    first, second = ConfigSpace(), ConfigSpace()
    with autotvm.ApplyHistoryBest([]) as outer:
        assert isinstance(outer.query(Target("llvm"), ("x",)), FallbackConfigEntity)
        outer.update(Target("llvm"), ("x",), first)
        with autotvm.ApplyHistoryBest([]) as inner:
            assert inner.query(Target("llvm"), ("x",)) is first
            inner.update(Target("llvm"), ("x",), second)
            assert autotvm.DispatchContext.current.query(Target("llvm"), ["x"]) is second
        assert autotvm.DispatchContext.current is outer
    assert autotvm.DispatchContext.current is not outer


def test_graph_contexts_go_by_position():
    task = autotvm.task.create("tests/matmul", args=(16, 16, 16, "float32"), target="llvm")
    fine = autotvm.MeasureResult((0.1,), 0, 1.0, 1.0)
    pairs = [(autotvm.MeasureInput(task.target, task, task.config_space.get(i)), fine) for i in (3, 5)]
    with autotvm.apply_graph_best(pairs) as context:
        target = Target("llvm")
        assert [context.query(target, (n,)).index for n in "ab"] == [3, 5]
        assert context.query(target, ("a",)).index == 3 and context.query(target, ("c",)).is_fallback
    tasks = [task]
    fixed = autotvm.ApplyFixedConfig(tasks, "tests/matmul")
    assert fixed.query(target, task.workload).cost == 1e-6
    assert autotvm.ApplyFixedConfig(tasks, ["other"]).query(target, task.workload).cost == 100000
    with pytest.raises(RuntimeError, match="does not exist"):
        fixed.query(target, ("nothing",))


@pytest.mark.parametrize(("make", "want"), [
    (lambda A: te.compute((4, 6), lambda i, j: A[i, j] + 1.0), 24),
    (lambda A: te.compute((4, 6), lambda i, j: te.max(A[i, j], 0.0) * A[i, j] - 2.0), 72),
    (lambda A: te.compute((4, 6), lambda i, j: tir.Select(A[i, j] > 0.0, A[i, j] * 2.0, A[i, j])), 48),
    (lambda A: te.compute((4, 6), lambda i, j: te.exp(A[i, j] + 1.0)), 24),
    (lambda A, k=te.reduce_axis((0, 6)): te.compute((4,), lambda i: te.sum(A[i, k] * A[i, k] * 2.0, axis=k)), 72),
])  # fmt: skip
def test_operations_are_counted(make, want):
    A = te.placeholder((4, 6), name="A")
    out = make(A)
    assert compute_flop(te.create_schedule(out.op)) == want


def test_operations_of_chains_and_of_nothing():
    A = te.placeholder((4, 6), name="A")
    B = te.compute((4, 6), lambda i, j: A[i, j] * 2.0)
    C = te.compute((4, 6), lambda i, j: B[i, j] + B[i, j])
    assert compute_flop(te.create_schedule(C.op)) == 48
    D = te.compute((6, 4), lambda i, j: A[j, i])
    with pytest.raises(RuntimeError, match="Cannot find float number operation.*add_flop"):
        compute_flop(te.create_schedule(D.op))


@autotvm.register_topi_compute("tests/scale.cpu")
def scale(cfg, data, factor):
    cfg.define_knob("wide", [1, 4])
    cfg.add_flop(11)
    return te.compute(data.shape, lambda *i: data[i] * factor, name="scaled", tag="scale")


@autotvm.register_topi_schedule("tests/scale.cpu")
def schedule_scale(cfg, outs):
    s = te.create_schedule([t.op for t in outs])
    out = outs[0]
    outer, inner = s[out].split(s[out].op.axis[-1], factor=cfg["wide"].val)
    s[out].vectorize(inner)
    return s


def test_templates_of_two_parts():
    A = te.placeholder((6, 8), name="A")
    env = autotvm.task.TaskExtractEnv.get()
    with env, Target("llvm"):
        scale(A, 3.0)
        scale(te.placeholder((6, 8)), 3.0)
    assert env.get_tasks() == [("tests/scale.cpu", (("TENSOR", (6, 8), "float32"), 3.0))]
    task = autotvm.task.create("tests/scale.cpu", args=(A, 3.0), target="llvm")
    assert task.flop == 11 and len(task.config_space) == 2
    for index in range(2):
        judge(task, task.config_space.get(index), (6, 8), expect=lambda a: a * 3)
    with ApplyConfig(task.config_space.get(1)):
        out = scale(A, 3.0)
        assert autotvm.task.get_workload([out], "tests/scale.cpu") == task.workload
        s = schedule_scale([out])
    assert "T.vectorized(4)" in str(relaxish.lower(s, [A, out]))
    with pytest.raises(RuntimeError, match="Cannot find workload"):
        schedule_scale([te.compute((2,), lambda i: A[i, i])])


def test_tasks_travel():
    task = autotvm.task.create("tests/matmul", args=(8, 8, 8, "float32"), target="llvm")
    config = task.config_space.get(3)
    again = pickle.loads(pickle.dumps((task, config)))
    relaxish.ir.assert_structural_equal(again[0].program(again[1]), task.program(config))


def test_a_template_may_be_named_by_its_function():
    task = autotvm.task.create(matmul, args=(4, 4, 4, "float32"), target="llvm")
    assert task.name == "tests/matmul"
