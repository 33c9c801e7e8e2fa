"""LegalizeOps as a pass: whose rule is taken, what stays, what rules bring in, virtual devices."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import relaxish
from relaxish import relax, tir, topi
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.relax import op
from relaxish.relax.transform import LegalizeOps
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T


def program(function: Any, *infos: Any) -> IRModule:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{k}", info) for k, info in enumerate(infos)]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(function(*params)))
    return builder.get()


def tensor(*shape: Any, dtype: str = "float32") -> relax.TensorStructInfo:
    return relax.TensorStructInfo(shape, dtype)


def calls(mod: IRModule) -> list[str]:
    """Names of the functions and operators that ``main`` calls, in order."""
    names = []
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if isinstance(value, relax.Call):
                first = value.args[0] if value.args else None
                callee = getattr(first, "name_hint", None) or getattr(first, "global_symbol", None)
                names.append(callee if value.op.name == "relax.call_tir" else f"{value.op.name}:{callee}")
    return names


def test_a_users_rule_goes_first() -> None:
    def subtract(builder: Any, call: Any) -> Any:
        return builder.call_te(topi.subtract, *call.args)

    before = program(op.add, tensor(2, 3), tensor(2, 3))
    after = LegalizeOps({"relax.add": subtract})(before)
    assert calls(after) == ["subtract"]


def test_what_a_rule_brings_in_is_lowered_too() -> None:
    def rule(builder: Any, call: Any) -> Any:
        doubled = builder.emit(op.multiply(call.args[0], relax.const(2, "float32")))
        return op.exp(doubled)

    after = LegalizeOps({"relax.nn.relu": rule})(program(op.nn.relu, tensor(2, 3)))
    assert calls(after) == ["multiply", "tir_exp"]


def test_unknown_shapes_stay_even_with_a_users_rule() -> None:
    before = program(op.exp, relax.TensorStructInfo(dtype="float32", ndim=2))
    asked = []
    after = LegalizeOps({"relax.exp": lambda builder, call: asked.append(call)})(before)
    assert_structural_equal(after, before)
    assert not asked


def test_warnings_tell_what_stays(caplog: pytest.LogCaptureFixture) -> None:
    unknown = program(op.exp, relax.TensorStructInfo(dtype="float32", ndim=2))
    with caplog.at_level(logging.WARNING):
        LegalizeOps(enable_warning=True)(unknown)
    assert "missing known shapes" in caplog.text


def test_packed_calls_of_pure_operators_are_pure() -> None:
    after = LegalizeOps()(program(op.unique, tensor(6)))
    assert calls(after) == ["relax.call_pure_packed:relax.run.unique"]


def test_matmul_needs_dtypes() -> None:
    before = program(op.matmul, tensor(2, 3, dtype=""), tensor(3, 4))
    with pytest.raises(AssertionError, match=r"^To legalize R\.matmul into R\.call_tir"):
        LegalizeOps()(before)


def test_the_pass_can_be_switched_off() -> None:
    before = program(op.exp, tensor(2, 3))
    with relaxish.transform.PassContext(config={"relax.transform.apply_legalize_ops": False}):
        assert_structural_equal(LegalizeOps()(before), before)


def test_a_tuple_that_is_bound_is_taken_apart_at_once() -> None:
    builder = relax.BlockBuilder()
    x, y = (relax.Var(n, tensor(2, 3)) for n in "xy")
    with builder.function("main", [x, y]):
        pair = builder.emit(relax.Tuple([x, y]))
        builder.emit_func_output(builder.emit(op.concat(pair, axis=1)))
    after = LegalizeOps()(builder.get())
    assert calls(after) == ["concatenate"]
    call = after["main"].body.blocks[0].bindings[-1].value
    assert [v.name_hint for v in call.args[1].fields] == ["x", "y"]


def test_each_device_gets_its_own_loops() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 0)]})

        @R.function
        def main(
            x: R.Tensor((2, 3), "float32", "llvm"),
            y: R.Tensor((2, 3), "float32", "cuda"),
        ) -> R.Tuple(R.Tensor((2, 3), "float32", "llvm"), R.Tensor((2, 3), "float32", "cuda")):
            a = R.add(x, x)
            b = R.add(y, y)
            return (a, b)

    after = LegalizeOps()(Before)
    assert calls(after) == ["add_llvm", "add_cuda"]
    kinds = {
        v.name_hint: f.attrs["target"].kind.name for v, f in after.functions.items() if isinstance(f, tir.PrimFunc)
    }
    assert kinds == {"add_llvm": "llvm", "add_cuda": "cuda"}


def test_loops_of_a_plain_tensor_stay_beside_those_of_a_device() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm")]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm"), y: R.Tensor((4,), "float32")):
            a = R.exp(x)
            b = R.exp(y)
            return (a, b)

    after = LegalizeOps()(Before)
    assert calls(after) == ["tir_exp_llvm", "tir_exp"]
    assert "target" not in after["tir_exp"].attrs


def test_symbolic_scalars_become_arguments() -> None:
    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def arange(out: T.handle, n: T.int64):
            T.func_attr({"tir.noalias": True})
            T_arange = T.match_buffer(out, (n * T.int64(2),), "int64")
            for i in range(n * T.int64(2)):
                with T.block("T_arange"):
                    v = T.axis.spatial(n * T.int64(2), i)
                    T.reads()
                    T.writes(T_arange[v])
                    T_arange[v] = v

        @R.function
        def main(s: R.Shape(["n"])) -> R.Tensor(("n * 2",), "int64"):
            n = T.int64()
            cls = Expected
            gv = R.call_tir(cls.arange, R.tuple(), out_sinfo=R.Tensor((n * 2,), "int64"), tir_vars=R.shape([n]))
            return gv

    n = tir.Var("n", "int64")
    before = program(lambda s: op.arange(n * 2), relax.ShapeStructInfo([n]))
    assert_structural_equal(LegalizeOps()(before), Expected)
