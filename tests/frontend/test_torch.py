"""Exported PyTorch programs: numerics against torch on random inputs, parameters, symbolic shapes, gaps."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import relaxish  # noqa: E402
from relaxish.frontend.torch import from_exported_program, supported_operators  # noqa: E402
from relaxish.support.errors import OpNotImplemented  # noqa: E402

F = torch.nn.functional


class Lambda(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def check(module, *inputs, rtol=1e-4, atol=1e-5):
    module = module.eval() if isinstance(module, torch.nn.Module) else Lambda(module)
    with torch.no_grad():
        expected = module(*inputs)
    mod = from_exported_program(torch.export.export(module, inputs))
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    got = vm["main"](*[relaxish.nd.array(i.numpy()) for i in inputs])
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    assert len(got) == len(expected)
    for have, want in zip(got, expected):
        want = want.numpy()
        assert have.numpy().dtype == want.dtype and have.numpy().shape == want.shape
        np.testing.assert_allclose(have.numpy(), want, rtol=rtol, atol=atol)


def rand(*shape):
    return torch.randn(*shape)


UNARY = {
    "sin": torch.sin, "exp": torch.exp, "log1p": lambda x: torch.log1p(x.abs()), "rsqrt": lambda x: (x.abs() + 1).rsqrt(),
    "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "elu": F.elu,
    "hardtanh": F.hardtanh, "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "leaky": F.leaky_relu,
    "softplus": F.softplus, "mish": F.mish, "clamp": lambda x: x.clamp(-0.5, 0.5), "clamp_min": lambda x: x.clamp(min=0.1),
    "round": torch.round, "trunc": torch.trunc, "abs": torch.abs, "neg": lambda x: -x, "sigmoid": torch.sigmoid,
    "tanh": torch.tanh, "erf": torch.erf, "reciprocal": lambda x: torch.reciprocal(x.abs() + 1),
    "pow2": lambda x: x**2, "pow_half": lambda x: (x.abs() + 0.1) ** 0.5, "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, 1), "sum": lambda x: x.sum(1), "mean": lambda x: x.mean((0, 2), keepdim=True),
    "amax": lambda x: x.amax(1), "var": lambda x: x.var(1), "std": lambda x: x.std(1, unbiased=False),
    "cumsum": lambda x: x.cumsum(1), "argmax": lambda x: x.argmax(1), "norm": lambda x: x.norm(dim=1),
    "softshrink": F.softshrink, "argsort": lambda x: x.argsort(1), "sort": lambda x: x.sort(1, descending=True),
    "take": lambda x: x.take(torch.tensor([[0, 5], [47, 3]])), "cumprod": lambda x: x.cumprod(2),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, torch.arange(48.0)), "gather": lambda x: x.gather(1, torch.ones(2, 1, 6).long()),
    "max_dim": lambda x: x.max(1)[0], "any": lambda x: (x > 1).any(1), "logsumexp": lambda x: x.logsumexp(1),
}  # fmt: skip
SHAPE = {
    "flatten": lambda x: x.flatten(1), "transpose": lambda x: x.transpose(1, 2), "permute": lambda x: x.permute(2, 0, 1),
    "unsqueeze": lambda x: x.unsqueeze(1), "squeeze": lambda x: x[:, :1].squeeze(1), "expand": lambda x: x[:, :1].expand(-1, 5, -1),
    "cat": lambda x: torch.cat([x, x * 2], 1), "stack": lambda x: torch.stack([x, -x], 1), "chunk": lambda x: x.chunk(2, 2),
    "split": lambda x: x.split([1, 3], 1), "slice": lambda x: x[:, 1:3, ::2], "select": lambda x: x[:, -1],
    "flip": lambda x: x.flip(1), "roll": lambda x: x.roll(1, 2), "repeat": lambda x: x.repeat(1, 2, 1),
    "tril": lambda x: x.tril(), "triu": lambda x: x.triu(1), "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=3.0),
    "masked_fill": lambda x: x.masked_fill(x > 0, -1.0), "where": lambda x: torch.where(x > 0, x, x * 0.5),
    "unbind": lambda x: x.unbind(1)[1], "unflatten": lambda x: x.unflatten(2, (2, 3)), "diff": lambda x: x.diff(dim=1),
    "arange": lambda x: x + torch.arange(6), "full_like": lambda x: torch.full_like(x, 2.0) + x,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_elementwise_and_reductions(name):
    check(UNARY[name], rand(2, 4, 6))


@pytest.mark.parametrize("name", SHAPE)
def test_shapes(name):
    check(SHAPE[name], rand(2, 4, 6))


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a + b, lambda a, b: a - 2 * b, lambda a, b: a * b, lambda a, b: a / (b.abs() + 1),
        lambda a, b: torch.maximum(a, b), lambda a, b: (a > b) & (a < 1), lambda a, b: torch.add(a, b, alpha=3),
        lambda a, b: a.abs() // (b.abs() + 0.5), lambda a, b: 1 - a + b, lambda a, b: torch.lerp(a, b, 0.3),
    ],
)  # fmt: skip
def test_binary_with_broadcasting(function):
    check(function, rand(3, 4), rand(4))


def test_integer_promotion():
    a = torch.randint(1, 9, (3, 4))
    check(lambda x: x + 1.5, a)
    check(lambda x: x / 2, a)
    check(lambda x: (x // 2, x % 3), a)
    check(lambda x: x.to(torch.float32) * 2, a)


class ConvNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.depthwise = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.pool = torch.nn.MaxPool2d(3, 2, 1)
        self.fc = torch.nn.Linear(8, 5)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        x = self.pool(torch.relu(self.norm(self.conv(x))))
        return self.fc(F.adaptive_avg_pool2d(self.depthwise(x), 1).flatten(1))


def test_convolutional_network():
    check(ConvNet(), rand(2, 3, 32, 32))


@pytest.mark.parametrize(
    "module, shape",
    [
        (torch.nn.LayerNorm(6), (2, 4, 6)), (torch.nn.GroupNorm(2, 4), (2, 4, 6)), (torch.nn.Conv1d(4, 3, 3, padding=1), (2, 4, 6)),
        (torch.nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1), (1, 4, 5, 5)),
        (torch.nn.AvgPool2d(2), (1, 4, 6, 6)), (torch.nn.Linear(6, 3, bias=False), (2, 4, 6)),
        (torch.nn.PReLU(4), (2, 4, 6)), (torch.nn.Conv2d(4, 6, 3, dilation=2, padding="same"), (1, 4, 9, 9)),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, torch.nn.Module) else "",
)  # fmt: skip
def test_layers(module, shape):
    check(module, rand(*shape))


def test_attention_masks():
    q, k, v = rand(1, 2, 5, 8), rand(1, 2, 5, 8), rand(1, 2, 5, 8)
    check(F.scaled_dot_product_attention, q, k, v)
    check(lambda *t: F.scaled_dot_product_attention(*t, is_causal=True), q, k, v)
    mask = torch.rand(5, 5) > 0.3
    mask[:, 0] = True
    check(lambda a, b, c: F.scaled_dot_product_attention(a, b, c, attn_mask=mask), q, k, v)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_interpolation(mode):
    check(lambda x: F.interpolate(x, scale_factor=2, mode=mode), rand(1, 2, 4, 5), rtol=1e-3, atol=1e-4)


def test_cross_entropy():
    check(lambda x: F.cross_entropy(x, torch.tensor([1, 0, 3])), rand(3, 4))


def test_batch_norm_keeps_its_meaning_in_every_pipeline():
    program = torch.export.export(ConvNet().eval(), (rand(1, 3, 32, 32),))
    text = from_exported_program(program).script()
    assert "training=False" in text and "training=True" not in text


def test_embedding_and_matmul():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(11, 6)

        def forward(self, ids):
            rows = self.table(ids)
            return rows @ rows.transpose(1, 2)

    check(Net(), torch.randint(0, 11, (2, 3)))


def test_parameters_kept_as_inputs():
    net = ConvNet().eval()
    program = torch.export.export(net, (rand(1, 3, 32, 32),))
    mod = from_exported_program(program, keep_params_as_input=True)
    func = mod["main"]
    assert int(func.attrs["num_input"]) == 1
    assert len(func.params) == 1 + len(func.attrs["params"])
    bare, params = relaxish.frontend.detach_params(mod)
    assert "params" not in bare["main"].attrs and len(params["main"]) == len(func.params) - 1


def test_symbolic_batch():
    batch = torch.export.Dim("batch", min=2, max=64)
    linear = torch.nn.Linear(6, 3).eval()
    program = torch.export.export(linear, (rand(4, 6),), dynamic_shapes={"input": {0: batch}})
    mod = from_exported_program(program)
    dim = mod["main"].params[0].struct_info.shape.values[0]
    assert isinstance(dim, relaxish.tir.Var)
    machine = relaxish.relax.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    for rows in (2, 7):
        x = rand(rows, 6)
        (found,) = machine["main"](relaxish.nd.array(x.numpy()))
        np.testing.assert_allclose(found.numpy(), linear(x).detach().numpy(), rtol=1e-5, atol=1e-6)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.layer(x)


@pytest.mark.parametrize("net, shape", [(ConvNet(), (3, 32, 32)), (Encoder(), (5, 16))], ids=["conv", "encoder"])
def test_one_program_for_all_batch_sizes(net, shape):
    net = net.eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        program = torch.export.export(net, (rand(4, *shape),), dynamic_shapes={"x": {0: batch}})
    vm = relaxish.VirtualMachine(relaxish.build(from_exported_program(program), "llvm"), relaxish.cpu())
    for size in (2, 5):
        x = rand(size, *shape)
        with torch.no_grad():
            want = net(x).numpy()
        np.testing.assert_allclose(vm["main"](relaxish.nd.array(x.numpy()))[0].numpy(), want, rtol=1e-4, atol=1e-5)


def test_unit_tuple_unwrapping():
    program = torch.export.export(Lambda(torch.relu), (rand(3),))
    wrapped = from_exported_program(program)["main"].ret_struct_info
    plain = from_exported_program(program, unwrap_unit_return_tuple=True)["main"].ret_struct_info
    assert isinstance(wrapped, relaxish.TupleStructInfo) and isinstance(plain, relaxish.TensorStructInfo)


def test_all_gaps_are_reported_at_once():
    def odd(x):
        return torch.linalg.inv(x) + torch.linalg.eigvalsh(x)

    with pytest.raises(OpNotImplemented, match=r"eigh.*, .*inv|inv.*, .*eigh"):
        from_exported_program(torch.export.export(Lambda(odd), (rand(3, 3),)))


def test_the_table_is_listed():
    assert {"conv2d", "add", "scaled_dot_product_attention"} <= set(supported_operators())


def test_products_of_float32_say_so():
    class Products(torch.nn.Module):
        def forward(self, x, w, b, batch):
            y = torch.nn.functional.linear(x, w)
            return torch.addmm(b, x, w) @ y, torch.bmm(batch, batch), torch.baddbmm(batch, batch, batch)

    shapes = (4, 4), (4, 4), (4, 4), (2, 4, 4)
    for dtype, expected in ((torch.float32, "float32"), (torch.float16, "")):
        args = tuple(torch.zeros(s, dtype=dtype) for s in shapes)
        mod = from_exported_program(torch.export.export(Products(), args))
        found = []

        def note(expr, found=found):
            if isinstance(expr, relaxish.relax.Call) and getattr(expr.op, "name", "") == "relax.matmul":
                found.append(str(expr.attrs.out_dtype or ""))

        relaxish.relax.analysis.post_order_visit(mod["main"], note)
        assert found == [expected] * 5
        last = mod["main"].body.blocks[0].bindings[-2].value
        assert last.op.name == "relax.add" and last.args[1].name_hint == "batch"  # product + input
