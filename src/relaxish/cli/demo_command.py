"""``relaxish demo``: import a ResNet-50, tune it for a few minutes, compare it with itself and with ONNX Runtime."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
from collections.abc import Callable
import numpy as np

from ..ir.module import IRModule
from ..support.errors import MissingExtraError, RelaxishError
from ..support.units import human_time
from ..support.threads import num_threads
from .common import flatten_result, resolve_target, writable_directory
from ..meta_schedule.measure_callback import LiveProgress
from .timing import interleaved, largest_error, median, paired_ratio


# Shares of the model's time: kernels that get a few measurements, and those that get a search as well.
_WORTH_MEASURING = 0.95
_WORTH_SEARCHING = 0.6
# Largest error relative to the largest output: rounding stays far below.
_TOLERANCE = 1e-4


class _Steps:
    """Numbered headings with the time since the start."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(highlight=False)
        self.begin = time.perf_counter()
        self.count = 0

    def step(self, text: str) -> None:
        """Start a step."""
        self.count += 1
        self.console.print(f"[bold]{self.count}.[/bold] {text}  [dim]({self.elapsed():.0f} s)[/dim]")

    def note(self, text: str) -> None:
        """A line below the heading."""
        self.console.print(f"   {text}")

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.begin


def _model(folder: Path, seed: int) -> tuple[Any, Any, Any]:
    """The ONNX model, its module, and an input."""
    import onnx

    from ..frontend.onnx import from_onnx
    from ..tools.light_models import light_model

    proto = light_model("resnet50", seed)
    onnx.save(proto, str(folder / "resnet50.onnx"))
    image = np.random.default_rng(seed).standard_normal((1, 3, 224, 224)).astype("float32")
    return proto, from_onnx(proto), image


def _peer(proto: Any, image: Any, threads: int) -> Callable[[], Any]:
    """A function that runs ONNX Runtime."""
    try:
        import onnxruntime as ort
    except ImportError:
        raise MissingExtraError("bench", "onnxruntime", "the comparison with ONNX Runtime") from None
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: image}
    return lambda: session.run(None, feed)


def _run_of(executable: Any, image: Any) -> Callable[[], Any]:
    from ..runtime import VirtualMachine, cpu, nd

    main = VirtualMachine(executable, cpu())["main"]
    array = nd.array(image)
    return lambda: main(array)


def _tune(mod: IRModule, target: Any, image: Any, folder: Path, seconds: float, seed: int, steps: _Steps) -> Any:
    """Measure neighbours of the default schedules of the kernels that matter, then search; the database."""
    from ..meta_schedule.resume.budget import TimeBudget, worthwhile
    from ..meta_schedule.builder import LocalBuilder
    from ..meta_schedule.database import JSONDatabase
    from ..meta_schedule.relax_integration import extract_tasks, extracted_tasks_to_tune_contexts
    from ..meta_schedule.runner import EvaluatorConfig, LocalRunner
    from ..meta_schedule.tune import tune_tasks
    from ..meta_schedule.analysis.variants import measure_variants
    from ..pipeline import kernel_pipeline
    from ..tools.tuning_in_place import kernel_seconds

    tasks = extract_tasks(kernel_pipeline(target)(mod), target)
    spent = kernel_seconds(mod, target, [image])
    order = worthwhile(tasks, [spent.get(t.task_name, 0.0) for t in tasks], _WORTH_MEASURING)
    steps.note(f"{len(tasks)} distinct kernels; {len(order)} of them take 95 % of {human_time(sum(spent.values()))}")
    contexts, weights = extracted_tasks_to_tune_contexts(order, str(folder), seed=seed, num_threads="logical")
    top = len(worthwhile(order, [spent[t.task_name] for t in order], _WORTH_SEARCHING))
    database = JSONDatabase(work_dir=str(folder))
    builder = LocalBuilder()
    runner = LocalRunner(evaluator_config=EvaluatorConfig(number=3, repeat=2, min_repeat_ms=10))
    try:
        count = measure_variants(contexts, database, builder, runner)
        steps.note(f"{count} variants of their default schedules are measured ({steps.elapsed():.0f} s)")
        with LiveProgress(seconds=seconds) as progress:
            tune_tasks(
                tasks=contexts[:top],
                task_weights=weights[:top],
                work_dir=str(folder),
                max_trials_global=1 << 30,
                max_trials_per_task=128,
                num_trials_per_iter=8,
                builder=builder,
                runner=runner,
                database=database,
                measure_callbacks=progress.callbacks(),
                task_scheduler=TimeBudget(seconds, seed=seed),
                baselines=False,
            )
    finally:
        builder.shutdown()
        runner.shutdown()
    return database


_ROWS = {"untuned": "untuned", "tuned": "tuned", "peer": "ONNX Runtime"}


def _table(steps: _Steps, times: dict[str, list[float]], errors: dict[str, float]) -> None:
    from rich.table import Table

    table = Table(title=f"ResNet-50, batch 1, fp32, {num_threads()} threads")
    table.add_column("")
    for name in ("latency", "fastest", "vs untuned", "vs ORT", "max error"):
        table.add_column(name, justify="right")
    for key, label in _ROWS.items():
        mine = times[key]
        ratios = [f"{paired_ratio(mine, times[other]):.3f}" for other in ("untuned", "peer")]
        error = f"{errors[key]:.1e}" if key in errors else "reference"
        table.add_row(label, human_time(median(mine)), human_time(min(mine)), *ratios, error)
    steps.console.print(table)


@click.command("demo", help="Import a ResNet-50, tune it, and compare it with its untuned self and ONNX Runtime.")
@click.option("--out", default="demo_out", show_default=True, help="Where model, database and report go.")
@click.option("--seconds", default=150.0, show_default=True, type=click.FloatRange(0), help="Time spent on tuning.")
@click.option("--target", "target_text", default="llvm", show_default=True)
@click.option("--seed", default=0, show_default=True)
def command(out: str, seconds: float, target_text: str, seed: int) -> None:
    """The command."""
    from ..driver import build
    from ..meta_schedule.database import JSONDatabase
    from ..tools.tuning_in_place import settle
    from ..tools.report import write_report

    target = resolve_target(target_text)
    folder = writable_directory(out)
    steps = _Steps()
    steps.step("Importing light_resnet50 (ONNX, random weights)")
    proto, mod, image = _model(folder, seed)
    peer = _peer(proto, image, num_threads())
    expected = peer()
    steps.step("Building it untuned")
    untuned = _run_of(build(mod, target), image)
    steps.note(f"largest error {largest_error(flatten_result(untuned()), expected):.1e} against ONNX Runtime")
    steps.step(f"Tuning for {seconds:.0f} s")
    database = _tune(mod, target, image, folder / "tuning", seconds, seed, steps)
    steps.step("Trying the best schedules of each kernel inside the model")
    best = JSONDatabase(work_dir=str(folder / "best"))
    kernels = settle(mod, target, database, best, [image])
    won = sum(k.winner is not None for k in kernels)
    steps.note(f"{won} kernels are faster tuned, {len(kernels) - won} keep their default schedule")
    with best:
        tuned = _run_of(build(mod, target), image)
    steps.step("Timing")
    times = interleaved({"untuned": untuned, "tuned": tuned, "peer": peer}, 8.0)
    errors = {
        name: largest_error(flatten_result(run()), expected) for name, run in (("untuned", untuned), ("tuned", tuned))
    }
    _table(steps, times, errors)
    if max(errors.values()) > _TOLERANCE:
        raise RelaxishError(f"the model computes something else than ONNX Runtime: errors {errors}")
    report = write_report(str(folder / "tuning"), str(folder / "report.html"), title="ResNet-50")
    steps.note(f"{len(database)} schedules were measured; report: [bold]{report}[/bold]")
    result = {
        "threads": num_threads(),
        "seconds": steps.elapsed(),
        "latency": {name: median(values) for name, values in times.items()},
        "tuned vs untuned": paired_ratio(times["tuned"], times["untuned"]),
        "errors": errors,
    }
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    steps.note(f"done in {steps.elapsed():.0f} s; try: relaxish bench {folder}/resnet50.onnx --db {folder}/best")
