"""One table of intrinsics: every record is whole, and backends' rows name only what the table has."""

from __future__ import annotations

import ast
import ctypes.util
from pathlib import Path

import numpy as np
import pytest

import relaxish
from relaxish import te, tir
from relaxish.backend.c.printer import CPrinter
from relaxish.backend.common.llvmsource.intrinsics import IntrinsicWriter
from relaxish.backend.cuda.codegen.table import PRINTERS, load_printers
from relaxish.backend.llvm import intrin
from relaxish.backend.metal.printer import MetalPrinter
from relaxish.backend.opencl.printer import OpenCLPrinter
from relaxish.backend.rocm.printer import HIPPrinter
from relaxish.backend.vulkan.printer import GLSLPrinter
from relaxish.backend.webgpu.printer import WGSLPrinter
from relaxish.interp.intrinsics import MEANINGS
from relaxish.ir.op import Op
from relaxish.tir.intrinsics import INTRINSICS, named
from relaxish.tir.transform.numerics.intrin_rules import RULES

C_FAMILY = (CPrinter, HIPPrinter, OpenCLPrinter, MetalPrinter, GLSLPrinter, WGSLPrinter)
# What languages of the family call for nodes that are no intrinsics.
NODES = {"min", "max", "abs"}
MATHEMATICS = named(lambda record: record.builder == "float" or record.libm)


def _methods(kind: type, prefix: str) -> set[str]:
    return {name.removeprefix(prefix) for name in dir(kind) if name.startswith(prefix)}


def _rows() -> dict[str, set[str]]:
    """The intrinsics that each backend names."""
    load_printers()
    rows = {printer.language: set(printer.functions) | set(printer.templates) - NODES for printer in C_FAMILY}
    rows |= {
        f"{printer.language} calls": _methods(printer, "call_") - _methods(object, "call_") for printer in C_FAMILY
    }
    rows |= {f"rules of {kind}": set(rules) for kind, rules in RULES.items()}
    rows["LLVM"] = set(intrin._TABLE)
    rows["LLVM of devices"] = _methods(IntrinsicWriter, "_f_") | _methods(IntrinsicWriter, "call_")
    rows["CUDA"] = {name.removeprefix("tir.") for name in PRINTERS if not name.startswith("tir.cuda.")}
    rows["interpreter"] = set(MEANINGS)
    return rows


@pytest.mark.parametrize("row", sorted(_rows()))
def test_rows_of_backends_name_only_known_intrinsics(row):
    known = set(INTRINSICS) | NODES | {"check_index"}  # which is of the pass that makes it
    assert _rows()[row] - known == set()


@pytest.mark.parametrize("name", sorted(INTRINSICS))
def test_records_are_whole(name):
    record = INTRINSICS[name]
    assert record.name == name and record.cost >= 0
    assert Op.get(f"tir.{name}").get_attr("TCallEffectKind") == record.effect
    assert not record.cancels or record.widens
    assert not (record.builder == "float" or record.libm or record.lanewise) or record.meaning or name == "reinterpret"
    if record.builder:
        assert callable(getattr(tir, name))
    if record.libm:
        assert hasattr(ctypes.CDLL(ctypes.util.find_library("m")), record.libm)


@pytest.mark.parametrize("name", MATHEMATICS)
def test_mathematics_on_cpus_computes_the_meaning(name):
    """Random numbers through the LLVM backend, each function against its record."""
    record, rng = INTRINSICS[name], np.random.default_rng(7)
    count = {"fma": 3}.get(
        name, 2 if name in ("pow", "atan2", "hypot", "fmod", "ldexp", "copysign", "nextafter") else 1
    )
    low, high = {"acosh": (1.1, 4.0)}.get(name, (0.05, 0.95))
    arrays = [rng.uniform(low, high, 33).astype("float32") for _ in range(count)]
    if name == "ldexp":
        arrays[1] = rng.integers(-3, 4, 33).astype("int32")
    inputs = [te.placeholder((33,), str(a.dtype), name=f"x{i}") for i, a in enumerate(arrays)]
    made = te.compute((33,), lambda i: tir.Call("float32", Op.get(f"tir.{name}"), [x[i] for x in inputs]), name="y")
    built = relaxish.build(relaxish.IRModule({"main": te.create_prim_func([*inputs, made])}), target="llvm")
    result = relaxish.nd.array(np.zeros(33, "float32"))
    built["main"](*[relaxish.nd.array(a) for a in arrays], result)
    np.testing.assert_allclose(result.numpy(), record.meaning(*arrays), rtol=3e-5, atol=1e-6)


def test_no_other_table_says_which_functions_there_are():
    """``erf`` stands for them all: it is named by the table and by rows of backends, and by operators."""
    source = Path(relaxish.__file__).parent
    homes = set()
    for path in source.rglob("*.py"):
        place = path.relative_to(source).as_posix()
        texts = (n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant))
        if any(isinstance(text, str) and "erf" in text.split() for text in texts):
            homes.add(place)
    operators = ("op/", "topi/", "te/", "frontend/")
    rows = {
        "backend/llvm/intrin.py", "backend/metal/printer.py", "backend/vulkan/helpers.py", "backend/webgpu/helpers.py",
        "tir/transform/numerics/intrin_rules.py",
    }  # fmt: skip
    assert {h for h in homes if not h.startswith(operators)} == rows | {"tir/intrinsics.py"}
