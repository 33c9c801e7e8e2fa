"""Logs: the lines of the format, damaged and hostile ones, the best of them, and the commands."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import socket
import sys
import threading
import types

import numpy as np
import pytest

from relaxish import autotvm
from relaxish.autotvm import record
from relaxish.autotvm.database import DummyDatabase, RedisDatabase, filter_inputs
from relaxish.support.errors import MalformedDataError, RelaxishError
from relaxish.target import Target

LINE = (
    '{"input": ["llvm -keys=cpu -mtriple=x86_64-unknown-linux-gnu", "matmul", [512, 512, 512, "float32"], {}], '
    '"config": {"index": 57, "code_hash": null, "entity": [["tile_y", "sp", [-1, 8]], ["ord", "re", [0, 2, 1]], '
    '["ann", "an", ["unroll", "vec"]], ["auto_unroll", "ot", 512]]}, "result": [[0.0021], 0, 1.73, 1700000000.1], '
    '"version": 0.2, "tvm_version": "0.18.0"}'
)


def line(index, cost, error=0, target="llvm -keys=cpu", args=(512, 512, 512, "float32"), name="matmul"):
    data = json.loads(LINE)
    data["input"] = [target, name, list(args), {}]
    data["config"]["index"] = index
    data["result"] = [[cost], error, 1.0, 1700000000.0 + index]
    return json.dumps(data)


def test_a_line_is_read_and_written_byte_for_byte():
    inp, res = record.decode(LINE)
    assert str(inp.target) == "llvm -keys=cpu -mtriple=x86_64-unknown-linux-gnu"
    assert inp.task.name == "matmul" and inp.task.args == (512, 512, 512, "float32")
    assert inp.config["tile_y"].size == [-1, 8] and inp.config["ord"].perm == [0, 2, 1]
    assert inp.config["ann"].anns == ["unroll", "vec"] and inp.config["auto_unroll"].val == 512
    assert inp.config.index == 57 and inp.config.cost == 0.0021
    assert (res.costs, res.error_no, res.all_cost, res.timestamp) == ((0.0021,), 0, 1.73, 1700000000.1)
    assert record.encode(inp, res) == LINE
    with pytest.raises(RuntimeError, match="missing task matmul"):
        inp.task.instantiate(inp.config)


def test_numpy_numbers_and_errors_are_written_plainly():
    inp, _ = record.decode(LINE)
    failed = autotvm.MeasureResult(("trace", RuntimeError("x")), np.int64(2), np.float64(0.5), 1.0)
    data = json.loads(record.encode(inp, failed))
    assert data["result"] == [[1e9], 2, 0.5, 1.0]
    fast = autotvm.MeasureResult((np.float32(0.5),), 0, 0.5, 1.0)
    assert json.loads(record.encode(inp, fast))["result"][0] == [0.5]


def test_pickled_lines():
    inp, res = record.decode(LINE)
    row = record.encode(inp, res, "pickle")
    assert row.count("\t") == 5
    again, result = record.decode(row, "pickle")
    assert again.config == inp.config and again.task.workload == inp.task.workload and result == res
    with pytest.raises(RuntimeError, match="Invalid log protocol"):
        record.encode(inp, res, "xml")


class _Evil:
    def __reduce__(self):
        return (os.system, ("touch evil",))


@pytest.mark.parametrize("where", [1, 2, 3])
def test_pickles_cannot_call_anything(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inp, res = record.decode(LINE)
    fields = record.encode(inp, res, "pickle").split("\t")
    fields[where] = base64.b64encode(pickle.dumps(_Evil())).decode()
    with pytest.raises(MalformedDataError, match="posix.system|nt.system"):
        record.decode("\t".join(fields), "pickle")
    assert not (tmp_path / "evil").exists()
    for bad in (b"", b"\x80\x05", pickle.dumps(eval), b"cbuiltins\nexec\n(S'1'\ntR."):
        fields[where] = base64.b64encode(bad).decode()
        with pytest.raises(MalformedDataError):
            record.decode("\t".join(fields), "pickle")


def test_pickled_configurations_of_the_other_package_are_read(monkeypatch):
    class ConfigEntity:
        pass

    class SplitEntity:
        pass

    for cls in (ConfigEntity, SplitEntity):
        cls.__module__, cls.__qualname__ = "tvm.autotvm.task.space", cls.__name__
    fake = types.ModuleType("tvm.autotvm.task.space")
    fake.ConfigEntity, fake.SplitEntity = ConfigEntity, SplitEntity
    split = SplitEntity()
    split.size = [-1, 8]
    entity = ConfigEntity()
    entity.__dict__.update(index=7, code_hash=None, _entity_map={"tile": split}, _constraints=[], errors=[])
    names = ["tvm", "tvm.autotvm", "tvm.autotvm.task", "tvm.autotvm.task.space"]
    for name in names:
        monkeypatch.setitem(sys.modules, name, fake if name == names[-1] else types.ModuleType(name))
    packed = base64.b64encode(pickle.dumps(entity)).decode()
    task = base64.b64encode(pickle.dumps(("matmul", (4,), {}))).decode()
    result = base64.b64encode(pickle.dumps(((0.5,), 0, 1.0, 2.0))).decode()
    inp, res = record.decode("\t".join(["llvm", task, packed, result, "0.2", "0.18.0"]), "pickle")
    assert inp.config.index == 7 and inp.config["tile"].size == [-1, 8] and res.costs == (0.5,)


def test_damaged_and_foreign_lines_are_left_out(tmp_path):
    path = tmp_path / "log"
    old = '{"v": 0.1, "i": [], "r": []}'
    deep = "[" * 3000
    texts = ["# a comment", line(1, 0.5), "", old, "{nonsense", '{"input": 3}', deep, LINE.replace("[-1, 8]", '"x"'),
             LINE.replace('"sp"', '"zz"'), line(2, 0.25), LINE[:100]]  # fmt: skip
    path.write_text("\n".join(texts))
    assert [inp.config.index for inp, _ in record.load_from_file(path)] == [1, 2]
    assert record.decode(old) is None


def test_pick_best(tmp_path):
    log, best = tmp_path / "log", tmp_path / "best"
    rows = [line(1, 0.5), line(2, 0.2), line(3, 1e9, error=4), line(4, 0.3, args=(64, 64, 64, "float32")),
            line(2, 0.4), line(5, 0.1, target="cuda -keys=cuda,gpu -arch=sm_80 -model=a100")]  # fmt: skip
    log.write_text("\n".join(rows) + "\n")
    record.pick_best(log, best)
    kept = [(i.config.index, r.costs[0]) for i, r in record.load_from_file(best)]
    assert kept == [(2, 0.2), (4, 0.3), (5, 0.1)]
    log.write_text(line(9, 0.1) + "\n" + line(4, 0.9, args=(64, 64, 64, "float32")) + "\n")
    record.pick_best(log, best)  # what is there takes part
    kept = [(i.config.index, r.costs[0]) for i, r in record.load_from_file(best)]
    assert kept == [(9, 0.1), (4, 0.3), (5, 0.1)]
    with open(tmp_path / "third", "w") as out:
        record.pick_best(best, out)
    assert (tmp_path / "third").read_text() == best.read_text()


def test_history_prefers_the_model_then_the_keys(tmp_path):
    log = tmp_path / "log"
    log.write_text("\n".join([line(1, 0.5, target="cuda -model=a100"), line(2, 0.1, target="cuda -model=t4"),
                              line(3, 0.2, target="llvm")]))  # fmt: skip
    context = autotvm.apply_history_best(str(log))
    workload = ("matmul", 512, 512, 512, "float32")
    assert context.query(Target("cuda -model=a100"), workload).index == 1
    assert context.query(Target("cuda -model=p4"), workload).index == 2
    assert context.query(Target("llvm -mcpu=core-avx2"), workload).index == 3
    assert ("unknown", workload) not in context.best_by_model
    mine = record.decode(LINE)[0].config
    context.update(Target("cuda -model=a100"), workload, mine)
    assert context.query(Target("cuda -model=a100"), workload) is mine
    with pytest.raises(RuntimeError, match="Need a target context"):
        context.query(None, workload)
    pairs = list(record.load_from_file(log))
    for given in (pairs, [str(log)], open(log), [pairs[:1], pairs[1:]]):
        assert autotvm.ApplyHistoryBest(given).query(Target("llvm"), workload).index == 3


def test_split_and_the_command(tmp_path, capsys):
    log = tmp_path / "log"
    log.write_text(
        "\n".join([line(1, 0.5), line(2, 0.2, args=(1, 1, 1, "float32")), line(1, 0.4), line(3, 0.9)]) + "\n"
    )
    assert record.main(["--mode", "split", "--i", str(log)]) == 0
    first, second = (list(record.load_from_file(f"{log}.{i:03d}.wkl")) for i in range(2))
    assert [(i.config.index, r.costs[0]) for i, r in first] == [(1, 0.5), (3, 0.9)] and len(second) == 1
    assert record.main(["--mode", "pick", "--i", str(log)]) == 0
    assert len(list(record.load_from_file(f"{log}.best.log"))) == 2
    capsys.readouterr()
    assert record.main(["--mode", "read", "--i", str(log), "--begin", "1", "--end", "3"]) == 0
    assert capsys.readouterr().out.count("MeasureResult") == 2
    with pytest.raises(SystemExit):
        record.main(["--mode", "read", "--i", str(tmp_path / "none")])


class RedisServer:
    """What a Redis server does with the commands of a store, by its protocol; texts by the number of the database."""

    def __init__(self):
        self.texts = {}
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        stream, number = connection.makefile("rb"), 0
        while (head := stream.readline()).startswith(b"*"):
            words = []
            for _ in range(int(head[1:])):
                size = int(stream.readline()[1:])
                words.append(stream.read(size + 2)[:-2])
            texts = self.texts.setdefault(number, {})
            name, rest = words[0].upper(), words[1:]
            if name == b"SELECT":
                number, reply = int(rest[0]), b"+OK\r\n"
            elif name == b"SET":
                texts[rest[0]], reply = rest[1], b"+OK\r\n"
            elif name == b"GET":
                found = texts.get(rest[0])
                reply = b"$-1\r\n" if found is None else b"$%d\r\n%b\r\n" % (len(found), found)
            elif name == b"KEYS" and rest == [b"*"]:
                reply = b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%b\r\n" % (len(k), k) for k in texts)
            elif name == b"FLUSHDB":
                texts.clear()
                reply = b"+OK\r\n"
            else:
                reply = b"-ERR unknown command\r\n"
            for at in range(0, len(reply), 7):  # in pieces, as networks do
                connection.sendall(reply[at : at + 7])
        connection.close()


@pytest.fixture
def redis():
    server = RedisServer()
    yield server
    server.listening.close()


def test_a_redis_server_keeps_databases_apart(redis):
    row = record.decode(line(1, 0.1))
    one, other = (RedisDatabase(n, port=redis.port) for n in (RedisDatabase.REDIS_LOCA, RedisDatabase.REDIS_TEST))
    one.save(*row)
    assert RedisDatabase(RedisDatabase.REDIS_LOCA, port=redis.port).load(row[0]).costs == (0.1,)
    assert other.load(row[0]) is None and set(redis.texts[14]) and not redis.texts[13]
    with pytest.raises(RelaxishError, match="says: ERR unknown command"):
        one.db.command("SHUTDOWN")


def test_without_a_redis_server_there_is_one_line_that_says_so():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(RelaxishError, match=f"no Redis server answers at 127.0.0.1:{port}"):
        RedisDatabase(port=port).load(record.decode(line(1, 0.1))[0])
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet():
            connection, _ = listening.accept()
            connection.sendall(b"SSH-2.0-OpenSSH_9\r\n")

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(RelaxishError, match="this is no Redis server"):
            RedisDatabase(port=listening.getsockname()[1]).load(record.decode(line(1, 0.1))[0])


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_databases(kind, redis):
    rows = [record.decode(line(i, 0.1 * i)) for i in (1, 2)]
    failed = record.decode(line(3, 1e9, error=2))
    db = DummyDatabase(rows) if kind == "memory" else RedisDatabase(port=redis.port)
    for row in rows:
        db.save(*row)
    db.save(*failed)
    assert db.load(rows[0][0]).costs == (0.1,)
    db.save(rows[0][0], autotvm.MeasureResult((0.7,), 0, 1.0, 1800000000.0), extend=True)
    assert db.load(rows[0][0]).costs == (0.7,) and len(db.load(rows[0][0], get_all=True)) == 2
    unknown = record.decode(line(9, 0.5))
    inputs = [r[0] for r in (*rows, failed, unknown)]
    assert [i.config.index for i in filter_inputs(db, inputs)] == [9]
    assert [i.config.index for i in filter_inputs(db, inputs, retry=True)] == [3, 9]
    assert len(db.filter(lambda inp, res: res.error_no == 0)) == 3
    db.flush()
    assert db.load(rows[0][0]) is None


def test_targets_are_written_without_their_hosts():
    inp, res = record.decode(LINE)
    hosted = autotvm.MeasureInput(Target("cuda -arch=sm_80", host="llvm -num-cores=4"), inp.task, inp.config)
    text = json.loads(record.encode(hosted, res))["input"][0]
    assert "num-cores" not in text and Target(text) == Target("cuda -arch=sm_80")
    assert record.same_workload(inp.task, hosted.target, record.decode(record.encode(hosted, res))[0])
