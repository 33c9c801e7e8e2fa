"""Section "calibration": what tilings of matrix products take on this device, and the constants that this gives.

Measured are the tilings that default schedules choose among, on squares of 512 to 8192 and on two depths, and of the
best known tile its variants: bands, epilogue, without persistence. Each is built with the others in parallel, and timed
20 times with cold caches; the median counts. The constants of the estimate are then fitted, and written as the table
that the estimate reads (``backend/cuda/calibration/<device>.json``): into the results, and, from a real device, into the
package beside this script, for what runs after it.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import fit
from .cases import gemm_program
from .journal import Journal
from .tiles import scheduled

SIZES = (512, 1024, 2048, 4096, 8192)
SMALL_SIZES = (64, 128)
_DEPTHS = ((4096, 4096, 512), (4096, 4096, 16384))
_KIND, _ITEM = "f16", 2
_REPEATS = 20
_ROUND = 16  # tilings of one product before those of the next
# The first of a product draws its arguments; those after it are stopped after two seconds (LocalRunner knows the first).
_FIRST_SECONDS = 25.0
_RESERVE_SEC = 15.0
_FOLDER = "calibration"  # of the results


@dataclass(frozen=True)
class Entry:
    """A product of ``m`` x ``n`` results and its tiling."""

    m: int
    n: int
    k: int
    config: Any

    @property
    def name(self) -> str:
        """All that an entry is, in short."""
        c = self.config
        return (
            f"{self.m}x{self.n}x{self.k}: {c.rows}x{c.columns} stages {c.stages} cluster {c.cluster}x{c.cluster_columns} "
            f"split {c.split} persistent {c.persistent} band {c.group} epilogue {c.epilogue}"
        )


def jobs(small: bool) -> list[str]:
    """Measuring may end with its process; the fit takes what has been measured."""
    return ["measure", "fit"]


def entries(costs: Any, small: bool) -> list[Entry]:
    """What to measure, the most telling first: variants of one tile, then rounds with some tilings of every product.

    Those of one product follow each other, since arguments of that size are drawn for them.
    """
    from relaxish.carver import warpgroups

    best = warpgroups.configs([1, 4096, 4096, 4096], _ITEM, costs)[0]
    size = SMALL_SIZES[-1] if small else 4096
    variants = [
        best,
        replace(best, persistent=0),
        replace(best, epilogue=1),
        *(replace(best, group=g) for g in (1, 4, 16)),
    ]
    made = [Entry(size, size, size, config) for config in variants]
    shapes = [(s, s, s) for s in (SMALL_SIZES if small else SIZES)] + ([] if small else list(_DEPTHS))
    left = []
    for number, (m, n, k) in enumerate(shapes):
        every = [Entry(m, n, k, c) for c in _tilings(m, n, k, costs) if c.split == 1 or m == k]
        every = [e for e in every if e not in made]
        random.Random(number).shuffle(every)
        left.append(every[: 3 if small else None])
    while any(left):
        for every in left:
            made += every[:_ROUND]
            del every[:_ROUND]
    # The same again at the end: differences below that of the two are noise.
    return [*made, made[0]]


def _tilings(m: int, n: int, k: int, costs: Any) -> Iterator[Any]:
    from relaxish.carver import warpgroups

    yield from warpgroups.tilings([1, m, n, k], _ITEM, costs)


def work_of(entry: Entry) -> Any:
    """The entry as the estimate sees it."""
    from relaxish.carver import warpgroups

    return warpgroups.work_of(entry.config, [1, entry.m, entry.n, entry.k], _ITEM)


def run(job: str, options: Any, journal: Journal) -> None:
    """Measure until the section's time is nearly over, or fit."""
    path = options.out / "calibration.jsonl"
    if job == "measure":
        measure(path, options, journal)
    else:
        write_table(path, options, journal)


# -- measuring ---------------------------------------------------------------------------------------------------------


def measure(path: Path, options: Any, journal: Journal) -> None:
    """Build batch after batch while the one before is timed; a line of ``path`` for each entry."""
    from relaxish import meta_schedule as ms
    from relaxish.carver import costs_of

    config = ms.runner.EvaluatorConfig(1, _REPEATS, 0, True)
    runner = ms.runner.LocalRunner(timeout_sec=_FIRST_SECONDS, evaluator_config=config)
    builder = ms.builder.LocalBuilder(timeout_sec=60.0)
    todo = entries(costs_of(options.target), options.small)
    batches = in_batches(todo, 2 * builder.max_workers)
    done = failed = 0
    try:
        with ThreadPoolExecutor(1) as ahead, path.open("a") as out:
            building = ahead.submit(_build, builder, batches[0], options.target)
            for number, batch in enumerate(batches):
                inputs = building.result()
                if number + 1 < len(batches) and time.time() < options.until - _RESERVE_SEC:
                    building = ahead.submit(_build, builder, batches[number + 1], options.target)
                for entry, row in zip(batch, _timed(runner, inputs), strict=True):
                    out.write(json.dumps(_line(entry) | row) + "\n")
                    done, failed = done + ("seconds" in row), failed + ("failed" in row)
                out.flush()
                journal.put("measure", measured=done, failed_entries=failed, of=len(todo))
                if time.time() > options.until - _RESERVE_SEC:
                    break
    finally:
        builder.shutdown()
        runner.shutdown()
    journal.put("measure", right=done > 0)


def in_batches(every: Sequence[Entry], size: int) -> list[list[Entry]]:
    """Entries in their order; those of a batch are of one product."""
    made: list[list[Entry]] = []
    for entry in every:
        last = made[-1] if made else []
        same = bool(last) and (last[0].m, last[0].n, last[0].k) == (entry.m, entry.n, entry.k)
        if same and len(last) < size:
            last.append(entry)
        else:
            made.append([entry])
    return made


def _line(entry: Entry) -> dict[str, Any]:
    return {"name": entry.name, "m": entry.m, "n": entry.n, "k": entry.k, "config": asdict(entry.config)}


def _build(builder: Any, batch: Sequence[Entry], target: Any) -> list[Any]:
    """For each entry what a runner takes, or why there is none."""
    from relaxish import meta_schedule as ms
    from relaxish.meta_schedule.arg_info import ArgInfo

    found: list[Any] = [None] * len(batch)
    inputs, places, infos = [], [], []
    for i, entry in enumerate(batch):
        module = gemm_program(_KIND, entry.m, entry.n, entry.k)
        try:
            made = scheduled(module, entry.config)
        except Exception as error:  # a tiling that does not fit is one entry less
            found[i] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            continue
        inputs.append(ms.builder.BuilderInput(made, target))
        infos.append(ArgInfo.from_prim_func(module["main"]))
        places.append(i)
    for i, info, result in zip(places, infos, builder.build(inputs), strict=True):
        if result.artifact_path is None:
            found[i] = str(result.error_msg)[:300]
        else:
            found[i] = ms.runner.RunnerInput(result.artifact_path, target.kind.name, info)
    return found


def _timed(runner: Any, inputs: Sequence[Any]) -> Iterator[dict[str, Any]]:
    futures = iter(runner.run([x for x in inputs if not isinstance(x, str)]))
    for one in inputs:
        if isinstance(one, str):
            yield {"failed": one}
            continue
        result = next(futures).result()
        if result.run_secs:
            yield {"seconds": statistics.median(result.run_secs), "least": min(result.run_secs)}
        else:
            yield {"failed": str(result.error_msg)[:300]}


# -- the table ---------------------------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    """The lines that measuring wrote; one that it was writing when it ended is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def measurements(lines: Sequence[dict[str, Any]]) -> list[fit.Measurement]:
    """What was measured, as the fit takes it."""
    from relaxish.carver.warpgroups import HopperConfig

    return [
        fit.Measurement(
            work_of(Entry(row["m"], row["n"], row["k"], HopperConfig(**row["config"]))), row["seconds"], row["name"]
        )
        for row in lines if "seconds" in row
    ]  # fmt: skip


def write_table(path: Path, options: Any, journal: Journal) -> None:
    """Fit, and write the table of this device; what the constants would choose goes into the rows."""
    from relaxish.carver import costs_of, device_key
    from relaxish.carver.hopper import CALIBRATION
    from relaxish.runtime.nvidia import providers

    driver = providers.current().driver
    costs = replace(costs_of(options.target), processors=int(driver.attribute(0, "multi_processor_count")))
    lines = read(path)
    found = measurements(lines)
    made = fit.fit(found, costs)
    device = str(driver.attribute(0, "device_name"))
    table: dict[str, Any] = {"device": device, "date": time.strftime("%Y-%m-%d"), "costs": {}}
    if made is None:
        journal.put("fit", skipped=f"{len(found)} measurements are too few")
    else:
        table["quality"] = {"error": made.error, "error before": made.error_before,
                            "rank correlation": made.correlation, "rank correlation before": made.correlation_before}  # fmt: skip
        journal.update("fit", table["quality"] | {"kept": made.better})
        if made.better:
            table["costs"] = made.changed() | {"processors": costs.processors}
        _report_choices(lines, found, {"before": costs, "after": made.costs}, journal)
    table["measured"] = [[row["name"], row["seconds"]] for row in lines if "seconds" in row]
    text = json.dumps(table, indent=1)
    # From a device that is none, nothing may get into the package.
    folders = [options.out / _FOLDER, *([] if driver.simulated or not table["costs"] else [CALIBRATION])]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{device_key(device)}.json").write_text(text + "\n")
    journal.put("fit", right=True, table=f"{device_key(device)}.json")
    _report_spread(lines, journal)


def _report_choices(
    lines: Sequence[dict[str, Any]], found: Sequence[fit.Measurement], costs: dict[str, Any], journal: Journal
) -> None:
    """For each product the fastest tiling, and how much slower those are that the estimate would choose."""
    rows = [row for row in lines if "seconds" in row]
    for shape in sorted({(row["m"], row["n"], row["k"]) for row in rows}):
        here = [i for i, row in enumerate(rows) if (row["m"], row["n"], row["k"]) == shape]
        seconds = np.array([found[i].seconds for i in here])
        case = "x".join(map(str, shape))
        fastest = int(seconds.argmin())
        values: dict[str, Any] = {
            "tilings": len(here), "fastest": found[here[fastest]].name.partition(": ")[2], "us": seconds[fastest] * 1e6,
            "TFLOP/s": 2e-12 * float(np.prod([float(side) for side in shape])) / seconds[fastest],
        }  # fmt: skip
        for name, constants in costs.items():
            chosen = int(np.argmin(constants.seconds(fit.columns([found[i].work for i in here]))))
            values[f"choice {name} / fastest"] = float(seconds[chosen] / seconds[fastest])
        journal.update(case, values)


def _report_spread(lines: Sequence[dict[str, Any]], journal: Journal) -> None:
    """How far two measurements of one entry are apart."""
    by_name: dict[str, list[float]] = {}
    for row in lines:
        if "seconds" in row:
            by_name.setdefault(row["name"], []).append(row["seconds"])
    spreads = [max(times) / min(times) - 1 for times in by_name.values() if len(times) > 1]
    if spreads:
        journal.update("fit", {"spread of the same": max(spreads)})
    reasons: dict[str, int] = {}
    for row in lines:
        if "failed" in row:
            reasons[row["failed"][:80]] = reasons.get(row["failed"][:80], 0) + 1
    if reasons:
        journal.update("fit", {"failures": reasons})
