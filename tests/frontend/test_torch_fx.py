"""FX graphs and TorchDynamo: import, symbolic shapes, users' converters, compiled models."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import relaxish  # noqa: E402
from relaxish import relax, tir  # noqa: E402
from relaxish.script import ir as I  # noqa: E402
from relaxish.script import relax as R  # noqa: E402
from relaxish.frontend.torch import dynamo_capture_subgraphs, from_exported_program, from_fx, relax_dynamo  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 6, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(6)
        self.fc = torch.nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        y = torch.nn.functional.silu(self.norm(self.conv(x)))
        return self.fc(y.mean([2, 3]).view(x.size(0), -1))


class Calls(torch.nn.Module):
    """A function of one tensor."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


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


def test_writes_in_place() -> None:
    class Writes(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = x * 2
            y[:, 0].fill_(0)
            y[1:].view(-1)[2:4].mul_(3)
            x.add_(1)
            return y

    x = torch.randn(4, 3)
    found = run(from_fx(torch.fx.symbolic_trace(Writes()), [((4, 3), "float32")]), x)
    want = x.clone()
    np.testing.assert_allclose(found[0].numpy(), Writes()(want).numpy(), rtol=1e-6)
    np.testing.assert_allclose(found[1].numpy(), want.numpy(), rtol=1e-6)


def test_the_mode_of_the_model_stays() -> None:
    graph = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5)).train())
    from_fx(graph, [((4, 3), "float32")])
    assert all(module.training for module in graph.modules())


def compared(model: Any, *inputs: Any, calls: int = 2, **options: Any) -> None:
    """Call a model and its compiled copy alike: results, inputs, buffers and gradients are the same."""
    torch._dynamo.reset()
    model.zero_grad()
    copied = copy.deepcopy(model)
    fast = torch.compile(copied, backend=relax_dynamo(), **{"dynamic": False, **options})
    close = functools.partial(torch.testing.assert_close, rtol=1e-3, atol=1e-4)
    for call in range(calls):
        mine, theirs = ([x.clone() for x in inputs] for _ in range(2))
        torch.manual_seed(call)
        want = model(*mine)
        torch.manual_seed(call)
        found = fast(*theirs)
        close(found, want)
        close(theirs, mine)
        assert found.requires_grad == want.requires_grad
        if want.requires_grad:
            want.square().sum().backward()
            found.square().sum().backward()
    for have, expected in zip(copied.parameters(), model.parameters(), strict=True):
        close(have.grad, expected.grad)
    for have, expected in zip(copied.buffers(), model.buffers(), strict=True):
        close(have, expected)


class Writer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        x.add_(1)
        x[0] = 9
        self.calls += x[1]
        return x * 2


def test_dynamo_writes_to_inputs_and_buffers() -> None:
    compared(Writer(), torch.randn(4, 3))


def test_dynamo_gives_gradients() -> None:
    torch.manual_seed(0)
    layers = torch.nn.Linear(3, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)
    compared(torch.nn.Sequential(*layers), torch.randn(5, 3))


@pytest.mark.slow
def test_dynamo_in_training() -> None:
    torch.manual_seed(0)
    layers = torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
    compared(torch.nn.Sequential(*layers).train(), torch.randn(5, 3))
    compared(torch.nn.Sequential(*layers).eval(), torch.randn(5, 3))


@pytest.mark.slow
def test_dynamo_views_across_graphs() -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = x[0]
            torch._dynamo.graph_break()
            y.add_(1)
            return x * 1

    compared(Broken(), torch.randn(3, 2))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: torch.split(x, 2, 1), "R.split(x, indices_or_sections=3, axis=1)"),
        (lambda x: torch.split(x, 4, 1), "R.split(x, indices_or_sections=[4], axis=1)"),
        (lambda x: torch.split(x, [1, 5], 1), "R.split(x, indices_or_sections=[1], axis=1)"),
        (lambda x: x.chunk(2, 0), "R.split(x, indices_or_sections=2, axis=0)"),
        (lambda x: torch.gather(x, -1, torch.zeros((4, 6), dtype=torch.int64)), "axis=-1)"),
        (lambda x: x.new_ones(2, 3), 'R.full(R.shape([2, 3]), R.const(1.0, "float32"), dtype="float32")'),
        (lambda x: torch.empty_like(x), 'R.zeros_like(x, dtype="void")'),
        (lambda x: torch.ones_like(x, dtype=torch.int32), 'R.ones_like(x, dtype="int32")'),
        (lambda x: x.to(torch.float32), 'R.astype(x, dtype="float32")'),
        (lambda x: torch.stack((x, x), 1), "R.concat((x, x), axis=1)"),
        (lambda x: x.masked_fill(x > 0, 0), 'R.full_like(x, R.const(0, "int32"), dtype="void")'),
        (lambda x: torch.nn.functional.elu(x), 'R.multiply(R.const(-1.0, "float32"), lv2)'),
        (lambda x: torch.nn.functional.celu(x), 'R.divide(lv, R.const(1.0, "float32"))'),
        (lambda x: torch.log2(x.abs()), 'R.divide(lv1, R.const(0.69314718246459961, "float32"))'),
        (lambda x: x.narrow(1, 0, 2), "(R.prim_value(0),), (R.prim_value(2),), assume_inbound=False)"),
        (lambda x: torch.nn.functional.layer_norm(x, (6,)), 'R.nn.layer_norm(x, metadata["relax.expr.Constant"][0]'),
    ],
)
def test_forms(function, expected):
    class Model(torch.nn.Module):
        def forward(self, x):
            return function(x)

    x = torch.randn(4, 6)
    mod = from_exported_program(torch.export.export(Model(), (x,)), unwrap_unit_return_tuple=True)
    text = mod.script()
    assert expected in text, text
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    given = vm["main"](relaxish.nd.array(x.numpy()))
    wanted = function(x)
    for got, want in zip(
        given if isinstance(wanted, (tuple, list)) else [given],
        wanted if isinstance(wanted, (tuple, list)) else [wanted],
    ):
        if "empty" not in expected and "zeros_like" not in expected:
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)


def test_all_results_of_a_node() -> None:
    """A graph that returns what one node gives returns it as it is."""
    pieces = torch.fx.symbolic_trace(Calls(lambda x: x.split(2, 1)))
    main = from_fx(pieces, [((4, 6), "float32")])["main"]
    (split, result) = main.body.blocks[0].bindings
    assert result.value.same_as(split.var)
    x = torch.randn(4, 6)
    for got, want in zip(run(relaxish.IRModule({"main": main}), x), x.split(2, 1), strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    some = torch.fx.symbolic_trace(Calls(lambda x: x.split(2, 1)[1]))
    (got,) = [run(from_fx(some, [((4, 6), "float32")]), x)]
    np.testing.assert_array_equal(got.numpy(), x[:, 2:4].numpy())


def test_sizes_keep_their_variables() -> None:
    rows = tir.Var("rows", "int64")
    graph = torch.fx.symbolic_trace(Calls(lambda x: x.size()))
    main = from_fx(graph, [((rows, "columns"), "float32")])["main"]
    assert main.params[0].struct_info.shape[0].same_as(rows)
    assert str(main.ret_struct_info) == "R.Shape([rows, columns])"
    assert list(run(relaxish.IRModule({"main": main}), torch.zeros(3, 5))) == [3, 5]
