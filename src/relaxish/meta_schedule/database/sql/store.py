"""Queries on the tables, in plain data: no programs, no schedules."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, RowMapping

from . import schema as t
from .engine import Connections
from .migrations import prepare
from .rows import Measurement, compact_text, digest_of, key_of_trace, ranking_seconds

__all__ = ["Store"]

# Of a record: all that ranks and judges it, without what is long.
_LIGHT = (t.records.c.id, t.records.c.valid, t.records.c.run_secs)
_PIECE = 500
# Texts of other rows that are kept, some kilobytes each.
_REMEMBERED = 4096


class Store:
    """The tables of one database. Every method is a transaction of its own; all may be called in any thread.

    Raises DatabaseError wherever the database cannot be opened, read or written.
    """

    def __init__(self, where: str | os.PathLike[str], *, create: bool = True, readonly: bool = False) -> None:
        self.connections = Connections(where, readonly)
        prepare(self.connections, create)
        self._ids: dict[tuple[str, str], int] = {}
        self._texts: dict[tuple[str, int], Any] = {}

    # ---- rows that others refer to

    def _row(
        self,
        connection: Connection,
        ids: dict[tuple[str, str], int],
        table: sa.Table,
        name: str,
        values: dict[str, Any],
    ) -> int:
        """The number of a row by the one column that names it; made if it is not there."""
        column, key = name, str(values[name])
        known = self._ids.get((table.name, key)) or ids.get((table.name, key))
        if known is None:
            insert = (sqlite.insert if self.connections.is_file else postgresql.insert)(table)
            connection.execute(insert.values(**values).on_conflict_do_nothing(index_elements=[column]))
            known = connection.execute(sa.select(table.c.id).where(table.c[column] == key)).scalar_one()
            ids[table.name, key] = known
        return known

    def _machine(self, connection: Connection, ids: dict[tuple[str, str], int], name: str) -> int | None:
        return self._row(connection, ids, t.hardware, "name", {"name": name, "seen": time.time()}) if name else None

    def _target(self, connection: Connection, ids: dict[tuple[str, str], int], target: Any) -> int:
        text = compact_text(target)
        given = target if isinstance(target, Mapping) else {}
        values = {
            "digest": digest_of(text),
            "text": text,
            "kind": str(given.get("kind", "")),
            "device": "gpu" in (given.get("keys") or ()),
        }
        return self._row(connection, ids, t.targets, "digest", values)

    def _sketch(self, connection: Connection, ids: dict[tuple[str, str], int], instructions: str) -> int:
        values = {"digest": digest_of(instructions), "instructions": instructions}
        return self._row(connection, ids, t.sketches, "digest", values)

    def _text(self, connection: Connection, table: sa.Table, column: str, number: int | None) -> Any:
        """A column of a row that never changes; JSON where the column holds that."""
        if number is None:
            return None
        found = self._texts.get((table.name, number), self)
        if found is self:
            text = connection.execute(sa.select(table.c[column]).where(table.c.id == number)).scalar_one()
            if len(self._texts) >= _REMEMBERED:
                self._texts.clear()
            found = self._texts[table.name, number] = text if column == "name" else json.loads(text)
        return found

    # ---- workloads

    def workloads(self, key: str | None = None, *, with_records: bool = False) -> list[RowMapping]:
        """Workloads with number, hash, slot, name and graph, those of one hash if it is given, oldest first."""
        c = t.workloads.c
        query = sa.select(c.id, c.hash, c.slot, c.name, c.graph).order_by(c.id)
        if key is not None:
            query = query.where(c.hash == key)
        if with_records:
            query = query.where(sa.exists().where(t.records.c.workload_id == c.id))
        with self.connections.reading() as connection:
            return list(connection.execute(query).mappings())

    def add_workload(self, values: Mapping[str, Any], slot: int) -> int | None:
        """The number of a new workload; None where another one took the slot meanwhile."""
        made = {**values, "slot": slot, "created": time.time()}
        insert = (sqlite.insert if self.connections.is_file else postgresql.insert)(t.workloads).values(**made)
        insert = insert.on_conflict_do_nothing(index_elements=["hash", "slot"]).returning(t.workloads.c.id)
        with self.connections.writing() as connection:
            return connection.execute(insert).scalar_one_or_none()

    def describe_workload(self, number: int, values: Mapping[str, Any]) -> None:
        """Say what is known of a workload now: its ``name``, ``structure``, ``sizes``."""
        w = t.workloads.c
        with self.connections.reading() as connection:
            query = sa.select(*(w[column] for column in values)).where(w.id == number)
            if dict(connection.execute(query).mappings().one()) == dict(values):
                return
        with self.connections.writing() as connection:
            connection.execute(sa.update(t.workloads).where(w.id == number).values(**values))

    def similar(self, structure: str, key: str) -> list[RowMapping]:
        """Workloads with records that have a structure, but for those of a hash."""
        w = t.workloads.c
        query = sa.select(w.id, w.hash, w.slot, w.name, w.graph, w.sizes).where(w.structure == structure, w.hash != key)
        query = query.where(sa.exists().where(t.records.c.workload_id == w.id))
        with self.connections.reading() as connection:
            return list(connection.execute(query).mappings())

    # ---- measurements

    def add(self, items: Iterable[tuple[int, Measurement]], *, run: int | None = None, durable: bool = True) -> None:
        """Store measurements of workloads by number, all or none. A second one that brings a verdict is that only."""
        ids: dict[tuple[str, str], int] = {}
        with self.connections.writing(durable) as connection:
            for workload, item in items:
                self._add(connection, ids, workload, item, run)
        self._ids.update(ids)

    def _add(
        self, connection: Connection, ids: dict[tuple[str, str], int], workload: int, item: Measurement, run: int | None
    ) -> None:
        self.connections.lock(connection, workload)
        instructions, decisions = item.instructions, item.decisions
        key, target = key_of_trace(instructions, decisions), self._target(connection, ids, item.target)
        valid = item.notes["valid"]
        if item.speaks_of_others:
            if self._judge(connection, workload, target, key, item) and item.notes["again"]:
                return
        elif valid is None:
            c = t.verdicts.c
            known = sa.select(c.valid).where(c.workload_id == workload, c.target_id == target, c.trace_key == key)
            valid = connection.execute(known).scalar_one_or_none()
        row = {
            "workload_id": workload,
            "target_id": target,
            "sketch_id": self._sketch(connection, ids, instructions),
            "hardware_id": self._machine(connection, ids, item.notes["hardware"]),
            "run_id": run,
            "trace_key": key,
            "decisions": decisions,
            **item.columns(valid),
        }
        connection.execute(sa.insert(t.records).values(**row))

    def judge(self, workload: int, item: Measurement) -> None:
        """Tell every measurement of a trace, past and future, what a check found out, and the times of a new one."""
        ids: dict[tuple[str, str], int] = {}
        with self.connections.writing() as connection:
            self.connections.lock(connection, workload)
            key = key_of_trace(item.instructions, item.decisions)
            self._judge(connection, workload, self._target(connection, ids, item.target), key, item)
        self._ids.update(ids)

    def _judge(self, connection: Connection, workload: int, target: int, key: int, item: Measurement) -> bool:
        """Write a verdict to the table and to the measurements it is about; whether there are some."""
        times = item.run_secs if item.notes["again"] else None
        v, r = t.verdicts.c, t.records.c
        same = (v.workload_id == workload, v.target_id == target, v.trace_key == key)
        before = connection.execute(sa.select(v.valid).where(*same)).scalar_one_or_none()
        # A program that was wrong once stays wrong, even if another check saw nothing.
        valid = bool(item.notes["valid"]) and before is not False
        values: dict[str, Any] = {"valid": valid, "reason": item.notes["error"], "time": time.time()}
        if times is not None:
            values["run_secs"] = compact_text(times)
        if before is None:
            names = {"workload_id": workload, "target_id": target, "trace_key": key}
            connection.execute(sa.insert(t.verdicts).values(**names, **values))
        else:
            connection.execute(sa.update(t.verdicts).where(*same).values(**values))
        mine = (r.workload_id == workload, r.target_id == target, r.trace_key == key)
        # What failed by itself, a crash say, is not what a check speaks of.
        about = sa.and_(*mine, sa.or_(r.valid.is_(None), r.error.is_(None)))
        found = connection.execute(sa.select(r.id, r.run_secs, r.error).where(about)).all()
        for number, run_secs, error in found:
            own = times if times is not None else json.loads(run_secs) if run_secs else None
            changes = {
                "valid": valid,
                "seconds": ranking_seconds(own, valid, bool(error)),
                "run_secs": None if own is None else compact_text(own),
            }
            connection.execute(sa.update(t.records).where(r.id == number).values(**changes))
        return bool(found)

    def count(self) -> int:
        """Number of measurements."""
        with self.connections.reading() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(t.records)).scalar_one())

    def places(self) -> list[tuple[str, bool, int]]:
        """Machine, whether for a device, and number of measurements, for every machine that is known."""
        r = t.records.c
        grouped = sa.select(r.hardware_id, r.target_id, sa.func.count().label("n")).group_by(r.hardware_id, r.target_id)
        sums = grouped.subquery()
        query = sa.select(t.hardware.c.name, t.targets.c.device, sa.func.sum(sums.c.n))
        query = query.join(t.hardware, t.hardware.c.id == sums.c.hardware_id).join(
            t.targets, t.targets.c.id == sums.c.target_id
        )
        with self.connections.reading() as connection:
            rows = connection.execute(query.group_by(t.hardware.c.name, t.targets.c.device)).all()
        return [(str(name), bool(device), int(n)) for name, device, n in rows]

    def numbers(
        self, workload: int | None = None, run: int | None = None, after: int = 0, limit: int | None = None
    ) -> list[RowMapping]:
        """Number, verdict and times of the measurements of a workload (or of all), in the order committed."""
        r = t.records.c
        query = sa.select(*_LIGHT).where(r.id > after).order_by(r.id).limit(limit)
        if workload is not None:
            query = query.where(r.workload_id == workload)
        if run is not None:
            query = query.where(r.run_id == run)
        with self.connections.reading() as connection:
            return list(connection.execute(query).mappings())

    def ranking(
        self, workload: int, limit: int, *, here: str | None = None, after: tuple[float, int] | None = None
    ) -> list[RowMapping]:
        """The fastest valid measurements, best first: number, verdict, times, ``seconds``.

        ``here`` leaves out those whose times mean nothing on that machine; ``after`` is where an earlier piece ended.
        """
        r = t.records.c
        query = sa.select(*_LIGHT, r.seconds).where(
            r.workload_id == workload, r.seconds.is_not(None), *self._here(here)
        )
        if after is not None:
            query = query.where(sa.or_(r.seconds > after[0], sa.and_(r.seconds == after[0], r.id > after[1])))
        with self.connections.reading() as connection:
            return list(connection.execute(query.order_by(r.seconds, r.id).limit(limit)).mappings())

    def measurements(self, numbers: Sequence[int]) -> Iterator[tuple[int, int, Measurement]]:
        """Number, workload and all that is known of measurements, in no particular order."""
        for start in range(0, len(numbers), _PIECE):
            with self.connections.reading() as connection:
                query = sa.select(t.records).where(t.records.c.id.in_(numbers[start : start + _PIECE]))
                made = [self._measurement(connection, row) for row in connection.execute(query).mappings().all()]
            yield from made

    def _measurement(self, connection: Connection, row: RowMapping) -> tuple[int, int, Measurement]:
        trace = [
            self._text(connection, t.sketches, "instructions", row["sketch_id"]),
            json.loads(row["decisions"]),
        ]
        notes = {name: row[name] for name in ("error", "stage", "status", "valid", "predicted", "time")}
        notes["hardware"] = self._text(connection, t.hardware, "name", row["hardware_id"]) or ""
        notes["again"] = False
        target = self._text(connection, t.targets, "text", row["target_id"])
        run_secs = None if row["run_secs"] is None else json.loads(row["run_secs"])
        args = None if row["args_info"] is None else json.loads(row["args_info"])
        return row["id"], row["workload_id"], Measurement(trace, run_secs, target, args, notes)

    def prune(self, keep: int) -> None:
        """Forget all but the ``keep`` fastest measurements of each workload and machine, failures all."""
        r = t.records.c
        place = (r.workload_id, r.hardware_id, r.target_id)
        order = sa.func.row_number().over(partition_by=place, order_by=(r.seconds, r.id))
        ranked = sa.select(r.id, order.label("place")).where(r.seconds.is_not(None)).subquery()
        kept = sa.select(ranked.c.id).where(ranked.c.place <= keep)
        with self.connections.writing() as connection:
            connection.execute(sa.delete(t.records).where(r.id.not_in(kept)))

    # ---- baselines

    def add_baseline(self, workload: int, machine: str, run_secs: Sequence[float], best: float | None) -> None:
        """Note what the default schedule of a workload takes, and the best record of the same race."""
        ids: dict[tuple[str, str], int] = {}
        with self.connections.writing() as connection:
            row = {
                "workload_id": workload,
                "hardware_id": self._machine(connection, ids, machine),
                "run_secs": compact_text([float(s) for s in run_secs]),
                "best": best,
                "time": time.time(),
            }
            connection.execute(sa.insert(t.baselines).values(**row))
        self._ids.update(ids)

    def all_baselines(self) -> list[tuple[int, str, list[float], float | None]]:
        """Every note about a default schedule: workload, machine, times, the best record's time; oldest first."""
        b, h = t.baselines.c, t.hardware.c
        query = sa.select(b.workload_id, h.name, b.run_secs, b.best).order_by(b.id)
        query = query.select_from(t.baselines.outerjoin(t.hardware, h.id == b.hardware_id))
        with self.connections.reading() as connection:
            rows = connection.execute(query).all()
        return [(workload, name or "", json.loads(times), best) for workload, name, times, best in rows]

    def baselines(self, here: str | None = None) -> dict[int, tuple[list[float], float | None]]:
        """The last times of default schedules by workload, with that of the best record; of one machine if given."""
        found = self.all_baselines()
        return {w: (times, best) for w, name, times, best in found if here is None or name in ("", here)}

    def summary(self, here: str | None = None) -> list[dict[str, Any]]:
        """Each workload with ``id``, ``hash``, ``name``, how many ``records``, of them ``failed``, and the ``best`` time.

        With ``here``, only what counts on that machine.
        """
        w, r = t.workloads.c, t.records.c
        mine = self._here(here)
        counted = sa.select(
            r.workload_id,
            sa.func.count().label("records"),
            sa.func.count().filter(r.seconds.is_(None)).label("failed"),
            sa.func.min(r.seconds).label("best"),
        )
        sums = counted.where(*mine).group_by(r.workload_id).subquery()
        query = sa.select(w.id, w.hash, w.name, sums.c.records, sums.c.failed, sums.c.best)
        query = query.join(sums, sums.c.workload_id == w.id).order_by(w.id)
        with self.connections.reading() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    @staticmethod
    def _here(here: str | None) -> list[Any]:
        """What leaves out measurements whose times mean nothing on a machine."""
        if here is None:
            return []
        r = t.records.c
        mine = sa.select(t.hardware.c.id).where(t.hardware.c.name == here).scalar_subquery()
        devices = sa.select(t.targets.c.id).where(t.targets.c.device)
        return [sa.or_(r.hardware_id.is_(None), r.hardware_id == mine, r.target_id.in_(devices))]

    # ---- runs, models, costs

    def begin_run(
        self,
        machine: str,
        target: Mapping[str, Any] | None,
        settings: Mapping[str, Any],
        model: str,
        weights: Mapping[int, float],
    ) -> int:
        """Note a new run: its number. ``weights`` says how often the model calls each workload."""
        ids: dict[tuple[str, str], int] = {}
        now = time.time()
        with self.connections.writing() as connection:
            text = compact_text([model, sorted(weights.items())])
            values = {"digest": digest_of(text), "name": model, "created": now}
            number = self._row(connection, ids, t.models, "digest", values)
            insert = (sqlite.insert if self.connections.is_file else postgresql.insert)(t.model_workloads)
            for workload, weight in weights.items():
                row = {"model_id": number, "workload_id": workload, "weight": float(weight)}
                connection.execute(insert.values(**row).on_conflict_do_nothing())
            run = {
                "key": uuid.uuid4().hex,
                "model_id": number,
                "target_id": self._target(connection, ids, target),
                "hardware_id": self._machine(connection, ids, machine),
                "settings": compact_text(settings),
                "status": "running",
                "started": now,
                "heartbeat": now,
                "process": f"{socket.gethostname()}:{os.getpid()}",
            }
            made = connection.execute(sa.insert(t.runs).values(**run).returning(t.runs.c.id)).scalar_one()
        self._ids.update(ids)
        return int(made)

    def beat(self, run: int) -> None:
        """Note that a run goes on."""
        with self.connections.writing(durable=False) as connection:
            connection.execute(sa.update(t.runs).where(t.runs.c.id == run).values(heartbeat=time.time()))

    def end_run(self, run: int, status: str, costs: Iterable[tuple[int | None, str, float, int]] = ()) -> None:
        """Note how a run ended and where its time went: workload, phase, seconds, count."""
        now = time.time()
        with self.connections.writing() as connection:
            changes = {"status": status, "ended": now, "heartbeat": now}
            connection.execute(sa.update(t.runs).where(t.runs.c.id == run).values(**changes))
            names = ("workload_id", "phase", "seconds", "count")
            rows = [{"run_id": run, **dict(zip(names, cost, strict=True))} for cost in costs]
            if rows:
                connection.execute(sa.insert(t.costs), rows)

    def runs(self) -> list[dict[str, Any]]:
        """Every run, newest first: its columns, ``model``, ``machine`` and how many ``records`` it made."""
        r = t.runs.c
        made = sa.select(sa.func.count()).where(t.records.c.run_id == r.id).scalar_subquery()
        query = (
            sa.select(t.runs, t.models.c.name.label("model"), t.hardware.c.name.label("machine"), made.label("records"))
            .outerjoin(t.models, t.models.c.id == r.model_id)
            .outerjoin(t.hardware, t.hardware.c.id == r.hardware_id)
            .order_by(r.id.desc())
        )
        with self.connections.reading() as connection:
            found = [dict(row) for row in connection.execute(query).mappings()]
        for row in found:
            row["settings"] = json.loads(row["settings"])
        return found

    def costs(self, run: int) -> list[tuple[int | None, str, float, int]]:
        """Time of a run: workload, phase, seconds, count."""
        c = t.costs.c
        query = sa.select(c.workload_id, c.phase, c.seconds, c.count).where(c.run_id == run).order_by(c.id)
        with self.connections.reading() as connection:
            return [(w, str(p), float(s), int(n)) for w, p, s, n in connection.execute(query)]
