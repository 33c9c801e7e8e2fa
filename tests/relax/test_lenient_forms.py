"""Forms that programs of the field use: packed calls of any result, derived signatures, instruments with options."""

from __future__ import annotations

import pytest

from relaxish import IRModule, relax, tir
from relaxish.relax.ir.instrument import WellFormedInstrument
from relaxish.script import relax as R


def test_packed_calls_without_struct_info_give_objects() -> None:
    @R.function(pure=False, private=True)
    def call(x: R.Tensor((2,), "float32")):
        y = R.call_packed("some.function", x)
        return y

    (binding,) = call.body.blocks[0].bindings
    assert isinstance(binding.var.struct_info, relax.ObjectStructInfo)


def test_a_signature_by_its_rule_alone() -> None:
    rule = "tvm.relax.struct_info.infer_view_sinfo"
    info = relax.ExternFunc("f", R.Callable(derive_func=rule, purity=True)).struct_info
    assert info.derive_func == rule and info.purity and info.params is None
    with pytest.raises(ValueError, match="both"):
        relax.FuncStructInfo.opaque_func(ret=relax.ObjectStructInfo(), derive_func=rule)


def test_the_instrument_checks_inputs_only_if_asked() -> None:
    x, stray = (relax.Var(name, relax.TensorStructInfo((2,), "float32")) for name in ("x", "stray"))
    mod = IRModule(
        {"main": relax.Function([x], stray, relax.TensorStructInfo((2,), "float32"), attrs={"global_symbol": "main"})}
    )
    info = tir.transform.Simplify().info
    with pytest.raises(AssertionError, match="before"):
        WellFormedInstrument().run_before_pass(mod, info)
    late = WellFormedInstrument(validate_before_transform=False)
    late.run_before_pass(mod, info)
    with pytest.raises(AssertionError, match="after"):
        late.run_after_pass(mod, info)
