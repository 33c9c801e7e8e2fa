"""The table is complete: every operator has what it should have, or a reason why not."""

from __future__ import annotations

import pytest

from relaxish.ir.op import Op
from relaxish.relax.op_table import OpRecord, all_op_records

RECORDS = all_op_records()

# How a program is put together, not what it computes: these have no NumPy meaning and no tensor gradient.
_PROGRAM = {
    "relax.call_tir", "relax.call_tir_with_grad", "relax.call_tir_inplace", "relax.call_dps_packed",
    "relax.call_pure_packed", "relax.call_inplace_packed", "relax.call_builtin_with_ctx", "relax.make_closure",
    "relax.invoke_closure", "relax.invoke_pure_closure", "relax.null_value", "relax.print", "relax.assert_op",
    "relax.to_vdevice", "relax.hint_on_device", "relax.shape_of", "relax.tensor_to_shape", "relax.shape_to_tensor",
}  # fmt: skip
_PREFIXES = (
    "relax.memory.",
    "relax.vm.",
    "relax.builtin.",
    "relax.ccl.",
    "relax.inspect.",
    "relax.dist.",
    "relax.grad.",
)

_NO_REFERENCE = {
    "relax.unique": "tested in test_op_set.py: its size depends on the data",
    "relax.nonzero": "tested in test_op_set.py: its size depends on the data",
    "relax.dynamic_strided_slice": "tested in test_op_set.py: its size depends on the data",
    "relax.nn.attention_var_len": "its arguments are offsets into packed sequences; checked against attention",
}
_NO_GRADIENT = {
    "relax.ceil", "relax.floor", "relax.round", "relax.sign", "relax.isnan", "relax.isinf", "relax.isfinite",
    "relax.argmax", "relax.argmin", "relax.argsort", "relax.topk", "relax.sort", "relax.unique", "relax.nonzero",
    "relax.floor_divide", "relax.floor_mod", "relax.mod", "relax.logical_and", "relax.logical_or", "relax.logical_xor",
    "relax.logical_not", "relax.bitwise_and", "relax.bitwise_or", "relax.bitwise_xor", "relax.bitwise_not",
    "relax.left_shift", "relax.right_shift", "relax.one_hot", "relax.quantize", "relax.dequantize", "relax.arange",
    "relax.eye", "relax.eye_like", "relax.multinomial_from_uniform", "relax.wrap_param",
}  # fmt: skip


def computing() -> list[OpRecord]:
    return [r for n, r in sorted(RECORDS.items()) if n not in _PROGRAM and not n.startswith(_PREFIXES)]


@pytest.mark.parametrize("record", computing(), ids=lambda r: r.name)
def test_every_operator_is_described(record: OpRecord) -> None:
    assert record.legalize is not None or Op.get(record.name).get_attr("FCallPacked") is not None
    if record.name not in _NO_REFERENCE:
        assert record.reference is not None and record.samples is not None
        assert len(list(record.samples())) >= 1


def test_operators_without_gradient_are_discrete_or_of_a_kind_training_does_not_need() -> None:
    # Networks train with what torch and TVM differentiate; what else has no gradient here is in this list.
    missing = {r.name for r in computing() if r.gradient is None} - _NO_GRADIENT
    assert missing == {
        "relax.acos", "relax.acosh", "relax.asin", "relax.asinh", "relax.atan", "relax.atanh", "relax.clip",
        "relax.collapse_sum_like", "relax.collapse_sum_to", "relax.cosh", "relax.cumprod",
        "relax.dynamic_strided_slice", "relax.einsum", "relax.erf", "relax.ewise_fma", "relax.flatten", "relax.flip",
        "relax.gather_elements", "relax.gather_nd", "relax.image.resize2d", "relax.layout_transform", "relax.max",
        "relax.min", "relax.nn.adaptive_avg_pool1d", "relax.nn.adaptive_avg_pool2d", "relax.nn.adaptive_avg_pool3d",
        "relax.nn.attention", "relax.nn.attention_bias", "relax.nn.attention_var_len", "relax.nn.avg_pool1d",
        "relax.nn.avg_pool3d", "relax.nn.batch_norm", "relax.nn.conv1d", "relax.nn.conv1d_transpose",
        "relax.nn.conv2d_transpose", "relax.nn.conv3d", "relax.nn.dropout", "relax.nn.gelu", "relax.nn.gelu_tanh",
        "relax.nn.group_norm", "relax.nn.instance_norm", "relax.nn.layer_norm", "relax.nn.leakyrelu",
        "relax.nn.max_pool1d", "relax.nn.max_pool3d", "relax.nn.pad", "relax.nn.prelu", "relax.nn.rms_norm",
        "relax.nn.selu", "relax.nn.softplus", "relax.prod", "relax.repeat", "relax.rsqrt", "relax.scatter_elements",
        "relax.scatter_nd", "relax.sinh", "relax.square", "relax.squeeze", "relax.std", "relax.strided_slice",
        "relax.tan", "relax.tile", "relax.tril",
    }  # fmt: skip


@pytest.mark.parametrize("policy", ["always", "follow", "never"])
def test_precision_policies(policy: str) -> None:
    assert all(r.precision in ("always", "follow", "never") for r in RECORDS.values())
    expected = {"always": "relax.matmul", "follow": "relax.add", "never": "relax.nn.softmax"}[policy]
    assert RECORDS[expected].precision == policy


def test_a_record_says_what_its_kind_does_not() -> None:
    relu, add, total = (RECORDS[f"relax.{n}"] for n in ("nn.relu", "add", "sum"))
    assert [r.kind.name for r in (relu, add, total)] == ["elementwise", "broadcast", "reduction"]
    assert relu.layout is relu.kind.layout and relu.precision == "follow" and relu.axes is relu.kind.axes
    assert Op.get("relax.sum").get_attr("TAttrsTypeKey") == total.attrs == "relax.attrs.StatisticalAttrs"


def test_one_define_is_a_whole_operator() -> None:
    """What a new operator of a known kind needs: its record. Everything that asks records then knows it."""
    from relaxish import relax, topi
    from relaxish.op.kinds import ELEMENTWISE
    from relaxish.op.lowering import by_te
    from relaxish.op.record import define
    from relaxish.relax.op_table import _TABLE
    from relaxish.relax.transform import ConvertLayout, LegalizeOps
    from relaxish.tir import const

    rule = by_te("halve", lambda x: topi.multiply(x, const(0.5, x.dtype)))
    record = define("test_halve", lambda call, _: call.args[0].struct_info, kind=ELEMENTWISE, legalize=rule)
    try:
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorStructInfo((1, 4, 8, 8), "float32"))
        w = relax.Var("w", relax.TensorStructInfo((4, 4, 3, 3), "float32"))
        with builder.function("main", [x, w]):
            with builder.dataflow():
                y = builder.emit(relax.op.nn.conv2d(x, w, padding=1))
                out = builder.emit_output(relax.Call(Op.get(record.name), [y]))
            builder.emit_func_output(out)
        laid = ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(builder.get()).script()
        # The conversion back comes behind the new operator: it goes along with the layout.
        assert laid.index("test_halve") < laid.rindex("permute_dims")
        assert "cls.halve" in LegalizeOps()(builder.get()).script()
    finally:
        _TABLE.pop(record.name)
