"""Damaged tuning databases: flipped bytes, cut and doubled lines, foreign ones in between, files cut short.

Whatever is in the files, opening them and asking for records must not raise anything but errors of this package, and
must not lose records of lines that were not hit.

``campaign(budget_s, seed)`` gives the figures: databases ``tried`` and ``survived``, those that raised something else
(``crashed``), records ``lost`` (of lines that were left alone), and ``wrong`` programs applied.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Any

from relaxish import Target, te, tir
from relaxish import meta_schedule as ms
from relaxish.ir import structural_equal
from relaxish.meta_schedule.database import JSONDatabase, TuningRecord
from relaxish.support import config
from relaxish.support.errors import RelaxishError

TARGET = Target("llvm -num-cores=1")
FILES = ("database_workload.json", "database_tuning_record.json")
FOREIGN = (
    b"", b"{}", b"[]", b"null", b"[0,[[],[]]]", b"\x00" * 40, b"[" * 20_000, b'{"a":' * 20_000, b'["1","!!"]', b"\xff" * 9,
    b'[0,[[[["GetBlock",[],["Y","main"],["b0"]]],[]],[1e-9],{"kind":"llvm"},[]],{"hardware":""}]',
    b'[0,[[[["NoSuchThing",[],[],[]]],[]],[1e-9],{"kind":"llvm"},[]],{"hardware":""}]',
    b'[0,[[[],[]],[1e-9],{"kind":"toaster"},[]],{"hardware":""}]',
    b'[0,[[[["GetBlock",[],["Y","main"],["b0"]]],[]],[1e-9],{"kind":"llvm"},[["TENSOR","float32",["x"]]]],{}]',
)  # fmt: skip


def module(n: int) -> Any:
    """A program of its own for each ``n``."""
    x = te.placeholder((n, 8), "float32", name="X")
    return ms.TuneContext(te.create_prim_func([x, te.compute((n, 8), lambda i, j: x[i, j] * 2.0, name="Y")])).mod


def filled(folder: str, sizes: range = range(2, 8), each: int = 4) -> JSONDatabase:
    """A database of some records."""
    database = JSONDatabase(work_dir=folder)
    for n in sizes:
        workload = database.commit_workload(module(n))
        for number in range(each):
            sch = tir.Schedule(workload.mod)
            sch.annotate(sch.get_loops("Y")[0], "pragma_auto_unroll_max_step", number)
            database.commit_tuning_record(TuningRecord(sch.trace, workload, [1e-3 * (n + number)], TARGET, []))
    return database


def damage(data: bytes, rng: random.Random) -> tuple[bytes, set[bytes]]:
    """A file after one to four accidents, and the lines that none of them touched."""
    lines = data.split(b"\n")[:-1]
    untouched = set(lines)
    for _ in range(rng.randint(1, 4)):
        where = rng.randrange(len(lines))
        kind = rng.choice(["flip", "cut", "double", "foreign", "swap", "join", "number"])
        line = lines[where]
        if kind != "foreign":
            untouched.discard(line)
        if kind == "flip" and line:
            at = rng.randrange(len(line))
            lines[where] = line[:at] + bytes([rng.choice([b for b in range(256) if b != 10])]) + line[at + 1 :]
        elif kind == "cut" and line:
            lines[where] = line[: rng.randrange(len(line))]
        elif kind == "double":
            lines[where] = line + line
        elif kind == "foreign":
            lines.insert(where, rng.choice(FOREIGN))
        elif kind == "swap" and line:
            cut = rng.randrange(len(line))
            lines[where] = line[cut:] + line[:cut]
        elif kind == "number":
            lines[where] = line.replace(b"1", rng.choice([b"NaN", b"-1", b"1e999", b"9" * 50]), rng.randint(1, 9))
        elif where + 1 < len(lines):
            untouched.discard(lines[where + 1])
            lines[where : where + 2] = [line + lines[where + 1]]
    whole = b"\n".join(lines) + b"\n"
    return (whole[: -rng.randint(1, 30)], untouched - {lines[-1]}) if rng.random() < 0.2 else (whole, untouched)


def one_case(originals: dict[str, bytes], rng: random.Random, check: bool) -> dict[str, int]:
    """Damage one file and use the database."""
    figures = dict.fromkeys(("tried", "survived", "lost", "wrong", "applied"), 0)
    figures["tried"] = 1
    hit = rng.choice(FILES[1:] * 3 + FILES[:1])
    damaged, untouched = damage(originals[hit], rng)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in originals.items():
            (Path(folder) / name).write_bytes(damaged if name == hit else data)
        try:
            database = JSONDatabase(work_dir=folder)
            records = database.get_all_tuning_records()
            if hit == FILES[1]:
                figures["lost"] = max(0, len(untouched) - len(records))
            with config.UNCHECKED_RECORDS.override("refuse" if check else "trust"):
                for n in range(2, 8):
                    made = database.query_ir_module(module(n), TARGET) if check else None
                    if made is not None:
                        figures["applied"] += 1
                        figures["wrong"] += not _same_but_for_notes(made, n)
            database.commit_tuning_record(records[0] if records else filled(folder).get_all_tuning_records()[0])
        except RelaxishError:
            pass  # an error that says what is wrong
        except Exception as err:
            print(f"{hit}: {type(err).__name__}: {err}")
            return figures
    figures["survived"] = 1
    return figures


def _same_but_for_notes(made: Any, n: int) -> bool:
    """Whether a program differs from the plain one by the annotation only."""
    return any(structural_equal(made, _annotated(n, step)) for step in [None, *range(4)]) or _computes(made, n)


def _annotated(n: int, step: int | None) -> Any:
    sch = tir.Schedule(module(n))
    if step is not None:
        sch.annotate(sch.get_loops("Y")[0], "pragma_auto_unroll_max_step", step)
    return sch.mod


def _computes(made: Any, n: int) -> bool:
    import numpy as np

    from relaxish.interp import run_prim_func

    x, y = np.random.default_rng(n).standard_normal((n, 8)).astype("float32"), np.full((n, 8), np.nan, "float32")
    run_prim_func(made["main"], [x, y])
    return bool((y == 2 * x).all())


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Cases until the time is up, at least 20; every tenth applies what it finds."""
    rng = random.Random(seed)
    end = time.monotonic() + budget_s
    total: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        filled(folder)
        originals = {name: (Path(folder) / name).read_bytes() for name in FILES}
    number = 0
    while number < 20 or time.monotonic() < end:
        for key, value in one_case(originals, rng, number % 10 == 0).items():
            total[key] = total.get(key, 0) + value
        number += 1
    return {**total, "crashed": total["tried"] - total["survived"]}


def main(budget_s: float = 60.0, seed: int = 0) -> dict[str, int]:
    """The campaign's figures."""
    return campaign(budget_s, seed)


if __name__ == "__main__":
    print(main())
