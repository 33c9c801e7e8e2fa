"""Spaces against enumerations written down independently: which values, in which order, under which numbers."""

from __future__ import annotations

import itertools
import json
import random

import numpy as np
import pytest

from relaxish import te
from relaxish.autotvm.task import ConfigEntity, ConfigSpace, FallbackConfigEntity, InstantiationError
from relaxish.autotvm.task.space import MissingKnobError, VirtualAxis
from relaxish.support.errors import RelaxishError


def brute_split(length, outputs, policy, max_factor=1 << 31, no_tail=None):
    """All sizes by plain nested loops over every number."""
    divisors = [d for d in range(1, length + 1) if length % d == 0]
    powers = [2**i for i in range(40) if 2**i <= length]
    factors = {"factors": divisors, "power2": powers, "verbose": sorted(set(divisors) | set(powers))}[policy]
    factors = [f for f in factors if f <= max_factor]
    exact = policy == "factors" if no_tail is None else no_tail
    out = []
    for choice in itertools.product(factors, repeat=outputs - 1):
        total = int(np.prod(choice))
        if total <= length and (length % total == 0 or not exact):
            out.append([-1, *reversed(choice)])
    return out


@pytest.mark.parametrize("length", [1, 2, 7, 12, 13, 48, 100])
@pytest.mark.parametrize("outputs", [1, 2, 3, 4])
@pytest.mark.parametrize("policy", ["factors", "power2", "verbose"])
def test_splits(length, outputs, policy):
    for options in ({}, {"max_factor": 4}, {"no_tail": True}, {"no_tail": False}):
        cfg = ConfigSpace()
        axes = cfg.define_split("t", cfg.axis(length), policy=policy, num_outputs=outputs, **options)
        assert [a.index for a in axes] == list(range(outputs)) and all(a.space is cfg.space_map["t"] for a in axes)
        sizes = [cfg.space_map["t"][i].size for i in range(len(cfg.space_map["t"]))]
        assert sizes == brute_split(length, outputs, policy, **options)


def test_split_candidates_and_filters():
    cfg = ConfigSpace()
    cfg.define_split(
        "a", cfg.axis(64), policy="candidate", num_outputs=3, candidate=[[4, 4, 4], [-1, 8, 2], [1, 1, 64]]
    )
    assert [e.size for e in cfg.space_map["a"].entities] == [[4, 4, 4], [-1, 8, 2], [1, 1, 64]]
    cfg.define_split("b", cfg.axis(64), num_outputs=2, filter=lambda e: e.size[-1] >= 16)
    assert [e.size for e in cfg.space_map["b"].entities] == [[-1, 16], [-1, 32], [-1, 64]]
    with pytest.raises(ValueError, match="num_outputs"):
        cfg.define_split("c", cfg.axis(64), policy="candidate", num_outputs=2, candidate=[[1, 2, 3]])
    with pytest.raises(RelaxishError, match="no value to choose from"):
        cfg.define_split("d", cfg.axis(7), num_outputs=2, filter=lambda e: False)
    with pytest.raises(RuntimeError, match="Invalid policy"):
        cfg.define_split("e", cfg.axis(7), policy="thirds", num_outputs=2)
    with pytest.raises(ValueError, match="num_outputs"):
        cfg.define_split("f", cfg.axis(7))


def test_orders():
    cfg = ConfigSpace()
    axes = [cfg.axis(n) for n in (2, 3, 4, 5)]

    def perms(name, policy, **options):
        cfg.define_reorder(name, axes, policy, **options)
        return [list(e.perm) for e in cfg.space_map[name].entities]

    assert perms("i", "identity") == [[0, 1, 2, 3]]
    assert perms("a", "all") == [list(p) for p in itertools.permutations(range(4))]
    assert perms("v", "interval_all", interval=(1, 3)) == [[0, 1, 2, 3], [0, 2, 1, 3]]
    a, b, c, d = axes
    assert perms("c", "candidate", candidate=[[a, c, b, d], [d, c, b, a]]) == [[0, 2, 1, 3], [3, 2, 1, 0]]
    # spatial chains a-b and c-d: outer parts first, then the inner ones
    assert perms("l", "interleave", spatial=[[a, b], [c, d]], reduce=[]) == [[0, 2, 1, 3]]
    assert perms("u", "interleave_cuda", spatial=[[a, b]], reduce=[[c, d]]) == [[0, 2, 3, 1]]


@pytest.mark.parametrize("policy", ["try_unroll", "try_vec", "try_unroll_vec", "none", "unroll", "try_vec_unroll"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_annotations(policy, count):
    cfg = ConfigSpace()
    cfg.define_annotate("n", [cfg.axis(4)] * count, policy)
    words = policy.replace("try", "none").split("_")
    want = [list(w) for w in itertools.product(words, repeat=count) if list(w).count("vec") <= 1]
    assert [e.anns for e in cfg.space_map["n"].entities] == want


def test_annotations_of_gpus_and_caches():
    cfg = ConfigSpace()

    def words(count, policy, **options):
        cfg.define_annotate("n", [cfg.axis(4)] * count, policy, **options)
        return [list(e.anns) for e in cfg.space_map["n"].entities]

    blocks, threads = ["blockIdx.z", "blockIdx.y", "blockIdx.x"], ["threadIdx.z", "threadIdx.y", "threadIdx.x"]
    assert words(7, "bind_gpu") == [["fuse", *blocks, *threads]]
    assert words(5, "bind_gpu") == [["fuse", *blocks[1:], *threads[1:]]]
    assert words(2, "bind_gpu") == [["blockIdx.x", "threadIdx.x"]]
    assert words(10, "bind_gpu_virtual") == [["fuse", *blocks, *["vthread"] * 3, *threads]]
    assert words(6, "bind_gpu_virtual") == [[*blocks[1:], "vthread", "vthread", *threads[1:]]]
    assert words(4, "bind_gpu_virtual") == [["fuse", "blockIdx.x", "vthread", "threadIdx.x"]]
    assert words(3, "locate_cache", num_anchor=2) == [[0, 1], [0, 2], [1, 2]]
    with pytest.raises(RuntimeError, match="at least 2 axes"):
        words(1, "bind_gpu")


def full_space():
    cfg = ConfigSpace()
    cfg.define_split("tile_x", cfg.axis(24), num_outputs=2)
    cfg.define_split("tile_y", cfg.axis(6), num_outputs=3)
    cfg.define_reorder("ord", [cfg.axis(1)] * 3, "all")
    cfg.define_annotate("ann", [cfg.axis(2)] * 2, "try_unroll_vec")
    cfg.define_knob("step", [0, 16, 512])
    cfg.define_knob("what", ["plain", (1, (2, 3)), None])
    return cfg


def test_the_first_parameter_is_the_fastest_digit():
    cfg = full_space()
    dims = [len(s) for s in cfg.space_map.values()]
    assert cfg.dims == dims and cfg.range_length == len(cfg) == int(np.prod(dims))
    want = [tuple(reversed(row)) for row in itertools.product(*[range(d) for d in reversed(dims)])]
    for index in [0, 1, 2, 7, 8, 9, *random.Random(0).sample(range(len(cfg)), 200), len(cfg) - 1]:
        assert tuple(cfg.point2knob(index)) == want[index]
        assert cfg.knob2point(want[index]) == index
        entity = cfg.get(index)
        assert entity.index == index
        for name, digit in zip(cfg.space_map, want[index]):
            assert entity[name] == cfg.space_map[name][digit]
    for index in (-1, len(cfg)):
        assert not cfg.is_index_valid(index)
        with pytest.raises(IndexError, match="out of range"):
            cfg.get(index)


def test_columns_are_the_flat_features_of_entities():
    cfg = full_space()
    points = random.Random(1).sample(range(len(cfg)), 300)
    rows = cfg.columns.features(points)
    assert rows.dtype == np.float32
    for row, point in zip(rows, points):
        flat = cfg.get(point).get_flatten_feature()
        np.testing.assert_array_equal(row, flat)
    assert len(flat) == 2 + 3 + 3 + 2 * 11 + 1 + 1
    np.testing.assert_array_equal(cfg.columns.points(cfg.columns.digits(points)), points)


def test_spaces_larger_than_64_bits():
    cfg = ConfigSpace()
    for i in range(9):
        cfg.define_split(f"t{i}", cfg.axis(2 ** 20), num_outputs=4)  # fmt: skip
    assert cfg.range_length > 1 << 80
    index = cfg.range_length - 12345678901234567
    assert cfg.knob2point(cfg.point2knob(index)) == index
    assert int(cfg.columns.points(cfg.columns.digits([index]))[0]) == index
    np.testing.assert_array_equal(cfg.columns.features([index])[0], cfg.get(index).get_flatten_feature())
    assert len({int(i) for i in cfg.sample_ints(20)}) == 20


def test_filters_over_several_parameters():
    cfg = ConfigSpace()
    cfg.define_split("x", cfg.axis(32), num_outputs=2)
    cfg.define_split("y", cfg.axis(32), num_outputs=2)
    cfg.multi_filter(lambda e: 8 <= e["x"].size[1] * e["y"].size[1] < 64)
    valid = [i for i in range(36) if 8 <= 2 ** (i % 6) * 2 ** (i // 6) < 64]
    assert cfg.range_length == 36 and len(cfg) == len(valid)
    assert [i for i in range(36) if cfg.is_index_valid(i)] == valid
    assert cfg.subrange_length(5, 20) == len([i for i in valid if 5 <= i < 20])
    bad = next(i for i in range(36) if i not in valid)
    with pytest.raises(IndexError, match="multi-filter"):
        cfg.get(bad)
    assert sorted(cfg.sample_ints(len(valid))) == valid
    with pytest.raises(ValueError, match="cannot choose"):
        cfg.sample_ints(len(valid) + 1)
    assert {cfg.get_rand_index(to_exclude=valid[1:]) for _ in range(5)} == {valid[0]}
    with pytest.raises(IndexError, match="no configuration is left"):
        cfg.get_rand_index(to_exclude=valid)
    for _ in range(50):
        start = random.choice(valid)
        assert (moved := cfg.random_walk(start)) in valid and moved != start
    following = [valid[0]]
    while (found := cfg.get_next_index(following[-1])) is not None:
        following.append(found)
    assert following == valid
    assert cfg.get_next_index(valid[4], -2) == valid[2] and cfg.get_next_index(valid[0], 3) == valid[3]
    assert cfg.get_next_index(valid[2], -3) is None


def test_entities_as_json():
    cfg = full_space()
    for index in (0, 57, 1234, len(cfg) - 1):
        entity = cfg.get(index)
        again = ConfigEntity.from_json_dict(json.loads(json.dumps(entity.to_json_dict())))
        assert again == entity and again.index == index
        assert again.get_other_option() == {"step": entity["step"].val, "what": again["what"].val}
    assert repr(cfg.get(57)).endswith(",None,57") and "('tile_x', [-1, " in repr(cfg.get(57))
    text = '{"index": 57, "code_hash": null, "entity": [["tile_y", "sp", [-1, 8]], ["ord", "re", [0, 2, 1]], ["ann", "an", ["unroll", "vec"]], ["auto_unroll", "ot", 512]]}'
    assert json.dumps(ConfigEntity.from_json_dict(json.loads(text)).to_json_dict()) == text
    with pytest.raises(RuntimeError, match="Invalid config knob type: xx"):
        ConfigEntity.from_json_dict({"index": 0, "code_hash": None, "entity": [["a", "xx", 1]]})


@pytest.mark.parametrize(("length", "bounds", "want"), [(128, [-1, 8, 4], [4, 8, 4]), (49, [-1, 8, 4], [7, 7, 1]),
                                                        (6, [-1, -1, 4], [1, 2, 3])])  # fmt: skip
def test_fallback_splits(length, bounds, want):
    cfg = FallbackConfigEntity()
    cfg.define_split("t", cfg.axis(length), num_outputs=3)
    assert cfg["t"].size == [-1, 1, 1]
    cfg.fallback_split("t", bounds)
    assert cfg["t"].size == want


def test_fallbacks_follow_reference_logs():
    def space(length):
        cfg = ConfigSpace()
        cfg.define_split("t", cfg.axis(length), num_outputs=2)
        cfg.define_knob("u", [1, 2, 3])
        return cfg

    class Measured:
        def __init__(self, config):
            self.config = config

    log = [(Measured(space(n).get(i)), None) for n, i in ((35, 1), (64, 5))]
    log[1][0].config._entity_map["u"].val = 3
    cfg = FallbackConfigEntity()
    cfg.define_split("t", cfg.axis(48), num_outputs=2)
    cfg.define_knob("u", [1, 2, 3])
    cfg.fallback_with_reference_log(log)
    assert cfg["t"].size == [2, 24] and cfg["u"].val == 3  # 32 is the bound, 24 the greatest divisor of 48 below it


def test_what_a_configuration_lacks():
    cfg = full_space()
    with pytest.raises(MissingKnobError, match="no parameter 'tile_z'.*tile_x, tile_y"):
        cfg.get(0)["tile_z"]
    assert "tile_x" in cfg.get(0) and [*cfg.get(0)] == ["tile_x", "tile_y", "ord", "ann", "step", "what"]
    with pytest.raises(RelaxishError, match="symbolic extent"):
        VirtualAxis(te.compute((te.var("n"),), lambda i: i).op.axis[0])


def test_refusals():
    cfg = full_space()
    entity = cfg.get(3)
    assert entity.valid()
    entity.raise_error("too much")
    assert not entity.valid() and entity.errors == ["too much"]
    assert issubclass(InstantiationError, ValueError)


def test_spaces_print():
    cfg = ConfigSpace()
    cfg.define_split("tile_y", cfg.axis(512), num_outputs=2)
    assert repr(cfg) == (
        "ConfigSpace (len=10, range_length=10, space_map=\n"
        "   0 tile_y: Split(policy=factors, product=512, num_outputs=2) len=10\n)"
    )
