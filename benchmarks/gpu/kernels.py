"""Section "kernels": every case built with its default schedule, checked, and timed against its peers.

All cases are checked and timed first; peers that compile for long come after that, as far as the time goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .cases import Case, all_cases
from .journal import Journal, case_of
from .timing import Timer, add_times, torch_has_gpu

_COMPILED = " | compiled peers"


def jobs(small: bool) -> list[str]:
    """Each case, then each again for the slow peers."""
    names = list(all_cases(small))
    return [*names, *(name + _COMPILED for name in names if torch_has_gpu())]


@dataclass
class Prepared:
    """A case on the device: the inputs as torch's tensors and as our arrays, and our kernel."""

    case: Case
    tensors: list[Any]
    arrays: list[Any]
    run: Callable[..., Any]


_PREPARED: dict[str, Prepared] = {}


def prepare(name: str, options: Any, journal: Journal) -> Prepared:
    """Build a case and bring its inputs to the device."""
    case = all_cases(options.small)[name]()
    begin = time.perf_counter()
    run = build(case.module(), options.target)
    journal.update(name, {"build s": time.perf_counter() - begin})
    return Prepared(case, *on_device(case.inputs), run)


def run(job: str, options: Any, journal: Journal) -> None:
    """One job; a row has the error, the milliseconds of everyone, the rate, and the ratio to each peer."""
    name = case_of(job)
    made = _PREPARED.get(name) or prepare(name, options, journal)
    case = made.case
    timer = Timer(rounds=2 if options.small else 25)
    row = journal.rows[name]
    if job == name:
        expected = case.expected(case.inputs)
        row["error"] = relative_error(made.run(*made.arrays).numpy(), expected)
        journal.put(name, right=row["error"] <= case.tolerance)
        peers = working(case.peers(made.tensors), row) if timer.on_gpu else {}
        for peer, function in peers.items():
            row[f"error of {peer}"] = relative_error(function().double().cpu().numpy(), expected)
        if timer.on_gpu:
            _PREPARED[name] = made
    else:
        peers = working(case.compiled(made.tensors), row)
    ours = {"relaxish": lambda: made.run(*made.arrays)}
    journal.update(name, add_times(row, timer.compare(ours | peers), case.flop, case.nbytes))


def relative_error(actual: Any, expected: np.ndarray) -> float:
    """Largest absolute difference over the largest magnitude; infinite if shapes differ or a value is no number."""
    if tuple(actual.shape) != tuple(expected.shape):
        return float("inf")
    scale = float(np.abs(expected).max()) or 1.0
    error = float(np.abs(np.asarray(actual, "float64") - expected.astype("float64")).max()) / scale
    return error if np.isfinite(error) else float("inf")


def build(module: Any, target: Any) -> Callable[..., Any]:
    """A function of device arrays that returns its result: graphs by the default pipeline, loop programs scheduled."""
    import relaxish
    from relaxish import dlight, relax, tir

    with target:
        if any(not isinstance(f, tir.PrimFunc) for f in module.functions.values()):
            executable = relaxish.compile(module, target, relax_pipeline=relax.get_default_pipeline(target))
            entry: Callable[..., Any] = relaxish.VirtualMachine(executable, relaxish.cuda())["main"]
            return entry
        scheduled = dlight.ApplyDefaultSchedule(*dlight.default_gpu_rules(target))(module)
    return into_output(relaxish.compile(scheduled, target), module)


def into_output(compiled: Any, module: Any) -> Callable[..., Any]:
    """A destination-passing kernel as a function that returns its output, which is allocated once."""
    import relaxish

    func = next(iter(module.functions.values()))
    buffer = func.buffer_map[func.params[-1]]
    out = relaxish.nd.empty([int(d) for d in buffer.shape], buffer.dtype, relaxish.cuda())
    kernel = compiled["main"]

    def run(*arguments: Any) -> Any:
        kernel(*arguments, out)
        return out

    return run


def on_device(tensors: list[Any]) -> tuple[list[Any], list[Any]]:
    """The torch tensors on the GPU (or where they are without one), and relaxish arrays of the same memory."""
    import relaxish

    if torch_has_gpu():
        moved = [t.cuda() for t in tensors]
        return moved, [relaxish.nd.from_dlpack(t) for t in moved]
    import torch

    host = [t.view(torch.uint8) if t.element_size() == 1 and t.is_floating_point() else t for t in tensors]
    return tensors, [relaxish.nd.array(_numpy(h, t), relaxish.cuda()) for h, t in zip(host, tensors, strict=True)]


def _numpy(raw: Any, tensor: Any) -> np.ndarray:
    import ml_dtypes
    import torch

    narrow = {torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn, torch.bfloat16: ml_dtypes.bfloat16}.get(tensor.dtype)
    if narrow is None:
        array: np.ndarray = raw.numpy()
        return array
    bits = raw if raw.dtype == torch.uint8 else raw.view(torch.int16)
    return bits.numpy().view(narrow)


def working(peers: dict[str, Callable[[], Any]], row: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """The peers that can do this case at all; the others' reasons go into the row."""
    able = {}
    for name, peer in peers.items():
        try:
            peer()
        except Exception as reason:  # whatever a peer fails by, it is out of this comparison
            row[f"{name} failed"] = str(reason).splitlines()[0][:200] if str(reason) else type(reason).__name__
        else:
            able[name] = peer
    return able
