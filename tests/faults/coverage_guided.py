"""Inputs that grow with what they reach: atheris mutates bytes guided by coverage, where it is installed.

The readers are those of untrusted text: script, IR documents, traces, targets, manifests, array messages. Without atheris
the same readers get inputs of plain random mutation.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults.batches import run_cases
from faults.hostile_text import PROGRAMS, Module, sample_trace
from faults.mutation import damaged_bytes, mutated_text
from relaxish.ir import load_json, save_json
from relaxish.runtime import load_param_dict
from relaxish.runtime.exports.manifest import parse_manifest
from relaxish.script import from_source
from relaxish.support.errors import RelaxishError
from relaxish.target import Target
from relaxish.tir.schedule import Trace

_PATIENCE = 30
READERS: tuple[Callable[[bytes], Any], ...] = (
    lambda data: from_source(data.decode("utf8", "replace")),
    lambda data: load_json(data.decode("utf8", "replace")),
    lambda data: Trace.from_json(data.decode("utf8", "replace")),
    lambda data: Target(data.decode("utf8", "replace")),
    lambda data: parse_manifest("m.json", data),
    lambda data: load_param_dict(data),
)


def seeds() -> list[bytes]:
    """Good inputs; the first byte chooses the reader."""
    texts: list[tuple[int, str]] = [(0, text) for text in PROGRAMS]
    texts += [(0, Module["rows"].script()), (1, save_json(Module["rows"])), (2, json.dumps(sample_trace().as_json()))]
    texts += [(3, "cuda -arch=sm_80"), (3, json.dumps(Target("llvm -num-cores=2", host="llvm").export())), (3, "llvm")]
    texts += [(4, '{"format": "relaxish-executable", "version": 1, "files": {}, "programs": []}')]
    return [bytes([kind]) + text.encode() for kind, text in texts]


def read(data: bytes) -> str:
    """Give an input to its reader: "read" or "refused". Raises whatever else the reader raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            READERS[data[0] % len(READERS)](data[1:])
    except RelaxishError:
        return "refused"
    return "read"


def _plain(seed: int, number: int) -> tuple[str, str]:
    rng = random.Random(f"{seed} {number}")
    data = rng.choice(seeds())
    if rng.random() < 0.5:
        data = data[:1] + damaged_bytes(data[1:], rng)
    else:
        data = data[:1] + mutated_text(data[1:].decode(), rng).encode("utf8", "surrogatepass")
    try:
        return read(data), ""
    except BaseException as error:  # of any class but the package's own is a fault
        return "lost", f"{type(error).__name__}: {error}: {data!r}"[:4000]


def _guided(budget_s: float, seed: int) -> dict[str, int]:
    """Let atheris run in a process of its own, which ends at the first fault."""
    with tempfile.TemporaryDirectory() as place:
        for number, data in enumerate(seeds()):
            Path(place, f"seed{number}").write_bytes(data)
        options = [f"-max_total_time={max(1, int(budget_s))}", f"-seed={seed % (1 << 31) + 1}", f"-timeout={_PATIENCE}"]
        command = [sys.executable, __file__, *options, "-max_len=20000", f"-artifact_prefix={place}/fault-", place]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            command, cwd=place, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
            timeout=2 * budget_s + 120,
        )  # fmt: skip
        said = done.stderr.decode("utf8", "replace")
        runs = re.findall(r"Done (\d+) runs|^#(\d+)", said, re.MULTILINE)
        figures = {"tried": max([1, *(int(a or b) for a, b in runs)]), "guided": 1, "crashed": 0, "hung": 0}
        if done.returncode:
            figures["hung" if "timeout" in said else "crashed"] = 1
            faults = [path.read_bytes() for path in Path(place).glob("fault-*")]
            print(said[-3000:], faults, file=sys.stderr, flush=True)
        return figures


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Inputs ``tried``: ``read``, ``refused``, ``lost`` (an error of another class), ``crashed``, ``hung``."""
    if importlib.util.find_spec("atheris") is not None:
        return _guided(budget_s, seed)
    return run_cases(lambda number: _plain(seed, number), ("read", "refused", "lost"), budget_s, patience=_PATIENCE)


def main() -> None:
    """What the process of atheris runs; the arguments are libFuzzer's."""
    import atheris

    atheris.instrument_all()
    atheris.Setup(sys.argv, lambda data: read(data) if data else None)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
