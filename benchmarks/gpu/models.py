"""Section "models": ResNet-50 and BERT-base in fp16, whole, against torch eager and torch.compile.

Both models are checked and timed first; ``torch.compile``, which takes minutes, comes after that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .journal import Journal, case_of
from .kernels import relative_error, working
from .timing import Timer, add_times, torch_has_gpu

_COMPILED = " | torch.compile"
# The first compiles in half a minute, so that there is a figure should the second not come to its end.
_MODES = ("reduce-overhead", "max-autotune")


def jobs(small: bool) -> list[str]:
    """Each model, then each again for torch's compiler."""
    names = ["bert f16", "resnet50 f16"]
    return [*names, *(name + _COMPILED for name in names if torch_has_gpu())]


@dataclass
class Prepared:
    """A model: torch's in float32 on the CPU with an input, and ours on the device."""

    model: Any
    x: Any
    run: Callable[[], Any]


_PREPARED: dict[str, Prepared] = {}


def prepare(name: str, options: Any, journal: Journal) -> Prepared:
    """Build a model."""
    import relaxish

    model, x = make(name, options.small)
    begin = time.perf_counter()
    entry = compile_model(model, x, options.target)
    ours = relaxish.nd.array(x.numpy(), relaxish.cuda())
    journal.update(name, {"build s": time.perf_counter() - begin})
    return Prepared(model, x, lambda: entry(ours))


def run(job: str, options: Any, journal: Journal) -> None:
    """One job; the reference is torch in float32."""
    import torch

    name = case_of(job)
    made = _PREPARED.get(name) or prepare(name, options, journal)
    row = journal.rows[name]
    timer = Timer(rounds=2 if options.small else 25)
    with torch.no_grad():
        if job != name:
            compare_compiled(made, row, timer, lambda: journal.update(name, {}))
            return
        expected = made.model(made.x).numpy()
        row["error"] = relative_error(made.run().numpy(), expected)
        journal.put(name, right=row["error"] <= 1e-2)
        peers: dict[str, Callable[[], Any]] = {}
        if timer.on_gpu:
            _PREPARED[name] = made
            model, x = half_on_gpu(made)
            peers = working({"torch": lambda: model(x)}, row)
            if peers:
                row["error of torch"] = relative_error(model(x).double().cpu().numpy(), expected)
        journal.update(name, add_times(row, timer.compare({"relaxish": made.run, **peers})))


def compare_compiled(made: Prepared, row: dict[str, Any], timer: Timer, save: Callable[[], None]) -> None:
    """Time torch's compiler in each mode beside ours."""
    import torch

    model, x = half_on_gpu(made)
    for mode in _MODES:
        torch._dynamo.reset()
        compiled = torch.compile(model, mode=mode)
        peers = working({f"torch.compile {mode}": lambda run=compiled: run(x)}, row)  # type: ignore[misc]
        add_times(row, timer.compare({"relaxish": made.run, **peers}))
        save()


def half_on_gpu(made: Prepared) -> tuple[Any, Any]:
    """Torch's model and input in float16 on the GPU; the model is moved there, not copied."""
    return made.model.half().cuda(), (made.x.half() if made.x.is_floating_point() else made.x).cuda()


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
    if name.startswith("resnet50"):
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
    from relaxish.transform.fold_batchnorm import CPUBatchnormFolding

    mod = from_exported_program(torch.export.export(model, (x,)), unwrap_unit_return_tuple=True)
    # Batch norms would stay in float32; as part of the weights they are none.
    mod = CPUBatchnormFolding()(mod)
    mod = relax.transform.ToMixedPrecision(out_dtype="float32")(mod)
    with target, PassContext(opt_level=3, config={"relax.backend.use_cuda_graph": True}):
        executable = relaxish.compile(mod, target, relax_pipeline=relax.get_default_pipeline(target))
    entry: Callable[..., Any] = relaxish.VirtualMachine(executable, relaxish.cuda())["main"]
    return entry
