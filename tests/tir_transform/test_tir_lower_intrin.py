"""LowerIntrin: mathematics by target, fused multiplication and addition, rules of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxish import interp, tir
from relaxish.ir import IRModule, register_intrin_lowering
from relaxish.ir.op import Op
from relaxish.script import tir as T
from relaxish.target import Target
from relaxish.tir import transform


def lowered(expr: Any, target: str, *params: tir.Var) -> Any:
    func = tir.PrimFunc(list(params), tir.Evaluate(expr)).with_attr("target", Target(target))
    return transform.LowerIntrin()(IRModule({"main": func}))["main"].body.value


@pytest.mark.parametrize(
    "target, name, dtype, function",
    [
        ("llvm", "exp", "float32", "llvm.exp"), ("llvm", "sqrt", "float64", "llvm.sqrt"),
        ("llvm", "pow", "float32", "llvm.pow"), ("llvm", "popcount", "uint32", "llvm.ctpop"),
        ("llvm", "erf", "float32", "erff"), ("llvm", "atan", "float64", "atan"),
        ("cuda", "exp", "float32", "__expf"), ("cuda", "exp", "float64", "exp"), ("cuda", "exp", "float16", "hexp"),
        ("cuda", "tanh", "float32", "tanhf"), ("cuda", "round", "float16", "hrint"),
        ("cuda", "popcount", "uint64", "__popcll"), ("cuda", "tan", "float64", "tan"),
        ("c", "exp", "float32", "expf"), ("c", "cos", "float64", "cos"),
    ],
)  # fmt: skip
def test_functions_of_the_target(target: str, name: str, dtype: str, function: str) -> None:
    x = tir.Var("x", dtype)
    args = (x, x) if name == "pow" else (x,)
    made = lowered(getattr(tir, name)(*args), target, x)
    kind = "tir.call_llvm_pure_intrin" if function.startswith("llvm.") else "tir.call_pure_extern"
    assert (made.op.name, made.args[0].value, made.dtype) == (kind, function, dtype)
    assert all(arg.same_as(x) for arg in made.args[1:])


def test_types_without_a_function_stay() -> None:
    x = tir.Var("x", "float16")
    made = lowered(tir.exp(x), "c", x)
    assert made.op.name == "tir.exp"
    with pytest.raises(ValueError, match="cuda tan unsupported for float16"):
        lowered(tir.tan(x), "cuda", x)


def test_shuffles_of_a_warp() -> None:
    x = tir.Var("x", "float32")
    made = lowered(tir.tvm_warp_shuffle(tir.tvm_warp_activemask(), x, 3, 32, 32), "cuda", x)
    assert made.op.name == "tir.cuda.__shfl_sync" and len(made.args) == 4
    assert made.args[0].op.name == "tir.cuda.__activemask"


def test_product_and_sum_are_one_operation_where_the_target_has_it() -> None:
    x, y, z = (tir.Var(name, "float32") for name in "xyz")
    for expr in (x * y + z, z + x * y):
        made = lowered(expr, "llvm", x, y, z)
        assert made.args[0].value == "llvm.fmuladd"
        assert all(a.same_as(b) for a, b in zip(made.args[1:], (x, y, z), strict=True))
    assert isinstance(lowered(x * y + z, "cuda", x, y, z), tir.Add)
    i, j, k = (tir.Var(name, "int32") for name in "ijk")
    assert isinstance(lowered(i * j + k, "llvm", i, j, k), tir.Add)


def test_values() -> None:
    @T.prim_func
    def func(A: T.Buffer((9,), "float32"), B: T.Buffer((9, 8), "float32"), C: T.Buffer((9,), "int32")):
        T.func_attr({"target": T.target("llvm")})
        for i in range(9):
            B[i, 0] = T.tanh(A[i])
            B[i, 1] = T.tan(A[i])
            B[i, 2] = T.sinh(A[i])
            B[i, 3] = T.cosh(A[i])
            B[i, 4] = T.asinh(A[i])
            B[i, 5] = T.atanh(A[i])
            B[i, 6] = T.exp10(A[i])
            B[i, 7] = T.acosh(A[i] + T.float32(2))
            C[i] = T.clz(i)

    a = np.linspace(-0.9, 0.9, 9).astype("float32")
    functions = (
        np.tanh,
        np.tan,
        np.sinh,
        np.cosh,
        np.arcsinh,
        np.arctanh,
        lambda x: 10**x,
        lambda x: np.arccosh(x + 2),
    )
    wanted = np.stack([f(a.astype("float64")) for f in functions], axis=1)
    b, c = np.zeros((9, 8), "float32"), np.zeros(9, "int32")
    made = transform.LowerIntrin()(IRModule({"main": func}))["main"]
    interp.run_prim_func(made, [a, b, c])
    np.testing.assert_allclose(b, wanted, rtol=2e-6, atol=1e-6)
    np.testing.assert_array_equal(c, [32 - int(i).bit_length() for i in range(9)])
    assert "T.tanh" not in made.script()


def test_a_rule_of_ones_own_comes_first() -> None:
    x = tir.Var("x", "float32")
    register_intrin_lowering("tir.exp", target="llvm", f=lambda e: tir.call_pure_extern(e.dtype, "my_exp", *e.args))
    try:
        assert lowered(tir.exp(x), "llvm", x).args[0].value == "my_exp"
    finally:
        Op.get("tir.exp").reset_attr("llvm.FLowerIntrinsic")
    assert lowered(tir.exp(x), "llvm", x).args[0].value == "llvm.exp"
