"""Writers of tuning records in processes of their own, for the tests of databases: run by name."""

from __future__ import annotations

import resource
import signal
import sys

from relaxish import te
from relaxish.ir import IRModule
from relaxish.meta_schedule.database import Database, TuningRecord
from relaxish.support.errors import DatabaseError
from relaxish.target import Target
from relaxish.tir import Schedule

TARGET = Target("llvm -num-cores=1")


def program(size: int) -> IRModule:
    x = te.placeholder((size, 16), "float32", name="X")
    return IRModule({"main": te.create_prim_func([x, te.compute((size, 16), lambda i, j: x[i, j] * 2.0, name="Y")])})


def record(database: Database, size: int, seconds: float, unroll: int) -> TuningRecord:
    workload = database.commit_workload(program(size))
    sch = Schedule(workload.mod)
    sch.annotate(sch.get_loops("Y")[0], "pragma_auto_unroll_max_step", unroll)
    return TuningRecord(sch.trace, workload, [seconds], TARGET, [], time=seconds)


def write(where: str, writer: int, count: int) -> None:
    """Commit records one by one, each acknowledged on a line of its own."""
    database = Database.create("sql", where)
    for number in range(count):
        # Half of the programs are everybody's: they are new to several writers at once.
        size = 4 + number % 4 if number % 2 else 100 + writer
        database.commit_tuning_record(record(database, size, float(1 + writer * count + number), number % 7))
        print(number + 1, flush=True)


def fill(where: str, limit: int, count: int) -> None:
    """Commit while files may not grow beyond ``limit`` bytes, then with that lifted; say what happened."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    database = Database.create("sql", where)
    made = [record(database, 4 + number % 8, float(number + 1), number) for number in range(count)]
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    refused = 0
    for item in made:
        try:
            database.commit_soon(item)
        except DatabaseError as err:
            assert "cannot write to database" in str(err), err
            refused += 1
            assert database.hold(item)
    readable = len(database.get_top_k(database.commit_workload(program(4)), 3))
    print(refused, database.unwritten, readable, flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    database.flush()
    print(len(database), database.unwritten, flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
