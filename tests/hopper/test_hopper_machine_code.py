"""Kernels for sm_90a are compiled where a compiler is installed: warpgroup products, bulk copies, nothing in local memory."""

from __future__ import annotations

import numpy as np
import pytest
from test_hopper_emulation import every, sketch
from test_hopper_tiles import convolution, product, scheduled

from relaxish.backend.cuda.compile import nvrtc, sass
from relaxish.backend.cuda.build import lower_for_device
from relaxish.backend.cuda.codegen.printer import cuda_source
from relaxish.dlight.gpu.matmul_hopper import HopperConfig
from relaxish.ir import IRModule
from relaxish.meta_schedule.search_strategy.sketch import VectorSketch
from relaxish.target import Target

TARGET = Target("nvidia/nvidia-h100", host="llvm")
needs_tools = pytest.mark.skipif(
    not (sass.available() and nvrtc.available()), reason="no compiler or no disassembler (the triton package has one)"
)
needs_compiler = pytest.mark.skipif(not nvrtc.available(), reason="neither NVRTC nor nvcc is installed")


def source_of(func, config):
    mod = IRModule({"main": scheduled(func, config).with_attr("global_symbol", "main")})
    _, device = lower_for_device(mod, TARGET)
    return cuda_source(device)


def test_source():
    text = source_of(product(1024, 1024, 512, tail="cast"), HopperConfig(columns=128, cluster=2))
    assert "__launch_bounds__(384, 1)" in text and "const __grid_constant__ CUtensorMap A_map" in text
    assert "__align__(1024)" in text and "wgmma_ss_m64n128k16_f32_f16_f16_00" in text
    assert "bulk_load_2d_multicast(" in text and "registers_increase<232>" in text and "cluster_wait();" in text
    # Descriptors: 128-byte swizzle, groups of 8 rows 1024 bytes apart.
    assert ", 16, 1024, 1)" in text


CASES = [
    ({}, HopperConfig(cluster=2), "HGMMA.64x256x16.F32", 2),
    ({"in_dtype": "bfloat16", "trans_b": False, "tail": "bias"}, HopperConfig(), "HGMMA.64x256x16.F32.BF16", 5),
    ({"in_dtype": "float8_e4m3fn"}, HopperConfig(columns=128), "QGMMA.64x128x32.F32.E4M3.E4M3", 2),
    ({"in_dtype": "int8", "out_dtype": "int32"}, HopperConfig(columns=128), "IGMMA.64x128x32.S8.S8", 2),
    ({"out_dtype": "float16"}, HopperConfig(rows=256, columns=128), "HGMMA.64x128x16.F16", 2),
    (
        {"trans_a": True, "trans_b": False},
        HopperConfig(rows=64, columns=64, warpgroups=1, stages=8),
        "HGMMA.64x64x16.F32",
        2,
    ),
]


@needs_tools
@pytest.mark.slow
@pytest.mark.parametrize("options, config, instruction, loads", CASES)
def test_instructions(options, config, instruction, loads):
    image = nvrtc.compile_image(source_of(product(512, 512, 512, **options), config), "sm_90a", "cubin")
    [resources] = image.resources().values()
    found = sass.sass_instructions(image.data)
    short = sass.mnemonics(found)
    assert any(name.startswith(instruction) for name in found), found
    assert short["UTMALDG"] >= loads and short["UTMASTG"] >= 1
    assert not resources.spills and resources.stack_bytes == 0 and not short["LDL"] and not short["STL"]


@needs_tools
@pytest.mark.slow
def test_convolution():
    text = source_of(convolution(2, 16, 64, 128, 3, 1, 1), HopperConfig(columns=128))
    found = sass.sass_instructions(nvrtc.compile_image(text, "sm_90a", "cubin").data)
    assert found["HGMMA.64x128x16.F32"] and sass.mnemonics(found)["LDGSTS"] and found["UTMALDG.2D"]


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    "func",
    [
        product(1024, 1024, 2048, tail="cast"),
        product(4096, 768, 768, tail="bias", trans_b=False),
        product(500, 1000, 1024, in_dtype="float8_e4m3fn"),
        convolution(8, 28, 128, 128, 3, 1, 1),
    ],
    ids=["square", "layer", "float8", "convolution"],
)
def test_what_the_search_draws_stays_in_registers(func):
    """Tiles over the edge, three warpgroups, clusters along both sides: no register of a drawn program is spilled."""
    context, [made] = sketch(func)
    columns = VectorSketch(context, made.trace)
    variant = columns.variant(())
    assert variant is not None, columns.refused
    rows = variant.sample(np.random.default_rng(21), 400)
    options = [columns.table.categories[i][1] for i in columns.table.options]
    # Different tiles and warpgroups first, each with other choices of the rest.
    _, first = np.unique(rows[:, [options[0], options[1], options[3]]], axis=0, return_index=True)
    for sch in every(context, columns, rows[first][:10]):
        assert sch is not None
        mod = IRModule({"main": sch.mod["main"].with_attr("global_symbol", "main")})
        text = cuda_source(lower_for_device(mod, TARGET)[1])
        [used] = nvrtc.kernel_resources(text, "sm_90a").values()
        assert not used.spills and used.stack_bytes == 0, sch.trace


@needs_compiler
def test_compiles():
    text = source_of(product(100, 77, 131, tail="bias"), HopperConfig(rows=64, columns=32, stages=2, warpgroups=1))
    assert nvrtc.compile_cubin(text, "sm_90a")


@needs_compiler
@pytest.mark.parametrize(
    "func, config",
    [
        (product(128, 768, 3072, tail="bias"), HopperConfig(columns=64, stages=8, split=8)),
        (convolution(1, 14, 256, 256, 3, 1, 1), HopperConfig(rows=64, columns=64, stages=8, warpgroups=1, split=4)),
        (convolution(1, 28, 256, 256, 3, 2, 1), HopperConfig(columns=128, stages=6)),
    ],
)
def test_shared_depths_and_late_copies_stay_in_registers(func, config):
    text = source_of(func, config)
    assert "copy_async<16>" in text or "cluster_read" in text
    [resources] = nvrtc.kernel_resources(text, "sm_90a").values()
    assert not resources.spills and resources.stack_bytes == 0
