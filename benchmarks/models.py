"""Latency of whole models, untuned, against torch, ONNX Runtime and OpenVINO in the same run.

    python benchmarks/models.py [--cores 1] [--models resnet50,bert] [--rounds 9]

Exported models are kept in a cache folder, so a second run starts measuring at once.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import common
import peers

warnings.filterwarnings("ignore")
MODELS = ("resnet50", "mobilenetv2", "bert", "gpt2", "vit")


def _last_hidden(module: Any) -> Any:
    import torch

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: Any) -> Any:
            out = self.inner(x)
            return out[0]

    return First().eval()


def make(name: str) -> tuple[Any, Any]:
    """A torch model with random weights and an input."""
    import torch
    import transformers as tf

    torch.manual_seed(0)
    image = torch.randn(1, 3, 224, 224)
    if name == "resnet50":
        return _last_hidden(tf.ResNetForImageClassification(tf.ResNetConfig())), image
    if name == "mobilenetv2":
        return _last_hidden(tf.MobileNetV2ForImageClassification(tf.MobileNetV2Config())), image
    if name == "bert":
        return _last_hidden(tf.BertModel(tf.BertConfig())), torch.randint(0, 30000, (1, 128))
    if name == "gpt2":
        return _last_hidden(tf.GPT2Model(tf.GPT2Config(use_cache=False))), torch.randint(0, 50000, (1, 64))
    if name == "vit":
        return _last_hidden(tf.ViTModel(tf.ViTConfig())), image
    raise SystemExit(f"unknown model {name}")


def prepare(name: str, folder: Path) -> None:
    """Export a model for all who measure it; files that are there already are kept."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / f"{name}.pt2").exists():
        model, x = make(name)
        torch.export.save(torch.export.export(model, (x,)), folder / f"{name}.pt2")
        torch.onnx.export(model, (x,), str(folder / f"{name}.onnx"), dynamo=True, verbose=False)


def compile_model(path: Path) -> tuple[Any, float]:
    """The untuned model's entry function and the seconds that compiling it took."""
    import torch

    import relaxish
    from relaxish.frontend.torch import from_exported_program

    mod = from_exported_program(torch.export.load(path), unwrap_unit_return_tuple=True)
    start = time.perf_counter()
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm", exec_mode="compiled"), relaxish.cpu())
    return vm["main"], time.perf_counter() - start


def bench(name: str, rounds: int, cores: int, folder: Path) -> dict[str, Any]:
    """One row of the table."""
    import torch

    import relaxish

    torch.set_num_threads(cores)
    model, x = make(name)
    with torch.no_grad():
        expected = model(x).numpy()
    run, compile_sec = compile_model(folder / f"{name}.pt2")
    ours = relaxish.nd.array(x.numpy())
    error = common.relative_error(run(ours).numpy(), expected)
    if not error <= 1e-4:
        raise SystemExit(f"{name}: the largest relative error is {error:.2g}")

    def torch_run() -> None:
        with torch.no_grad():
            model(x)

    path = folder / f"{name}.onnx"
    runs: dict[str, Any] = {"relaxish": lambda: run(ours), "torch": torch_run}
    runs.update(_peers(path, x, cores))
    times = common.rounds_of(runs, rounds)
    row: dict[str, Any] = {"model": name, "cores": cores}
    row.update({f"{k} ms": statistics.median(v) * 1e3 for k, v in times.items()})
    # The second ratio is that of the fastest rounds: on a machine with other work, less of it is the others' doing.
    for what, pick in (("ratio to best peer", statistics.median), ("ratio, fastest rounds", min)):
        best = min(pick(v) for k, v in times.items() if k != "relaxish")
        row[what] = pick(times["relaxish"]) / best
    row.update({"error": error, "compile s": compile_sec})
    return row


def _peers(path: Path, x: Any, cores: int) -> dict[str, Any]:
    """The peers that are installed."""
    found = {"onnxruntime": peers.onnxruntime_run(path, [x.numpy()], cores)}
    with contextlib.suppress(ImportError):
        found["openvino"] = peers.openvino_run(path, [x.numpy()], cores)
    return found


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--exports", type=Path, default=Path.home() / ".cache" / "relaxish" / "exports")
    parser.add_argument("--prepare", action="store_true", help="only export the models, measure nothing")
    options = parser.parse_args()
    names = options.models.split(",")
    for name in names:
        prepare(name, options.exports)
    if options.prepare:
        return
    common.pin(options.cores)
    rows = [bench(name, options.rounds, options.cores, options.exports) for name in names]
    common.save(f"models_{options.cores}core", rows)


if __name__ == "__main__":
    main()
