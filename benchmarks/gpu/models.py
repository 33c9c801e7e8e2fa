"""Section "models": ResNet-50 and BERT-base in fp16, whole, against torch eager and torch.compile."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Any

from .kernels import relative_error, working
from .timing import Timer


def make(name: str, small: bool) -> tuple[Any, Any]:
    """A torch model with random weights, and an input."""
    import torch
    import transformers as tf

    class First(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x)[0]

    torch.manual_seed(0)
    if name == "resnet50":
        config = tf.ResNetConfig(**({"depths": [1, 1, 1, 1], "hidden_sizes": [16, 16, 32, 32], "embedding_size": 16}
                                    if small else {}))  # fmt: skip
        side = 32 if small else 224
        return First(tf.ResNetForImageClassification(config)).eval(), torch.randn(1, 3, side, side)
    config = tf.BertConfig(**({"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2,
                               "intermediate_size": 128} if small else {}))  # fmt: skip
    return First(tf.BertModel(config)).eval(), torch.randint(0, 30000, (1, 16 if small else 128))


def compile_model(model: Any, x: Any, target: Any) -> Callable[..., Any]:
    """The untuned float32 model in mixed precision, by the default pipeline, replayed as one CUDA graph.

    Products take float16 and sum in float32, as torch's do.
    """
    import torch

    import relaxish
    from relaxish import relax
    from relaxish.frontend.torch import from_exported_program
    from relaxish.ir.transform import PassContext

    mod = from_exported_program(torch.export.export(model, (x,)), unwrap_unit_return_tuple=True)
    mod = relax.transform.ToMixedPrecision(out_dtype="float32")(mod)
    with target, PassContext(opt_level=3, config={"relax.backend.use_cuda_graph": True}):
        executable = relaxish.compile(mod, target, relax_pipeline=relax.get_default_pipeline(target))
    entry: Callable[..., Any] = relaxish.VirtualMachine(executable, relaxish.cuda())["main"]
    return entry


def measure(name: str, options: Any, timer: Timer) -> dict[str, Any]:
    """One row; the reference is torch in float32."""
    import torch

    import relaxish

    model, x = make(name, options.small)
    with torch.no_grad():
        expected = model(x).numpy()
    begin = time.perf_counter()
    entry = compile_model(model, x, options.target)
    row: dict[str, Any] = {"case": f"{name} f16", "build s": time.perf_counter() - begin}
    ours = relaxish.nd.array(x.numpy(), relaxish.cuda())
    row["error"] = relative_error(entry(ours).numpy(), expected)
    row["right"] = row["error"] <= 1e-2
    runs: dict[str, Callable[[], Any]] = {"relaxish": lambda: entry(ours)}
    if timer.on_gpu:
        there, moved = model.half().cuda(), (x.half() if x.is_floating_point() else x).cuda()
        compiled = torch.compile(there, mode="max-autotune")
        peers: dict[str, Callable[[], Any]] = {"torch": lambda: there(moved), "torch.compile": lambda: compiled(moved)}
        with torch.no_grad():
            runs.update(working(peers, row))
    with torch.no_grad():
        times = timer.compare(runs)
    row.update({f"{k} ms": v for k, v in times.items()})
    peer_times = [v for k, v in times.items() if k != "relaxish"]
    if peer_times:
        row["speed vs best peer"] = min(peer_times) / times["relaxish"]
    return row


def run(options: Any, save: Callable[[list[dict[str, Any]]], None]) -> None:
    """Both models; a failing one is a row with its error."""
    timer = Timer(rounds=2 if options.small else 25)
    rows: list[dict[str, Any]] = []
    for name in ("bert", "resnet50"):
        try:
            rows.append(measure(name, options, timer))
        except Exception as error:  # noqa: BLE001  (the other model may still work)
            rows.append({"case": f"{name} f16", "failed": f"{type(error).__name__}: {error}"[:2000],
                         "where": traceback.format_exc()[-3000:]})  # fmt: skip
        save(rows)
