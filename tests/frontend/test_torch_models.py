"""Whole torch models with random weights: exported programs and ONNX exports, against torch and ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import relaxish  # noqa: E402
from relaxish.frontend.onnx import from_onnx  # noqa: E402
from relaxish.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.slow  # each exports and compiles a model of real size


class First(torch.nn.Module):
    """The first output of a model that gives several."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)[0]


def make(name: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    tf = transformers
    image = torch.randn(1, 3, 224, 224)
    model, x = {
        "resnet50": lambda: (tf.ResNetForImageClassification(tf.ResNetConfig()), image),
        "mobilenetv2": lambda: (tf.MobileNetV2ForImageClassification(tf.MobileNetV2Config()), image),
        "bert": lambda: (tf.BertModel(tf.BertConfig()), torch.randint(0, 30000, (1, 128))),
        "gpt2": lambda: (tf.GPT2Model(tf.GPT2Config(use_cache=False)), torch.randint(0, 50000, (1, 64))),
        "vit": lambda: (tf.ViTModel(tf.ViTConfig()), image),
    }[name]()
    return First(model).eval(), x


def compiled_result(mod: Any, x: Any) -> np.ndarray:
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    result = vm["main"](relaxish.nd.array(x.numpy()))
    return (result if isinstance(result, relaxish.nd.NDArray) else result[0]).numpy()


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype
    assert float(np.abs(got - want).max()) <= 1e-4 * float(np.abs(want).max())


MODELS = ["resnet50", "mobilenetv2", "bert", "gpt2", "vit"]


@pytest.mark.parametrize("name", MODELS)
def test_exported_program_against_torch(name: str) -> None:
    model, x = make(name)
    with torch.no_grad():
        want = model(x).numpy()
    mod = from_exported_program(torch.export.export(model, (x,)))
    close(compiled_result(mod, x), want)


@pytest.mark.parametrize(
    ("name", "dynamo"),
    # torch's older exporter has no rule for an operator (diff) that GPT-2 uses.
    [(n, d) for n in MODELS for d in (True, False) if (n, d) != ("gpt2", False)],
)
def test_onnx_export_against_onnxruntime(name: str, dynamo: bool, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    ort = pytest.importorskip("onnxruntime")
    model, x = make(name)
    path = tmp_path / "model.onnx"
    torch.onnx.export(model, (x,), str(path), dynamo=dynamo, verbose=False)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    want = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    close(compiled_result(from_onnx(onnx.load(str(path))), x), want)


def test_one_program_for_all_batches_and_lengths() -> None:
    config = transformers.GPT2Config(
        n_layer=2, n_embd=64, n_head=4, vocab_size=100, bos_token_id=0, eos_token_id=1, use_cache=False
    )
    torch.manual_seed(0)
    model = First(transformers.GPT2Model(config)).eval()
    batch, length = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("length", min=2, max=64)
    example = torch.randint(0, 100, (2, 7))
    program = torch.export.export(model, (example,), dynamic_shapes={"x": {0: batch, 1: length}})
    vm = relaxish.VirtualMachine(relaxish.build(from_exported_program(program), "llvm"), relaxish.cpu())
    for shape in ((2, 7), (3, 11), (5, 2)):
        x = torch.randint(0, 100, shape)
        with torch.no_grad():
            want = model(x).numpy()
        close(vm["main"](relaxish.nd.array(x.numpy()))[0].numpy(), want)
