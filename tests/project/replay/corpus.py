"""The corpus of the replay: named cases in five groups, each a list of (stage, text).

A case whose program a target refuses is recorded by the class and the message of its error: refusals are behaviour, too.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from models import MODELS
from stages import TARGETS, Stage, kernel_stages, model_stages

from relaxish.ir.module import IRModule

__all__ = ["GROUPS", "Case", "texts_of"]

HERE = Path(__file__).parent
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

#: Name of a case, and what makes its texts.
Case = tuple[str, Callable[[], Iterator[Stage]]]


def operators() -> Iterator[Case]:
    """Every sample of every operator, legalised alone, on every target."""
    from test_op_numeric import cases as samples
    from test_op_numeric import lowered_module

    for sample in samples():
        name, args, kwargs = sample.values

        def legalised(name: str = name, args: Any = args, kwargs: dict[str, Any] = kwargs) -> IRModule:
            return lowered_module(name, args, kwargs)[0]

        yield f"{sample.id}/legalised", lambda made=legalised: iter([("program", made().script())])
        for where in TARGETS:
            yield f"{sample.id}/{where}", lambda made=legalised, where=where: kernel_stages(_kernels(made()), where)


def _kernels(module: IRModule) -> IRModule:
    from relaxish.tir import PrimFunc

    return IRModule({g: f for g, f in module.functions.items() if isinstance(f, PrimFunc)})


def models() -> Iterator[Case]:
    """Six models under the default pipelines."""
    for name, make in MODELS.items():
        yield f"{name}/imported", lambda make=make: iter([("program", make("llvm").script())])
        for where in ("llvm", "amx", "cuda", "hopper", "opencl"):
            yield f"{name}/{where}", lambda make=make, where=where: model_stages(make(TARGETS[where]), where)


def schedules() -> Iterator[Case]:
    """Recorded traces, applied to the programs they were recorded of, and what code they become."""
    for number, record in enumerate(json.loads((HERE / "schedules.json").read_text())):
        yield f"{number:02d}", lambda record=record: _replayed(record)


def _replayed(record: dict[str, Any]) -> Iterator[Stage]:
    from relaxish.script import from_source
    from relaxish.tir.schedule import Schedule, Trace

    sch = Schedule(from_source(record["program"]), seed=1)
    Trace.apply_json_to_schedule(record["trace"], sch)
    yield "scheduled", sch.mod.script()
    yield "trace", "\n".join(sch.trace.as_python())
    yield from kernel_stages(sch.mod, "llvm")


#: Task, and the target whose rules make its space.
_SEARCHES = {
    "matmul": "llvm",
    "conv2d": "llvm",
    "conv2d_1x1": "amx",
    "batch_matmul": "llvm",
    "depthwise": "llvm",
    "softmax": "llvm",
    "max_pool": "amx",
    "matmul_relu": "cuda",
    "row_sum": "cuda",
    "elementwise": "cuda",
}


def searches() -> Iterator[Case]:
    """Design spaces and two generations of candidates, with a seed and made-up measurements."""
    for task, where in _SEARCHES.items():
        yield f"{task}/{where}", lambda task=task, where=where: _searched(task, where)


def _searched(task: str, where: str) -> Iterator[Stage]:
    import zlib

    from search_workloads import WORKLOADS

    from relaxish import Target, te
    from relaxish import meta_schedule as ms

    context = ms.TuneContext(
        te.create_prim_func(WORKLOADS[task]()),
        target=Target(TARGETS[where]),
        rand_state=7,
        space_generator="post-order-apply",
        search_strategy="evolutionary",
        task_name=task,
    )
    spaces = context.generate_design_space()
    yield "design space", "\n\n".join("\n".join(s.trace.as_python()) for s in spaces)
    context.pre_tuning(
        max_trials=48,
        num_trials_per_iter=16,
        design_spaces=spaces,
        database=ms.database.MemoryDatabase(),
        cost_model=ms.cost_model.RandomModel(seed=3),
    )
    for generation in ("first generation", "second generation"):
        candidates = context.generate_measure_candidates() or []
        texts = ["\n".join(c.sch.trace.as_python()) for c in candidates]
        yield generation, "\n\n".join(texts)
        seconds = [1e-3 + zlib.crc32(text.encode()) % 1000 * 1e-6 for text in texts]
        results = [ms.runner.RunnerResult([second], None) for second in seconds]
        context.notify_runner_results(candidates, results)
    context.post_tuning()


def public_names() -> Iterator[Case]:
    """Signatures of the public names, a case for each module."""
    from test_public_names import NAMES

    for path, names in NAMES.items():
        yield path or "relaxish", lambda path=path, names=names: iter([("names", _signatures(path, names.split()))])


def _signatures(path: str, names: list[str]) -> str:
    from importlib import import_module

    module = import_module(f"relaxish.{path}".rstrip("."))
    return "\n".join(f"{name}{_signature(getattr(module, name))}" for name in sorted(set(names)))


def _signature(value: Any) -> str:
    if not callable(value):
        return f": {type(value).__name__}"
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    # Annotations may change their spelling; names, order and defaults are what callers rely on.
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return _ADDRESS.sub("", str(inspect.Signature(plain)))


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    f.__name__: f for f in (operators, models, schedules, searches, public_names)
}


def texts_of(make: Callable[[], Iterator[Stage]]) -> dict[str, str]:
    """Texts of a case by stage; the last is ``error`` where the program was refused."""
    found: dict[str, str] = {}
    try:
        found.update(make())
    except Exception as error:  # a refusal is recorded, whatever its class
        found["error"] = _ADDRESS.sub("", f"{type(error).__name__}: {error}")
    return found
