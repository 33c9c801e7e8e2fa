"""How long an SQL database of a million records takes to open, to answer, and to write.

    python benchmarks/database.py [--records 1000000] [--postgres URL]

Bars: opened in 0.5 s, the ten fastest of a workload in 5 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import sqlalchemy as sa

from relaxish import meta_schedule as ms
from relaxish import te
from relaxish.ir import IRModule
from relaxish.meta_schedule.database import SQLDatabase, TuningRecord
from relaxish.meta_schedule.testing import te_workload
from relaxish.meta_schedule.testing.dummy_object import DummyBuilder, DummyRunner
from relaxish.target import Target

TARGET = Target("llvm -num-cores=4")
WORKLOADS = 100
# Every workload's first records, again and again with other times and keys.
MULTIPLY = """
INSERT INTO records (workload_id, target_id, sketch_id, hardware_id, trace_key, decisions, run_secs, seconds, args_info, time)
WITH RECURSIVE many(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM many WHERE n < :each)
SELECT r.workload_id, r.target_id, r.sketch_id, r.hardware_id, r.trace_key + n, r.decisions,
       '[' || ((n * 7919 % 100003 + 1) / 1000.0) || ']', (n * 7919 % 100003 + 1) / 1000.0, r.args_info, n
FROM records r CROSS JOIN many WHERE r.id <= :first
"""


def module(index: int) -> IRModule:
    """A product of its own size."""
    return IRModule({"main": te.create_prim_func(te_workload.matmul(64, 64, 16 + index))})


def fill(where: str, records: int) -> None:
    """A database of so many records: a real trace of a tuned product for each workload, multiplied."""
    with tempfile.TemporaryDirectory() as folder:
        tuned = ms.tune_tir(
            module(0)["main"], TARGET, folder, 1, builder=DummyBuilder(), runner=DummyRunner(), cost_model="random",
            validate=False, seed=1,
        )  # fmt: skip
        (found,) = tuned.get_all_tuning_records()
    database = SQLDatabase(where)
    workloads = [database.commit_workload(module(i)) for i in range(WORKLOADS)]
    # The trace of the first is good enough for the others: nothing here applies it.
    database.commit_tuning_records(TuningRecord(found.trace, w, [1.0], TARGET, found.args_info) for w in workloads)
    with database.store.connections.writing() as connection:
        connection.execute(sa.text(MULTIPLY), {"each": records // WORKLOADS - 1, "first": WORKLOADS})
    if not database.store.connections.is_file:
        with database.store.connections.writing() as connection:
            connection.exec_driver_sql("ANALYZE")
    database.close()


def seconds(run, repeats: int) -> list[float]:
    """The time of each of some runs."""
    times = []
    for index in range(repeats):
        begin = time.perf_counter()
        run(index)
        times.append(time.perf_counter() - begin)
    return times


def measure(where: str) -> dict[str, float]:
    """Median seconds, and the number of records."""
    opened = seconds(lambda _: SQLDatabase(where), 9)
    counted = seconds(lambda _: len(SQLDatabase(where)), 5)
    database = SQLDatabase(where)
    workloads = [database.commit_workload(module(i)) for i in range(WORKLOADS)]
    database.get_top_k(workloads[0], 10)
    top = seconds(lambda i: database.get_top_k(workloads[1 + i], 10), 50)
    again = seconds(lambda i: database.get_top_k(workloads[1 + i], 10), 50)
    trace = database.get_top_k(workloads[0], 1)[0]
    record = TuningRecord(trace.trace, workloads[0], [1.0], TARGET, trace.args_info)
    durable = seconds(lambda _: database.commit_tuning_record(record), 30)
    soon = seconds(lambda _: database.commit_soon(record), 30)
    figures = {
        "open": opened, "open and count": counted, "top 10": top, "top 10 again": again,
        "commit": durable, "commit soon": soon,
    }  # fmt: skip
    return {"records": float(len(database)), **{name: statistics.median(times) for name, times in figures.items()}}


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--postgres", help="an empty database on a server, to be measured instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        where = options.postgres or str(Path(folder) / "tuning.sqlite")
        begin = time.perf_counter()
        fill(where, options.records)
        filled = time.perf_counter() - begin
        found = measure(where)
        size = 0.0 if options.postgres else Path(where).stat().st_size / 1e6
    print(json.dumps({**found, "fill": filled, "megabytes": size}, indent=2))


if __name__ == "__main__":
    main()
