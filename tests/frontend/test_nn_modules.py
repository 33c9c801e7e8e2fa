"""nn modules written as users write them, against torch; effects, subroutines, mutators, debugging."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish.frontend import nn
from relaxish.frontend.nn import op, spec
from relaxish.ir import assert_structural_equal
from relaxish.script import ir as I
from relaxish.script import relax as R

torch = pytest.importorskip("torch")
T = torch.nn


def bind(net: nn.Module, source: Any, rename: dict[str, str] | None = None) -> None:
    values = {(rename or {}).get(n, n): v.detach().numpy() for n, v in source.state_dict().items()}
    wanted = {n for n, _ in net.named_parameters()}
    net.load_state_dict({n: v for n, v in values.items() if n in wanted})


def run(net: nn.Module, *inputs: np.ndarray, method: str = "forward") -> Any:
    names = [n for n in __import__("inspect").signature(getattr(net, method)).parameters]
    args = {n: spec.Tensor(list(x.shape), str(x.dtype)) for n, x in zip(names, inputs)}
    return net.jit({method: args}, out_format="numpy")[method](*inputs)


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype("float32")


class MLP(nn.Module):
    def __init__(self) -> None:
        self.fc1 = nn.Linear(16, 32)
        self.fc2 = nn.Linear(32, 4, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.fc2(op.gelu(self.fc1(x)))


def test_mlp() -> None:
    theirs = T.Sequential(T.Linear(16, 32), T.GELU(), T.Linear(32, 4, bias=False))
    ours = MLP()
    bind(ours, theirs, {"0.weight": "fc1.weight", "0.bias": "fc1.bias", "2.weight": "fc2.weight"})
    x = rand(5, 16)
    np.testing.assert_allclose(run(ours, x), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


class Block(nn.Module):
    """A transformer encoder layer, normalisation first."""

    def __init__(self, dim: int, heads: int) -> None:
        self.norm1 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.ModuleDict({"up": nn.Linear(dim, 4 * dim), "down": nn.Linear(4 * dim, dim)})

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp["down"](op.relu(self.mlp["up"](self.norm2(x))))


def test_transformer_block() -> None:
    theirs = T.TransformerEncoderLayer(32, 4, 128, dropout=0.0, batch_first=True, norm_first=True).eval()
    state = {n: v.detach().numpy() for n, v in theirs.state_dict().items()}
    weights, biases = np.split(state["self_attn.in_proj_weight"], 3), np.split(state["self_attn.in_proj_bias"], 3)
    ours = Block(32, 4)
    values = {"mlp.up": "linear1", "mlp.down": "linear2", "norm1": "norm1", "norm2": "norm2",
              "attn.to_out.0": "self_attn.out_proj"}  # fmt: skip
    named = {f"{a}.{k}": state[f"{b}.{k}"] for a, b in values.items() for k in ("weight", "bias")}
    for name, weight, bias in zip("qkv", weights, biases):
        named.update({f"attn.to_{name}.weight": weight.copy(), f"attn.to_{name}.bias": bias.copy()})
    ours.load_state_dict(named)
    x = rand(2, 7, 32)
    with torch.no_grad():
        want = theirs(torch.tensor(x)).numpy()
    np.testing.assert_allclose(run(ours, x), want, rtol=1e-4, atol=1e-5)


LAYERS = [
    (nn.Conv1D(4, 6, 3, stride=2, padding=1), T.Conv1d(4, 6, 3, stride=2, padding=1), (2, 4, 9)),
    (nn.Conv2D(4, 6, 3, padding=1, groups=2), T.Conv2d(4, 6, 3, padding=1, groups=2), (1, 4, 8, 8)),
    (nn.Conv3D(2, 3, 3, bias=False), T.Conv3d(2, 3, 3, bias=False), (1, 2, 5, 6, 7)),
    (nn.ConvTranspose1D(4, 6, 3, stride=2, padding=1), T.ConvTranspose1d(4, 6, 3, stride=2, padding=1), (2, 4, 9)),
    (nn.Embedding(11, 6), T.Embedding(11, 6), None),
    (nn.LayerNorm(8), T.LayerNorm(8), (3, 5, 8)),
    (nn.RMSNorm(8, axes=[-1], bias=False), T.RMSNorm(8, eps=1e-5), (3, 5, 8)),
    (nn.GroupNorm(2, 6), T.GroupNorm(2, 6), (2, 6, 4, 4)),
    (nn.ReLU(), T.ReLU(), (3, 4)),
    (nn.SiLU(), T.SiLU(), (3, 4)),
    (nn.GELU(), T.GELU(), (3, 4)),
    (nn.BatchNorm2D(5), T.BatchNorm2d(5).eval(), (2, 5, 3, 3)),
    (nn.MaxPool2D(3, 2, 1), T.MaxPool2d(3, 2, 1), (1, 2, 9, 9)),
    (nn.AvgPool2D(2), T.AvgPool2d(2), (1, 2, 8, 8)),
]


@pytest.mark.parametrize(("ours", "theirs", "shape"), LAYERS, ids=[type(a).__name__ for a, _, _ in LAYERS])
def test_layers(ours: nn.Module, theirs: Any, shape: Any) -> None:
    for param in theirs.parameters():
        torch.nn.init.uniform_(param, -0.5, 0.5)
    bind(ours, theirs)
    x = rand(*shape) if shape else np.array([[1, 4], [10, 0]], "int64")
    with torch.no_grad():
        want = theirs(torch.tensor(x)).numpy()
    np.testing.assert_allclose(run(ours, x), want, rtol=1e-4, atol=1e-5)


def test_timestep_embedding_of_diffusion_models() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.steps = nn.Timesteps(9, flip_sin_to_cos=True)
            self.embed = nn.TimestepEmbedding(9, 6)

        def forward(self, t: nn.Tensor) -> nn.Tensor:
            return self.embed(self.steps(t))

    net = Net()
    values = {n: rand(*p.shape) for n, p in net.named_parameters()}
    net.load_state_dict(values)
    t = np.array([1, 50, 999], "float32")
    half = np.exp(-np.log(10000) * np.arange(4) / 3)
    angle = t[:, None] * half[None]
    x = np.concatenate([np.cos(angle), np.sin(angle), np.zeros((3, 1))], 1)
    h = x @ values["embed.linear_1.weight"].T + values["embed.linear_1.bias"]
    h = h / (1 + np.exp(-h))
    want = h @ values["embed.linear_2.weight"].T + values["embed.linear_2.bias"]
    np.testing.assert_allclose(run(net, t), want, rtol=1e-3, atol=1e-4)


def test_cache_grows_and_is_read() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.cache = nn.KVCache(2, [3])

        def forward(self, x: nn.Tensor, total: relaxish.tir.Var) -> nn.Tensor:
            self.cache.append(x)
            return op.multiply(self.cache.view(total), 2.0)

    model = Net().jit({"forward": {"x": spec.Tensor(["n", 3], "float32"), "total": int}}, out_format="numpy")
    first, second = rand(2, 3), rand(3, 3)
    np.testing.assert_allclose(model["forward"](first, 2), 2 * first)
    np.testing.assert_allclose(model["forward"](second, 5), 2 * np.concatenate([first, second]))


def test_cache_refuses_other_dtypes() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.cache = nn.KVCache(2, [3], "float16")

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            self.cache.append(x)
            return x

    with pytest.raises(TypeError, match='dtype "float16", but got "float32"'):
        Net().export_tvm({"forward": {"x": spec.Tensor([1, 3], "float32")}})


class Act(nn.Module):
    define_subroutine = True

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return op.silu(x)


class Layer(nn.Module):
    define_subroutine = True

    def __init__(self) -> None:
        self.weights = nn.Parameter((8, 8), "float32")
        self.activation = Act()

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.activation(op.matmul(x, self.weights))


class Two(nn.Module):
    def __init__(self) -> None:
        self.layers = [Layer(), Layer()]

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@I.ir_module
class TwoExpected:
    @R.function
    def forward(
        x: R.Tensor((2, 8), "float32"), a: R.Tensor((8, 8), "float32"), b: R.Tensor((8, 8), "float32")
    ) -> R.Tensor((2, 8), "float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            first = TwoExpected.layer(x, a)
            second = TwoExpected.layer(first, b)
            out = second
            R.output(out)
        return out

    @R.function(private=True)
    def layer(x: R.Tensor((2, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor((2, 8), "float32"):
        with R.dataflow():
            y = R.matmul(x, w)
            z = TwoExpected.act(y)
            out = z
            R.output(out)
        return out

    @R.function(private=True)
    def act(x: R.Tensor((2, 8), "float32")) -> R.Tensor((2, 8), "float32"):
        with R.dataflow():
            y = R.nn.silu(x)
            out = y
            R.output(out)
        return out


def test_modules_as_subroutines_are_shared() -> None:
    mod, _ = Two().export_tvm({"forward": {"x": spec.Tensor([2, 8], "float32")}})
    assert_structural_equal(mod, TwoExpected)


def test_subroutines_compute_the_same() -> None:
    net = Two()
    values = {n: rand(8, 8) * (k + 1) for k, (n, _) in enumerate(net.named_parameters())}
    net.load_state_dict(values)
    x = want = rand(2, 8)
    for weight in values.values():
        want = want @ weight
        want = want / (1 + np.exp(-want))
    np.testing.assert_allclose(run(net, x), want, rtol=1e-4, atol=1e-5)


def test_mutator_reaches_all_containers() -> None:
    seen: list[str] = []

    class Names(nn.Mutator):
        def visit_param(self, name: str, node: nn.Parameter) -> nn.Parameter:
            seen.append(name)
            return node

        def visit_module(self, name: str, node: nn.Module) -> nn.Module:
            if isinstance(node, nn.ReLU):
                return nn.SiLU()
            return super().visit_module(name, node)

    class Net(nn.Module):
        def __init__(self) -> None:
            self.items = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.ReLU()])
            self.named = {"a": nn.Linear(2, 2, bias=False)}

    net = Names().visit("", Net())
    assert seen == ["items.0.weight", "items.0.bias", "named.a.weight", "named.a.bias"] or seen == [
        "items.0.weight",
        "named.a.weight",
    ]
    assert isinstance(net.items[1], nn.SiLU)


def test_debug_export_gives_the_effect_in_and_out() -> None:
    @R.function
    def forward(x: R.Tensor((1, 10), "float32"), _io: R.Object) -> R.Tuple(
        R.Tuple(R.Tensor((1, 10), "float32"), R.Tensor((1, 10), "float32")), R.Tuple(R.Object)
    ):
        R.func_attr({"num_input": 2})
        with R.dataflow():
            square = R.square(x)
            sqrt = R.sqrt(x)
            out = (square, sqrt), (_io,)
            R.output(out)
        return out

    class Net(nn.Module):
        def forward(self, x: nn.Tensor) -> Any:
            return op.square(x), op.sqrt(x)

    mod, params = Net().export_tvm({"forward": {"x": spec.Tensor([1, 10], "float32")}}, debug=True)
    assert_structural_equal(mod["forward"], forward)
    assert params == []

    @R.function
    def initialize() -> R.Tuple(R.Object):
        R.func_attr({"global_symbol": "_initialize_effect"})
        with R.dataflow():
            _io: R.Object = R.null_value()
            lv: R.Tuple(R.Object) = (_io,)
            gv: R.Tuple(R.Object) = lv
            R.output(gv)
        return gv

    assert_structural_equal(mod["_initialize_effect"], initialize.with_attr("global_symbol", "_initialize_effect"))


def test_debug_functions_are_called(capsys: Any) -> None:
    class Net(nn.Module):
        def forward(self, x: nn.Tensor) -> nn.Tensor:
            y = op.add(x, 1.0)
            op.print_(y)
            return y

    described = {"forward": {"x": spec.Tensor([2], "float32")}}
    model = Net().jit(described, out_format="numpy", debug=True)
    model["forward"](np.array([1, 2], "float32"))
    assert "test_nn_modules.py" in (shown := capsys.readouterr().out) and "[2. 3.]" in shown
    with pytest.raises(RuntimeError, match="debug flag"):
        Net().export_tvm(described)


def test_tuple_arguments_are_taken_apart() -> None:
    @R.function
    def forward(x: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32"))) -> R.Tensor((2,), "float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            a = x[0]
            b = x[1]
            total = R.add(a, b)
            out = total
            R.output(out)
        return out

    class Net(nn.Module):
        def forward(self, x: Any) -> nn.Tensor:
            return op.add(x[0], x[1])

    item = spec.Tensor([2], "float32")
    mod, _ = Net().export_tvm({"forward": {"x": (item, item)}})
    assert_structural_equal(mod["forward"], forward)


def test_sampling() -> None:
    class Net(nn.Module):
        def forward(self, prob: nn.Tensor, draw: nn.Tensor) -> nn.Tensor:
            return op.multinomial_from_uniform(prob, draw)

        def limited(self, p: nn.Tensor, i: nn.Tensor, top_p: nn.Tensor, top_k: nn.Tensor, draw: nn.Tensor) -> Any:
            return op.sample_top_p_top_k_from_sorted_prob(p, i, top_p, top_k, draw)

        def renormalized(self, p: nn.Tensor, s: nn.Tensor, top_p: nn.Tensor, top_k: nn.Tensor) -> nn.Tensor:
            return op.renormalize_top_p_top_k_prob(p, s, top_p, top_k)

    prob = np.array([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]], "float32")
    draws = np.array([[0.25], [0.95]], "float32")
    np.testing.assert_array_equal(run(Net(), prob, draws), [[1], [2]])
    ordered = -np.sort(-prob, 1)
    order = np.argsort(-prob, 1).astype("int64")
    top_p, top_k = np.array([[0.8], [0.9]], "float32"), np.array([[3], [1]], "int64")
    got = run(Net(), ordered, order, top_p, top_k, draws, method="limited")
    np.testing.assert_array_equal(got, [[2], [0]])
    got = run(Net(), prob, ordered, top_p, top_k, method="renormalized")
    np.testing.assert_allclose(got, [[0, 0.2 / 0.9, 0.7 / 0.9], [1, 0, 0]], rtol=1e-5)


def test_own_loops_as_operators() -> None:
    from relaxish import te

    class Net(nn.Module):
        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return op.tensor_expr_op(lambda a: te.compute(a.shape, lambda i: a[i] * 3.0, "triple"), "triple", [x])

    x = rand(5)
    np.testing.assert_allclose(run(Net(), x), 3 * x, rtol=1e-6)


def test_topk_gives_values_and_places() -> None:
    class Largest(nn.Module):
        def __init__(self, what: str) -> None:
            self.what = what

        def forward(self, x: nn.Tensor) -> Any:
            return op.topk(x, 3, axis=1, ret_type=self.what)

    x = rand(5, 9)
    values, places = torch.topk(torch.from_numpy(x), 3, dim=1)
    made = run(Largest("both"), x)
    np.testing.assert_array_equal(made[0], values.numpy())
    np.testing.assert_array_equal(made[1], places.numpy())
    np.testing.assert_array_equal(run(Largest("values"), x), values.numpy())
    np.testing.assert_array_equal(run(Largest("indices"), x), places.numpy())


def test_numbers_before_tensors() -> None:
    class Mixed(nn.Module):
        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return 2.0 * (1.0 + x) - (1.0 - x)

    text = Mixed().export_tvm({"forward": {"x": spec.Tensor([2, 3], "float32")}})[0].script()
    assert 'R.add(x, R.const(1.0, "float32"))' in text and 'R.multiply(add, R.const(2.0, "float32"))' in text, text
    assert 'R.subtract(R.const(1.0, "float32"), x)' in text, text
    x = rand(2, 3)
    np.testing.assert_allclose(run(Mixed(), x), 2 * (1 + x) - (1 - x), rtol=1e-6)


def test_parameters_of_attention_in_the_order_of_their_use() -> None:
    names = [name for name, _ in nn.modules.Attention(8, heads=2, dim_head=4, norm_num_groups=2).named_parameters()]
    assert [name.partition(".")[0] for name in names] == [
        "to_q",
        "to_k",
        "to_v",
        "group_norm",
        "group_norm",
        "to_out",
        "to_out",
    ]


def test_mutator_goes_on_by_visit() -> None:
    """``visit`` is for what stands in a module: a ``visit_module`` may call it on the module that it was given."""
    seen = []

    class Halve(nn.Mutator):
        def visit_module(self, name: str, node: nn.Module) -> nn.Module:
            seen.append(name)
            if isinstance(node, nn.Linear):
                return nn.Linear(node.in_features, 2)
            return self.visit(name, node)

        def visit_modulelist(self, name: str, node: nn.ModuleList) -> nn.Module:
            seen.append(name)
            return self.visit(name, node)

    class Outer(nn.Module):
        def __init__(self) -> None:
            self.inner = MLP()
            self.rows = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 3)])

    net = Halve().visit("net", Outer())
    assert seen == ["net.inner", "net.inner.fc1", "net.inner.fc2", "net.rows", "net.rows.0", "net.rows.1"]
    assert {m.out_features for _, m in net.named_modules() if isinstance(m, nn.Linear)} == {2}
