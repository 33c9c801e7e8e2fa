"""What checked indices and divisors cost: models with ``index_bounds`` "check" against "trust", call by call in turn.

    python benchmarks/index_checks.py [--models bert,embeddings,bags] [--rounds 15]

"embeddings" looks rows up in 26 tables and puts a small network behind them, as recommendation models do; "bags" only
adds up rows, so nothing hides the check. The ratio of two calls that follow each other is taken, and the median told.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import relaxish
from relaxish import relax
from relaxish.relax import TensorStructInfo
from relaxish.transform import PassContext

_TABLES, _ROWS, _WIDTH, _BATCH, _BAG = 26, 20000, 64, 128, 20


def _bert() -> tuple[Any, list[np.ndarray]]:
    import torch
    import transformers as tf

    from relaxish.frontend.torch import from_exported_program

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = tf.BertModel(tf.BertConfig(num_hidden_layers=4))

        def forward(self, x: Any) -> Any:
            return self.inner(x)[0]

    torch.manual_seed(0)
    x = torch.randint(0, 30000, (1, 128))
    program = torch.export.export(Hidden().eval(), (x,))
    return from_exported_program(program, unwrap_unit_return_tuple=True), [x.numpy()]


def _lookups(tables: int, width: int, network: bool) -> tuple[Any, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    ids = relax.Var("ids", TensorStructInfo((tables, _BATCH, _BAG), "int64"))
    bb = relax.BlockBuilder()
    with bb.function("main", [ids]):
        with bb.dataflow():
            sums = []
            for t in range(tables):
                table = relax.const(rng.standard_normal((_ROWS, width)).astype("float32"))
                own = bb.emit(relax.op.take(ids, relax.const(np.int64(t)), axis=0))
                sums.append(bb.emit(relax.op.sum(bb.emit(relax.op.take(table, own, axis=0)), axis=1)))
            out = bb.emit(relax.op.concat(sums, axis=1))
            if network:
                for rows, columns in ((tables * width, 256), (256, 1)):
                    weight = relax.const((rng.standard_normal((rows, columns)) / rows).astype("float32"))
                    out = bb.emit(relax.op.nn.relu(bb.emit(relax.op.matmul(out, weight))))
            result = bb.emit_output(out)
        bb.emit_func_output(result)
    return bb.get(), [rng.integers(0, _ROWS, (tables, _BATCH, _BAG))]


MODELS: dict[str, Callable[[], tuple[Any, list[np.ndarray]]]] = {
    "bert": _bert,
    "embeddings": lambda: _lookups(_TABLES, _WIDTH, True),
    "bags": lambda: _lookups(8, 16, False),
}


def _build(mod: Any, policy: str) -> Any:
    with PassContext(config={"relaxish.index_bounds": policy}):
        executable = relaxish.build(mod, "llvm -num-cores=1")
    return relaxish.VirtualMachine(executable, relaxish.cpu())["main"]


def measure(name: str, rounds: int) -> dict[str, float]:
    """Milliseconds a call either way, and the median of the ratios."""
    mod, args = MODELS[name]()
    inputs = [relaxish.nd.array(a) for a in args]
    runs = {policy: _build(mod, policy) for policy in ("check", "trust")}
    times: dict[str, list[float]] = {"check": [], "trust": []}
    for run in runs.values():
        run(*inputs)
    start = time.perf_counter()
    runs["trust"](*inputs)
    calls = max(1, int(0.05 / (time.perf_counter() - start)))
    for turn in range(rounds):
        for policy in ("check", "trust") if turn % 2 else ("trust", "check"):
            start = time.process_time()
            for _ in range(calls):
                runs[policy](*inputs)
            times[policy].append((time.process_time() - start) / calls * 1e3)
    ratios = [c / t for c, t in zip(times["check"], times["trust"], strict=True)]
    return {
        "check_ms": round(statistics.median(times["check"]), 4),
        "trust_ms": round(statistics.median(times["trust"]), 4),
        "cost_percent": round((statistics.median(ratios) - 1) * 100, 2),
        "cost_percent_of_best": round((min(times["check"]) / min(times["trust"]) - 1) * 100, 2),
    }


def main() -> None:
    """Measure and print one line of JSON a model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    for name in options.models.split(","):
        print(json.dumps({"model": name, **measure(name, options.rounds)}), flush=True)


if __name__ == "__main__":
    main()
