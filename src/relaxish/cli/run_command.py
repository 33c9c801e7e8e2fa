"""``relaxish run``."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from ..support.errors import RelaxishError
from ..support.units import human_time
from .common import (
    flatten_result,
    load_inputs,
    parse_shapes,
    random_input,
    resolve_target,
    trust_option,
    show_shape,
    writable_file,
)
from .compile_command import build_model
from .models import LoadedModel, load_model


def prepare_inputs(model: LoadedModel, files: tuple[str, ...], seed: int) -> list[Any]:
    """Inputs from files, or random ones."""
    if files:
        return load_inputs(files, model.inputs)
    for spec in model.inputs:
        if any(d < 0 for d in spec.shape):
            raise RelaxishError(
                f"input {spec.name!r} has unknown dimensions {show_shape(spec.shape)}: "
                f"give --shape {spec.name}=... or --input"
            )
    rng = np.random.default_rng(seed)
    return [random_input(spec, rng) for spec in model.inputs]


@click.command("run", help="Run MODEL (.onnx, .pt2, .py, or compiled .so/.tar) on given or random inputs.")
@click.argument("model_path", metavar="MODEL")
@click.option("--input", "files", multiple=True, metavar="[NAME=]FILE", help=".npy or .npz file; in order, or by name.")
@click.option("-o", "--output", default=None, help="Write the results to this .npz file.")
@click.option("--function", "name", default="main", show_default=True, help="Which function to call.")
@click.option("--target", "target_text", default="llvm", show_default=True, help="What to compile for.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=D0,D1,...", help="Fix an input's shape.")
@trust_option
@click.option("--db", "database", default=None, metavar="DIR", help="Use tuned schedules from this directory.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="For random inputs.")
@click.option("--profile", is_flag=True, help="Print time by kernel.")
@click.option("--repeat", default=0, type=click.IntRange(0), metavar="N", help="Also time N calls.")
def command(
    model_path: str,
    files: tuple[str, ...],
    output: str | None,
    name: str,
    target_text: str,
    shapes: tuple[str, ...],
    trust_pickle: bool,
    database: str | None,
    seed: int,
    profile: bool,
    repeat: int,
) -> None:
    """The command."""
    from ..runtime import VirtualMachine, VMExecutable, cpu

    target = resolve_target(target_text)
    destination = writable_file(output) if output else None
    model = load_model(model_path, parse_shapes(shapes), trust_pickle)
    inputs = prepare_inputs(model, files, seed)
    executable = build_model(model, target, database)
    if not isinstance(executable, VMExecutable):
        raise RelaxishError(f"{model_path}: holds loop programs only; there is no graph function to run")
    machine = VirtualMachine(executable, cpu(), profile=profile)
    if name not in executable.function_names:
        known = ", ".join(executable.function_names)
        raise RelaxishError(f"{model_path}: there is no function {name!r} (functions: {known})")
    results = flatten_result(machine[name](*inputs))
    for i, value in enumerate(results):
        numbers = value.astype("float64") if value.dtype.kind in "fiub" else value.astype("float32")
        stats = (
            f"mean {numbers.mean():.6g}  min {numbers.min():.6g}  max {numbers.max():.6g}" if value.size else "empty"
        )
        click.echo(f"output {i}: {value.dtype}{list(value.shape)}  {stats}")
    if destination is not None:
        np.savez(destination, **{f"output_{i}": v for i, v in enumerate(results)})
        click.echo(f"wrote {destination}")
    if repeat > 0:
        timing = machine.time_evaluator(name, cpu(), number=1, repeat=repeat)(*inputs)
        click.echo(f"median {human_time(timing.median)}  min {human_time(timing.min)}  over {repeat} calls")
    if profile:
        click.echo(machine.profile(name, *inputs).table())
