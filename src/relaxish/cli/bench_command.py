"""``relaxish bench``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TYPE_CHECKING

import click

from ..support.errors import RelaxishError
from ..support.units import human_time
from ..support.sequences import of_kind
from ..support.threads import num_threads
from ..target.target import Target
from .common import flatten_result, format_table, parse_shapes, resolve_target, trust_option, writable_file
from .compile_command import build_model
from .models import LoadedModel, load_model
from .run_command import prepare_inputs
from .timing import interleaved, largest_error, median

if TYPE_CHECKING:
    import numpy as np

Runner = Callable[[], Any]


def _relaxish(model: LoadedModel, target: Target, database: str | None, inputs: list[Any]) -> tuple[Runner, Runner]:
    from ..runtime import VirtualMachine, cpu, nd

    machine = VirtualMachine(build_model(model, target, database), cpu())
    main = machine["main"]
    arrays = [nd.array(v) for v in inputs]
    return lambda: main(*arrays), lambda: flatten_result(main(*arrays))


def _onnxruntime(model: LoadedModel, inputs: list[Any], threads: int) -> tuple[Runner, Runner] | None:
    try:
        import onnxruntime as ort
    except ImportError:
        return None
    source = _onnx_bytes(model)
    if source is None:
        return None
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    given = session.get_inputs()
    if len(given) != len(inputs):
        return None
    feed = {spec.name: value for spec, value in zip(given, inputs, strict=True)}
    return lambda: session.run(None, feed), lambda: session.run(None, feed)


def _onnx_bytes(model: LoadedModel) -> bytes | None:
    """The model for ONNX Runtime; exported programs are converted where torch's exporter is installed and can."""
    if model.kind == "onnx":
        proto: bytes = model.source.SerializeToString()
        return proto
    if model.kind != "torch":
        return None
    import io

    import torch

    buffer = io.BytesIO()
    try:
        exported = torch.onnx.export(model.source, dynamo=True, verbose=False)
        exported.save(buffer)
    except (ImportError, RuntimeError, torch.onnx.errors.OnnxExporterError) as err:
        click.echo(f"ONNX Runtime is left out: torch cannot export the model ({type(err).__name__})", err=True)
        return None
    return buffer.getvalue()


def _torch(model: LoadedModel, inputs: list[Any], threads: int) -> tuple[Runner, Runner] | None:
    if model.kind != "torch":
        return None
    import torch

    torch.set_num_threads(threads)
    module = model.source.module()
    tensors = [torch.from_numpy(v) for v in inputs]

    def call() -> object:
        with torch.inference_mode():
            return module(*tensors)

    def results() -> list[np.ndarray[Any, Any]]:
        value = call()
        leaves = torch.utils._pytree.tree_leaves(value)
        return [t.detach().numpy() for t in of_kind(leaves, torch.Tensor)]

    return call, results


@click.command("bench", help="Time MODEL (.onnx, .pt2, .py, .so) against ONNX Runtime and torch in the same run.")
@click.argument("model_path", metavar="MODEL")
@click.option(
    "--db", "database", default=None, metavar="DIR", help="Also time the model with tuned schedules from here."
)
@click.option("--target", "target_text", default="llvm", show_default=True)
@click.option("--shape", "shapes", multiple=True, metavar="NAME=D0,D1,...", help="Fix an input's shape.")
@trust_option
@click.option("--input", "files", multiple=True, metavar="[NAME=]FILE", help=".npy or .npz file.")
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(0), help="Time spent on each row.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--json", "json_path", default=None, help="Also write the numbers to this file.")
def command(
    model_path: str,
    database: str | None,
    target_text: str,
    shapes: tuple[str, ...],
    trust_pickle: bool,
    files: tuple[str, ...],
    seconds: float,
    seed: int,
    json_path: str | None,
) -> None:
    """The command."""
    target = resolve_target(target_text)
    destination = writable_file(json_path) if json_path else None
    model = load_model(model_path, parse_shapes(shapes), trust_pickle)
    inputs = prepare_inputs(model, files, seed)
    if not inputs and not model.inputs:
        raise RelaxishError(f"{model_path}: there is no function 'main' with tensor inputs to time")
    threads = num_threads(target.attrs.get("num-cores"))
    entries: list[tuple[str, tuple[Runner, Runner] | None]] = [
        ("relaxish (untuned)" if model.kind != "compiled" else "relaxish", _relaxish(model, target, None, inputs))
    ]
    if database is not None:
        entries.append(("relaxish (tuned)", _relaxish(model, target, database, inputs)))
    entries.append(("ONNX Runtime", _onnxruntime(model, inputs, threads)))
    entries.append(("torch", _torch(model, inputs, threads)))
    present = [(name, pair) for name, pair in entries if pair is not None]
    reference = next((pair[1]() for name, pair in present if not name.startswith("relaxish")), None)
    times = interleaved({name: pair[0] for name, pair in present}, seconds)
    rows: list[dict[str, Any]] = []
    for name, pair in present:
        error = largest_error(pair[1](), reference) if reference is not None else None
        calls = {"median": median(times[name]), "min": min(times[name]), "calls": len(times[name])}
        rows.append({"name": name, **calls, "error": error})
    peers = [r["median"] for r in rows if not r["name"].startswith("relaxish")]
    best = min(peers) if peers else rows[0]["median"]
    cells = [
        [r["name"], human_time(r["median"]), human_time(r["min"]), r["calls"], f"{r['median'] / best:.2f}",
         "-" if r["error"] is None else f"{r['error']:.1e}"] for r in rows]  # fmt: skip
    click.echo(f"{model.name} on {threads} thread{'s' if threads > 1 else ''}")
    click.echo(format_table(["", "median", "min", "calls", "vs best peer", "max rel. error"], cells))
    if destination is not None:
        data = {"model": model.name, "threads": threads, "target": str(target), "rows": rows}
        destination.write_text(json.dumps(data, indent=2) + "\n")
