"""Products by warpgroups: the lowered kernels in the interpreter, which takes addresses and swizzles literally."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from relaxish import interp, te, tir
from relaxish.dlight.analysis import get_root_block
from relaxish.carver import HopperCosts
from relaxish.dlight.gpu import MatmulHopper
from relaxish.dlight.gpu.matmul_analysis import get_single_reduction
from relaxish.carver.warpgroups import configs
from relaxish.dlight.gpu.matmul_hopper import HopperConfig, normalize_product, schedule_tiles
from relaxish.tir.transform.hopper.layout import tile_layout
from relaxish.tir.transform.hopper.tiles import HopperError
from relaxish.tir.transform.hopper.lower import LowerHopperTiles, lower_tiles
from relaxish.ir import IRModule
from relaxish.target import Target

NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}


def product(m, n, k, in_dtype="float16", out_dtype="float32", trans_a=False, trans_b=True, tail=None, batch=None):
    """``tail``: "cast" to the operands' type, or "bias" and cast."""
    lead = () if batch is None else (batch,)
    a = te.placeholder((*lead, *((k, m) if trans_a else (m, k))), in_dtype, name="A")
    b = te.placeholder((*lead, *((n, k) if trans_b else (k, n))), in_dtype, name="B")
    r = te.reduce_axis((0, k), name="r")

    def element(*at):
        *l, i, j = at
        left = a[(*l, *((r, i) if trans_a else (i, r)))]
        right = b[(*l, *((j, r) if trans_b else (r, j)))]
        return te.sum(left.astype(out_dtype) * right.astype(out_dtype), axis=r)

    c = te.compute((*lead, m, n), element, name="C")
    if tail is None:
        return te.create_prim_func([a, b, c])
    if tail == "cast":
        return te.create_prim_func([a, b, te.compute(c.shape, lambda *at: c[at].astype(in_dtype), name="D")])
    bias = te.placeholder((n,), out_dtype, name="bias")
    return te.create_prim_func(
        [a, b, bias, te.compute(c.shape, lambda *at: (c[at] + bias[at[-1]]).astype(in_dtype), name="D")]
    )


def values(func, seed=1):
    rng = np.random.default_rng(seed)
    made = []
    for param in func.params:
        buffer = func.buffer_map[param]
        shape = [int(s) for s in buffer.shape]
        if "int" in buffer.dtype:
            made.append(rng.integers(0 if buffer.dtype[0] == "u" else -8, 8, shape).astype(buffer.dtype))
        else:
            made.append((rng.integers(-4, 5, shape) / 4).astype(NUMPY.get(buffer.dtype, buffer.dtype)))
    return made


def scheduled(func, config):
    sch = tir.Schedule(func)
    main = get_single_reduction(sch, get_root_block(sch))
    assert normalize_product(sch, main)
    schedule_tiles(sch, main, config)
    return sch.mod["main"]


def check(func, config, reference):
    """The lowered schedule computes what NumPy does; values are small multiples of 1/4, so sums are exact."""
    lowered = lower_tiles(scheduled(func, config))
    found = values(func)
    interp.run_prim_func(lowered, found)
    *inputs, output = found
    wanted = reference(*[x.astype("float64") for x in inputs]).astype(output.dtype)
    np.testing.assert_array_equal(wanted, output)
    assert "T.ptx_wgmma_ss" in lowered.script()
    return lowered


def matrices(trans_a=False, trans_b=True, **_):
    def reference(a, b, bias=0.0):
        return np.matmul(a.swapaxes(-1, -2) if trans_a else a, b.swapaxes(-1, -2) if trans_b else b) + bias

    return reference


def check_product(shape, config, **options):
    return check(product(*shape, **options), config, matrices(**options))


SMALL = HopperConfig(rows=64, columns=32, stages=2, warpgroups=1, persistent=3, group=2)


@pytest.mark.parametrize(
    "shape, options, config",
    [
        ((128, 64, 128), {}, SMALL),
        ((128, 64, 192), {"tail": "cast"}, HopperConfig(rows=128, columns=64, stages=3, persistent=0)),
        ((128, 64, 64), {"tail": "bias", "trans_b": False}, HopperConfig(rows=128, columns=64, stages=2, warpgroups=1)),
        ((64, 128, 64), {"trans_a": True, "trans_b": False}, HopperConfig(rows=64, columns=128, stages=2, warpgroups=1)),
        ((192, 64, 64), {}, HopperConfig(rows=192, columns=64, stages=2, warpgroups=3)),
        ((64, 96, 96), {"in_dtype": "bfloat16", "trans_b": False, "tail": "cast"},
         HopperConfig(rows=64, columns=96, depth_bytes=64, stages=2, warpgroups=1)),
        ((64, 32, 128), {"in_dtype": "float8_e4m3fn"}, SMALL),
        ((64, 32, 128), {"in_dtype": "float8_e5m2", "tail": "bias"}, SMALL),
        ((64, 32, 128), {"in_dtype": "int8", "out_dtype": "int32"}, SMALL),
        ((64, 32, 128), {"in_dtype": "uint8", "out_dtype": "int32"}, SMALL),
        ((64, 64, 64), {"out_dtype": "float16"}, HopperConfig(rows=64, columns=64, stages=2, warpgroups=1)),
        ((64, 32, 128), {"batch": 3, "tail": "cast"}, SMALL),
        ((64, 32, 512), {}, HopperConfig(rows=64, columns=32, depth_bytes=256, stages=2, warpgroups=1)),
    ],
)  # fmt: skip
def test_whole_tiles(shape, options, config):
    lowered = check_product(shape, config, **options)
    assert lowered.script().count("T.tensor_map_encode") == 3


def test_odd_sizes_are_cut_by_copies():
    text = check_product((100, 72, 136), SMALL, tail="bias").script()
    assert text.count("T.tensor_map_encode") == 3 and "T.ptx_tma_store(" in text


def test_odd_pitches_are_copied_by_threads():
    text = check_product((100, 77, 131), SMALL, tail="bias").script()
    assert "T.tensor_map_encode" not in text and "T.ptx_fence_proxy_async()" in text
    mixed = check_product((64, 40, 131), SMALL, trans_b=False).script()
    assert "T.ptx_tma_load(" in mixed and "T.ptx_fence_proxy_async()" in mixed


def test_direct_epilogue():
    text = check_product((100, 70, 64), SMALL, tail="bias").script()
    assert "T.ptx_tma_store(" not in text  # rows of 140 bytes


def convolution(n, size, channels, features, kernel, stride, pad):
    image = te.placeholder((n, size, size, channels), "float16", name="A")
    weight = te.placeholder((kernel, kernel, channels, features), "float16", name="W")
    whole = size + 2 * pad
    padded = te.compute((n, whole, whole, channels), lambda b, y, x, c: te.if_then_else(
        te.all(y >= pad, y < size + pad, x >= pad, x < size + pad), image[b, y - pad, x - pad, c], te.const(0, "float16")
    ), name="P")  # fmt: skip
    out = (whole - kernel) // stride + 1
    ry, rx, rc = (te.reduce_axis((0, e), name=name) for e, name in ((kernel, "ry"), (kernel, "rx"), (channels, "rc")))
    c = te.compute((n, out, out, features), lambda b, y, x, f: te.sum(
        padded[b, y * stride + ry, x * stride + rx, rc].astype("float32") * weight[ry, rx, rc, f].astype("float32"),
        axis=[ry, rx, rc]), name="C")  # fmt: skip
    relu = te.compute(c.shape, lambda *at: te.max(c[at], te.const(0, "float32")).astype("float16"), name="D")
    return te.create_prim_func([image, weight, relu])


def im2col(size, kernel, stride, pad):
    """What ``convolution`` computes, in NumPy."""
    out = (size + 2 * pad - kernel) // stride + 1

    def reference(image, weight):
        padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        total = 0.0
        for y, x in np.ndindex(kernel, kernel):
            part = padded[:, y : y + stride * (out - 1) + 1 : stride, x : x + stride * (out - 1) + 1 : stride]
            total = total + part @ weight[y, x]
        return np.maximum(total, 0)

    return reference


@pytest.mark.parametrize(
    "case, vectors",
    [((1, 8, 32, 64, 3, 1, 1), True), ((2, 7, 16, 40, 3, 1, 1), True), ((1, 9, 20, 32, 3, 2, 1), False)],
)
def test_convolution_as_product(case, vectors):
    """Weights come by bulk copies, rows of the image's product by threads: 16 bytes at a time where channels allow."""
    _, size, _, _, kernel, stride, pad = case
    text = check(convolution(*case), SMALL, im2col(size, kernel, stride, pad)).script()
    assert "T.ptx_tma_load(" in text and ("staged" not in text) is vectors


@pytest.mark.parametrize(
    "config, reason",
    [
        (HopperConfig(rows=64, columns=32, stages=2, warpgroups=2), "cannot be shared"),
        (HopperConfig(rows=128, columns=256, stages=6), "shared memory"),
        (HopperConfig(rows=64, columns=32, stages=1, warpgroups=1), "two stages"),
        (HopperConfig(rows=256, columns=256, stages=2, warpgroups=1), "registers"),
        # The assembler takes no product of 256 columns for the 128 registers that 512 threads are launched with.
        (HopperConfig(rows=192, columns=256, stages=2, warpgroups=3), "registers"),
    ],
)
def test_what_does_not_fit_is_refused(config, reason):
    with pytest.raises(HopperError, match=reason):
        lower_tiles(scheduled(product(256, 256, 512), config))


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("sides, threaded", [((768, 512, 128), False), ((767, 511, 127), True)])
def test_registers_are_shared_out(groups, sides, threaded):
    """Consumers can get no more than producers give back, or the block waits for ever."""
    config = HopperConfig(rows=64 * groups, columns=64, stages=2, warpgroups=groups)
    text = lower_tiles(scheduled(product(*sides, tail="bias"), config)).script()
    assert threaded is not ("ptx_tma_load" in text)
    threads = 128 * (groups + 1)
    at_launch = 65536 // threads // 8 * 8
    less, more = (int(n) for n in re.findall(r"ptx_setmaxnreg\((\d+)", text))
    assert less <= at_launch <= more and less + groups * more <= (groups + 1) * at_launch
    assert less % 8 == more % 8 == 0


@pytest.mark.parametrize("columns, waits", [(64, [0, 1, 0]), (128, [1, 0]), (192, [0, 1, 0])])
def test_write_back_waits_for_the_buffer_it_fills(columns, waits):
    """Two buffers take turns; an odd number of turns ends with the one that the next result begins with."""
    config = HopperConfig(rows=64, columns=columns, stages=2, warpgroups=1, persistent=2)
    text = lower_tiles(scheduled(product(256, 384, 64, tail="cast"), config)).script()
    assert [int(n) for n in re.findall(r"ptx_tma_store_wait\((\d)", text)] == waits


def test_pass_leaves_other_functions_alone():
    mod = IRModule({"main": product(64, 64, 64)})
    assert LowerHopperTiles()(mod) is mod


def test_layouts():
    assert tile_layout(128, 64, "float16", False).offsets == (16, 1024)
    wide = tile_layout(256, 64, "float16", True)
    assert wide.pieces == 4 and wide.offsets == (64 * 128, 1024) and wide.begin(64, 16) == 64 * 128 + 16 * 128
    assert tile_layout(64, 16, "float16", False).swizzle == 32
    with pytest.raises(HopperError, match="contiguous along the depth"):
        tile_layout(64, 64, "int8", True)


def test_tilings():
    assert [(c.rows, c.columns) for c in configs([1, 8192, 8192, 8192])][0] == (128, 256)


def blocks_of(config, rows, columns):
    return -(-rows // config.rows) * -(-columns // config.columns) * config.split


@pytest.mark.parametrize(
    "sides, least",
    [
        ((1024, 1024, 1024), 128),
        ((512, 512, 512), 128),
        ((2048, 2048, 2048), 128),
        ((512, 3072, 768), 128),  # BERT, a sequence of 512
        ((512, 768, 3072), 96),
        ((384, 1024, 4096), 96),
        ((128, 768, 768), 96),
        ((784, 128, 1152), 96),  # ResNet-50
        ((196, 256, 2304), 64),
        ((49, 512, 4608), 64),
    ],
)
def test_small_products_take_most_processors(sides, least):
    best = configs([1, *sides])[0]
    assert least <= blocks_of(best, *sides[:2]) <= 132
    lower_tiles(scheduled(product(*sides, tail="cast"), best))


def test_processors_of_the_target():
    """A chip with fewer processors gets as many blocks, and clusters of four only as many as find a place."""
    few = HopperCosts(processors=78)
    for config in configs([1, 4096, 4096, 1024], 2, few):
        assert config.persistent == few.concurrent(config.cluster * config.cluster_columns) <= 78
    target = Target({"kind": "cuda", "arch": "sm_90a", "multi_processor_count": 78, "max_threads_per_block": 1024})
    text = MatmulHopper().apply(product(4096, 4096, 256, tail="cast"), target, False).mod.script()
    [blocks] = {int(n) for n in re.findall(r'"hopper.persistent": (\d+)', text)}
    assert blocks <= 78


def test_whole_clusters_only():
    """A side of an odd, or of an unknown number of tiles is not divided among clusters."""
    for config in configs([1, 64 * 33, 256 * 31, 1024]):
        assert -(-64 * 33 // config.rows) % config.cluster == 0
        assert -(-256 * 31 // config.columns) % config.cluster_columns == 0
    assert all(c.cluster == 1 for c in configs([1, None, 1024, 1024]))
    assert all(c.cluster_columns == 1 for c in configs([1, 1024, 1024, 1024], bulk=(False, True)))
    assert any(c.cluster_columns == 2 for c in configs([1, None, 1024, 1024]))
