"""``relaxish compile``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ..runtime.vm.executable import VMExecutable
from ..support.errors import RelaxishError
from ..target.target import Target
from .common import parse_shapes, resolve_target, trust_option, tuning_shape_option, writable_file
from .models import LoadedModel, load_model

if TYPE_CHECKING:
    from ..meta_schedule.database import Database


def build_model(model: LoadedModel, target: Target, database: str | None = None) -> Any:
    """An executable of a loaded model, with tuned kernels where the database has them."""
    from ..driver import build, build_tir
    from ..relax.expr import Function
    from ..runtime import VMExecutable

    if model.kind == "compiled":
        return model.mod
    if not any(isinstance(f, Function) for f in model.mod.functions.values()):
        return build_tir(model.mod, target)
    if database is None:
        executable = build(model.mod, target)
    else:
        executable = _build_tuned(model, target, database)
    assert isinstance(executable, VMExecutable), "models have graph functions"
    executable.metadata["inputs"] = [[s.name, list(s.shape), s.dtype] for s in model.inputs]
    return executable


def _build_tuned(model: LoadedModel, target: Target, database: str) -> VMExecutable:
    from ..meta_schedule.relax_integration import compile_relax

    return compile_relax(opened(database), model.mod, target, params=None)


def opened(where: str, whole: bool = False) -> Database:
    """The database at ``where``, which must exist; unless it is wanted ``whole``, says what is not used."""
    from ..meta_schedule.database.opening import open_database

    database = open_database(where)
    if not whole:
        tell_unused(where, database)
    return database


def tell_unused(where: str, database: Database) -> None:
    """Say on the error output which records of other machines are not used."""
    from ..support import config

    left_out = database.left_out() if not config.ANY_HARDWARE.value else {}
    if left_out:
        tell_left_out(where, left_out)


def tell_left_out(work_dir: str, left_out: Mapping[str, int]) -> None:
    """Say on the error output which records are not used."""
    from ..tools.records import left_out_text

    click.echo(f"{work_dir}: left out {left_out_text(left_out)}; RELAXISH_ANY_HARDWARE=1 uses them", err=True)


@click.command("compile", help="Compile MODEL (.onnx, .pt2, .py) to a shared object with weights and manifest.")
@click.argument("model_path", metavar="MODEL")
@click.option("-o", "--output", default=None, help="File to write (.so or .tar); default: MODEL's name with .so.")
@click.option("--target", "target_text", default="llvm", show_default=True, help="What to compile for.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=D0,D1,...", help="Fix an input's shape.")
@trust_option
@tuning_shape_option
@click.option(
    "--db", "database", default=None, metavar="WHERE", help="Use tuned schedules from this directory or SQL database."
)
def command(
    model_path: str,
    output: str | None,
    target_text: str,
    shapes: tuple[str, ...],
    trust_pickle: bool,
    tuning_shapes: tuple[str, ...],
    database: str | None,
) -> None:
    """The command."""
    target = resolve_target(target_text)
    given = parse_shapes(shapes)
    path = writable_file(output or model_path.rsplit(".", 1)[0] + ".so")
    if path.suffix not in (".so", ".tar"):
        raise RelaxishError(f"{path}: the output must end in .so or .tar")
    model = load_model(model_path, given, trust_pickle).for_sizes(parse_shapes(tuning_shapes, "--tuning-shape"))
    if model.kind == "compiled":
        raise RelaxishError(f"{model_path}: is compiled already")
    begin = time.perf_counter()
    executable = build_model(model, target, database)
    executable.export_library(str(path))
    click.echo(f"compiled {model.name} for {target.kind.name} in {time.perf_counter() - begin:.1f} s: {path}")
