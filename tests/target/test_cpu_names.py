"""``-mcpu``: names LLVM knows, models whose features we know, and the error for a name nobody knows."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import relaxish
from relaxish.script import tir as T
from relaxish.support.errors import RelaxishError
from relaxish.target import Target
from relaxish.target.llvm_cpus import CPU_NAMES, check_cpu
from relaxish.target.x86 import known_models


@T.prim_func
def twice(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.block("b"):
            v = T.axis.spatial(64, i)
            B[v] = A[v] * T.float32(2)


@pytest.mark.parametrize(
    ("mcpu", "near"),
    [
        ("skylke", "skylake"),
        ("x86_64_v3", "x86-64-v3"),
        ("znver9", "znver"),
        ("cortex-a27", "cortex-a7"),
        ("haswel", "haswell"),
        ("qqqqqq", "such as"),
        ("x86-64,x86-64-v9", "x86-64-v"),
    ],
)
def test_unknown_names(mcpu: str, near: str) -> None:
    target = Target({"kind": "llvm", "mcpu": mcpu})  # a target may be made of anything
    with pytest.raises(RelaxishError, match=f"unknown CPU -mcpu={mcpu.split(',')[-1]}") as caught:
        relaxish.build(twice, target)
    assert near in str(caught.value)


def test_names_of_another_architecture() -> None:
    with pytest.raises(RelaxishError, match="for aarch64-linux-gnu; "):
        check_cpu("skylake", "aarch64-linux-gnu", True)
    check_cpu("cortex-a72", "x86_64-unknown-linux-gnu", False)
    check_cpu("neoverse-n1", "aarch64-linux-gnu", True)
    check_cpu("whatever", "hexagon", True)
    check_cpu("cortex-m33+nodsp", "armv8-linux-gnueabi", True)


@pytest.mark.parametrize("mcpu", ["native", "host", "generic", "x86-64", "x86-64-v3", "x86-64-v4", "znver4", "btver2"])
def test_known_names_compile(mcpu: str) -> None:
    assert "twice" in relaxish.build(twice, f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={mcpu}").kernels


def test_tags_name_known_cpus() -> None:
    for tag in relaxish.target.list_tags():
        target = Target(tag)
        for one in (target, target.host):
            if one is not None and one.kind.name == "llvm":
                check_cpu(one.mcpu, str(one.attrs.get("mtriple", "x86_64-linux")), "mtriple" in one.attrs)


def test_models_are_llvms() -> None:
    assert set(known_models()) <= CPU_NAMES["x86"]


_LIST = """
import os, sys, tempfile
from relaxish.backend.llvm import engine
target = engine.binding().Target.from_triple(sys.argv[1])
with tempfile.TemporaryFile() as file:
    os.dup2(file.fileno(), 2)
    target.create_target_machine(cpu="help")
    file.seek(0)
    sys.stdout.write(file.read().decode())
"""


@pytest.mark.parametrize(
    ("family", "triple"),
    [("x86", "x86_64-unknown-linux-gnu"), ("aarch64", "aarch64-unknown-linux-gnu"), ("riscv", "riscv64-linux-gnu")],
)
def test_the_table_holds_what_this_llvm_lists(family: str, triple: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LIST, triple],
        capture_output=True,
        text=True,
        timeout=120,
        env=dict(os.environ),
        check=False,
    )
    listed = set(re.findall(r"^\s+(\S+)\s+- Select", done.stdout, re.MULTILINE))
    assert len(listed) > 20 and listed <= CPU_NAMES[family]
