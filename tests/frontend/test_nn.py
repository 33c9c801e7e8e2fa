"""nn modules: structure, export, numerics against torch."""

import numpy as np
import pytest

from relaxish import relax
from relaxish.frontend import nn


class MLP(nn.Module):
    def __init__(self, dtype="float32"):
        self.layers = nn.ModuleList([nn.Linear(8, 16, dtype=dtype), nn.Linear(16, 4, dtype=dtype)])
        self.extra = {"scale": nn.Parameter((4,), dtype)}

    def forward(self, x):
        return self.layers[1](nn.op.relu(self.layers[0](x))) * self.extra["scale"]


def test_parameters_in_lists_and_dictionaries_are_found():
    names = [n for n, _ in MLP().named_parameters()]
    assert names == ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "extra.scale"]


def test_export_gives_a_function_with_named_parameters():
    mod, params = MLP().export_tvm({"forward": {"x": nn.spec.Tensor(["n", 8], "float32")}})
    func = mod["forward"]
    assert [p.name_hint for p in func.params] == ["x", *[n for n, _ in params]]
    assert int(func.attrs["num_input"]) == 1
    assert func.ret_struct_info.dtype == "float32"
    assert relax.analysis.well_formed(mod)


def test_export_leaves_the_module_untouched_and_can_be_repeated():
    net, spec = MLP(), {"forward": {"x": nn.spec.Tensor([2, 8], "float32")}}
    first, _ = net.export_tvm(spec)
    second, _ = net.export_tvm(spec)
    from relaxish.ir import assert_structural_equal

    assert_structural_equal(first, second)


def test_packed_parameters():
    spec = {"forward": {"x": nn.spec.Tensor([2, 8], "float32"), "$": {"param_mode": "packed"}}}
    mod, _ = MLP().export_tvm(spec)
    assert [p.name_hint for p in mod["forward"].params] == ["x", "packed_params"]


def test_missing_and_unknown_arguments_are_reported():
    with pytest.raises(ValueError, match="lacks argument 'x'"):
        MLP().export_tvm({"forward": {}})
    with pytest.raises(ValueError, match="has no argument 'y'"):
        MLP().export_tvm({"forward": {"x": nn.spec.Tensor([2, 8], "float32"), "y": int}})


def test_load_state_dict_checks_names_shapes_and_dtypes():
    net = MLP()
    good = {n: np.zeros(p.shape, "float32") for n, p in net.named_parameters()}
    assert net.load_state_dict(good) == ([], [])
    with pytest.raises(KeyError, match="Missing keys"):
        net.load_state_dict({})
    with pytest.raises(ValueError, match="Shape mismatch"):
        net.load_state_dict({**good, "extra.scale": np.zeros(5, "float32")})
    with pytest.raises(ValueError, match="DType mismatch"):
        net.load_state_dict({**good, "extra.scale": np.zeros(4, "float64")})


def test_to_changes_the_dtype_of_all_parameters():
    net = MLP().to("float16")
    assert {p.dtype for p in net.parameters()} == {"float16"}


def test_operators_need_a_builder():
    with pytest.raises(RuntimeError, match="while a module is exported"):
        nn.op.relu(nn.Tensor.placeholder((2, 2), "float32"))
