"""One draw in a process of its own kind: build ours, check it against float64, time it between the peers.

``python draws/measure.py CORES`` reads lines ``SEED INDEX [FAMILY]`` and answers each with one line of JSON, so that a
crash or a hang costs one draw: ``anywhere.py`` starts another.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "src")]
import common  # noqa: E402 -- found by the path set above

__all__ = ["measure"]

#: Seconds that a timing repeats each contender in one of its rounds, and the rounds.
_TURN, _ROUNDS = 0.02, 5


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _error(actual: Any, expected: Any, exact: bool) -> float:
    """Largest difference over the largest magnitude expected; for exact types 0 or infinity."""
    import numpy as np

    if actual.shape != expected.shape:
        return float("inf")
    if exact:
        return 0.0 if np.array_equal(actual.astype("float64"), expected) else float("inf")
    finite = np.isfinite(expected)
    if not np.array_equal(np.isnan(actual.astype("float64")), np.isnan(expected)):
        return float("inf")
    scale = float(np.abs(expected[finite]).max(initial=0.0)) or 1.0
    difference = np.abs(actual.astype("float64") - expected)[finite]
    return float(difference.max(initial=0.0)) / scale


def _reference(draw: Any) -> list[Any]:
    """The outputs in float64 of inputs that are exactly those of the draw."""
    import copy

    import torch

    def wide(x: Any) -> Any:
        return x.double() if x.is_floating_point() else x

    module = copy.deepcopy(draw.module)
    if not draw.exact:
        module = module.double()
    inputs = draw.inputs if draw.exact else [wide(x) for x in draw.inputs]
    with torch.no_grad():
        return [wide(y).double().numpy() for y in _flat(module(*inputs))]


def _numpy(tensor: Any) -> Any:
    """A torch tensor as NumPy has it, bfloat16 through ml_dtypes."""
    import ml_dtypes
    import torch

    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _ours(program: Any, inputs: Any, tuned: int, folder: Path) -> tuple[Callable[[], Any], float]:
    """Our entry and the seconds that building took; tuned with so many trials a kernel if any."""
    import relaxish
    from relaxish import relax
    from relaxish.frontend.torch import from_exported_program

    module = from_exported_program(program)
    target = relaxish.Target(f"llvm -num-cores {_CORES}")
    arrays = [relaxish.nd.array(_numpy(x)) for x in inputs]
    start = time.perf_counter()
    if tuned:
        module = relax.get_pipeline(
            "static_shape_tuning", target=target, total_trials=tuned, work_dir=str(folder / "tuning")
        )(module)
    vm = relaxish.VirtualMachine(relaxish.build(module, target, exec_mode="compiled"), relaxish.cpu())
    entry = vm["main"]
    return lambda: entry(*arrays), time.perf_counter() - start


def _peer_runs(draw: Any, cores: int, folder: Path) -> dict[str, Callable[[], Any]]:
    """Those peers that can run the draw."""
    import peers
    import torch

    def eager() -> None:
        with torch.no_grad():
            draw.module(*draw.inputs)

    runs: dict[str, Callable[[], Any]] = {"torch": eager}
    path = folder / "draw.onnx"
    try:
        torch.onnx.export(draw.module, draw.inputs, str(path), dynamo=False, opset_version=18, verbose=False)
    except Exception:  # an exporter that cannot is no peer for this draw
        return runs
    arrays = [_numpy(x) for x in draw.inputs]
    for name, make in (("onnxruntime", peers.onnxruntime_run), ("openvino", peers.openvino_run)):
        try:
            runs[name] = make(path, arrays, cores)
            runs[name]()
        except Exception:  # neither is a library that refuses it
            runs.pop(name, None)
    return runs


def measure(seed: int, index: int, family: str | None, tuned: int) -> dict[str, Any]:
    """Everything about one draw: its text, error and bound, milliseconds of all, or the stage at which ours failed."""
    import torch
    from draws import draw as draw_of

    draw = draw_of(seed, index, family)
    row: dict[str, Any] = {"family": draw.family, "draw": draw.text, "cores": _CORES, "bound": draw.bound()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = _peer_runs(draw, _CORES, folder)
        try:
            with torch.no_grad():
                program = torch.export.export(draw.module, draw.inputs)
            ours, row["build s"] = _ours(program, draw.inputs, 0, folder)
            results = [y.numpy() for y in _flat(ours())]
        except Exception as error:  # what a peer runs and we do not is a finding
            return row | {"failed": f"{type(error).__name__}: {error}"[:400], "where": traceback.format_exc(limit=-3)}
        expected = _reference(draw)
        exact = draw.bound() == 0
        row["error"] = max((_error(a, e, exact) for a, e in zip(results, expected, strict=True)), default=0.0)
        runs = {"relaxish": ours, **runs}
        if tuned:
            runs["tuned"], row["tuning s"] = _ours(program, draw.inputs, tuned, folder)
        times = common.rounds_of(runs, _ROUNDS, _TURN, time.process_time if _CORES == 1 else time.perf_counter)
    row["ms"] = {name: sorted(values)[len(values) // 2] * 1e3 for name, values in times.items()}
    return row


_CORES = 1


def main() -> None:
    """Serve draws until the input ends."""
    global _CORES
    warnings.filterwarnings("ignore")
    _CORES = int(sys.argv[1])
    common.pin(_CORES)
    import logging

    import torch

    logging.disable(logging.WARNING)
    torch.set_num_threads(_CORES)
    # Libraries print what they like, from C too; answers are lines of JSON only.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        seed, index, family, tuned = json.loads(line)
        try:
            row = measure(seed, index, family, tuned)
        except Exception as error:
            row = {"family": family or "?", "broken": f"{type(error).__name__}: {error}"[:400]}
        print(json.dumps(row), file=answers, flush=True)


if __name__ == "__main__":
    main()
