"""Tuned GEMM against torch (MKL, oneDNN) in the same run: fp32, and bf16 and int8 on the machine's matrix instructions.

    python benchmarks/gemm.py [--cores 1] [--trials 64] [--size 1024] [--types f32 bf16 int8] [--rounds 15]

Weights are packed ahead of the timed calls, as a compiled model has them. Every tuned kernel's result is checked.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import common
import numpy as np

BAR_SECONDS = 60.0


@dataclass
class Problem:
    """One element type: the program, its arguments, the right result and the peers."""

    func: Any
    arguments: list[np.ndarray]
    expected: np.ndarray
    peers: dict[str, Callable[[], Any]]
    tolerance: float


def f32(size: int) -> Problem:
    """``C = A B``, B free to be stored as the schedule likes."""
    import torch

    from relaxish import te
    from relaxish.meta_schedule.testing import te_workload

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)).astype("float32") for _ in range(2))
    func = te.create_prim_func(te_workload.matmul(size, size, size)).with_attr("layout_free_buffers", [1])
    ta, tb = torch.from_numpy(a), torch.from_numpy(b)
    weight, out = tb.T.contiguous(), torch.empty(size, size)
    peers = {
        "torch mm": lambda: torch.mm(ta, tb, out=out),
        "torch linear": lambda: torch.nn.functional.linear(ta, weight),
    }
    return Problem(func, [a, b], a.astype("float64") @ b.astype("float64"), peers, 1e-4)


def _packed(size: int, a_type: str, b_type: str, c_type: str, pack: int) -> Any:
    """``C = A B`` with B in blocks of 16 columns, ``pack`` neighbours of each column side by side.

    This is the order in which dot-product and tile instructions read their weights.
    """
    from relaxish import te

    a = te.placeholder((size, size), a_type, name="A")
    b = te.placeholder((size // 16, size // pack, 16, pack), b_type, name="B")
    k = te.reduce_axis((0, size), name="k")
    c = te.compute(
        (size, size),
        lambda i, j: te.sum(a[i, k].astype(c_type) * b[j // 16, k // pack, j % 16, k % pack].astype(c_type), axis=k),
        name="C",
    )
    return te.create_prim_func([a, b, c])


def _pack(b: np.ndarray, pack: int) -> np.ndarray:
    """A matrix in that order."""
    k, n = b.shape
    return np.ascontiguousarray(b.reshape(k // pack, pack, n // 16, 16).transpose(2, 0, 3, 1))


def int8(size: int) -> Problem:
    """uint8 by int8 to int32."""
    import torch

    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (size, size)).astype("uint8"), rng.integers(-128, 128, (size, size)).astype("int8")
    ta, tb = torch.from_numpy(a.view("int8")), torch.from_numpy(b)
    return Problem(
        _packed(size, "uint8", "int8", "int32", 4),
        [a, _pack(b, 4)],
        a.astype("float64") @ b.astype("float64"),
        {"torch _int_mm": lambda: torch._int_mm(ta, tb)},
        0.0,
    )


def bf16(size: int) -> Problem:
    """bfloat16 to float32."""
    import torch

    rng = np.random.default_rng(0)
    ta, tb = (torch.from_numpy(rng.standard_normal((size, size)).astype("float32")).bfloat16() for _ in range(2))
    from relaxish.ir.dtype import numpy_dtype

    a, b = (x.view(torch.int16).numpy().view(numpy_dtype("bfloat16")) for x in (ta, tb))
    weight = tb.T.contiguous()
    peers = {"torch mm": lambda: torch.mm(ta, tb), "torch linear": lambda: torch.nn.functional.linear(ta, weight)}
    return Problem(
        _packed(size, "bfloat16", "bfloat16", "float32", 2),
        [a, _pack(b, 2)],
        a.astype("float64") @ b.astype("float64"),
        peers,
        1e-4,
    )


PROBLEMS: dict[str, Callable[[int], Problem]] = {"f32": f32, "bf16": bf16, "int8": int8}


def _space(kind: str, target: Any) -> Any:
    """The target's own search space; for bf16 the tile multiplication is named, since no CPU kind has it by default."""
    if kind != "bf16":
        return "post-order-apply"
    from relaxish import meta_schedule as ms
    from relaxish.tir.tensor_intrin.amx import AMX_DOT_16x16x32_BF16_INTRIN

    rules = ms.schedule_rule.create("llvm")
    reuse = ms.schedule_rule.ReuseType("may", [1, 2], "global")
    tiling = ms.schedule_rule.MultiLevelTilingWithIntrin(
        AMX_DOT_16x16x32_BF16_INTRIN, "SSRSRS", max_innermost_factor=64, reuse_write=reuse
    )
    at = next(i for i, rule in enumerate(rules) if isinstance(rule, ms.schedule_rule.MultiLevelTiling))
    return ms.space_generator.PostOrderApply(
        sch_rules=[*rules[:at], tiling, *rules[at:]], postprocs=ms.postproc.create("vnni")
    )


def tune(kind: str, size: int, trials: int, cores: int, rounds: int) -> dict[str, Any]:
    """Tune, build the best schedule, check it, and time it against the peers in one run."""
    import torch

    import relaxish
    from relaxish import meta_schedule as ms
    from relaxish.driver import build_tir

    torch.set_num_threads(cores)
    problem = PROBLEMS[kind](size)
    target = relaxish.Target(f"llvm -num-cores {cores}")
    with tempfile.TemporaryDirectory() as work:
        start = time.perf_counter()
        database = ms.tune_tir(
            problem.func, target, work, trials, num_trials_per_iter=16, seed=0, space=_space(kind, target)
        )
        wall = time.perf_counter() - start
        sch = database.query_schedule(relaxish.IRModule({"main": problem.func}), target, "main")
    row: dict[str, Any] = {"type": kind, "size": size, "cores": cores, "trials": trials, "tuning s": wall}
    if sch is None:
        return row
    row["error"] = _error(sch.mod, target, problem)
    kernel, arguments = _prepacked(sch.mod, target, problem)
    default = build_tir(problem.func, target, default_schedule=True)["main"]
    plain = [relaxish.nd.array(x) for x in problem.arguments]
    times = common.interleaved(
        {"relaxish": lambda: kernel(*arguments), "untuned": lambda: default(*plain, arguments[2]), **problem.peers},
        rounds,
    )
    rates = {name: 2.0 * size**3 / seconds / 1e9 for name, seconds in times.items()}
    row.update({f"{name} G/s": rate for name, rate in rates.items()})
    row["ratio to best peer"] = rates["relaxish"] / max(rates[name] for name in problem.peers)
    row["bar"] = "pass" if row["ratio to best peer"] >= 1 and wall < BAR_SECONDS else "miss"
    return row


def _error(mod: Any, target: Any, problem: Problem) -> float:
    """Largest relative error of the whole program, packing included."""
    import relaxish
    from relaxish.driver import build_tir

    out = relaxish.nd.empty(problem.expected.shape, str(problem.func.buffer_map[problem.func.params[2]].dtype))
    build_tir(mod, target)["main"](*[relaxish.nd.array(x) for x in problem.arguments], out)
    error = common.relative_error(out.numpy(), problem.expected)
    if not error <= problem.tolerance:
        raise SystemExit(f"the tuned kernel is wrong: relative error {error}")
    return error


def _prepacked(mod: Any, target: Any, problem: Problem) -> tuple[Any, list[Any]]:
    """The kernel that takes the weights in the order it reads them, and arguments for it."""
    import relaxish
    from relaxish.driver import build_tir
    from relaxish.tir.transform import RemoveWeightLayoutRewriteBlock

    mod = RemoveWeightLayoutRewriteBlock(skip_ndarray_rewrite=True)(mod)
    func = mod["main"]
    arguments = []
    for index, param in enumerate(func.params):
        buffer = func.buffer_map[param]
        shape = tuple(int(x) for x in buffer.shape)
        given = problem.arguments[index] if index < len(problem.arguments) else None
        same = given is not None and given.shape == shape
        # Any order of the values takes the same time.
        data = given if same else None if given is None else np.ascontiguousarray(given).reshape(shape)
        arguments.append(relaxish.nd.empty(shape, str(buffer.dtype)) if data is None else relaxish.nd.array(data))
    return build_tir(mod, target)["main"], arguments


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--types", nargs="+", choices=sorted(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    common.pin(options.cores)
    rows = [tune(kind, options.size, options.trials, options.cores, options.rounds) for kind in options.types]
    common.save(f"gemm_{options.cores}core", rows)


if __name__ == "__main__":
    main()
