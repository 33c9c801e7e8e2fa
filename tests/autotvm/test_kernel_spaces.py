"""The parameters of kernels without templates: what they make is right, and made of vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import relaxish
from relaxish import autotvm
from relaxish.autotvm.task.kernel_spaces import TileSpace, _sketch_for
from relaxish.autotvm.task.space import ConfigSpace, InstantiationError
from relaxish.meta_schedule.analysis.schedules import normalize_mod
from relaxish.script import from_source
from relaxish.target import Target

TARGET = Target("llvm -num-cores=1")

# Shapes of the operands, the operator in Relax, and in torch.
FAMILIES = {
    "conv2d": ((1, 8, 12, 16), (8, 8, 3, 3), "R.nn.conv2d(x, w, padding=1)", lambda x, w: F.conv2d(x, w, padding=1)),
    "strided": (
        (1, 8, 16, 16), (12, 8, 3, 3), "R.nn.conv2d(x, w, padding=1, strides=2)",
        lambda x, w: F.conv2d(x, w, padding=1, stride=2),
    ),
    "dilated": (
        (2, 4, 12, 12), (8, 4, 3, 3), "R.nn.conv2d(x, w, padding=2, dilation=2)",
        lambda x, w: F.conv2d(x, w, padding=2, dilation=2),
    ),
    "1x1": ((1, 16, 8, 8), (24, 16, 1, 1), "R.nn.conv2d(x, w)", F.conv2d),
    "depthwise": (
        (1, 8, 12, 16), (8, 1, 3, 3), "R.nn.conv2d(x, w, padding=1, groups=8)",
        lambda x, w: F.conv2d(x, w, padding=1, groups=8),
    ),
    "grouped": (
        (1, 16, 8, 16), (16, 4, 3, 3), "R.nn.conv2d(x, w, padding=1, groups=4)",
        lambda x, w: F.conv2d(x, w, padding=1, groups=4),
    ),
    "channels last": (
        (1, 8, 8, 8), (3, 3, 8, 16), "R.nn.conv2d(x, w, padding=1, data_layout='NHWC', kernel_layout='HWIO')",
        lambda x, w: F.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding=1).permute(0, 2, 3, 1),
    ),
    "conv1d": ((1, 8, 32), (12, 8, 3), "R.nn.conv1d(x, w, padding=1)", lambda x, w: F.conv1d(x, w, padding=1)),
    "conv3d": (
        (1, 4, 4, 6, 16), (8, 4, 3, 3, 3), "R.nn.conv3d(x, w, padding=1)", lambda x, w: F.conv3d(x, w, padding=1)
    ),
    "transposed": (
        (1, 8, 6, 6), (8, 8, 4, 4), "R.nn.conv2d_transpose(x, w, strides=2, padding=1)",
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
    ),
    "matmul": ((48, 32), (32, 64), "R.matmul(x, w)", torch.matmul),
    "long matmul": ((40, 1024), (1024, 256), "R.matmul(x, w)", torch.matmul),
    "dense": ((32, 24), (48, 24), "R.matmul(x, R.permute_dims(w))", lambda x, w: x @ w.T),
    "batch matmul": ((3, 16, 24), (3, 24, 32), "R.matmul(x, w)", torch.matmul),
}  # fmt: skip


def kernel(name, target=TARGET):
    """The task of the operator's kernel with a ReLU, random operands and what comes out."""
    x_shape, w_shape, text, reference = FAMILIES[name]
    mod = from_source(f"""
@I.ir_module
class Mod:
    @R.function
    def main(x: R.Tensor({x_shape}, "float32"), w: R.Tensor({w_shape}, "float32")):
        with R.dataflow():
            y = R.nn.relu({text})
            R.output(y)
        return y
""")
    rng = np.random.default_rng(3)
    x, w = (rng.uniform(-1, 1, s).astype("float32") for s in (x_shape, w_shape))
    want = torch.relu(reference(torch.from_numpy(x), torch.from_numpy(w))).numpy()
    return mod, autotvm.task.extract_from_program(mod, None, target), x, w, want


def with_every_value(space, count):
    """At least ``count`` configurations in which every value of every parameter occurs."""
    rng = np.random.default_rng(0)
    order = rng.permutation([i for i in range(space.range_length) if space.is_index_valid(i)])
    digits = space.columns.digits(order)
    seen, chosen = set(), []
    for index, row in zip(order, digits, strict=True):
        values = set(enumerate(map(int, row)))
        if values - seen or len(chosen) < count:
            chosen.append(int(index))
            seen |= values
    return chosen


def check(name, count, target=TARGET):
    mod, tasks, x, w, want = kernel(name, target)
    task = max(tasks, key=lambda t: t.flop)
    assert isinstance(task.space, TileSpace), name
    for index in with_every_value(task.config_space, 4)[:count]:
        config = task.config_space.get(index)
        with target:
            assert task.program(config) is task.program(config)
        fine = autotvm.MeasureResult((1e-9,), 0, 1.0, 1.0)
        with autotvm.apply_history_best([(autotvm.MeasureInput(target, task, config), fine)]):
            built = relaxish.build(mod, target)
        got = relaxish.VirtualMachine(built, relaxish.cpu())["main"](relaxish.nd.array(x), relaxish.nd.array(w)).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=f"{name} {config}")


@pytest.mark.parametrize("name", ["conv2d", "grouped", "dense"])
def test_a_configuration_computes_what_the_operator_does(name):
    check(name, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_value_of_every_parameter_computes_what_the_operator_does(name):
    check(name, 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conv2d", "long matmul"])
def test_the_same_on_several_cores(name):
    check(name, 100, Target("llvm -num-cores=2"))


@pytest.mark.parametrize("name", FAMILIES)
def test_configurations_are_made_of_vectors(name):
    """The best by estimate stores whole vectors, and a step of the reduction is as many products of vectors as the tile
    has."""
    _, tasks, _, _, _ = kernel(name)
    task = max(tasks, key=lambda t: t.flop)
    space = task.config_space
    points = np.array([i for i in range(space.range_length) if space.is_index_valid(i)])
    assert 32 <= len(points) == len(space)
    cycles = task.cycles(points)
    assert np.all(np.isfinite(cycles)) and np.all(cycles > 0)
    config = space.get(int(points[np.argmin(cycles)]))
    _, vectors, lanes = config["tile_x"].size
    assert lanes >= 4, config
    with TARGET:
        source = relaxish.tir.build(task.program(config), TARGET).get_source("ll")
    assert re.search(rf"store <{lanes} x float>", source), config
    tile = vectors * config["tile_y"].size[2] * (config["tile_z"].size[1] if "tile_z" in config else 1)
    assert len(re.findall(rf"= call <{lanes} x float> @llvm.fma", source)) >= tile >= 4, config


def test_strided_convolutions_have_more_than_two_rows_in_registers():
    """Vectors of every second element are vectors to the model as well."""
    _, tasks, _, _, _ = kernel("strided")
    task = max(tasks, key=lambda t: t.flop)
    space = task.config_space
    points = np.array([i for i in range(space.range_length) if space.is_index_valid(i)])
    best = space.get(int(points[np.argmin(task.cycles(points))]))
    assert best["tile_y"].size[2] >= 4


def test_members_of_a_group_are_rows():
    _, tasks, _, _, _ = kernel("grouped")
    task = max(tasks, key=lambda t: t.flop)
    assert task.space.problem.rows.dom == 4 and task.space.problem.vector.dom == 16


def test_tiles_that_make_no_sense_are_no_part_of_the_space():
    _, tasks, _, _, _ = kernel("long matmul", Target("llvm -num-cores=2"))
    task = max(tasks, key=lambda t: t.flop)
    space = task.config_space
    for index in range(space.range_length):
        config = space._entity(index)
        _, vectors, _ = config["tile_x"].size
        _, count, rows = config["tile_y"].size
        plain = count * rows >= 40 and not config["pack"].val and config["tile_k"].size[1] == 1024
        if vectors * rows > 32 or not (plain or config["order"].val == "mixed"):
            assert not space.is_index_valid(index)


def test_places_of_stages_in_a_sketch_are_parameters():
    """The configuration alone says what program it is."""
    mod = from_source("""
@I.ir_module
class Mod:
    @T.prim_func
    def main(A: T.Buffer((32, 64), "float32"), B: T.Buffer((32, 48), "float32"), C: T.Buffer((64, 48), "float32")):
        E = T.alloc_buffer((64, 32))
        for i, k in T.grid(64, 32):
            with T.block("E"):
                vi, vk = T.axis.remap("SS", [i, k])
                E[vi, vk] = T.exp(A[vk, vi])
        for i, j, k in T.grid(64, 48, 32):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + E[vi, vk] * B[vk, vj]
""")
    sketch = _sketch_for(normalize_mod(mod), TARGET)
    space = ConfigSpace()
    sketch.define(space)
    assert {len(space.space_map[n]) for n in sketch.places} and all(len(space.space_map[n]) > 2 for n in sketch.places)
    rng = np.random.default_rng(2)
    a, b = rng.uniform(-1, 1, (32, 64)).astype("float32"), rng.uniform(-1, 1, (32, 48)).astype("float32")
    seen = set()
    for index in map(int, space.sample_ints(40)):
        config = space.get(index)
        place = config["place_0"].val
        if place in seen or len(seen) == 4:
            continue
        try:
            sch = sketch.apply(config)
        except InstantiationError:
            continue
        relaxish.ir.assert_structural_equal(sch.mod, sketch.apply(config).mod)
        seen.add(place)
        c = relaxish.nd.array(np.full((64, 48), np.nan, "float32"))
        relaxish.tir.build(sch.mod, TARGET)["main"](relaxish.nd.array(a), relaxish.nd.array(b), c)
        np.testing.assert_allclose(c.numpy(), np.exp(a).T @ b, rtol=1e-4, atol=1e-4)
    assert len(seen) >= 2
