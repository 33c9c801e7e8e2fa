"""What records of other models are worth: 16 trials with a prior against 64 without, over thirty kernels.

The prior is what was measured for the kernels of some models: their best schedules, which searches of similar kernels
begin with, and a cost model that has learnt all of them. The thirty kernels are of other models: other sizes, and other
work around the same loops. Winners are checked, and timed again in turns.

    python benchmarks/priors.py [--folder priors] [--kernels 30] [--trials 64]

Stopped and started again it goes on where it was. Bar: the geometric mean of speeds, 16 trials with over 64 without, is at
least 1.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import zlib
from pathlib import Path
from typing import Any

import common

from relaxish import IRModule, Target, te, tir
from relaxish import meta_schedule as ms
from relaxish.meta_schedule.cost_model.pretrain import learn_database
from relaxish.meta_schedule.database import JSONDatabase, MemoryDatabase, TuningRecord
from relaxish.meta_schedule.database.database import mean_seconds
from relaxish.meta_schedule.measure import MeasureEngine, Prebuilt
from relaxish.meta_schedule.testing import te_workload as w
from relaxish.meta_schedule.trust import check_record

TARGET = Target("llvm -num-cores=1")
BAR, SHORT = 1.0, 16
# Candidates of a round. A search with a prior has something to learn from soon; one without is better off with more.
LONG_BATCH, SHORT_BATCH = 16, 4


def relu(tensors: list[Any]) -> list[Any]:
    """What a layer computes, without its negative part."""
    *inputs, out = tensors
    return [*inputs, te.compute(out.shape, lambda *i: tir.max(out[i], tir.const(0, "float32")), name="T_relu")]


def biased(tensors: list[Any]) -> list[Any]:
    """What a layer computes, and a number for each of its last axis."""
    *inputs, out = tensors
    bias = te.placeholder(out.shape[-1:], "float32", name="bias")
    return [*inputs, bias, te.compute(out.shape, lambda *i: out[i] + bias[i[-1]], name="T_add")]


def product(*sizes: int) -> list[Any]:
    """A matrix product."""
    return list(w.matmul(*sizes))


def products(*sizes: int) -> list[Any]:
    """Attention's products."""
    return list(w.batch_matmul_nkkm(*sizes))


def window(size: int, channels: int, filters: int, kernel: int, stride: int = 1) -> list[Any]:
    """A convolution, channels last."""
    return list(w.conv2d_nhwc(1, size, size, channels, filters, kernel, stride, kernel // 2))


def depthwise(size: int, channels: int) -> list[Any]:
    """A depthwise convolution, channels last."""
    return list(w.depthwise_conv2d_nhwc(1, size, size, channels, 3, 1, 1))


# Layers of networks, narrow enough to be measured in milliseconds on one core.
PRIOR = {
    "product": [(128, 256, 256), (64, 512, 128), (197, 192, 192), (32, 128, 512)],
    "products": [(4, 64, 64, 32), (6, 128, 128, 64)],
    "window": [(28, 32, 32, 3), (14, 64, 64, 3), (56, 16, 32, 1), (14, 128, 64, 1), (28, 32, 64, 3, 2)],
    "depthwise": [(28, 64), (56, 32)],
}
OTHERS = {
    "product": [(100, 384, 96), (64, 192, 384), (50, 320, 320), (16, 1000, 256), (77, 256, 512), (256, 96, 192), (128, 80, 240)],
    "products": [(8, 50, 50, 32), (3, 100, 100, 64), (12, 77, 64, 48), (2, 192, 96, 32)],
    "window": [
        (7, 96, 96, 3), (20, 48, 48, 3), (32, 24, 24, 3), (10, 80, 80, 3), (40, 16, 24, 3), (16, 64, 128, 3, 2), (24, 40, 40, 3),
        (20, 96, 48, 1), (40, 24, 72, 1), (10, 160, 80, 1), (32, 48, 96, 1), (16, 128, 96, 1), (7, 192, 128, 1),
    ],
    "depthwise": [(20, 96), (40, 48), (14, 144), (10, 240), (32, 72), (24, 80)],
}  # fmt: skip
FAMILIES = {"product": product, "products": products, "window": window, "depthwise": depthwise}


def kernels(table: dict[str, Any], changed: bool) -> dict[str, IRModule]:
    """The kernels of a table by name; where ``changed``, every second one has a bias and every third is cut off at 0."""
    made = {}
    for family, shapes in table.items():
        for number, shape in enumerate(shapes):
            tensors = FAMILIES[family](*shape)
            tensors = biased(tensors) if changed and number % 2 else tensors
            tensors = relu(tensors) if changed and number % 3 == 0 else tensors
            made[f"{family} {'x'.join(map(str, shape))}"] = IRModule({"main": te.create_prim_func(tensors)})
    return made


class Bench:
    """Builder and runner for all searches, one program at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        evaluator = ms.runner.EvaluatorConfig(number=1, repeat=4, min_repeat_ms=4)
        self.builder = ms.builder.LocalBuilder()
        self.runner = ms.runner.LocalRunner(evaluator_config=evaluator, num_threads=1, timeout_sec=10)

    def tune(
        self, mod: IRModule, database: ms.database.Database, trials: int, model: Any, seed: int, batch: int
    ) -> list[TuningRecord]:
        """Search with a budget; the records of this kernel in the order measured."""
        with tempfile.TemporaryDirectory() as work:
            ms.tune_tir(
                mod, TARGET, work, trials, num_trials_per_iter=batch, builder=self.builder, runner=self.runner,
                database=database, cost_model=model, seed=seed, validate=False, measure_callbacks=[
                    ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel(),
                ],
            )  # fmt: skip
        return database.records_of(database.commit_workload(mod))

    def prior(self, trials: int, seed: int = 1) -> JSONDatabase:
        """The records of the other models, measured if they are not there."""
        database = JSONDatabase(work_dir=str(self.folder))
        for name, mod in kernels(PRIOR, False).items():
            if len(database.records_of(database.commit_workload(mod))) < trials:
                print(f"prior: {name}", flush=True)
                self.tune(mod, database, trials, "xgb", seed, LONG_BATCH)
        return database

    def race(self, records: list[TuningRecord], rounds: int = 7) -> list[float]:
        """The least time of each record's program, run in turns."""
        engine = MeasureEngine(TARGET, self.builder, self.runner, overlap=False)
        made = [r.as_measure_candidate() for r in records]
        built = [Prebuilt(b.artifact, c.args_info) for b, c in zip(engine.build(made), made, strict=True)]
        times = [math.inf] * len(made)
        for _ in range(rounds):
            for i, measured in enumerate(engine.measure(built)):
                times[i] = min([times[i], *measured.run_secs])
        return times


def best(records: list[TuningRecord]) -> TuningRecord:
    """The fastest one."""
    return min((r for r in records if r.is_valid()), key=lambda r: mean_seconds(r.run_secs))


def compare(bench: Bench, mod: IRModule, prior: JSONDatabase, model: Path, trials: int, seed: int) -> dict[str, float]:
    """Best times of a kernel: by ``trials`` and by 16 trials from nothing, by 16 with all of the prior, and with parts."""
    cold = bench.tune(mod, MemoryDatabase(), trials, "xgb", seed, LONG_BATCH)

    def begun(with_records: bool, with_model: bool) -> TuningRecord:
        database = MemoryDatabase()
        for workload in prior.workloads() if with_records else ():
            for record in prior.records_of(workload):
                database.commit_tuning_record(record)
        learnt: Any = "xgb"
        if with_model:
            learnt = ms.cost_model.XGBModel()
            learnt.load(str(model))
        return best(bench.tune(mod, database, SHORT, learnt, seed, SHORT_BATCH))

    chosen = {
        "cold": best(cold),
        "cold16": best(cold[:SHORT]),
        "warm16": begun(True, True),
        "records16": begun(True, False),
    }
    for name, record in chosen.items():
        verdict = check_record(record, TARGET)
        if verdict.valid is False:
            raise SystemExit(f"{name}: the winner is wrong: {verdict.reason}")
    times = bench.race(list(chosen.values()))
    return dict(zip(chosen, times, strict=True))


def mixed(found: dict[str, IRModule]) -> list[tuple[str, IRModule]]:
    """Kernels of all families in turns, so that the first few say something of all."""
    return sorted(found.items(), key=lambda item: zlib.crc32(item[0].encode()))


def gmean(values: list[float]) -> float:
    """Geometric mean."""
    return math.exp(statistics.fmean(math.log(v) for v in values))


def main() -> None:
    """Measure what is missing, then say what came out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("priors"))
    parser.add_argument("--kernels", type=int, default=30)
    parser.add_argument("--trials", type=int, default=64)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.folder)
    prior = bench.prior(options.trials)
    model = options.folder / "prior.tar"
    if not model.exists():
        learner = ms.cost_model.XGBModel()
        print(f"learnt {learn_database(learner, prior)} records", flush=True)
        learner.save(str(model))
    results = options.folder / "results.json"
    rows: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    for number, (name, mod) in enumerate(mixed(kernels(OTHERS, True))[: options.kernels]):
        if name not in rows:
            rows[name] = compare(bench, mod, prior, model, options.trials, seed=number + 1)
            results.write_text(json.dumps(rows, indent=1))
        row = rows[name]
        print(name, {k: f"{row['cold'] / v:.2f}" for k, v in row.items()}, flush=True)
    if not rows:
        return
    table = [
        {"kernel": name, "ms": row["cold"] * 1e3, **{f"{k} / cold": row["cold"] / row[k] for k in row if k != "cold"}}
        for name, row in rows.items()
    ]
    speed = gmean([row["cold"] / row["warm16"] for row in rows.values()])
    table.append(
        {
            "kernel": f"geometric mean of {len(rows)}",
            **{
                f"{k} / cold": gmean([r["cold"] / r[k] for r in rows.values()])
                for k in ("cold16", "warm16", "records16")
            },
            "bar": BAR,
            "verdict": "pass" if speed >= BAR else "FAIL",
        }
    )
    common.save("priors", table)


if __name__ == "__main__":
    main()
