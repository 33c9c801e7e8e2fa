"""Tuning logs: one measurement a line, in the format that AutoTVM's tools share (version 0.2).

A line is a JSON object (protocol "json"), or six fields separated by tabs (protocol "pickle"). Of the latter only plain
values and configurations are read: a log cannot make this process call anything.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import pickle
import sys
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..support.errors import MalformedDataError
from ..support.log import get_logger
from ..support.untrusted import anything, integer, list_of, malformed, number, optional, parse_json, text
from ..target import Target
from .measure import MeasureInput, MeasureResult
from .task import ApplyHistoryBest, ConfigEntity, Task
from .task.dispatcher import as_key
from .task.entity import ENTITIES, Entity

__all__ = [
    "AUTOTVM_LOG_VERSION", "decode", "encode", "load_from_buffer", "load_from_file", "measure_str_key", "pick_best",
    "split_workload",
]  # fmt: skip

AUTOTVM_LOG_VERSION = 0.2
_TVM_VERSION = "0.18.0"  # the version whose format this is: what its tools compare with their own
_OLD_WARNING = True
_log = get_logger("autotvm")


def target_text(target: Target) -> str:
    """A target as logs have it: without its host, which tools that share the format do not read."""
    return str(target.without_host()) if hasattr(target, "without_host") else str(target)


def measure_str_key(inp: MeasureInput, include_config: bool = True) -> str:
    """A text that tells measurements apart, or only what was measured if the configuration is left out."""
    config = str(inp.config) if include_config else ""
    return f"{target_text(inp.target)}{inp.task.name}{inp.task.args}{inp.task.kwargs}{config}"


# ---- writing


def _plain(value: Any) -> Any:
    """Numbers of NumPy and tuples as JSON has them."""
    match value:
        case np.generic():
            return value.item()
        case list() | tuple():
            return [_plain(v) for v in value]
        case dict():
            return {str(k): _plain(v) for k, v in value.items()}
        case str() | int() | float() | bool() | None:
            return value
    return str(value)


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """One line, without its end. Raises RuntimeError for another protocol than "json" and "pickle"."""
    costs = list(result.costs) if int(result.error_no) == 0 else [1e9]
    if protocol == "json":
        record = {
            "input": [target_text(inp.target), inp.task.name, _plain(inp.task.args), _plain(inp.task.kwargs)],
            "config": _plain(inp.config.to_json_dict()),
            "result": [
                [float(c) for c in costs],
                int(result.error_no),
                float(result.all_cost),
                float(result.timestamp),
            ],
            "version": AUTOTVM_LOG_VERSION,
            "tvm_version": _TVM_VERSION,
        }
        return json.dumps(record)
    if protocol == "pickle":
        fields = [(inp.task.name, inp.task.args, inp.task.kwargs), inp.config, (tuple(costs), *tuple(result)[1:])]
        packed = [base64.b64encode(pickle.dumps(_portable(f))).decode() for f in fields]
        return "\t".join([target_text(inp.target), *packed, str(AUTOTVM_LOG_VERSION), _TVM_VERSION])
    raise RuntimeError(f"Invalid log protocol: {protocol}")


def _portable(value: Any) -> object:
    """Plain values only, so that any version can read what is pickled."""
    match value:
        case ConfigEntity():
            return _plain(value.to_json_dict())
        case list() | tuple():
            return tuple(_portable(v) for v in value)
        case np.generic():
            return value.item()
        case int() if not isinstance(value, bool):
            return int(value)
    return value


# ---- reading

_CONFIG = list_of(anything, 4096)


def _tuples(value: Any) -> Any:
    """JSON's lists as the tuples that arguments are."""
    if isinstance(value, list):
        return tuple(_tuples(v) for v in value)
    return value


def _config(data: Mapping[str, Any], where: str) -> ConfigEntity:
    if not isinstance(data, dict):
        raise MalformedDataError(f"{where}: expected an object")
    index = integer(0, 1 << 200)(data.get("index"), f"{where}.index")
    code_hash = optional(text())(data.get("code_hash"), f"{where}.code_hash")
    for i, entity in enumerate(_CONFIG(data.get("entity"), f"{where}.entity")):
        if not isinstance(entity, list) or len(entity) != 3 or entity[1] not in ENTITIES:
            raise MalformedDataError(f"{where}.entity[{i}]: expected [name, kind, value] with a kind of sp, re, an, ot")
        if entity[1] in ("sp", "re"):
            list_of(integer(), 64)(entity[2], f"{where}.entity[{i}]")
        elif entity[1] == "an":
            list_of(anything, 64)(entity[2], f"{where}.entity[{i}]")
    return ConfigEntity.from_json_dict({"index": index, "code_hash": code_hash, "entity": data["entity"]})


def _made(
    target: str, name: Any, args: Sequence[int | str], kwargs: Any, config: ConfigEntity, result: Any
) -> tuple[Any, Any]:
    task = Task(text()(name, "input[1]"), _tuples(args))
    task.kwargs = dict(kwargs or {})
    where = Target(text()(target, "input[0]"))
    task.target = where
    costs = [float(number(c, "result[0]")) for c in result[0]]
    made = MeasureResult(tuple(costs), int(result[1]), float(result[2]), float(result[3]))
    config.cost = float(np.mean(costs)) if costs else None
    return MeasureInput(where, task, config), made


def decode(row: str, protocol: str = "json") -> tuple[Any, Any] | None:
    """The input and result of a line; None for one of version 0.1.

    Raises MalformedDataError for what is no such line, RuntimeError for an unknown protocol.
    """
    if protocol == "json":
        data = parse_json(row, "a log line")
        if not isinstance(data, dict):
            raise MalformedDataError("a log line: expected an object")
        if "v" in data or data.get("version", 0.2) == 0.1:
            _warn_about_old()
            return None
        with malformed("a log line"):
            target, name, args, kwargs = data["input"]
            return _made(target, name, args, kwargs, _config(data["config"], "config"), data["result"])
    if protocol == "pickle":
        with malformed("a log line"):
            fields = row.rstrip("\n").split("\t")
            if len(fields) != 6:
                raise MalformedDataError(f"a log line: expected 6 fields separated by tabs, found {len(fields)}")
            task, config, result = (_unpickled(f) for f in fields[1:4])
            if isinstance(config, dict):
                config = _config(json.loads(json.dumps(_plain(config))), "config")
            elif not isinstance(config, ConfigEntity):
                raise MalformedDataError("config: expected a configuration")
            return _made(fields[0], task[0], task[1], task[2], _config(_plain(config.to_json_dict()), "config"), result)
    raise RuntimeError(f"Invalid log protocol: {protocol}")


def _warn_about_old() -> None:
    global _OLD_WARNING
    if _OLD_WARNING:
        _OLD_WARNING = False
        _log.warning("AutoTVM log version 0.1 is no longer supported: its records are left out")


class _Reader(pickle.Unpickler):
    """Plain values and configurations; everything else that a pickle may ask for is refused."""

    def find_class(self, module: str, name: str) -> object:
        if module.split(".")[0] in ("tvm", "relaxish") and ".autotvm." in f"{module}.":
            known: dict[str, Any] = {c.__name__: c for c in ENTITIES.values()}
            known["ConfigEntity"] = _Config
            if name in known:
                return known[name]
        if (module, name) in (("collections", "OrderedDict"), ("builtins", "range")):
            return {"OrderedDict": OrderedDict, "range": range}[name]
        if (module, name) == ("copyreg", "_reconstructor"):
            return _reconstruct
        if (module, name) == ("builtins", "object"):
            return object
        raise MalformedDataError(f"a log line: a pickle that asks for {module}.{name} is not read")

    def persistent_load(self, pid: Any) -> object:
        raise MalformedDataError("a log line: a pickle with outside references is not read")


class _Config(ConfigEntity):
    """A configuration whose fields come from a file."""

    def __new__(cls, *args: Any) -> _Config:
        return object.__new__(cls)

    def __init__(self, *args: Any) -> None:
        super().__init__(0, None, {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__init__(state["index"], state.get("code_hash"), _entities(state["_entity_map"]))


def _entities(found: Mapping[str, Entity]) -> dict[str, Entity]:
    return {str(k): v for k, v in dict(found).items() if isinstance(v, Entity)}


def _reconstruct(cls: Any, base: Any, state: Any) -> object:
    if not (isinstance(cls, type) and issubclass(cls, (Entity, _Config))) or base is not object:
        raise MalformedDataError("a log line: a pickle that builds other objects than configurations is not read")
    return object.__new__(cls)


def _unpickled(field: str) -> Any:
    data = base64.b64decode(field.encode(), validate=True)
    return _Reader(io.BytesIO(data)).load()


def load_from_buffer(file: Iterable[str]) -> Iterator[tuple[Any, Any]]:
    """The measurements of an open file (or any lines); lines that are damaged are skipped with a warning."""
    for row in file:
        line = row.strip("\n\r")
        if not line.strip() or line.startswith("#"):
            continue
        try:
            made = decode(line, "json" if line.lstrip().startswith("{") else "pickle")
        except Exception as error:  # a torn last line, another tool's output: not the other records' loss
            _log.warning("a line of the log is left out: %s", error)
            continue
        if made is not None:
            yield made


def load_from_file(filepath: str | os.PathLike[str]) -> Iterator[tuple[Any, Any]]:
    """The measurements of a log."""
    with Path(filepath).open(encoding="utf-8", errors="replace") as file:
        yield from load_from_buffer(file)


# ---- tools


def pick_best(in_file: str | os.PathLike[str], out_file: Any) -> None:
    """Write the fastest record of each kernel (by model and by each key of the target), in the order they came.

    ``out_file`` is a path or an open file; what a path already holds takes part.
    """
    records = list(load_from_file(in_file))
    path = Path(out_file) if isinstance(out_file, (str, os.PathLike)) else None
    if path is not None and path.is_file():
        records += list(load_from_file(path))
    best = ApplyHistoryBest(records)
    chosen = {id(res) for _, res in (*best.best_by_model.values(), *best.best_by_targetkey.values())}
    lines = [encode(inp, res) + "\n" for inp, res in records if id(res) in chosen]
    _log.debug("Extract %d best records from %s", len(lines), in_file)
    if path is None:
        out_file.writelines(lines)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    unfinished.write_text("".join(lines))
    unfinished.replace(path)


def split_workload(in_file: str | os.PathLike[str], clean: bool = True) -> list[Path]:
    """Write the records of each workload to a file of its own, ``<log>.000.wkl`` and so on; gives the files.

    ``clean`` leaves out repeated configurations, keeping the first of each.
    """
    groups: OrderedDict[str, list[tuple[Any, Any]]] = OrderedDict()
    for inp, res in load_from_file(in_file):
        groups.setdefault(measure_str_key(inp, False), []).append((inp, res))
    written = []
    for i, (key, rows) in enumerate(groups.items()):
        kept = list({measure_str_key(inp): (inp, res) for inp, res in reversed(rows)}.values())[::-1] if clean else rows
        path = Path(f"{os.fspath(in_file)}.{i:03d}.wkl")
        path.write_text("".join(encode(inp, res) + "\n" for inp, res in kept))
        written.append(path)
        print(f"Key: {key}\tValid: {len(kept)}\tDup: {len(rows) - len(kept)}")
    return written


def same_workload(task: Task, target: Target, inp: MeasureInput) -> bool:
    """Whether a measurement is one of a task."""
    return as_key(inp.task.workload) == as_key(task.workload) and target_text(inp.target) == target_text(target)


def _show(args: argparse.Namespace) -> None:
    for i, (inp, res) in enumerate(load_from_file(args.i)):
        if not args.begin <= i < args.end:
            continue
        print(inp.target, inp.task, inp.config, res)
        if args.ir or args.code:
            with inp.target:
                program = inp.task.program(inp.config)
            if args.ir:
                print(program.script())
            if args.code:
                from ..driver import build_tir

                print(build_tir(program, inp.target).get_source())


def main(argv: list[str] | None = None) -> int:
    """``python -m relaxish.autotvm.record --mode read|pick|split --i log``; the exit status."""
    parser = argparse.ArgumentParser(description="Read AutoTVM logs, pick their best records, or split them.")
    parser.add_argument("--mode", choices=["read", "pick", "split"], default="read")
    parser.add_argument("--i", required=True, help="input file")
    parser.add_argument("--o", default=None, help="output file")
    parser.add_argument("--begin", type=int, default=0, help="first record to show")
    parser.add_argument("--end", type=int, default=5, help="where to stop showing records")
    parser.add_argument("--ir", action="store_true", help="show the scheduled programs, too")
    parser.add_argument("--code", action="store_true", help="show the generated code, too")
    args = parser.parse_args(argv)
    if not Path(args.i).is_file():
        parser.error(f"there is no file {args.i}")
    began = time.time()
    if args.mode == "pick":
        pick_best(args.i, args.o or f"{args.i}.best.log")
    elif args.mode == "split":
        split_workload(args.i)
    else:
        _show(args)
    _log.debug("done in %.2f s", time.time() - began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
