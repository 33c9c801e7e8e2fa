"""Models of symbolic sizes against their own static builds and ONNX Runtime, at several sizes, interleaved.

    python benchmarks/dynamic.py [--cores 1] [--models resnet,bert] [--kernels]

A dynamic build is one executable for all sizes; a static one is made for each. With ``--kernels`` the kernels that lose
most time to their static twins are listed, too (times of single calls, for finding causes rather than for tables).
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import common
import peers

warnings.filterwarnings("ignore")

#: Sizes at which each model is measured: batch, height, width of images; batch and length of texts.
SIZES: dict[str, list[tuple[int, ...]]] = {
    "resnet": [(1, 56, 56), (1, 97, 131), (1, 224, 224), (4, 112, 112)],
    "mobilenet": [(1, 56, 56), (1, 97, 131), (1, 224, 224), (4, 112, 112)],
    "unet": [(1, 64, 64), (1, 96, 160), (2, 128, 128)],
    "bert": [(1, 16), (1, 64), (1, 101), (4, 128)],
    "gpt2": [(1, 16), (1, 64), (1, 101), (4, 128)],
}


def _conv_net(name: str) -> Any:
    import torch
    from torch import nn

    def unit(i: int, o: int, k: int, s: int = 1, groups: int = 1, act: type[nn.Module] = nn.ReLU) -> nn.Module:
        return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o), act())

    class Residual(nn.Module):
        def __init__(self, i: int, o: int, s: int) -> None:
            super().__init__()
            self.a, self.b = unit(i, o, 3, s), unit(o, o, 3, act=nn.Identity)
            self.skip = nn.Identity() if i == o and s == 1 else unit(i, o, 1, s, act=nn.Identity)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.b(self.a(x)) + self.skip(x))

    class Inverted(nn.Module):
        def __init__(self, i: int, o: int, s: int, k: int = 3) -> None:
            super().__init__()
            mid = 6 * i
            self.body = nn.Sequential(
                unit(i, mid, 1, act=nn.ReLU6), unit(mid, mid, k, s, mid, nn.ReLU6), unit(mid, o, 1, act=nn.Identity)
            )
            self.add = i == o and s == 1

        def forward(self, x: Any) -> Any:
            return self.body(x) + x if self.add else self.body(x)

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(unit(3, 32, 3), unit(32, 32, 3))
            self.second = nn.Sequential(nn.MaxPool2d(2), unit(32, 64, 3), unit(64, 64, 3))
            self.third = nn.Sequential(nn.MaxPool2d(2), unit(64, 128, 3), unit(128, 128, 3))
            self.up, self.up2 = nn.ConvTranspose2d(128, 64, 2, 2), nn.Upsample(scale_factor=2, mode="bilinear")
            self.join, self.last = unit(128, 64, 3), unit(96, 32, 3)
            self.out = nn.Conv2d(32, 2, 1)

        def forward(self, x: Any) -> Any:
            a = self.first(x)
            b = self.second(a)
            c = self.join(torch.cat([self.up(self.third(b)), b], 1))
            return torch.sigmoid(self.out(self.last(torch.cat([self.up2(c), a], 1))))

    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    if name == "resnet":
        blocks = [Residual(64, 64, 1), Residual(64, 128, 2), Residual(128, 128, 1), Residual(128, 256, 2)]
        return nn.Sequential(unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), *blocks, *tail, nn.Linear(256, 100))
    if name == "mobilenet":
        blocks = [
            Inverted(16, 24, 2),
            Inverted(24, 24, 1),
            Inverted(24, 40, 2, 5),
            Inverted(40, 80, 2),
            Inverted(80, 80, 1),
        ]
        return nn.Sequential(unit(3, 16, 3, 2, act=nn.Hardswish), *blocks, *tail, nn.Linear(80, 100))
    return UNet()


def make(name: str) -> tuple[Any, Any, dict[int, str]]:
    """A torch model with random weights, an input, and the names of its symbolic dimensions."""
    import torch

    torch.manual_seed(0)
    if name in ("resnet", "mobilenet", "unet"):
        return _conv_net(name).eval(), torch.randn(2, 3, 64, 96), {0: "n", 2: "h", 3: "w"}
    import transformers as tf

    class First(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x)[0]

    torch.set_default_dtype(torch.float32)
    if name == "bert":
        inner: Any = tf.BertModel(tf.BertConfig(num_hidden_layers=2, vocab_size=2000), add_pooling_layer=False)
    else:
        inner = tf.GPT2Model(tf.GPT2Config(n_layer=2, vocab_size=2000, use_cache=False))
    return First(inner).eval(), torch.randint(0, 2000, (2, 24)), {0: "n", 1: "s"}


def export(name: str, folder: Path) -> Path:
    """The model as an ONNX file with named dimensions, made once."""
    import torch

    path = folder / f"dynamic_{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        model, x, names = make(name)
        dims = {axis: torch.export.Dim.DYNAMIC for axis in names}
        torch.onnx.export(
            model, (x,), str(path), input_names=["x"], dynamo=True, dynamic_shapes=(dims,), verbose=False,
            external_data=False,
        )  # fmt: skip
    return path


def input_of(name: str, size: Sequence[int]) -> Any:
    """A random input of a size."""
    import numpy as np

    rng = np.random.default_rng(sum(size))
    if name in ("bert", "gpt2"):
        return rng.integers(0, 2000, size).astype("int64")
    return rng.standard_normal((size[0], 3, *size[1:])).astype("float32")


def build(path: Path, shape: Sequence[int] | None, profile: bool) -> tuple[Any, Any, float]:
    """The entry function, a machine that profiles (or None), and the seconds that building took."""
    import onnx

    import relaxish
    from relaxish.frontend.onnx import from_onnx

    model = onnx.load(str(path))
    mod = from_onnx(model, shape_dict=None if shape is None else {model.graph.input[0].name: list(shape)})
    begin = time.perf_counter()
    made = relaxish.build(mod, "llvm")
    seconds = time.perf_counter() - begin
    watched = relaxish.VirtualMachine(made, relaxish.cpu(), profile=True) if profile else None
    return relaxish.VirtualMachine(made, relaxish.cpu())["main"], watched, seconds


def kernel_times(machine: Any, x: Any, rounds: int = 7) -> dict[str, float]:
    """Least seconds of each kernel of a call, in the order of calls."""
    found: dict[str, list[float]] = collections.defaultdict(list)
    for _ in range(rounds):
        count: collections.Counter[str] = collections.Counter()
        for row in json.loads(machine.profile("main", x).json())["calls"]:
            name, spent = row["Name"]["string"], row["Duration (us)"]["microseconds"]
            count[name] += 1
            found[f"{name}#{count[name]}"].append(spent * 1e-6)
    return {name: min(times) for name, times in found.items()}


def compare_kernels(dynamic: dict[str, float], static: dict[str, float], least: float = 5e-6) -> None:
    """Print what dynamic kernels lose; kernels that have no twin are listed by themselves."""
    by_loss = sorted(dynamic.keys() | static.keys(), key=lambda k: static.get(k, 0.0) - dynamic.get(k, 0.0))
    for name in by_loss:
        a, b = dynamic.get(name, 0.0), static.get(name, 0.0)
        if max(a, b) >= least:
            print(f"    {name[:70]:70} {a * 1e6:9.1f} {b * 1e6:9.1f} us  {a / b if b else float('nan'):5.2f}")


def bench(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of a model."""
    import relaxish

    path = export(name, options.exports)
    clock: Callable[[], float] = time.process_time if options.cores == 1 else time.perf_counter
    run, watched, seconds = build(path, None, options.kernels)
    rows = []
    for size in SIZES[name]:
        x = input_of(name, size)
        ours = relaxish.nd.array(x)
        fixed, fixed_watched, fixed_seconds = build(path, x.shape, options.kernels)
        other = peers.onnxruntime_run(path, [x], options.cores)
        want = other()[0]
        errors = [common.relative_error(each(ours).numpy(), want) for each in (run, fixed)]
        if not max(errors) <= 1e-4:
            raise SystemExit(f"{name} {size}: the largest relative errors are {errors}")
        runs = {"dynamic": lambda: run(ours), "static": lambda: fixed(ours), "onnxruntime": other}
        times = common.rounds_of(runs, options.rounds, clock=clock)
        middle = {k: statistics.median(v) for k, v in times.items()}
        pairs = {
            k: statistics.median(a / b for a, b in zip(times["dynamic"], times[k])) for k in ("static", "onnxruntime")
        }
        rows.append(
            {"model": name, "size": "x".join(map(str, size)), "cores": options.cores}
            | {f"{k} ms": v * 1e3 for k, v in middle.items()}
            | {f"dynamic/{k}": v for k, v in pairs.items()}
            | {"error": max(errors), "build s": seconds, "static build s": fixed_seconds}
        )
        if options.kernels:
            print(name, size, f"{middle['dynamic'] * 1e3:.3f} {middle['static'] * 1e3:.3f} ms")
            compare_kernels(kernel_times(watched, ours), kernel_times(fixed_watched, ours))
    return rows


def main() -> None:
    """Measure and save; each model in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--models", default=",".join(SIZES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--kernels", action="store_true", help="list kernels that lose to their static twins")
    parser.add_argument("--exports", type=Path, default=Path.home() / ".cache" / "relaxish" / "exports")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.models.split(",")
    if options.one is not None:
        common.pin(options.cores)
        options.one.write_text(json.dumps(bench(names[0], options)))
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            out = Path(folder) / f"{name}.json"
            command = [sys.executable, "-W", "ignore", __file__, *sys.argv[1:], "--models", name, "--one", str(out)]
            if subprocess.run(command, check=False, env=dict(os.environ)).returncode == 0:
                rows += json.loads(out.read_text())
    common.save(f"dynamic_{options.cores}core", rows)


if __name__ == "__main__":
    main()
