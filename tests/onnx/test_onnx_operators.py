"""Random calls of single operators with special values and odd shapes, against ONNX Runtime and onnx.reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from relaxish.frontend.onnx import from_onnx  # noqa: E402
from relaxish.runtime.kernels.kernel import ArgumentError  # noqa: E402
from relaxish.support.errors import OpNotImplemented  # noqa: E402
from relaxish.testing.fuzz.onnx_judges import check_operator, compiled_results, difference  # noqa: E402
from relaxish.testing.fuzz.onnx_operators import OperatorCase, operator_case, operator_names  # noqa: E402


def check(name: str, seeds: range) -> None:
    ran = 0
    for seed in seeds:
        case = operator_case(name, seed)
        verdict = check_operator(case)
        assert verdict.status in ("right", "illegal"), f"{verdict.status}: {verdict.reason}\n{case}"
        ran += verdict.status == "right"
    assert ran * 4 >= len(seeds), "most cases of this operator are illegal"


@pytest.mark.parametrize("name", operator_names())
def test_random_calls(name: str) -> None:
    check(name, range(1000, 1004))


@pytest.mark.slow
@pytest.mark.parametrize("name", operator_names())
def test_many_random_calls(name: str) -> None:
    check(name, range(2000, 2040))


def test_a_case_is_its_number() -> None:
    first, again, other = (str(operator_case("Conv", seed)) for seed in (3, 3, 4))
    assert first == again != other


def test_sums_of_squares_that_overflow() -> None:
    """The standard does not say what they are: the reference wraps, ONNX Runtime gives the largest number."""
    for seed in (888039103, 178832581):
        assert check_operator(operator_case("ReduceSumSquare", seed)).status == "right"


def run(op: str, *inputs: Any, weights: Any = (), **attrs: Any) -> Any:
    outputs = attrs.pop("outputs", 1)
    opset = attrs.pop("opset", 18)
    case = OperatorCase(op, [np.asarray(v) for v in inputs], attrs, outputs, opset, weights=set(weights))
    return compiled_results(case)[0]


_SIX = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.mark.parametrize("target", [[100], [2, 2], [-1, 4], [2**32, 2**32], [0, 0, 0], [-2, -3]])
def test_reshape_to_a_wrong_computed_shape_is_an_error(target: list[int]) -> None:
    with pytest.raises((ArgumentError, ValueError)):
        run("Reshape", _SIX, np.array(target, "int64"))


@pytest.mark.parametrize("target", [[3, 2], [-1], [0, -1], [6, 1, 0][:2]])
def test_reshape_to_a_computed_shape(target: list[int]) -> None:
    want = np.reshape(_SIX, [_SIX.shape[k] if t == 0 else t for k, t in enumerate(target)])
    np.testing.assert_array_equal(run("Reshape", _SIX, np.array(target, "int64")), want)


@pytest.mark.parametrize("target", [[5, 3], [4], [2, 2]])
def test_expand_to_a_wrong_computed_shape_is_an_error(target: list[int]) -> None:
    with pytest.raises(ArgumentError):
        run("Expand", _SIX, np.array(target, "int64"))


def _normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def test_an_operator_of_another_domain_is_not_taken_for_the_standards() -> None:
    """``Attention`` of ONNX Runtime is a function of other inputs than that of the standard."""
    case = OperatorCase("Attention", [_normal(2, 3, 4, 8), _normal(2, 3, 6, 8), _normal(2, 3, 6, 8)], opset=23)
    assert check_operator(case).status == "right"
    model = case.model()
    model.graph.node[0].domain = "somebody.else"
    with pytest.raises(OpNotImplemented, match=r"somebody\.else\.Attention"):
        from_onnx(model)


_BODIES = {
    "Attention-causal": OperatorCase(
        "Attention", [_normal(2, 4, 4, 8), _normal(2, 2, 6, 8), _normal(2, 2, 6, 8)], {"is_causal": 1}, opset=23
    ),
    "Attention-3d": OperatorCase(
        "Attention", [_normal(2, 4, 32), _normal(2, 6, 16), _normal(2, 6, 16)], {"q_num_heads": 4, "kv_num_heads": 2},
        opset=23,
    ),
    "Attention-mask": OperatorCase(
        "Attention", [_normal(2, 3, 4, 8), _normal(2, 3, 6, 8), _normal(2, 3, 6, 8), _normal(4, 6) > 0], opset=23
    ),
    "RMSNormalization": OperatorCase("RMSNormalization", [_normal(2, 3, 4), _normal(4)], opset=23),
    "GroupNormalization": OperatorCase(
        "GroupNormalization", [_normal(2, 4, 3, 3), _normal(4), _normal(4)], {"num_groups": 2}, opset=21
    ),
    "Swish": OperatorCase("Swish", [_normal(2, 4)], opset=24),
    "NegativeLogLikelihoodLoss": OperatorCase(
        "NegativeLogLikelihoodLoss", [_normal(3, 5), np.array([0, 4, 2])], opset=22
    ),
    "SoftmaxCrossEntropyLoss": OperatorCase("SoftmaxCrossEntropyLoss", [_normal(3, 5), np.array([0, 1, 4])], opset=13),
    "DynamicQuantizeLinear": OperatorCase("DynamicQuantizeLinear", [_normal(3, 5)], {}, 3, 11),
    "HammingWindow": OperatorCase("HammingWindow", [np.array(10)], opset=17, weights={0}),
}  # fmt: skip


@pytest.mark.parametrize("name", _BODIES)
def test_operators_by_the_body_the_standard_gives(name: str) -> None:
    verdict = check_operator(_BODIES[name])
    assert verdict.status == "right", verdict


def test_functions_of_a_model_are_opened() -> None:
    helper = onnx.helper
    body = helper.make_function(
        "mine", "Add", ["a", "b"], ["c"], [helper.make_node("Sub", ["a", "b"], ["c"])], [helper.make_opsetid("", 18)]
    )
    node = helper.make_node("Add", ["x", "y"], ["z"], domain="mine")
    given = [helper.make_tensor_value_info(n, 1, [2, 3]) for n in "xy"]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("z", 1, [2, 3])])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    module = from_onnx(helper.make_model(graph, functions=[body], opset_imports=opsets, ir_version=9))
    assert "subtract" in module.script() and "add" not in module["main"].script()


def test_a_missing_output_in_between() -> None:
    """Outputs keep their places when one before them is not asked for."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 3, 5)).astype("float32")
    params = [rng.normal(size=3).astype("float32") for _ in range(3)] + [np.ones(3, "float32")]
    case = OperatorCase("BatchNormalization", [x, *params], {"training_mode": 1}, 3, 15)
    model = case.model()
    model.graph.node[0].output[1] = ""
    del model.graph.output[1]
    import relaxish

    vm = relaxish.VirtualMachine(relaxish.build(from_onnx(model), "llvm"), relaxish.cpu())
    got = [v.numpy() for v in vm["main"](*[relaxish.nd.array(v) for v in case.inputs])]
    running = params[3] * np.float32(0.9) + x.var((0, 2)) * np.float32(0.1)
    np.testing.assert_allclose(got[1], running, rtol=1e-5)


def test_the_judge_sees_differences() -> None:
    case = operator_case("Relu", 0)
    x = np.array([1.0, np.nan, -0.0, np.inf], "float32")
    for wrong in (x[:2], x.astype("float64"), np.array([1, 0, 0, np.inf], "float32"), np.array([1, np.nan, 0, 3e38])):
        assert difference([wrong], [x], case)
    assert not difference([np.array([1.0000001, np.nan, 0.0, np.inf], "float32")], [x], case)
