"""Code for machines that are not here: AVX2, plain x86 and NEON compile, and use the vectors they have."""

from __future__ import annotations

from typing import Any

import pytest

from relaxish import te, topi
from relaxish.backend.llvm import engine
from relaxish.backend.llvm.compile import compile_primfuncs, generate_text, prim_funcs_of
from relaxish.dlight import ApplyDefaultSchedule, default_cpu_rules
from relaxish.dlight.cpu.attention import AttentionShape, attention_kernel
from relaxish.dlight.cpu.winograd import input_transform
from relaxish.ir import IRModule
from relaxish.target import Target
from relaxish.tir.transform.pipeline import lower_for_cpu

# target, lanes of float32, a register of the full width, the fused multiply-add
TARGETS = [
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", 16, "%zmm", "vfmadd"),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", 8, "%ymm", "vfmadd"),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64", 4, "%xmm", "mulps"),
    ("llvm -mtriple=aarch64-linux-gnu -mattr=+neon", 4, ".4s", "fmla"),
]
IDS = ["avx512", "avx2", "sse2", "neon"]


def scheduled(tensors: list[Any], target: str) -> tuple[Any, Target]:
    with Target(target) as made:
        mod = ApplyDefaultSchedule(*default_cpu_rules(made))(IRModule({"main": te.create_prim_func(tensors)}))
        return lower_for_cpu(mod, made), made


def assembly(mod: Any, target: Target) -> str:
    _, text = generate_text(prim_funcs_of(mod), target)
    return engine.assembly_of(text, target)


@pytest.mark.parametrize(("target", "lanes", "register", "multiply"), TARGETS, ids=IDS)
def test_matmul(target: str, lanes: int, register: str, multiply: str) -> None:
    a, b = te.placeholder((48, 64), "float32", "A"), te.placeholder((64, 96), "float32", "B")
    mod, made = scheduled([a, b, topi.nn.relu(topi.nn.matmul(a, b))], target)
    assert made.vector_bits == lanes * 32
    text = assembly(mod, made)
    assert register in text and multiply in text
    spills = [line for line in text.splitlines() if "Spill" in line and register in line]
    assert len(spills) == 0


@pytest.mark.parametrize(("target", "lanes", "register", "multiply"), TARGETS, ids=IDS)
def test_softmax_and_transpose(target: str, lanes: int, register: str, multiply: str) -> None:
    x = te.placeholder((33, 100), "float32", "X")
    for out in (topi.nn.softmax(x), topi.transpose(x)):
        mod, made = scheduled([x, out], target)
        assert register in assembly(mod, made)


@pytest.mark.parametrize(("target", "lanes", "register", "multiply"), TARGETS, ids=IDS)
def test_templates(target: str, lanes: int, register: str, multiply: str) -> None:
    made = Target(target)
    wide = attention_kernel(AttentionShape(1, 20, 20, 2, 32, 32, 0.1), lanes, vectors=4 if lanes == 16 else 2)
    for func in (wide, input_transform(1, (2, 2), 32, lanes)):
        lowered = lower_for_cpu(IRModule({"main": func}), made)
        assert compile_primfuncs(lowered, made).object_bytes[:4] == b"\x7fELF"
        assert register in assembly(lowered, made)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("target", [t[0] for t in TARGETS], ids=IDS)
def test_narrow_types_compile(target: str, dtype: str) -> None:
    x = te.placeholder((16, 64), dtype, "X")
    wide = topi.cast(x, "int32" if dtype == "int8" else "float32")
    mod, made = scheduled([x, topi.sum(topi.multiply(wide, wide), 1)], target)
    assert compile_primfuncs(mod, made).object_bytes[:4] == b"\x7fELF"
