"""Kernels whose operands have one name, as those of fused operators do, get the schedule that they would get otherwise."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.carver.block_facts import operand_names
from relaxish.ir.module import functions_of
from relaxish.pipeline import kernel_pipeline
from relaxish.relax import BlockBuilder, TensorStructInfo, Var
from relaxish.target import Target
from relaxish.tir import PrimFunc


def _product(m: int, k: int, n: int) -> relaxish.IRModule:
    """``x.T @ y``: both operands are computed, so that the fused kernel has two parameters of one name."""
    x, y = Var("x", TensorStructInfo([k, m], "float32")), Var("y", TensorStructInfo([k, n], "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(builder.emit(relax.op.permute_dims(x)), y))
            out = builder.emit_output(product)
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize(("m", "k", "n"), [(981, 1304, 366), (192, 1024, 350), (45, 64, 101)])
def test_products_of_operands_with_one_name(m: int, k: int, n: int) -> None:
    from relaxish.dlight import ApplyDefaultCPUSchedule

    target = Target("llvm -mcpu=x86-64-v4")
    mod = _product(m, k, n)
    with target:
        kernels = ApplyDefaultCPUSchedule()(kernel_pipeline(target, prepack=False)(mod))
    product = next(func for gvar, func in functions_of(kernels, PrimFunc) if "matmul" in gvar.name_hint)
    names = [product.buffer_map[p].name for p in product.params]
    assert len(set(names)) < len(names), "what this test is about"
    assert "T.vectorized(" in product.script(), "a register tile"
    rng = np.random.default_rng(m)
    x, y = (rng.standard_normal(shape, dtype="float32") for shape in ((k, m), (k, n)))
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), relaxish.cpu())
    got = vm["main"](relaxish.nd.array(x), relaxish.nd.array(y)).numpy()
    np.testing.assert_allclose(got, x.T @ y, rtol=1e-4, atol=1e-3)


def test_operands_of_a_block_have_names_of_their_own() -> None:
    from relaxish.script import tir as T

    @T.prim_func(private=True)
    def func(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")) -> None:
        for i in range(4):
            with T.block("sum"):
                v = T.axis.spatial(4, i)
                c[v] = a[v] + b[v]

    block = func.body.block.body.body.block
    renamed = [region.buffer.with_fields(name="x") for region in block.reads]
    reads = [region.with_fields(buffer=buffer) for region, buffer in zip(block.reads, renamed, strict=True)]
    assert list(operand_names(block.with_fields(reads=[*reads, reads[0]])).values()) == ["x", "x_1"]
