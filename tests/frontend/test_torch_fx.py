"""FX graphs and TorchDynamo: import, symbolic shapes, users' converters, compiled models."""
# ruff: noqa: N805

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import relaxish  # noqa: E402
from relaxish import relax, tir  # noqa: E402
from relaxish.script import ir as I  # noqa: E402
from relaxish.script import relax as R  # noqa: E402
from relaxish.frontend.torch import dynamo_capture_subgraphs, from_fx, relax_dynamo  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 6, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(6)
        self.fc = torch.nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        y = torch.nn.functional.silu(self.norm(self.conv(x)))
        return self.fc(y.mean([2, 3]).view(x.size(0), -1))


def run(mod: Any, *inputs: Any) -> Any:
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    return vm["main"](*[relaxish.nd.array(x.numpy()) for x in inputs])


def test_import_and_run() -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    mod = from_fx(torch.fx.symbolic_trace(net), [((2, 3, 8, 8), "float32")])
    with torch.no_grad():
        want = net(x).numpy()
    np.testing.assert_allclose(run(mod, x).numpy(), want, rtol=1e-4, atol=1e-5)


def test_structure_of_a_small_graph() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                lv = R.add(x, y)
                lv1 = R.nn.relu(lv)
                gv = lv1
                R.output(gv)
            return gv

    class Small(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return torch.relu(x + y)

    mod = from_fx(torch.fx.symbolic_trace(Small()), [((2, 3), "float32")] * 2)
    relaxish.ir.assert_structural_equal(mod, Expected)


def test_symbolic_batch() -> None:
    n = tir.Var("n", "int64")
    net = torch.nn.Linear(6, 3)
    mod = from_fx(torch.fx.symbolic_trace(net), [((n, 6), "float32")])
    (param,) = mod["main"].params
    assert isinstance(param.struct_info.shape.values[0], tir.Var)
    x = torch.randn(7, 6)
    np.testing.assert_allclose(run(mod, x).numpy(), net(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_options() -> None:
    class Pair(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            return (self.fc(x),)

    graph, info = torch.fx.symbolic_trace(Pair()), [((4, 3), "float32")]
    assert isinstance(from_fx(graph, info)["main"].ret_struct_info, relax.TupleStructInfo)
    assert isinstance(
        from_fx(graph, info, unwrap_unit_return_tuple=True)["main"].ret_struct_info, relax.TensorStructInfo
    )
    kept = from_fx(graph, info, keep_params_as_input=True)["main"]
    assert len(kept.params) == 3 and len(kept.attrs["params"]) == 2 and int(kept.attrs["num_input"]) == 1


def test_own_converter() -> None:
    def relu_as_leaky(node: Any, importer: Any) -> Any:
        return importer.block_builder.emit(relax.op.nn.leakyrelu(importer.env[node.args[0]], 0.5))

    graph = torch.fx.symbolic_trace(torch.nn.ReLU())
    mod = from_fx(graph, [((3,), "float32")], custom_convert_map={"relu": relu_as_leaky})
    np.testing.assert_allclose(run(mod, torch.tensor([-2.0, 0, 3])).numpy(), [-1, 0, 3])


@pytest.mark.slow
def test_compile_with_dynamo() -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    fast = torch.compile(net, backend=relax_dynamo(), dynamic=False)
    with torch.no_grad():
        np.testing.assert_allclose(fast(x).numpy(), net(x).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_captured_subgraphs() -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = torch.relu(x)
            torch._dynamo.graph_break()
            return y * 2

    mod = dynamo_capture_subgraphs(Broken(), torch.randn(3, 4))
    assert sorted(v.name_hint for v in mod.functions) == ["subgraph_0", "subgraph_1"]
