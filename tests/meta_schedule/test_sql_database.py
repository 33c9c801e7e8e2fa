"""The SQL database under several writers, kill -9, a full disk, other versions, and what the command does with it."""

import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

import sqlalchemy as sa
from meta_schedule import sql_writer
from meta_schedule.sql_writer import TARGET, program, record
from relaxish import IRModule, te
from relaxish import meta_schedule as ms
from relaxish.cli import main
from relaxish.meta_schedule.database import Database, JSONDatabase, SQLDatabase, TuningRecord
from relaxish.meta_schedule.database.opening import open_database
from relaxish.meta_schedule.database.sql import schema
from relaxish.meta_schedule.database.sql.engine import Connections
from relaxish.meta_schedule.database.sql.journals import copy_records, export_journals, import_journals
from relaxish.meta_schedule.database.sql.migrations import upgrade
from relaxish.meta_schedule.database.sql.rows import ranking_seconds
from relaxish.meta_schedule.database.sql.store import Store
from relaxish.meta_schedule.testing import te_workload
from relaxish.meta_schedule.testing.dummy_object import DummyBuilder, DummyRunner
from relaxish.support import config
from relaxish.support.errors import DatabaseError, RelaxishError
from relaxish.tools.database_server import DatabaseServer

ASSETS = Path(__file__).parent / "assets"


@pytest.fixture(autouse=True)
def unchecked():
    """What records compute is tested elsewhere."""
    with config.UNCHECKED_RECORDS.override("trust"):
        yield


def start(*args):
    command = [sys.executable, sql_writer.__file__, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out.split()


def filled(where, sizes=(4, 8), unrolls=3):
    database = SQLDatabase(where)
    database.commit_tuning_records(
        record(database, size, size + unroll / 8, unroll) for size in sizes for unroll in range(unrolls)
    )
    return database


def contents(database):
    """What is in a database, whatever its rows are called."""
    return Counter(
        json.dumps([r.workload.key, r.as_json(), {**r.notes(), "status": r.status.value}], sort_keys=True)
        for r in database.get_all_tuning_records()
    )


# ---- several writers, some of which die


def many_writers(where, writers, count):
    SQLDatabase(where)
    processes = [start("write", where, writer, count) for writer in range(writers)]
    for process in processes:
        assert finish(process)[-1] == str(count)
    database = SQLDatabase(where)
    assert len(database) == writers * count
    times = sorted(r.run_secs[0] for r in database.get_all_tuning_records())
    assert times == [float(n) for n in range(1, writers * count + 1)]
    # Programs that several wrote at once are one workload.
    hashes = [row["hash"] for row in database.store.workloads()]
    assert len(hashes) == len(set(hashes)) == writers + 2


def test_writers_at_once_lose_nothing(tmp_path):
    many_writers(str(tmp_path / "d.sqlite"), 3, 20)


@pytest.mark.slow
def test_ten_writers_lose_nothing(tmp_path):
    many_writers(str(tmp_path / "d.sqlite"), 10, 1000)


@pytest.mark.slow
def test_ten_writers_to_a_server(postgres):
    many_writers(postgres.fresh(), 10, 1000)


def killed(where, after):
    """Kill a writer once it has acknowledged so many records; how many it has acknowledged."""
    process = start("write", where, 1, 100_000)
    for _ in range(after):
        process.stdout.readline()
    process.kill()
    rest, _ = process.communicate(timeout=60)
    return after + len(rest.split("\n")) - 1


def test_acknowledged_records_survive_kill_9(tmp_path):
    where = str(tmp_path / "d.sqlite")
    total = sum(killed(where, after) for after in (3, 17))
    database = SQLDatabase(where)
    # Each may have been killed between the commit and its word for it.
    assert total <= len(database) <= total + 2
    assert len(database.get_all_tuning_records()) == len(database)
    with database.store.connections.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
    database.commit_tuning_record(record(database, 4, 0.5, 1))
    assert database.get_top_k(database.commit_workload(program(4)), 1)[0].run_secs == [0.5]


@pytest.mark.slow
def test_acknowledged_records_survive_kill_9_on_a_server(postgres):
    where = postgres.fresh()
    SQLDatabase(where)
    total = sum(killed(where, after) for after in (3, 17, 40))
    assert total <= len(SQLDatabase(where)) <= total + 3


def test_a_full_disk_costs_nothing(tmp_path):
    where = tmp_path / "d.sqlite"
    SQLDatabase(where).close()
    refused, unwritten, readable, total, left = map(int, finish(start("fill", where, 600_000, 200)))
    assert 0 < refused < 200 and 0 < unwritten and readable > 0
    assert (total, left) == (200, 0)
    assert sorted(r.run_secs[0] for r in SQLDatabase(where).get_all_tuning_records()) == list(map(float, range(1, 201)))


@pytest.fixture
def small_disk():
    """A file system of 32 MB of its own, where a server's user may go as well."""
    folder = Path(tempfile.mkdtemp(prefix="rxdisk"))
    folder.chmod(0o755)
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m,mode=0777", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, timeout=60)
    except OSError as err:
        pytest.skip(f"no file system can be mounted here: {err}")
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, timeout=60)
    shutil.rmtree(folder, ignore_errors=True)


def filled_up(database, folder, count=400):
    """Commit records where there is room for some of them, then make room for all."""
    made = [record(database, 4 + n % 8, float(n + 1), n) for n in range(count)]
    database.commit_tuning_records(made[:50])
    left = shutil.disk_usage(folder).free - 65_536
    (folder / "ballast").write_bytes(b"\1" * left)
    refused = 0
    for item in made[50:]:
        try:
            database.commit_soon(item)
        except DatabaseError as err:
            assert "cannot write to database" in str(err), err
            refused += 1
            assert database.hold(item)
    assert 0 < refused < count and database.unwritten > 0
    assert database.get_top_k(database.commit_workload(program(4)), 1)[0].run_secs == [1.0]
    (folder / "ballast").unlink()
    database.flush()
    assert database.unwritten == 0
    return sorted(r.run_secs[0] for r in database.get_all_tuning_records())


@pytest.mark.slow
def test_a_disk_that_really_is_full(small_disk):
    where = small_disk / "d.sqlite"
    assert filled_up(SQLDatabase(where), small_disk) == list(map(float, range(1, 401)))
    with SQLDatabase(where).store.connections.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"


@pytest.mark.slow
def test_a_server_whose_disk_is_full(postgres, small_disk):
    where = postgres.fresh(small_disk)
    database = SQLDatabase(where)
    assert filled_up(database, small_disk) == list(map(float, range(1, 401)))
    assert len(SQLDatabase(where)) == 400


# ---- what is no database, or one of another version


def test_what_is_no_database_is_refused(tmp_path):
    (tmp_path / "text.sqlite").write_text("not a database\n" * 100)
    with pytest.raises(DatabaseError, match="not an SQLite database"):
        SQLDatabase(tmp_path / "text.sqlite")
    with pytest.raises(DatabaseError, match="there is no folder"):
        SQLDatabase(tmp_path / "nowhere" / "d.sqlite")
    with pytest.raises(DatabaseError, match="no tuning database"):
        SQLDatabase(tmp_path / "new.sqlite", create=False)
    with pytest.raises(DatabaseError, match="sqlite files or postgresql servers"):
        SQLDatabase("mysql+pymysql://host/tuning")
    with pytest.raises(DatabaseError, match="MemoryDatabase"):
        SQLDatabase("sqlite://")
    with pytest.raises(ValueError):
        SQLDatabase()
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE songs (name TEXT)")
    with pytest.raises(DatabaseError, match="something else"):
        SQLDatabase(tmp_path / "other.sqlite")
    filled(tmp_path / "cut.sqlite").close()
    whole = (tmp_path / "cut.sqlite").read_bytes()
    (tmp_path / "cut.sqlite").write_bytes(whole[:4096] + b"\x55" * 20_000)
    with pytest.raises(DatabaseError):
        len(SQLDatabase(tmp_path / "cut.sqlite"))


def test_a_database_to_read(tmp_path):
    filled(tmp_path / "d.sqlite")
    database = SQLDatabase(tmp_path / "d.sqlite", readonly=True)
    assert len(database) == 6 and database.get_top_k(database.commit_workload(program(4)), 1)
    with pytest.raises(DatabaseError, match="read-only"):
        database.commit_tuning_record(record(database, 4, 1.0, 1))


def test_a_newer_version_is_refused(tmp_path):
    filled(tmp_path / "d.sqlite").close()
    with sqlite3.connect(tmp_path / "d.sqlite") as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(DatabaseError, match="newer version of relaxish"):
        SQLDatabase(tmp_path / "d.sqlite")
    with pytest.raises(DatabaseError, match="does not know"):
        upgrade(Connections(tmp_path / "d.sqlite"))


def old_database(path, version="0001"):
    """A file as an earlier version of this package wrote it."""
    with sqlite3.connect(path) as raw:
        raw.executescript((ASSETS / f"database_{version}.sql").read_text())


def test_older_versions_are_brought_up_to_date(tmp_path, capsys):
    path = tmp_path / "old.sqlite"
    old_database(path)
    with pytest.raises(DatabaseError, match="relaxish db upgrade"):
        SQLDatabase(path)
    with pytest.raises(SystemExit) as ended:
        main(["db", "upgrade", str(path)])
    assert ended.value.code == 0 and f"0001 is now {schema.HEAD}" in capsys.readouterr().out
    database = SQLDatabase(path)
    assert len(database) == 4 and len(database.workloads()) == 2
    workload = database.commit_workload(program(4))
    assert [r.run_secs for r in database.get_top_k(workload, 5)] == [[0.25], [0.5]]
    assert [r.numerically_valid for r in database.records_of(workload)] == [None, True, False]
    with config.ANY_HARDWARE.override(True):
        assert database.baselines() == {workload.key: ([2.0], 0.25)}
    database.commit_tuning_record(record(database, 4, 0.125, 5))
    assert upgrade(Connections(path)) == (schema.HEAD, schema.HEAD)


@pytest.mark.parametrize("server", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_migrations_end_in_the_schema_of_new_databases(tmp_path, server, request):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    from relaxish.meta_schedule.database.sql.migrations.versions import v0001_first

    where = request.getfixturevalue("postgres").fresh() if server else tmp_path / "d.sqlite"
    connections = Connections(where)
    with connections.writing() as connection:
        context = MigrationContext.configure(connection)
        with Operations.context(context):
            v0001_first.upgrade()
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
        connection.execute(sa.text("INSERT INTO alembic_version VALUES ('0001')"))
    assert upgrade(connections) == ("0001", schema.HEAD)
    with connections.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.METADATA) == []
    assert len(SQLDatabase(where)) == 0


def test_an_upgrade_that_fails_changes_nothing(tmp_path, monkeypatch):
    from alembic import op

    old_database(tmp_path / "old.sqlite")
    before = contents_of_schema(tmp_path / "old.sqlite")
    monkeypatch.setattr(op, "create_index", lambda *args, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        upgrade(Connections(tmp_path / "old.sqlite"))
    assert contents_of_schema(tmp_path / "old.sqlite") == before
    monkeypatch.undo()
    assert upgrade(Connections(tmp_path / "old.sqlite"))[1] == schema.HEAD


def contents_of_schema(path):
    with sqlite3.connect(path) as raw:
        return sorted(raw.execute("SELECT name, sql FROM sqlite_master").fetchall())


def test_without_the_extra(tmp_path):
    code = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from relaxish.meta_schedule.database import Database\n"
        "try: Database.create('sql', 'x.sqlite')\n"
        "except ImportError as err: print(err)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert "pip install 'relaxish[db]'" in done.stdout, done.stderr


# ---- carrying records about


def judged(database):
    """Some records with everything that can be known of one."""
    records = [record(database, size, 1.0 + unroll, unroll) for size in (4, 8) for unroll in range(3)]
    failed = record(database, 4, 1e10, 5)
    failed.error_msg, failed.stage, failed.numerically_valid = "it died", "run", False
    records[1].hardware, records[2].predicted = "elsewhere", 0.5
    database.commit_tuning_records([*records, failed])
    for chosen, valid in ((records[0], False), (records[4], True)):
        database.commit_verdict(
            TuningRecord(
                chosen.trace, chosen.workload, [7.0], TARGET, [], valid=valid, again=True, hardware=chosen.hardware,
                error_msg=None if valid else "wrong result",
            )
        )  # fmt: skip
    database.add_baseline(records[0].workload, [9.0], 1.5)
    return database


def test_journals_there_and_back(tmp_path):
    journal = judged(JSONDatabase(work_dir=str(tmp_path / "a")))
    database = SQLDatabase(tmp_path / "d.sqlite")
    assert import_journals(database, str(tmp_path / "a")) == 7
    assert contents(database) == contents(journal) and database.baselines() == journal.baselines()
    assert import_journals(database, str(tmp_path / "a")) == 0 and len(database) == 7
    assert export_journals(database, str(tmp_path / "b")) == 7
    again = JSONDatabase(work_dir=str(tmp_path / "b"))
    assert contents(again) == contents(database) and again.baselines() == journal.baselines()
    with pytest.raises(DatabaseError, match="holds a database already"):
        export_journals(database, str(tmp_path / "b"))
    other = filled(tmp_path / "o.sqlite", (4,))
    assert copy_records(database, other) == 7 and copy_records(database, other) == 0
    # What was found wrong in one is wrong in the other, too.
    for workload in database.workloads():
        ours = [r.as_json() for r in database.ranked(workload)]
        theirs = [r.as_json() for r in other.ranked(workload)]
        assert [r for r in theirs if r in ours] == ours


def test_damaged_lines_cost_themselves(tmp_path):
    judged(JSONDatabase(work_dir=str(tmp_path)))
    path = tmp_path / "database_tuning_record.json"
    lines = path.read_text().splitlines()
    nan = lines[1].replace("[2.0]", "[NaN]")
    assert nan != lines[1]
    path.write_text("\n".join([lines[0], "{", "[0]", "[9,[[[],[]],[1.0],null,null],{}]", nan, *lines[1:]]) + "\n")
    database = SQLDatabase(tmp_path / "d.sqlite")
    assert import_journals(database, str(tmp_path)) == 7
    assert len(database.get_all_tuning_records()) == 7


def test_ranking_figures_say_what_records_say():
    """Of every kind of record, the figure is there if and only if the record may win."""
    database = SQLDatabase.__mro__[1]("structural")  # any database: the record alone is asked
    sch = record(ms.database.MemoryDatabase(), 4, 1.0, 1)
    for times in (None, [], [1.0], [1.0, 3.0], [-1.0], [1e10], [0.0]):
        for valid in (None, True, False):
            for error in (None, "failed"):
                made = TuningRecord(sch.trace, sch.workload, times, TARGET, [], valid=valid, error_msg=error)
                figure = ranking_seconds(times, valid, error is not None)
                assert (figure is not None) == made.is_valid(), (times, valid, error)
                assert figure is None or figure == sum(times) / len(times)
    assert isinstance(database, Database)


# ---- tuning


def tune(folder, database, trials=12, **options):
    mod = IRModule({f"f{n}": te.create_prim_func(te_workload.matmul(n, n, n)) for n in (16, 32)})
    given = {
        "builder": DummyBuilder(), "runner": DummyRunner(), "cost_model": "random", "validate": False, "seed": 3,
        "num_trials_per_iter": 4,
    }  # fmt: skip
    return ms.tune_tir(mod, TARGET, str(folder), trials, database=database, **{**given, **options})


def test_tuning_into_it(tmp_path):
    with config.UNCHECKED_RECORDS.override("trust"):
        # Neither scheduler nor strategy looks at the times, which the runner draws.
        options = {"task_scheduler": "round-robin", "strategy": "replay-trace"}
        database = tune(tmp_path / "a", "sql", **options)
        journal = tune(tmp_path / "b", "json", **options)
    assert isinstance(database, SQLDatabase) and database.name.endswith("database.sqlite")
    assert len(database) == len(journal) == 12
    # The same search, so the same candidates.
    traces = [sorted(json.dumps(r.trace.as_json()) for r in d.get_all_tuning_records()) for d in (database, journal)]
    assert traces[0] == traces[1]
    (run,) = database.store.runs()
    assert run["status"] == "finished" and run["records"] == 12 and run["settings"]["tasks"] == ["f16", "f32"]
    costs = database.store.costs(run["id"])
    assert {phase for _, phase, _, _ in costs} >= {"search", "build", "run"}
    assert sum(count for _, phase, _, count in costs if phase == "run") == 12
    assert {row["name"] for row in database.store.workloads()} == {"f16", "f32"}


def test_a_run_that_fails_says_so(tmp_path):
    class Broken(ms.task_scheduler.RoundRobin):
        def next_task_id(self):
            raise RelaxishError("no more")

    database = SQLDatabase(tmp_path / "d.sqlite")
    with pytest.raises(RelaxishError, match="no more"):
        tune(tmp_path, database, task_scheduler=Broken())
    assert [run["status"] for run in database.store.runs()] == ["failed"]


# ---- the command, and the server


def run(capsys, *args, code=0):
    with pytest.raises(SystemExit) as ended:
        main(["db", *map(str, args)])
    captured = capsys.readouterr()
    assert ended.value.code == code, captured.err
    return captured.out if code == 0 else captured.err


def test_the_command(tmp_path, capsys):
    path, folder = tmp_path / "d.sqlite", tmp_path / "logs"
    judged(JSONDatabase(work_dir=str(folder)))
    assert "7 new of 7" in run(capsys, "import", path, folder)
    assert "0 new of 7" in run(capsys, "merge", path, folder)
    rows = json.loads(run(capsys, "show", path, "--json"))
    assert rows == json.loads(run(capsys, "show", folder, "--json"))
    key = rows[0]["hash"]
    assert run(capsys, "best", path, key[:6]) == run(capsys, "best", folder, key[:6])
    assert run(capsys, "top", path, key, "-k", "2") == run(capsys, "top", folder, key, "-k", "2")
    assert "no kernel named" in run(capsys, "top", path, "nothing", code=1)
    filled(tmp_path / "faster.sqlite", (4,), 1).commit_tuning_record(
        record(SQLDatabase(tmp_path / "faster.sqlite"), 4, 0.375, 9)
    )
    (changed,) = [r for r in json.loads(run(capsys, "diff", path, tmp_path / "faster.sqlite", "--json")) if r["gain"]]
    assert (changed["before"], changed["after"], changed["gain"]) == (3.0, 0.375, 8.0)
    assert "1 kernels in both: 8.000x" in run(capsys, "diff", path, tmp_path / "faster.sqlite")
    assert "7 records" in run(capsys, "export", path, tmp_path / "out")
    assert contents(open_database(str(tmp_path / "out"))) == contents(open_database(str(path)))
    assert "3 of 7" in run(capsys, "prune", path, tmp_path / "pruned.sqlite")
    assert "3 of 7" in run(capsys, "prune", path, "--keep", "1")
    left = [open_database(str(where)) for where in (path, tmp_path / "pruned.sqlite")]
    assert [sorted(r.run_secs[0] for r in d.get_all_tuning_records()) for d in left] == [[1.0, 2.0, 3.0]] * 2
    assert "run" in run(capsys, "show", path, "--runs")
    assert "up to date" in run(capsys, "upgrade", path)
    assert "no tuning database" in run(capsys, "show", tmp_path / "none.sqlite", code=1)


def fetch(address, path):
    with urllib.request.urlopen(address + path, timeout=30) as answer:
        return json.load(answer)


def test_the_server(tmp_path):
    database = filled(tmp_path / "d.sqlite")
    with DatabaseServer(Store(tmp_path / "d.sqlite")) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            rows = fetch(server.address, "workloads")
            assert [r["records"] for r in rows] == [3, 3] and rows[0]["best"] == 4.0
            top = fetch(server.address, f"top/{rows[1]['hash']}?k=2")
            assert [r["run_secs"] for r in top] == [[8.0], [8.125]]
            lines = fetch(server.address, "records?after=2&limit=3")
            assert [line["id"] for line in lines] == [3, 4, 5]
            given = [r.trace.as_json() for r in database.get_all_tuning_records()]
            assert [line["trace"] for line in lines] == given[2:5]
            assert fetch(server.address, "runs") == []
            for path, code in (("nothing", 404), ("top/0123", 404), ("records?after=x", 400), ("runs/-1", 400)):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    fetch(server.address, path)
                assert refused.value.code == code
        finally:
            server.shutdown()
            thread.join(30)


def test_similar_programs_are_found(tmp_path):
    database = filled(tmp_path / "d.sqlite", (4, 64, 96, 8))
    database.commit_workload(program(60))  # without records
    found = database.similar(program(72))
    assert [len(w.mod["main"].buffer_map) for w in found] == [2] * 4
    assert [w.key for w in found] == [database.commit_workload(program(n)).key for n in (64, 96, 8, 4)]
    assert database.commit_workload(program(64)).key not in [w.key for w in database.similar(program(64))]
    other = IRModule({"main": te.create_prim_func(te_workload.matmul(64, 64, 64))})
    assert database.similar(other) == []


@pytest.mark.slow
def test_a_cost_model_from_records(tmp_path, capsys):
    quick = {"strategy": "replay-trace", "num_trials_per_iter": 64, "runner": DummyRunner(lambda x: 1.0)}
    tuned = tune(tmp_path / "a", SQLDatabase(tmp_path / "d.sqlite"), trials=128, **quick)
    assert len(tuned) == 128
    assert "learnt 128 records of 2 kernels" in run(capsys, "train", tmp_path / "d.sqlite", tmp_path / "prior.tar")
    model = ms.cost_model.XGBModel()
    model.load(str(tmp_path / "prior.tar"))
    assert model.trained and model.data_size == 128
    # It ranks what it has never measured, from the first round on; every second candidate is chosen without it.
    database = tune(tmp_path / "b", "sql", trials=8, cost_model=model)
    predicted = [r.predicted is not None for r in database.get_all_tuning_records()]
    assert 3 <= sum(predicted) < len(predicted) == 8
    filled(tmp_path / "few.sqlite")
    assert "too few" in run(capsys, "train", tmp_path / "few.sqlite", tmp_path / "few.tar", code=1)


def test_opening_reads_no_records(tmp_path):
    """A hundred times the records, the same few queries."""
    database = filled(tmp_path / "d.sqlite", (4,), 200)
    asked = []
    fresh = SQLDatabase(tmp_path / "d.sqlite")
    sa.event.listen(fresh.store.connections.engine, "before_cursor_execute", lambda *args: asked.append(args[2]))
    workload = fresh.commit_workload(program(4))
    begin = time.perf_counter()
    assert len(fresh.get_top_k(workload, 5)) == 5
    assert time.perf_counter() - begin < 5
    assert len(fresh._made) <= 16 and len(asked) < 20
    assert len(database) == 200
