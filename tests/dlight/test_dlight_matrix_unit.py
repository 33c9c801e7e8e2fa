"""Default schedules on matrix and dot-product instructions."""

import numpy as np
import pytest

from programs.products import packed_product, random_values
import relaxish
from relaxish.dlight import ApplyDefaultSchedule, cpu
from relaxish.driver import build_tir
from relaxish.support import config

TYPES = {
    "bf16": ("bfloat16", "bfloat16", "float32", 2),
    "u8s8": ("uint8", "int8", "int32", 4),
    "s8s8": ("int8", "int8", "int32", 4),
}


def scheduled(func, target):
    with target:
        return ApplyDefaultSchedule(cpu.MatrixUnit())(relaxish.IRModule({"main": func}))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("cpu_name", ["sapphirerapids", "cascadelake", "cooperlake"])
def test_instruction_follows_the_target(kind, cpu_name):
    target = relaxish.Target(f"llvm -mcpu={cpu_name} -num-cores 2")
    text = scheduled(packed_product(64, 64, 128, *TYPES[kind]), target).script()
    tiles = cpu_name == "sapphirerapids"
    if kind == "bf16" and cpu_name == "cascadelake":
        assert "tir.is_scheduled" not in text
    elif kind == "u8s8" and not tiles:
        assert "vpdpbusd" in text
    else:
        assert "amx.tdp" in text


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("bias", [False, True])
def test_results(kind, bias):
    a_type, b_type, c_type, pack = TYPES[kind]
    # The tiles of Sapphire Rapids, run as this machine can.
    func = scheduled(
        packed_product(48, 80, 192, *TYPES[kind], bias), relaxish.Target("llvm -mcpu=sapphirerapids -num-cores 2")
    )
    func = func["main"].without_attr("target")
    rng = np.random.default_rng(0)
    a, b = random_values(rng, (48, 192), a_type), random_values(rng, (192 // pack, 80, pack), b_type)
    d = random_values(rng, (80,), "float32" if c_type == "float32" else "int8").astype(c_type)
    flat = b.transpose(0, 2, 1).reshape(192, 80)
    want = a.astype("float64") @ flat.astype("float64") + (d if bias else 0)
    out = relaxish.nd.empty((48, 80), c_type)
    with config.DISABLE_FEATURES.override("amx"):
        build_tir(func, "llvm")["main"](*[relaxish.nd.array(x) for x in ((a, b, d) if bias else (a, b))], out)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-3)


def test_shapes_that_do_not_divide_are_left_to_other_rules():
    target = relaxish.Target("llvm -mcpu=sapphirerapids -num-cores 1")
    assert "tir.is_scheduled" not in scheduled(packed_product(40, 72, 128, *TYPES["bf16"]), target).script()


def test_default_rules_use_it():
    from relaxish.dlight import default_cpu_rules

    names = [type(r).__name__ for r in default_cpu_rules()]
    assert names.index("MatrixUnit") < names.index("Contraction")
