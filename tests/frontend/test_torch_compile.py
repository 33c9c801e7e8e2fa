"""``torch.compile`` with this backend against eager PyTorch: values, gradients, writes, steps of optimisers."""

from __future__ import annotations

import copy
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from relaxish.frontend.torch import DynamoOptions, relaxish_backend  # noqa: E402
from relaxish.support.errors import RelaxishError  # noqa: E402

REPO = Path(__file__).resolve().parents[2]


class First(nn.Module):
    """The first result of a module."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)[0]


class Attends(nn.Module):
    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal, self.all = causal, nn.Linear(8, 24)

    def forward(self, x: Any) -> Any:
        q, k, v = self.all(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


class Function(nn.Module):
    """A weight, then a function."""

    def __init__(self, function: Callable[..., Any], width: int = 8) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.randn(width))

    def forward(self, x: Any) -> Any:
        return self.function(x * self.weight)


def image(*layers: Any) -> tuple[Any, tuple[int, ...]]:
    return nn.Sequential(nn.Conv2d(4, 4, 1), *layers), (4, 9, 8)


def row(*layers: Any) -> tuple[Any, tuple[int, ...]]:
    return nn.Sequential(nn.Linear(8, 8), *layers), (8,)


def sequence(layer: Any) -> tuple[Any, tuple[int, ...]]:
    return layer, (5, 8)


F = nn.functional
# Each: the module, and the shape of an input without the batch.
MODULES: dict[str, Callable[[], tuple[Any, tuple[int, ...]]]] = {
    "linear": lambda: row(),
    "bilinear": lambda: (Function(lambda x: x @ x.mT @ x), (3, 8)),
    "gelu": lambda: row(nn.GELU()),
    "gelu_tanh": lambda: row(nn.GELU("tanh")),
    "silu": lambda: row(nn.SiLU()),
    "elu": lambda: row(nn.ELU()),
    "mish": lambda: row(nn.Mish()),
    "hardswish": lambda: row(nn.Hardswish()),
    "leaky_relu": lambda: row(nn.LeakyReLU(0.2)),
    "prelu": lambda: row(nn.PReLU(8)),
    "softplus": lambda: row(nn.Softplus()),
    "softmax": lambda: row(nn.Softmax(-1)),
    "log_softmax": lambda: row(nn.LogSoftmax(-1)),
    "glu": lambda: row(nn.GLU()),
    "layer_norm": lambda: row(nn.LayerNorm(8)),
    "rms_norm": lambda: row(nn.RMSNorm(8)),
    "batch_norm1d": lambda: row(nn.BatchNorm1d(8)),
    "dropout": lambda: row(nn.Dropout(0.4), nn.Linear(8, 3)),
    "conv1d": lambda: (nn.Conv1d(4, 6, 3, stride=2, groups=2), (4, 12)),
    "conv2d": lambda: image(nn.Conv2d(4, 6, 3, padding=1)),
    "conv2d_grouped": lambda: image(nn.Conv2d(4, 8, (3, 2), stride=2, groups=2, padding=1, dilation=(1, 2))),
    "conv2d_depthwise": lambda: image(nn.Conv2d(4, 4, 3, padding=1, groups=4)),
    "conv3d": lambda: (nn.Conv3d(2, 3, 2), (2, 4, 5, 3)),
    "conv_transpose1d": lambda: (nn.ConvTranspose1d(4, 6, 4, stride=2), (4, 7)),
    "conv_transpose2d": lambda: image(nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)),
    "batch_norm2d": lambda: image(nn.BatchNorm2d(4), nn.ReLU(inplace=True)),
    "group_norm": lambda: image(nn.GroupNorm(2, 4)),
    "instance_norm": lambda: image(nn.InstanceNorm2d(4, affine=True)),
    "max_pool2d": lambda: image(nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
    "avg_pool2d": lambda: image(nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False)),
    "adaptive_avg_pool2d": lambda: image(nn.AdaptiveAvgPool2d((3, 2))),
    "upsample_nearest": lambda: image(nn.Upsample(scale_factor=2)),
    "upsample_bilinear": lambda: image(nn.Upsample(scale_factor=2, mode="bilinear")),
    "pixel_shuffle": lambda: image(nn.PixelShuffle(2)),
    "pads": lambda: image(nn.ReflectionPad2d(2), nn.ZeroPad2d(1)),
    "lstm": lambda: sequence(First(nn.LSTM(8, 5, batch_first=True))),
    "gru": lambda: sequence(First(nn.GRU(8, 5, batch_first=True))),
    "attention": lambda: sequence(Attends()),
    "attention_causal": lambda: sequence(Attends(causal=True)),
    "encoder_layer": lambda: sequence(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)),
    "decoder_layer": lambda: sequence(Twice(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True))),
    "cumsum": lambda: (Function(lambda x: x.cumsum(-1) + x.sort(-1).values), (8,)),
    "gather": lambda: (Function(lambda x: x.gather(-1, x.argsort(-1)) * x[:, [3, 1, 1]].sum(-1, keepdim=True)), (8,)),
    "norms": lambda: (Function(lambda x: F.normalize(x) + x.std(-1, keepdim=True) + x.logsumexp(-1, True)), (8,)),
    "strides": lambda: (Function(lambda x: (x.transpose(1, 2) * 2, x.expand(2, *x.shape) + 0)[0]), (3, 8)),
    "writes": lambda: (Function(lambda x: x.clone().index_fill_(1, torch.tensor([1, 2]), 3.0).mul_(2)), (8,)),
}
FAST = ["gelu", "layer_norm", "dropout", "max_pool2d", "conv2d_grouped", "strides"]


class Twice(nn.Module):
    """A module of two inputs, given the same one twice."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x, x * 0.5)


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def alike(model: Any, inputs: list[Any], **options: Any) -> None:
    """Values and gradients of a model and of its compiled copy are the same, call after call."""
    torch._dynamo.reset()
    copied = copy.deepcopy(model)
    fast = torch.compile(copied, backend=relaxish_backend, **options)
    for call, x in enumerate(inputs):
        mine, theirs = (x.clone().requires_grad_() for _ in range(2))
        torch.manual_seed(call)
        wanted = model(mine)
        torch.manual_seed(call)
        found = fast(theirs)
        close(found, wanted)
        weights = torch.randn_like(wanted)
        (wanted * weights).sum().backward()
        (found * weights).sum().backward()
        close(theirs.grad, mine.grad)
    for have, expected in zip(copied.parameters(), model.parameters(), strict=True):
        close(have.grad, expected.grad)
    for have, expected in zip(copied.buffers(), model.buffers(), strict=True):
        close(have, expected)


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in MODULES])
def test_modules_in_training(name: str) -> None:
    torch.manual_seed(3)
    model, shape = MODULES[name]()
    alike(model.train(), [torch.randn(3, *shape) for _ in range(2)], dynamic=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_modules_in_inference(name: str) -> None:
    torch.manual_seed(4)
    torch._dynamo.reset()
    model, shape = MODULES[name]()
    model.eval()
    x = torch.randn(3, *shape)
    with torch.no_grad():
        for options in ({}, {"freeze": True}):
            close(torch.compile(model, backend=relaxish_backend, options=options)(x), model(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conv2d", "max_pool2d", "batch_norm2d", "encoder_layer", "attention", "group_norm"])
def test_modules_of_changing_sizes(name: str) -> None:
    torch.manual_seed(5)
    model, shape = MODULES[name]()
    alike(model.eval(), [torch.randn(n, *shape) for n in (2, 3, 6)], dynamic=True)


def counted(calls: list[int]) -> Callable[..., Any]:
    def backend(module: Any, examples: Any, **_: Any) -> Any:
        calls.append(len(examples))
        return relaxish_backend(module, examples)

    return backend


def test_one_program_for_all_sizes() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    calls: list[int] = []
    layer = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    fast = torch.compile(layer, backend=counted(calls), dynamic=True)
    for rows in (2, 5, 7, 300, 5):
        x = torch.randn(rows, 3, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        found, wanted = fast(x), layer(y)
        close(found, wanted)
        (found.sum() * rows).backward()
        (wanted.sum() * rows).backward()
        close(x.grad, y.grad)
    assert len(calls) == 1


@pytest.mark.parametrize("kind", ["sgd", "adam", pytest.param("adamw", marks=pytest.mark.slow)])
def test_ten_steps_of_training(kind: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    copied = copy.deepcopy(model)
    fast = torch.compile(copied, backend=relaxish_backend, dynamic=False)
    make = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, lr=0.05),
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
    }[kind]
    mine, theirs = make(model.parameters()), make(copied.parameters())
    x, target = torch.randn(16, 6), torch.randint(0, 3, (16,))
    losses = []
    for _ in range(10):
        for run, optimizer in ((model, mine), (fast, theirs)):
            loss = F.cross_entropy(run(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        close(losses[-1], losses[-2])
    for have, expected in zip(copied.parameters(), model.parameters(), strict=True):
        close(have, expected)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["SGD", "Adam", "RMSprop"])
def test_compiled_steps_of_optimisers(kind: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(2)
    model = nn.Linear(5, 3)
    copied = copy.deepcopy(model)
    mine, theirs = (getattr(torch.optim, kind)(m.parameters(), lr=0.05) for m in (model, copied))
    step = torch.compile(theirs.step, backend=relaxish_backend)
    for _ in range(10):
        x = torch.randn(4, 5)
        for run, optimizer, go in ((model, mine, mine.step), (copied, theirs, step)):
            optimizer.zero_grad()
            run(x).square().mean().backward()
            go()
        for have, expected in zip(copied.parameters(), model.parameters(), strict=True):
            close(have, expected)


def test_one_warning_names_the_operators(caplog: pytest.LogCaptureFixture) -> None:
    def function(x: Any) -> Any:
        return torch.linalg.svdvals(x.exp() @ x.T).cos() * 2

    torch._dynamo.reset()
    x = torch.randn(4, 4)
    with caplog.at_level("WARNING", logger="relaxish"), torch.no_grad():
        fast = torch.compile(function, backend=relaxish_backend, fullgraph=True)
        for _ in range(2):
            close(fast(x), function(x))
    (told,) = [r.getMessage() for r in caplog.records if "run by PyTorch" in r.getMessage()]
    assert "svd" in told and "exp" not in told and "cos" not in told


def test_what_the_importer_refuses_is_run_by_torch(caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    from relaxish.frontend.torch.table import CONVERTERS

    def refuse(*_: Any) -> Any:
        raise ValueError("not on a Sunday")

    torch._dynamo.reset()
    monkeypatch.setitem(CONVERTERS, "sinh", refuse)
    x = torch.randn(4, 5)
    with caplog.at_level("WARNING", logger="relaxish"):
        close(torch.compile(lambda x: (x * 2).sinh() + 1, backend=relaxish_backend)(x), (x * 2).sinh() + 1)
    assert "aten.sinh.default" in caplog.text and "not on a Sunday" in caplog.text


def test_frozen_weights_are_noticed_when_they_change() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    fast = torch.compile(model, backend=relaxish_backend, options={"freeze": True})
    with torch.no_grad():
        for _ in range(5):
            close(fast(x), model(x))
            model.weight.mul_(1.5)
        model.load_state_dict(nn.Linear(4, 3).state_dict())
        close(fast(x), model(x))
    with torch.inference_mode():
        close(fast(x), model(x))


def test_results_have_the_strides_that_were_promised() -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        y = x.permute(2, 0, 1) * 2
        return y, y.transpose(0, 2), (x[:, :1] + 1).expand(2, 3, 4), y[::2]

    x = torch.randn(2, 3, 4)
    fast = torch.compile(function, backend=relaxish_backend, dynamic=True)
    for found, wanted in zip(fast(x), function(x), strict=True):
        close(found, wanted)
        assert found.stride() == wanted.stride() and found.shape == wanted.shape


def test_options() -> None:
    assert DynamoOptions.of("max-autotune", None).max_autotune
    assert DynamoOptions.of(None, {"freeze": True, "trials": 8}) == DynamoOptions(freeze=True, trials=8)
    with pytest.raises(RelaxishError, match="unknown options .* fast"):
        DynamoOptions.of(None, {"fast": 1})
    with pytest.raises(RelaxishError, match="unknown mode 'turbo'"):
        DynamoOptions.of("turbo", None)


@pytest.mark.slow
def test_tuned(tmp_path: Path) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(32, 48), nn.GELU()), torch.randn(16, 32)
    options = {"max_autotune": True, "trials": 8, "work_dir": str(tmp_path)}
    with torch.no_grad():
        close(torch.compile(model, backend=relaxish_backend, options=options)(x), model(x))
    assert list(tmp_path.glob("database_tuning_record*.json*"))


def test_the_entry_point_is_the_backend() -> None:
    tomllib = pytest.importorskip("tomllib")
    groups = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["entry-points"]
    module, _, name = groups["torch_dynamo_backends"]["relaxish"].partition(":")
    assert getattr(importlib.import_module(module), name) is relaxish_backend


@pytest.mark.slow
def test_by_name_and_without_a_compiler(tmp_path: Path) -> None:
    """Installed packages are found by their entry points; nothing but Python is called."""
    tomllib = pytest.importorskip("tomllib")
    groups = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["entry-points"]
    folder = tmp_path / "relaxish_named-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: relaxish-named\nVersion: 1\n")
    lines = [line for g, names in groups.items() for line in (f"[{g}]", *(f"{n} = {v}" for n, v in names.items()))]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    program = (
        "import torch\n"
        "f = torch.compile(lambda x: torch.relu(x) * 2, backend='relaxish', dynamic=True)\n"
        "for n in (3, 5):\n"
        "    x = torch.randn(n, 4)\n"
        "    torch.testing.assert_close(f(x), torch.relu(x) * 2)\n"
        "print('same')\n"
    )
    environment = {**os.environ, "PATH": str(tmp_path), "CXX": "no-compiler", "CC": "no-compiler"}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *sys.path])
    made = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, env=environment, timeout=300
    )
    assert made.stdout.strip() == "same", made.stderr
