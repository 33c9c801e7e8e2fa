"""Import time and VM call overhead; compile time and memory are in ``compile.py``.

python benchmarks/overhead.py
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import common

_IMPORT = "import time; s = time.perf_counter(); import relaxish; print(time.perf_counter() - s)"


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
    common.save("overhead", rows)


if __name__ == "__main__":
    main()
