"""``relaxish opt``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ..support.errors import RelaxishError
from .common import parse_shapes, resolve_target, trust_option, writable_file
from .models import load_model

if TYPE_CHECKING:
    from ..ir.transform import Pass


def make_pass(text: str) -> Pass:
    """The pass of ``name{option=value}``, looked for among graph passes, then loop passes, then pipelines."""
    from ..ir.declared_pass import pass_from_text

    return pass_from_text(text, _pass_named)


def _pass_named(name: str) -> Callable[..., Pass]:
    from .. import pipeline, transform
    from ..tir import transform as tir_transform

    for place in (transform, tir_transform):
        found = getattr(place, name, None)
        if found is not None and callable(found):
            return found
    if name in pipeline.PIPELINE_MAP:
        return functools.partial(pipeline.get_pipeline, name)
    near = [n for n in [*dir(transform), *dir(tir_transform)] if n.lower() == name.lower()]
    raise RelaxishError(f"unknown pass {name!r}" + (f"; did you mean {near[0]}?" if near else ""))


@click.command("opt", help="Run passes over MODEL (.onnx, .pt2, .py) and print the program.")
@click.argument("model_path", metavar="MODEL")
@click.option(
    "-p",
    "--pass",
    "passes",
    multiple=True,
    metavar="NAME",
    help="A pass, e.g. LegalizeOps or FuseOps{fuse_opt_level=1}; in order.",
)
@click.option("--target", "target_text", default="llvm", show_default=True)
@click.option("--shape", "shapes", multiple=True, metavar="NAME=D0,D1,...")
@trust_option
@click.option("-o", "--output", default=None, help="Write the program here instead of printing it.")
@click.option("--timing", is_flag=True, help="Print how long each pass took.")
@click.option("--html", "html_path", default=None, help="Write the whole pipeline here, with differences side by side.")
def command(
    model_path: str,
    passes: tuple[str, ...],
    target_text: str,
    shapes: tuple[str, ...],
    trust_pickle: bool,
    output: str | None,
    timing: bool,
    html_path: str | None,
) -> None:
    """The command."""
    import time

    from ..ir.instrument import PassDiffInstrument
    from ..ir.transform import PassContext

    target = resolve_target(target_text)
    chosen = [(p, make_pass(p)) for p in passes]
    destination = writable_file(output) if output else None
    page = writable_file(html_path) if html_path else None
    differences = PassDiffInstrument()
    model = load_model(model_path, parse_shapes(shapes), trust_pickle)
    if model.kind == "compiled":
        raise RelaxishError(f"{model_path}: is compiled; passes need the source program")
    mod = model.mod
    for name, step in chosen:
        begin = time.perf_counter()
        with target, PassContext(instruments=[differences] if page is not None else []):
            mod = step(mod)
        if timing:
            click.echo(f"{name}: {time.perf_counter() - begin:.3f} s", err=True)
    if page is not None:
        differences.write_html(page)
    text = mod.script()
    if destination is not None:
        destination.write_text(text + "\n")
    else:
        click.echo(text)
