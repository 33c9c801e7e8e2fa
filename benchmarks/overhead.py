"""Import time, VM call overhead, compile time and peak memory of ResNet-50.

    python benchmarks/overhead.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from typing import Any

import common

_IMPORT = "import time; s = time.perf_counter(); import relaxish; print(time.perf_counter() - s)"
_COMPILE = """
import resource, sys, time
sys.path.insert(0, {folder!r})
import models
model, x = models.make("resnet50")
import torch
program = torch.export.export(model, (x,))
start = time.perf_counter()
import relaxish
from relaxish.frontend.torch import from_exported_program
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
mod = from_exported_program(program, unwrap_unit_return_tuple=True)
vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm", exec_mode="compiled"), relaxish.cpu())
vm["main"](relaxish.nd.array(x.numpy()))
print(time.perf_counter() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def python(code: str, **env: str) -> str:
    """Run code in a fresh interpreter, which keeps its bytecode as an installed package does."""
    import os

    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **env}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    return done.stdout.strip().splitlines()[-1]


def call_overhead() -> float:
    """Seconds of one call of a model with one tiny kernel."""
    import numpy as np

    import relaxish
    from relaxish import op, relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(op.add(x, x)))
        builder.emit_func_output(out)
    vm = relaxish.VirtualMachine(relaxish.build(builder.get(), "llvm", exec_mode="compiled"), relaxish.cpu())
    run, data = vm["main"], relaxish.nd.array(np.ones(4, "float32"))
    for _ in range(2000):
        run(data)
    start = time.perf_counter()
    for _ in range(20000):
        run(data)
    return (time.perf_counter() - start) / 20000


def main() -> None:
    """Measure and save."""
    common.pin(1)
    rows: list[dict[str, Any]] = []
    imports = sorted(float(python(_IMPORT)) for _ in range(5))
    rows.append({"what": "import relaxish, s", "value": imports[2], "bar": 0.3})
    rows.append({"what": "VM call, us", "value": call_overhead() * 1e6, "bar": 5.0})
    from pathlib import Path

    code = _COMPILE.format(folder=str(Path(__file__).parent))
    with tempfile.TemporaryDirectory() as cache:
        folders = {"RELAXISH_CACHE_DIR": cache, "PYTHONPYCACHEPREFIX": cache + "/bytecode"}
        cold, *warm = (python(code, **folders).split() for _ in range(4))
    rows.append({"what": "ResNet-50 import + compile + first run, cold, s", "value": float(cold[0]), "bar": 20.0})
    rows.append({"what": "the same with the object cache, s", "value": sorted(float(w[0]) for w in warm)[1], "bar": 3.0})
    rows.append({"what": "peak memory over the model's own, MB", "value": float(cold[1]), "bar": 1500.0})
    common.save("overhead", rows)


if __name__ == "__main__":
    main()
