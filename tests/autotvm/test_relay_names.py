"""What scripts import from Relay: Relax where there is the same, otherwise one line that says what to write."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxish as tvm


def model(weight):
    node = helper.make_node("MatMul", ["x", "W"], ["y"])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, d]) for n, d in (("x", 4), ("y", 3)))
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(weight, "W")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("freeze", [True, False])
def test_the_usual_lines(freeze):
    import relaxish.relay as relay

    rng = np.random.default_rng(0)
    weight, x = rng.uniform(-1, 1, (4, 3)).astype("float32"), rng.uniform(-1, 1, (1, 4)).astype("float32")
    onnx_model = model(weight)
    onnx.checker.check_model(onnx_model)
    mod, params = relay.frontend.from_onnx(onnx_model, {"x": (1, 4)}, freeze_params=freeze)
    assert set(params) == (set() if freeze else {"W"})
    target = tvm.target.Target("llvm", host="llvm")
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=target, params=params)
    got = tvm.VirtualMachine(lib, tvm.cpu())["main"](tvm.nd.array(x)).numpy()
    np.testing.assert_allclose(got, x @ weight, rtol=1e-5, atol=1e-6)


def test_names_of_relay():
    from relaxish import relay
    from relaxish.relay import op, transform
    from relaxish.relay.dataflow_pattern import wildcard

    assert transform is tvm.relax.transform and relay.op is op and wildcard is tvm.relax.dpl.wildcard
    for line, advice in {
        "from relaxish.relay import testing": "frontend.nn",
        "relay.quantize": "QDQ",
        "relay.frontend.from_pytorch": "from_exported_program",
        "relay.something": "Relax",
    }.items():
        with pytest.raises((ImportError, AttributeError), match=advice) as caught:
            exec(line, {"relay": relay})
        assert "\n" not in str(caught.value) and "is not available" in str(caught.value)


def test_names_of_autotvm_that_have_nothing_to_do_here_say_what_to_write(tmp_path):
    from relaxish import autotvm
    from relaxish.support.errors import RelaxishError

    with pytest.raises(ImportError, match="DPTuner is not available: relaxish.build chooses the layouts"):
        from relaxish.autotvm.graph_tuner import DPTuner  # noqa: F401
    with pytest.raises(ImportError, match="apply_history_best"):
        _ = autotvm.graph_tuner.PBQPTuner
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = autotvm.graph_tuner.Nothing
    with pytest.raises(RelaxishError, match=r"cuda_v0.10.log neither.*extra_files"):
        autotvm.tophub.download_package("https://example.org", "cuda_v0.10.log")
    log = tmp_path / "log"
    log.write_text("")
    assert isinstance(autotvm.tophub.context(tvm.Target("llvm"), [str(log)]), autotvm.ApplyHistoryBest)
