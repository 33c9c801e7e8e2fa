"""Section "kernels": every case built with its default schedule, checked, and timed against its peers."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from .cases import Case, all_cases
from .timing import Timer, torch_has_gpu


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


def measure(case: Case, target: Any, timer: Timer) -> dict[str, Any]:
    """One row: error, milliseconds of everyone, rate, ratio to the best peer."""
    begin = time.perf_counter()
    run = build(case.module(), target)
    row: dict[str, Any] = {"case": case.name, "build s": time.perf_counter() - begin}
    tensors, arrays = on_device(case.inputs)
    row["error"] = relative_error(run(*arrays).numpy(), case.expected(case.inputs))
    row["right"] = row["error"] <= case.tolerance
    peers = case.peers(tensors) if timer.on_gpu else {}
    runs = {"relaxish": lambda: run(*arrays), **working(peers, row)}
    return finish(row, timer.compare(runs), case)


def working(peers: dict[str, Callable[[], Any]], row: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """The peers that can do this case at all; the others' reasons go into the row."""
    able = {}
    for name, peer in peers.items():
        try:
            peer()
        except Exception as reason:  # noqa: BLE001  (whatever a peer fails by, it is out of this comparison)
            row[f"{name} failed"] = str(reason).splitlines()[0][:200] if str(reason) else type(reason).__name__
        else:
            able[name] = peer
    return able


def finish(row: dict[str, Any], times: dict[str, float], case: Case) -> dict[str, Any]:
    """Times, the rate reached and the ratio to the fastest peer (above 1: we are faster)."""
    row.update({f"{name} ms": value for name, value in times.items()})
    seconds = times["relaxish"] * 1e-3
    if case.flop:
        row["TFLOP/s"] = case.flop / seconds / 1e12
    if case.nbytes:
        row["GB/s"] = case.nbytes / seconds / 1e9
    peers = [value for name, value in times.items() if name != "relaxish"]
    if peers:
        row["speed vs best peer"] = min(peers) / times["relaxish"]
    if "cublas" in times:
        row["speed vs cublas"] = times["cublas"] / times["relaxish"]
    return row


def run(options: Any, save: Callable[[list[dict[str, Any]]], None]) -> None:
    """Measure all cases; a failing one is a row with its error."""
    timer = Timer(rounds=25 if not options.small else 2)
    rows: list[dict[str, Any]] = []
    for make in all_cases(options.small):
        case = make()
        try:
            rows.append(measure(case, options.target, timer))
        except Exception as error:  # noqa: BLE001  (one broken case must not hide the others)
            rows.append({"case": case.name, "failed": f"{type(error).__name__}: {error}"[:2000],
                         "where": traceback.format_exc()[-3000:]})  # fmt: skip
        save(rows)
        if timer.on_gpu:
            import torch

            with contextlib.suppress(Exception):
                torch.cuda.empty_cache()
