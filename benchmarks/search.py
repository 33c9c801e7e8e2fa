"""The search by itself: candidates generated, checked and scored per second on one core, and its share of a tuning run.

A round is the whole of it: sampling, mutation, validity masks, per-store features, scores of a trained XGB model
(the default one), ranking, and the traces of those to measure. Compiling variants, done a few at a time, is reported
apart.

    python benchmarks/search.py [--seconds 3] [--no-tuning] [--only gemm,conv2d]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import common
import numpy as np

BAR_RATE, BAR_SHARE = 50_000, 0.15


def batch_matmul(b: int, n: int, m: int, k: int) -> list[Any]:
    """Attention's products."""
    from relaxish import te

    x, y = te.placeholder((b, n, k), "float32", name="X"), te.placeholder((b, k, m), "float32", name="Y")
    r = te.reduce_axis((0, k), name="k")
    return [x, y, te.compute((b, n, m), lambda a, i, j: te.sum(x[a, i, r] * y[a, r, j], axis=r), name="C")]


def depthwise(size: int, channels: int) -> list[Any]:
    """Depthwise 3x3, padded ahead."""
    from relaxish import te

    x = te.placeholder((1, size + 2, size + 2, channels), "float32", name="X")
    y = te.placeholder((3, 3, channels), "float32", name="W")
    a, b = te.reduce_axis((0, 3), name="rh"), te.reduce_axis((0, 3), name="rw")
    return [
        x,
        y,
        te.compute(
            (1, size, size, channels),
            lambda n, i, j, c: te.sum(x[n, i + a, j + b, c] * y[a, b, c], axis=[a, b]),
            name="dw",
        ),
    ]


def conv_bias_relu(size: int, channels: int) -> list[Any]:
    """A convolution as networks have it."""
    from relaxish import te, tir
    from relaxish.meta_schedule.testing import te_workload

    x, y, out = te_workload.conv2d_nhwc(1, size, size, channels, channels, 3, 1, 1)
    bias = te.placeholder((channels,), "float32", name="bias")
    added = te.compute(out.shape, lambda n, i, j, c: out[n, i, j, c] + bias[c], name="T_add")
    relu = te.compute(out.shape, lambda *i: tir.max(added[i], tir.const(0, "float32")), name="T_relu")
    return [x, y, bias, relu]


def workloads() -> dict[str, Any]:
    """The programs, by name."""
    from relaxish.meta_schedule.testing import te_workload as w

    return {
        "gemm": lambda: w.matmul(1024, 1024, 1024),
        "conv2d": lambda: w.conv2d_nhwc(1, 56, 56, 64, 64, 3, 1, 1),
        "conv2d_bias_relu_56x56x64": lambda: conv_bias_relu(56, 64),
        "conv2d_bias_relu_7x7x512": lambda: conv_bias_relu(7, 512),
        "softmax": lambda: w.softmax_mn(128, 1024),
        "depthwise": lambda: depthwise(112, 32),
        "batch_matmul": lambda: batch_matmul(12, 128, 128, 64),
    }


def conv16(size: int, channels: int) -> list[Any]:
    """A 3x3 convolution of half precision, channels last, accumulated in single precision."""
    from relaxish import te, tir

    x = te.placeholder((1, size, size, channels), "float16", name="X")
    y = te.placeholder((3, 3, channels, channels), "float16", name="W")

    def inside(n: Any, i: Any, j: Any, c: Any) -> Any:
        bounds = tir.all(i >= 1, i < size + 1, j >= 1, j < size + 1)
        return tir.if_then_else(bounds, x[n, i - 1, j - 1, c], tir.const(0, "float16"))

    padded = te.compute((1, size + 2, size + 2, channels), inside, name="PadInput")
    a, b, c = (
        te.reduce_axis((0, 3), name="rh"),
        te.reduce_axis((0, 3), name="rw"),
        te.reduce_axis((0, channels), name="rc"),
    )
    return [
        x,
        y,
        te.compute(
            (1, size, size, channels),
            lambda n, i, j, f: te.sum(
                padded[n, i + a, j + b, c].astype("float32") * y[a, b, c, f].astype("float32"), axis=[a, b, c]
            ),
            name="conv2d",
        ),
    ]


def winograd() -> tuple[Any, ...]:
    """A 3x3 convolution by Winograd's algorithm, channels last, of a transformed weight."""
    from relaxish import Target
    from relaxish.meta_schedule.testing import te_workload

    with Target("nvidia/nvidia-a100"):
        return te_workload.conv2d_winograd_nhwc(1, 14, 14, 128, 128, 6)


def gpu_workloads() -> dict[str, tuple[str, Any]]:
    """Programs for GPUs: which rules make their sketches, and the program."""
    from relaxish.meta_schedule.testing import te_workload as w

    return {
        "cuda gemm f32": ("cuda", lambda: w.matmul(1024, 1024, 1024)),
        "cuda gemm f16 wmma": ("wmma", lambda: w.matmul(1024, 1024, 1024, "float16", "float32")),
        "cuda gemm f16 mma": ("mma", lambda: w.matmul(1024, 1024, 1024, "float16", "float16")),
        "cuda conv2d f32": ("cuda", lambda: w.conv2d_nhwc(1, 56, 56, 64, 64, 3, 1, 1)),
        "cuda gemm f16 wmma pipeline": ("wmma pipeline", lambda: w.matmul(1024, 1024, 1024, "float16", "float32")),
        "cuda conv2d f16 wmma": ("wmma", lambda: conv16(56, 64)),
        "cuda conv2d f16 mma": ("mma", lambda: conv16(56, 64)),
        "cuda winograd f32": ("cuda", winograd),
        "cuda softmax": ("cuda", lambda: w.softmax_mn(256, 1024)),
    }


def gpu_context(rules: str, tensors: list[Any]) -> Any:
    """A context for an A100 with the rules of a kind, or with those for one family of tensor-core instructions."""
    from relaxish import Target, te
    from relaxish import meta_schedule as ms
    from relaxish.meta_schedule.defaults import default_mutators, default_postprocs, default_rules

    kind = "cuda" if rules == "cuda" else "cuda-tensorcore"
    made = default_rules(kind)
    # The second rule of the tensor-core kind is for wmma, the third for mma.
    left_out = {"wmma": 2, "wmma pipeline": 2, "mma": 1}.get(rules)
    if rules == "wmma pipeline":
        made[1].use_software_pipeline = True  # type: ignore[attr-defined]
    space = ms.space_generator.PostOrderApply(
        sch_rules=[rule for i, rule in enumerate(made) if i != left_out],
        postprocs=default_postprocs(kind),
        mutator_probs=default_mutators(kind),
    )
    return ms.TuneContext(
        te.create_prim_func(tensors),
        target=Target("nvidia/nvidia-a100"),
        rand_state=1,
        space_generator=space,
        search_strategy="evolutionary",
    )


def trained_model(pool: Any, rng: np.random.Generator, samples: int = 256) -> Any:
    """An XGB model that has seen as many measurements as a short tuning run makes."""
    from relaxish import meta_schedule as ms

    model = ms.cost_model.XGBModel(num_tuning_cores=1)
    variants = pool.variants(16)
    features, costs = [], []
    while len(features) < samples:
        variant = variants[len(features) % len(variants)]
        for row in variant.sample(rng, 4):
            matrix = np.stack([block[0] for block in variant.features(row[None])])
            features.append(matrix)
            costs.append(1e-3 * (1 + 0.1 * float(matrix[:, 4:160].std()) + 0.2 * rng.random()))
    model.add_samples("benchmark", features, np.array(costs))
    assert model.trained
    return model


def cpu_context(tensors: list[Any]) -> Any:
    """A context for this machine's kind of processor."""
    from relaxish import Target, te
    from relaxish import meta_schedule as ms

    return ms.TuneContext(
        te.create_prim_func(tensors),
        target=Target("llvm -num-cores 1"),
        rand_state=1,
        space_generator="post-order-apply",
        search_strategy="evolutionary",
    )


def rate(name: str, context: Any, seconds: float) -> dict[str, Any]:
    """One row: how fast whole rounds of search are."""
    from relaxish import meta_schedule as ms
    from relaxish.meta_schedule.search_strategy.population import VectorPool

    rng = np.random.default_rng(0)
    begin = time.perf_counter()
    spaces = [s.trace.simplified(True) for s in context.generate_design_space()]
    generated = time.perf_counter() - begin
    begin = time.perf_counter()
    pool = VectorPool(context, spaces)
    for _ in range(3):
        pool.learn()
    learning = time.perf_counter() - begin
    strategy = ms.search_strategy.EvolutionarySearch()
    strategy._cost_model, strategy._measured = trained_model(pool, rng), set()
    count = len(pool.variants(99))
    pool.learn = lambda: None  # type: ignore[method-assign]
    pool.search(strategy, [], 64)
    rounds, before, begin = 0, pool.examined, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        ranked, _ = pool.search(strategy, [], 64)
        assert ranked
        rounds += 1
    took = time.perf_counter() - begin
    speed = (pool.examined - before) / took
    return {
        "workload": name,
        "sketches": len(spaces),
        "left out": len(pool.left_out),
        "space s": generated,
        "variants": count,
        "s per variant": learning / max(1, count),
        "candidates per s": speed,
        "s per round": took / rounds,
        "bar": BAR_RATE,
        "verdict": "pass" if speed >= BAR_RATE else "FAIL",
    }


def share(name: str, tensors: list[Any], trials: int) -> dict[str, Any]:
    """One row: where the time of a real tuning run goes."""
    from relaxish import Target, te
    from relaxish import meta_schedule as ms

    func = te.create_prim_func(tensors)
    with tempfile.TemporaryDirectory() as work, ms.Profiler() as profiler:
        ms.tune_tir(func, Target("llvm -num-cores 1"), work, trials, seed=0)
    spent = profiler.get()
    total = spent["Total"]
    # Winners are built and run again, default schedules built and run once.
    inside = sum(
        spent.get(k, 0.0)
        for k in ("SendToBuilder", "SendToRunner", "JoinRunnerFutures", "Validate", "MeasureBaselines")
    )
    outside = 1 - inside / total
    row = {
        "workload": f"tuning {name}",
        "trials": trials,
        "wall s": total,
        "building and running s": inside,
        "share outside": outside,
        "bar": BAR_SHARE,
        "verdict": "pass" if outside < BAR_SHARE else "FAIL",
    }
    print(profiler.table())
    return row


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--no-tuning", action="store_true")
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    common.pin(1)
    wanted = options.only.split(",")
    chosen = {k: v for k, v in workloads().items() if not options.only or k in wanted}
    rows = [rate(name, cpu_context(make()), options.seconds) for name, make in chosen.items()]
    for name, (rules, make) in gpu_workloads().items():
        if not options.only or name in wanted or "cuda" in wanted:
            rows.append(rate(name, gpu_context(rules, make()), options.seconds))
    if not options.no_tuning:
        rows += [share(name, chosen[name](), options.trials) for name in ("gemm", "conv2d") if name in chosen]
    common.save("search", rows)


if __name__ == "__main__":
    main()
